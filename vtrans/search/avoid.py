"""Phrases that a translation must not contain, however they are segmented into subwords.

A subword is forbidden if its bytes would complete a phrase. A phrase that begins with a word character matches only at
the beginning of a word, which may be longer than the phrase.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from vtrans.search.rules import Rule, Step
from vtrans.text.piece_table import is_byte
from vtrans.text.values import in_ascii
from vtrans.text.vocabulary import EOS_ID, Vocabulary
from vtrans.text.words import is_word

_OF_NUMBERS = re.compile(rb" ?[\d.,]+")
CHARACTER = 4  # maximum bytes per character


class VocabularyBytes:
    """The bytes of each subword of a vocabulary; finds the subwords that would complete a phrase."""

    def __init__(self, vocab: Vocabulary) -> None:
        self.bytes = [_spelled(vocab, i) if i > EOS_ID else b"" for i in range(len(vocab))]
        self._order = sorted((spelled, i) for i, spelled in enumerate(self.bytes) if spelled)
        self.rest = cache(self._rest)
        self.inside = cache(self._inside)

    @cached_property
    def with_digits(self) -> list[tuple[int, str]]:
        """The ids of subwords that contain digits, with their text in ASCII digits."""
        texts = ((i, in_ascii(spelled.decode(errors="replace"))) for i, spelled in enumerate(self.bytes))
        return [(i, text) for i, text in texts if any(map(str.isdigit, text))]

    @cached_property
    def of_numbers(self) -> tuple[int, ...]:
        """The ids of subwords that consist of digits, points and commas."""
        return tuple(i for i, spelled in enumerate(self.bytes) if _OF_NUMBERS.fullmatch(spelled))

    def _rest(self, rest: bytes) -> tuple[int, ...]:
        """Returns the ids of subwords that begin with these bytes."""
        first = place = bisect_left(self._order, (rest, 0))
        while place < len(self._order) and self._order[place][0].startswith(rest):
            place += 1
        return tuple(i for _, i in self._order[first:place])

    def _inside(self, phrase: str) -> tuple[int, ...]:
        """Returns the ids of subwords that contain the phrase after their first byte."""
        needle, anchored = phrase.encode(), is_word(phrase[0])
        subwords = []
        for spelled, i in self._order:
            at = spelled.find(needle, 1)
            while at > 0 and anchored and _ends_in_word(spelled[:at]):
                at = spelled.find(needle, at + 1)
            if at > 0:
                subwords.append(i)
        return tuple(subwords)

    def tail(self, tokens: Sequence[int], length: int) -> bytes:
        """Returns the last `length` bytes of the text of these tokens, or all if there are fewer."""
        parts, size = [], 0
        for token in reversed(tokens):
            if token < 0 or size >= length:
                break
            parts.append(self.bytes[token])
            size += len(parts[-1])
        return b"".join(reversed(parts))[-length:]

    def completing(self, phrase: str, tail: bytes) -> Iterator[int]:
        """Yields the subwords that would complete the phrase after a text that ends in `tail`. `tail` must hold at
        least the phrase's number of bytes plus one character, unless the text is shorter."""
        needle, anchored = phrase.encode(), is_word(phrase[0])
        yield from self.inside(phrase)
        for n in range(min(len(needle), len(tail) + 1)):
            before = len(tail) - n
            if tail.endswith(needle[:n]) and not (anchored and _ends_in_word(tail[:before])):
                yield from self.rest(needle[n:])


def _spelled(vocab: Vocabulary, id: int) -> bytes:
    text = vocab.text_of(id)
    return bytes([int(text[3:5], 16)]) if is_byte(text) else text.encode()


def _ends_in_word(text: bytes) -> bool:
    return bool(text) and is_word(text[-CHARACTER:].decode(errors="replace")[-1])


class ForbidNext(Rule):
    """A search rule that forbids subwords depending on the preceding tokens."""

    def apply(self, step: Step) -> None:
        for row, tokens in enumerate(step.prefix_nT.tolist()):
            ids = np.array([*self.forbidden(tokens)], dtype=np.int64)
            step.forbid(np.full_like(ids, row), ids)

    def forbidden(self, tokens: Sequence[int]) -> Iterable[int]:
        """Returns the ids of subwords to forbid after these tokens; -1 is padding."""
        raise NotImplementedError


@dataclass(frozen=True)
class Avoid(ForbidNext):
    """Forbids the subwords that would complete a phrase."""

    vocab_bytes: VocabularyBytes
    phrases: tuple[str, ...]

    def forbidden(self, tokens: Sequence[int]) -> Iterator[int]:
        tail = self.vocab_bytes.tail(tokens, max(len(phrase.encode()) for phrase in self.phrases) + CHARACTER)
        for phrase in self.phrases:
            yield from self.vocab_bytes.completing(phrase, tail)
