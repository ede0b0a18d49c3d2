"""Uses a translation memory: known translations of lines, and those of similar lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from vtrans.lines.line import Kept, Line, Stage
from vtrans.text.lines import one_line
from vtrans.text.matches import Known, Match
from vtrans.translate.translation import NO_TRANSLATION
from vtrans.wording.phrases import NO_WORDING
from vtrans.wording.protect import Masked

KNOWN = Kept[str]()


class UseMemory(Stage):
    """Takes the translations of lines without prefix and constraints from a memory. The model does not see such
    lines."""

    def __init__(self, known: Known) -> None:
        self._known = known

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            asked = line.prefix or line.wording != NO_WORDING
            if not asked and (known := self._known(line.text)) is not None:
                KNOWN.put(line, known)
                line.seen = Masked.plain("")

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if (known := KNOWN.get(line)) is not None:
                text, (blank, *others) = one_line(known), line.translations
                words = None if blank.word_confidences is None else (1.0,) * len(text.split())
                best = replace(blank, text=text, match=1.0, word_confidences=words)
                none = replace(NO_TRANSLATION, alignment=blank.alignment)
                line.translations = [best, *[none] * len(others)]
                line.counts.known, line.counts.blank, line.counts.copied = 1, 0, 0


class UseMatches(Stage):
    """Finds the translations of similar lines, the fuzzy matches that the model is given."""

    def __init__(self, find: Callable[[str], Match | None]) -> None:
        self._find = find

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            line.match = self._find(line.text) if line.seen.text.strip() else None
