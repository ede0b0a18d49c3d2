"""Gives numbers that a model copied the marks of the target language, and corrects some German forms."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import regex

from vtrans.lines.line import Line, Stage
from vtrans.text.languages import Languages, base
from vtrans.text.number_words import SWAPPED_MARKS, swaps_marks
from vtrans.translate.translation import Translation
from vtrans.wording.german_forms import corrected

# Amounts of dollars, numbers with separators of thousands, and decimals that are no versions, as 3.11 may be.
_NUMBER = regex.compile(
    r"(?<![\w.,:/$])(?:\$\d++(?:[.,]\d++)*+(?!\w)|\d{1,3}(?:,\d{3})++(?:\.\d++)?+(?![\w:/]|[.,]\d)"
    r"|(?:0\.\d++|\d++\.\d{3,}+)(?![\w:/]|[.,]\d)|\d++\.\d++(?=\s?%|[kKMB]\b))"
)
_NO_CHARACTER = regex.compile(r"(?<!\S)\ufffd+\s|\ufffd")
"""What bytes are read as that spell no character."""


class LocalForms(Stage):
    """Changes numbers that the line has too, outside of protected text, if one language has decimal points and the
    other decimal commas. What is asked of a translation stays as it is."""

    def __init__(self, languages: Languages) -> None:
        self._swaps = swaps_marks(languages)
        self._in_german = [base(code) for code in languages] == ["en", "de"]

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if self._in_german or (self._swaps and any(map(str.isdigit, line.text))):
                protected = " ".join(line.seen.texts.values())
                numbers = {number for number in _NUMBER.findall(line.text) if number not in protected}
                line.translations = [self._changed(line, translation, numbers) for translation in line.translations]

    def _changed(self, line: Line, translation: Translation, numbers: Collection[str]) -> Translation:
        given = translation.text
        text = _NO_CHARACTER.sub("", given)
        if numbers:
            text = _NUMBER.sub(lambda n: _localized(n[0]) if n[0] in numbers else n[0], text)
        if self._in_german:
            text = corrected(line.text, text)
        if text == given or line.prefix or len(line.wording.unmet(text)) > len(line.wording.unmet(given)):
            return translation
        return translation.rewritten(text)


def _localized(number: str) -> str:
    localized = number.lstrip("$").translate(SWAPPED_MARKS)
    return localized if localized[0] == number[0] else f"{localized} $"
