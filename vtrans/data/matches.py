"""Fuzzy matches: for each line, the translation of the most similar text in a memory, which the model reads before the
line.

A model trained with matches (`prepare-bpe --fuzzy`) edits them (Bulté and Tezcan 2019, "Neural Fuzzy Repair"; Xu et al.
2020). The similarity of two texts is 1 minus their word-level Levenshtein distance divided by the length of the longer
text. Case and punctuation are ignored.
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
"""The separator between a match and the line after it; no text is encoded with this subword."""

_CUT = LEAST_SIMILARITY - 1e-9  # tolerates rounding
_MOST = 2000  # maximum number of candidates compared with a text
_WORD = regex.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
_CHARACTERS = 0x110000

Kind = Literal["text", "xml", "sentence"]
"""The notation of a string: text, possibly with markup; XML; or a sentence, without tags or escapes."""
Match = tuple[str, float]
"""The translation of a similar line, with codes for protected text, and the similarity."""
Element = tuple[str, int]
"""A word, and its number of earlier occurrences in the text."""


class Known(Protocol):
    """A translation memory."""

    def __call__(self, text: str, kind: Kind = "sentence", *, sure: bool = False) -> str | None:
        """Returns the translation of a text, or None. With `sure`, returns None if there are several."""


class Matches:
    """Finds fuzzy matches among (text, translation) pairs. Thread-safe.

    Two texts of n and m words with a similarity of at least s = LEAST_SIMILARITY have at least k = s * max(n, m) words
    in common. At least one of these is among both the n - k + 1 rarest words of the first text and the m - k + 1 rarest
    of the second (prefix filtering, Chaudhuri et al. 2006), so an index of these words finds every match.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        check_package()
        pairs, self._lock = list(pairs), Lock()
        self._frequency = Counter(element for text, _ in pairs for element in _elements(_words(text)))
        self._letters: dict[str, str] = {}  # one character per word, because rapidfuzz is fastest on strings
        self._pairs: list[tuple[str, str]] = []
        self._numbers: dict[str, int] = {}  # pair numbers by text
        self._order: list[int] = []  # by pair, when it was last added
        self._additions = count()
        self._strings: list[str] = []
        self._sizes = array("q")
        self._having: defaultdict[Element, array[int]] = defaultdict(lambda: array("q"))
        for pair in pairs:
            self.add(*pair)

    def add(self, text: str, translation: str) -> None:
        """Adds a pair, replacing the pair of an equal text."""
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
        """Returns the best match of a text whose translation has no codes that the text lacks; None if there is none.
        With `other`, equal texts do not count."""
        codes = set(CODE.findall(text))
        with self._lock:
            for similarity, number in self._similar(_words(text)):
                source, translation = self._pairs[number]
                if codes.issuperset(CODE.findall(translation)) and not (other and source == text):
                    return translation, similarity
        return None

    def _similar(self, words: Sequence[str]) -> list[tuple[float, int]]:
        """Returns the similarities and numbers of similar texts, most similar first, then newest first."""
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
        """Returns the words to look up in the index."""
        ranked = sorted(_elements(words), key=lambda element: (self._frequency[element], element))
        return ranked[: len(words) - math.ceil(_CUT * len(words)) + 1]

    def _string(self, words: Sequence[str]) -> str:
        """Returns a string with one character per word, NUL for words that no text contains."""
        return "".join(self._letters.get(word, "\0") for word in words)


def check_package() -> None:
    """Raises InputError if rapidfuzz is not installed."""
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
