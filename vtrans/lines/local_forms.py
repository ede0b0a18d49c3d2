"""Gives numbers that a model copied the marks of the target language, and German compounds their hyphens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import regex

from vtrans.lines.line import Line, Stage
from vtrans.text.languages import Languages
from vtrans.text.number_words import SWAPPED_MARKS, swaps_marks
from vtrans.wording.german_forms import hyphenated

# Numbers with separators of thousands, and shares. Others, such as 3.11, may be versions.
_NUMBER = regex.compile(r"(?<![\w.,:/])(?:\d{1,3}(?:,\d{3})++(?:\.\d++)?+(?![\w:/]|[.,]\d)|\d++\.\d++(?=\s?%))")


class LocalForms(Stage):
    """Changes numbers that the line has too, outside of protected text, if one language has decimal points and the
    other decimal commas."""

    def __init__(self, languages: Languages) -> None:
        self._swaps, self._in_german = swaps_marks(languages), languages == ("en", "de")

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if self._swaps and any(map(str.isdigit, line.text)):
                protected = " ".join(line.seen.texts.values())
                numbers = {number for number in _NUMBER.findall(line.text) if number not in protected}
                line.translations = [replace(t, text=_swapped(t.text, numbers)) for t in line.translations]
            if self._in_german:
                line.translations = [replace(t, text=hyphenated(line.text, t.text)) for t in line.translations]


def _swapped(text: str, numbers: Collection[str]) -> str:
    """Returns a text in which these numbers have the marks of the other language."""
    swapped: str = _NUMBER.sub(lambda n: n[0].translate(SWAPPED_MARKS) if n[0] in numbers else n[0], text)
    return swapped
