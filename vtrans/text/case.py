"""Locale-aware case conversion, and sentence case for all-caps text."""

from __future__ import annotations

import regex

from vtrans.text.languages import base
from vtrans.text.vocabulary import Vocabulary

DOTLESS = ("az", "tr")  # languages that capitalise ı as I and i as İ (Unicode's SpecialCasing.txt)
LONGEST_ACRONYM = 4  # letters
NAME_RATIO = 3  # a word this many times as frequent with a capital is a name; sentences begin with a capital, too
_MKHEDRULI = {capital: capital - 0x1C90 + 0x10D0 for capital in range(0x1C90, 0x1CC0)}  # few fonts have Mtavruli
# A word, or an abbreviation such as U.S., and its ending, such as 's. Words next to digits (COVID-19) do not match.
# At the beginning of a sentence, `begin` matches the characters before the word.
WORD = regex.compile(
    r"(?P<begin>(?:\A|\p{STerm})[^\w\p{STerm}]*+)?(?<![\p{L}\p{M}\d])"
    r"(?P<word>(?:\p{L}\.){2,}|\p{L}[\p{L}\p{M}]*+)(?P<ending>(?:['\u2019]\p{L}+)*+)(?!-?\d)"
)
_SMALL = regex.compile(r"\p{Ll}|[\p{Lo}--\p{Latin}]", regex.V1)


def lower(text: str, language: str | None = None) -> str:
    """Returns a text in lower case, by the rules of its language. The length stays the same."""
    text = text.replace("I", "\u0131") if language and base(language) in DOTLESS else text
    return text.replace("\u0130", "i").lower()


def upper(text: str, language: str | None = None) -> str:
    """Returns a text in upper case, by the rules of its language."""
    text = text.replace("i", "\u0130") if language and base(language) in DOTLESS else text
    return text.upper().translate(_MKHEDRULI)


def capitalized(text: str, language: str | None = None) -> str:
    """Returns a text with an initial capital, by the rules of its language. The length stays the same."""
    if language and base(language) == "nl" and text.startswith("ij"):
        return "IJ" + text[2:]
    first = upper(text[:1], language).title()
    return (first if len(first) == 1 else text[:1]) + text[1:]


def in_capitals(text: str) -> bool:
    """Returns whether all letters of a text are capitals. Letters whose capital is several characters, such as ß, do
    not count. False for a text without capitals, or with letters of a script without case."""
    return text != text.lower() and not any(len(upper(small.group())) == 1 for small in _SMALL.finditer(text))


class SentenceCase:
    """Converts all-caps text to sentence case. Each word takes the form that the vocabulary encodes best: lowercase,
    capitalised or all caps. The text keeps its length. With `acronyms`, words of up to LONGEST_ACRONYM letters stay in
    capitals if most of their subwords are single letters, as in acronyms and rare words."""

    def __init__(self, vocab: Vocabulary, language: str | None, *, acronyms: bool = False) -> None:
        self._vocab, self._language, self._acronyms = vocab, language, acronyms

    def __call__(self, text: str) -> str:
        sentences: str = WORD.sub(self._written, text)
        return sentences

    def _written(self, match: regex.Match[str]) -> str:
        word = self._best(match["word"]) + lower(match["ending"], self._language)
        return word if match["begin"] is None else match["begin"] + capitalized(word, self._language)

    def _best(self, word: str) -> str:
        small = lower(word, self._language)
        name = capitalized(small, self._language)
        ids = self._vocab.encode_batch([word, name, small], tags=False)
        as_given, as_name, as_small = map(self._cost, ids)
        if len(word) > 1 and ids[0] != ids[2] and as_given <= min(as_name, as_small):
            return word
        best = min(ids[1:], key=len)
        if self._acronyms and 1 < len(word) <= LONGEST_ACRONYM:
            letters = sum(len(self._vocab.text_of(id).strip()) <= 1 for id in best)
            if 2 * letters > len(best):
                return word
        ratio = NAME_RATIO if len(word) > 1 else 1
        return name if (*as_name[:2], ratio * as_name[2]) < as_small else small

    def _cost(self, ids: list[int]) -> tuple[bool, int, int]:
        """Returns the sort key of a form; the smallest is best. It counts unknown characters first, then the number of
        subwords, then the id of a single subword, because frequent subwords have small ids."""
        return not all(map(self._vocab.is_subword, ids)), len(ids), ids[0] if len(ids) == 1 else 0
