"""First step, if there is a translation memory: looks lines up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from vtrans.data.matches import Known, Match
from vtrans.translate.steps.line import Line
from vtrans.translate.translation import Translation
from vtrans.translate.wording.phrases import NO_WORDING


class Remember:
    """Takes the translations of known lines from a memory, unless they have a prefix or constraints. Such lines bypass
    the model. `find` returns the fuzzy match for another line."""

    def __init__(self, known: Known | None, find: Callable[[str], Match | None] | None) -> None:
        self._known, self._find = known, find

    def __call__(self, lines: Sequence[Line]) -> None:
        for line in lines:
            asked = line.prefix or line.wording != NO_WORDING
            if self._known and not asked and (known := self._known(line.text)) is not None:
                line.model_input, line.counts.known = "", 1
                line.undo.append(partial(_known, known))
            elif self._find:
                line.match = self._find(line.text) if line.text.strip() else None


def _known(text: str, blank: Translation) -> Translation:
    return replace(blank.copied(text), match=1.0, alignment=blank.alignment)
