"""Locale-aware case conversion, and text in capitals as a vocabulary knows its words."""

from __future__ import annotations

import regex

from vtrans.text.languages import base
from vtrans.text.vocabulary import Vocabulary

DOTLESS = ("az", "tr")  # languages in which I is the capital of ı, and İ that of i (SpecialCasing.txt of Unicode)
LONGEST_ACRONYM = 4  # letters
NAME_RATIO = 3  # how much more frequent a word is with a capital if it is a name, and not only the first of a sentence
_MKHEDRULI = {capital: capital - 0x1C90 + 0x10D0 for capital in range(0x1C90, 0x1CC0)}  # few fonts have Mtavruli
# A word or an abbreviation such as U.S., not beside a digit as in COVID-19 or 5KG; its ending, such as 's; and what
# stands before it at the beginning of a sentence.
WORD = regex.compile(
    r"(?P<begin>(?:\A|\p{STerm})[^\w\p{STerm}]*+)?(?<![\p{L}\p{M}\d])"
    r"(?P<word>(?:\p{L}\.){2,}|\p{L}[\p{L}\p{M}]*+)(?P<ending>(?:['\u2019]\p{L}+)*+)(?!-?\d)"
)
_SMALL = regex.compile(r"\p{Ll}|[\p{Lo}--\p{Latin}]", regex.V1)


def lower(text: str, language: str | None = None) -> str:
    """Returns a text of this language in lower case. It has the same length."""
    text = text.replace("I", "\u0131") if language and base(language) in DOTLESS else text
    return text.replace("\u0130", "i").lower()


def upper(text: str, language: str | None = None) -> str:
    """Returns a text of this language in capitals."""
    text = text.replace("i", "\u0130") if language and base(language) in DOTLESS else text
    return text.upper().translate(_MKHEDRULI)


def capitalized(text: str, language: str | None = None) -> str:
    """Returns a text of this language with a capital at its beginning. It has the same length."""
    if language and base(language) == "nl" and text.startswith("ij"):
        return "IJ" + text[2:]
    first = upper(text[:1], language).title()
    return (first if len(first) == 1 else text[:1]) + text[1:]


def in_capitals(text: str) -> bool:
    """Returns whether all letters of a text are capitals. Letters without a capital of their own, such as ß, do not
    count. A text with letters of a script without case is not in capitals."""
    return text != text.lower() and not any(len(upper(small.group())) == 1 for small in _SMALL.finditer(text))


class SentenceCase:
    """Writes text in capitals as sentences of this language, each word in the form that the vocabulary knows best: in
    lower case, with an initial capital, or in capitals. The text keeps its length. With `acronyms`, short words stay in
    capitals if most of their subwords are single letters: they are rare words, or acronyms."""

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
        if self._acronyms and 1 < len(word) <= LONGEST_ACRONYM and 2 * sum(map(self._is_letter, best)) > len(best):
            return word
        ratio = NAME_RATIO if len(word) > 1 else 1
        return name if (*as_name[:2], ratio * as_name[2]) < as_small else small

    def _is_letter(self, id: int) -> bool:
        return len(self._vocab.text_of(id).strip()) <= 1

    def _cost(self, ids: list[int]) -> tuple[bool, int, int]:
        """Returns less for a form that is known better: it has no unknown characters, fewer subwords, and, if it is a
        single subword, a smaller id, as those of frequent subwords are."""
        return not all(map(self._vocab.is_subword, ids)), len(ids), ids[0] if len(ids) == 1 else 0
