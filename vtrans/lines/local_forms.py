"""Gives numbers that a model copied the marks of the target language, and corrects some German forms."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import regex

from vtrans.lines.line import Line, Stage
from vtrans.text.languages import Languages, base
from vtrans.text.number_words import SWAPPED_MARKS, swaps_marks
from vtrans.translate.translation import Translation
from vtrans.wording.german_forms import corrected

# Numbers with separators of thousands, and shares. Others, such as 3.11, may be versions.
_NUMBER = regex.compile(r"(?<![\w.,:/])(?:\d{1,3}(?:,\d{3})++(?:\.\d++)?+(?![\w:/]|[.,]\d)|\d++\.\d++(?=\s?%))")


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
        given = text = translation.text
        if numbers:
            text = _NUMBER.sub(lambda n: n[0].translate(SWAPPED_MARKS) if n[0] in numbers else n[0], text)
        if self._in_german:
            text = corrected(line.text, text)
        if text == given or line.prefix or len(line.wording.unmet(text)) > len(line.wording.unmet(given)):
            return translation
        places = list(_places(given.split(), text.split()))
        links, words = translation.alignment, translation.word_confidences
        if links is not None:
            links = tuple(sorted({(i, places[j]) for i, j in links}))
        if words is not None:
            words = tuple(min(w for w, at in zip(words, places, strict=True) if at == k) for k in range(places[-1] + 1))
        return replace(translation, text=text, alignment=links, word_confidences=words)


def _places(given: Sequence[str], words: Sequence[str]) -> Iterator[int]:
    """Yields for each given word which of the words it is, or is joined to by a hyphen."""
    place, rest = -1, 0
    for word in given:
        if rest <= 0:
            place += 1
            rest = len(words[place])
        yield place
        rest -= len(word) + 1
