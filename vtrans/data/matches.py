"""Fuzzy matches: the most similar text of a translation memory, whose translation a model is given beside a line.

A model that is trained with such matches (`prepare-bpe --fuzzy`) corrects them (Bulté and Tezcan 2019, "Neural Fuzzy
Repair"; Xu et al. 2020). The similarity of two texts is 1 less the Levenshtein distance of their words, as a share of
the longer text. Neither case nor punctuation matters.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import count
from threading import Lock
from typing import Literal, Protocol

import numpy as np
import regex

from vtrans.system.errors import need_packages
from vtrans.text.languages import UNSPACED
from vtrans.text.vocabulary import BOS_ID
from vtrans.text.words import CODE

LEAST_SIMILARITY = 0.6
"""Minimum similarity of a match."""
SEPARATOR_ID = BOS_ID
"""The separator between a match and the line after it; no text is encoded as this subword."""

_CUT = LEAST_SIMILARITY - 1e-9  # the same in spite of rounding
_MOST = 2000  # candidates that are compared with a text
_WORD = regex.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
_CHARACTERS = 0x110000

Kind = Literal["text", "xml", "android", "sentence"]
"""How a string is written in its file: as text, perhaps with markup, as XML, or as Android's XML with its escapes. A
sentence has neither tags nor escapes."""
Match = tuple[str, float]
"""The translation of a similar line, with codes for protected text, and the similarity."""
Element = tuple[str, int]
"""A word, and how often the text has it before."""


class Known(Protocol):
    """A memory of translations."""

    def __call__(self, text: str, kind: Kind = "sentence", *, sure: bool = False) -> str | None:
        """Returns the translation of a text, or None. With `sure`, it must be the only one."""


class Matches:
    """Finds fuzzy matches among pairs of a text and its translation. Several threads may use it.

    Two texts of n and m words whose similarity is at least s = LEAST_SIMILARITY have at least k = s * max(n, m) words
    in common. One of these is among the n - k + 1 rarest words of the first text and the m - k + 1 rarest of the second
    (prefix filtering, Chaudhuri et al. 2006), so an index of these words finds every match.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        check_package()
        pairs, self._lock = list(pairs), Lock()
        self._frequency = Counter(element for text, _ in pairs for element in _elements(_words(text)))
        self._letters: dict[str, str] = {}  # a character for each word: rapidfuzz compares strings fastest
        self._pairs: list[tuple[str, str]] = []
        self._numbers: dict[str, int] = {}  # of the pairs, by text
        self._order: list[int] = []  # of a pair: how many additions came before its last one
        self._additions = count()
        self._strings: list[str] = []
        self._sizes = array("q")
        self._having: defaultdict[Element, array[int]] = defaultdict(lambda: array("q"))
        for pair in pairs:
            self.add(*pair)

    def add(self, text: str, translation: str) -> None:
        """Adds a pair, or replaces the pair of an equal text."""
        words = _words(text)
        with self._lock:
            number = self._numbers.setdefault(text, len(self._pairs))
            if number < len(self._pairs):
                self._pairs[number], self._order[number] = (text, translation), next(self._additions)
                return
            for element in self._rarest(words):
                self._having[element].append(number)
            for word in words:
                self._letters.setdefault(word, chr(1 + len(self._letters) % (_CHARACTERS - 1)))
            self._strings.append(self._string(words))
            self._sizes.append(len(words))
            self._pairs.append((text, translation))
            self._order.append(next(self._additions))

    def best(self, text: str, *, other: bool = False) -> Match | None:
        """Returns the match of a text, whose translation has no codes that the text lacks; None if there is none. With
        `other`, it is not that of an equal text."""
        codes = set(CODE.findall(text))
        with self._lock:
            for similarity, number in self._similar(_words(text)):
                source, translation = self._pairs[number]
                if codes.issuperset(CODE.findall(translation)) and not (other and source == text):
                    return translation, similarity
        return None

    def _similar(self, words: Sequence[str]) -> list[tuple[float, int]]:
        """Returns the similarities and numbers of similar texts, the most similar and last ones first."""
        from rapidfuzz import process
        from rapidfuzz.distance import Levenshtein

        having = [self._having[element] for element in self._rarest(words) if element in self._having]
        if not having:
            return []
        candidates = np.concatenate([np.frombuffer(some, np.int64) for some in having])
        numbers, shared = np.unique(candidates, return_counts=True)
        sizes = np.frombuffer(self._sizes, np.int64)[numbers]
        fits = (sizes * _CUT <= len(words)) & (len(words) * _CUT <= sizes)
        most = np.argsort(-shared[fits], kind="stable")[:_MOST]
        strings = {number: self._strings[number] for number in numbers[fits][most].tolist()}
        scorer = Levenshtein.normalized_similarity
        least = LEAST_SIMILARITY - 0.01  # at the cutoff itself, the scorer rounds down
        scored = process.extract(self._string(words), strings, scorer=scorer, score_cutoff=least, limit=None)
        similar = [(score, number) for _, score, number in scored if score > _CUT]
        return sorted(similar, key=lambda found: (found[0], self._order[found[1]]), reverse=True)

    def _rarest(self, words: Sequence[str]) -> list[Element]:
        """Returns the words that the index is asked for."""
        ranked = sorted(_elements(words), key=lambda element: (self._frequency[element], element))
        return ranked[: len(words) - math.ceil(_CUT * len(words)) + 1]

    def _string(self, words: Sequence[str]) -> str:
        """Returns a string with a character for each word, NUL for words that no text has."""
        return "".join(self._letters.get(word, "\0") for word in words)


def check_package() -> None:
    """Raises InputError if the package that compares texts is missing."""
    need_packages("fuzzy matches need the package rapidfuzz", "documents", "rapidfuzz")


def _words(text: str) -> list[str]:
    return list(_WORD.findall(text.casefold()))


def _elements(words: Sequence[str]) -> list[Element]:
    before: Counter[str] = Counter()
    elements = []
    for word in words:
        elements.append((word, before[word]))
        before[word] += 1
    return elements
