"""What translations must contain: checks the constraints of lines, and replaces protected text by codes before the
search, and codes by the text after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from vtrans.lines.line import MOST_PHRASES, Line, Stage
from vtrans.text.lines import one_line
from vtrans.translate.translation import Translation
from vtrans.wording.phrases import NO_WORDING, wording_of
from vtrans.wording.protect import Masked, Protection, masked


class CheckConstraints(Stage):
    """Counts the lines whose best translation does not obey their constraints, and warns of them."""

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if line.constraints:
                line.wording = wording_of(line.constraints, line.text, line.number)

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if line.wording != NO_WORDING and (unmet := line.wording.unmet(line.translations[0].text)):
                line.counts.unmet = 1
                line.warnings.append(f"line {line.number}: its translation does not obey the constraint {unmet[0]!r}")


class ProtectText(Stage):
    """Protects the text that matches patterns."""

    def __init__(self, protection: Protection) -> None:
        self._protection = protection

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            line.protected = list(self._protection.spans(line.seen.text))


class WriteCodes(Stage):
    """Replaces protected text by codes. With `required`, the search keeps them."""

    def __init__(self, *, required: bool) -> None:
        self._required = required

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if line.protected:
                line.seen = masked(line.seen.text, line.protected)
                if self._required:
                    codes = dict(islice(line.seen.counts().items(), MOST_PHRASES))
                    line.wording = replace(line.wording, codes=codes)

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if line.seen.texts:
                restore = _restored if line.model_text else _copied
                line.translations = [restore(line.seen, translation) for translation in line.translations]


def _copied(line: Masked, translation: Translation) -> Translation:
    """Returns the line itself as its translation. Each word is linked to itself."""
    count = len(line.text.split())
    links = None if translation.alignment is None else tuple((i, i) for i in range(count))
    words = None if translation.word_confidences is None else (1.0,) * count
    return replace(translation, text=one_line(line.text), alignment=links, word_confidences=words)


def _restored(line: Masked, translation: Translation) -> Translation:
    """Returns a translation with the protected text. Its subwords stay those of the search."""
    restored = line.restored(translation.text)
    links, words = translation.alignment, translation.word_confidences
    if links is not None:
        # A code is linked to itself: the model's attention says less.
        src_codes, tgt_codes = line.code_words(), restored.code_words()
        src_taken = {i for code in src_codes for i in src_codes[code]}
        tgt_taken = {j for code in tgt_codes for j in tgt_codes[code]}
        links = tuple((i, j) for i, j in links if i not in src_taken and j not in tgt_taken)
        for code in tgt_codes:
            links += tuple(zip(src_codes[code], tgt_codes[code], strict=False))  # it may occur too often or be missing
        src, tgt = line.words(), restored.words()
        links = tuple(sorted({(src[i], tgt[j]) for i, j in links}))
    if words is not None:
        least = [1.0] * len(restored.text.split())
        for word, confidence in zip(restored.words(), words, strict=False):
            least[word] = min(least[word], confidence)
        words = tuple(least)
    return replace(translation, text=one_line(restored.text), alignment=links, word_confidences=words)
