"""Fuzzy matches: the most similar text of a translation memory, whose translation a model is given beside a line.

A model that is trained with such matches (`prepare-bpe --fuzzy`) corrects them (Bulté and Tezcan 2019, "Neural Fuzzy
Repair"; Xu et al. 2020). The similarity of two texts is 1 less the Levenshtein distance of their words, as a share of
the longer text. Neither case nor punctuation matters.
"""

from __future__ import annotations

import importlib.util
import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol

import numpy as np
import regex

from vtrans.data.vocabulary import BOS_ID
from vtrans.errors import missing_extra

LEAST = 0.6
"""The least similarity of a match."""
SEPARATOR_ID = BOS_ID
"""What separates a match from the line after it; no text is encoded as this subword."""

_CUT = LEAST - 1e-9  # the same in spite of rounding
_MOST = 2000  # candidates that are compared with a text
_SCRIPTS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"  # without spaces between words
_WORD = regex.compile(rf"[{_SCRIPTS}]|[^\W{_SCRIPTS}]+")
_CODE = regex.compile(r"[A-Z]\d{1,5}")  # of protected text
_CHARACTERS = 0x110000

Kind = Literal["text", "xml", "sentence"]
"""How a string is written in its file: as text, perhaps with markup, or as XML. A sentence has neither tags nor
escapes."""
Match = tuple[str, float]
"""The translation of a similar line, with codes for protected text, and the similarity."""
Element = tuple[str, int]
"""A word, and how often the text has it before."""


class Known(Protocol):
    """A memory of translations."""

    def __call__(self, text: str, kind: Kind = "sentence", *, sure: bool = False) -> str | None:
        """Returns the translation of a text, or None. With `sure`, it must be the only one."""


class SimilarTexts:
    """Texts among which similar ones are found.

    Two texts of n and m words whose similarity is at least LEAST have at least k = LEAST * max(n, m) words in common.
    One of these is among the n - k + 1 rarest words of the first text and the m - k + 1 rarest of the second (prefix
    filtering, Chaudhuri et al. 2006), so an index of these words finds every match.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        check_package()
        divided = [_words(text) for text in texts]
        self._frequency = Counter(element for words in divided for element in _elements(words))
        self._letters: dict[str, str] = {}  # a character for each word: rapidfuzz compares strings fastest
        self._texts: list[str] = []
        self._sizes = array("q")
        self._having: defaultdict[Element, array[int]] = defaultdict(lambda: array("q"))
        for words in divided:
            self._add(words)

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, text: str) -> None:
        """Adds a text, whose number is that of the texts before it."""
        self._add(_words(text))

    def best(self, text: str, allowed: Callable[[int], bool] = lambda number: True) -> tuple[int, float] | None:
        """Returns the number of the most similar allowed text, the first of several, and its similarity. Returns None
        if none is similar."""
        from rapidfuzz import process
        from rapidfuzz.distance import Levenshtein

        words = _words(text)
        having = [self._having[element] for element in self._rarest(words) if element in self._having]
        if not having:
            return None
        numbers, shared = np.unique(
            np.concatenate([np.frombuffer(some, np.int64) for some in having]), return_counts=True
        )
        sizes = np.frombuffer(self._sizes, np.int64)[numbers]
        fits = (sizes * _CUT <= len(words)) & (len(words) * _CUT <= sizes)
        numbers, shared = numbers[fits], shared[fits]
        chosen = numbers[np.argsort(-shared, kind="stable")[:_MOST]].tolist()
        texts = {number: self._texts[number] for number in chosen}
        string = self._string(words, add=False)
        scored = process.extract(
            string, texts, scorer=Levenshtein.normalized_similarity, score_cutoff=LEAST - 0.01, limit=None
        )
        # At the cutoff itself, rapidfuzz rounds down.
        ranked = sorted((-similarity, number) for _, similarity, number in scored if similarity > _CUT)
        return next(((number, -similarity) for similarity, number in ranked if allowed(number)), None)

    def _add(self, words: Sequence[str]) -> None:
        for element in self._rarest(words):
            self._having[element].append(len(self._texts))
        self._texts.append(self._string(words))
        self._sizes.append(len(words))

    def _rarest(self, words: Sequence[str]) -> list[Element]:
        """Returns the words that the index is asked for."""
        ranked = sorted(_elements(words), key=lambda element: (self._frequency[element], element))
        return ranked[: len(words) - math.ceil(_CUT * len(words)) + 1]

    def _string(self, words: Sequence[str], add: bool = True) -> str:
        """Returns a string with a character for each word. Words that no text has are NUL, if they are not added."""
        letters = self._letters
        if add:
            for word in words:
                letters.setdefault(word, chr(1 + len(letters) % (_CHARACTERS - 1)))
        return "".join(letters.get(word, "\0") for word in words)


def check_package() -> None:
    """Raises InputError if the package that compares texts is missing."""
    if importlib.util.find_spec("rapidfuzz") is None:
        raise missing_extra("fuzzy matches need the package rapidfuzz", "documents")


def codes_of(text: str) -> set[str]:
    """Returns what may be codes for protected text, such as `A1`. A match must not bring one that the line lacks."""
    return set(_CODE.findall(text))


def _words(text: str) -> list[str]:
    return list(_WORD.findall(text.casefold()))


def _elements(words: Sequence[str]) -> list[Element]:
    before: Counter[str] = Counter()
    elements = []
    for word in words:
        elements.append((word, before[word]))
        before[word] += 1
    return elements
