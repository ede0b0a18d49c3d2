"""Phrases that a translation must not contain, in whatever subwords they would be written.

The bytes of the subwords spell the text, so a subword is impossible if its bytes would complete a phrase. A phrase that
begins with a word character is only looked for at the beginning of a word; it is then impossible as the beginning of a
longer word, too.

Legend: B sentences in the batch, K rows per sentence, n rows of a block, V vocabulary.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from vtrans.data.piece_table import is_byte
from vtrans.data.vocabulary import EOS_ID, Vocabulary
from vtrans.search.loop import Block, Decoder, columns_of, logprobs_of
from vtrans.wording.phrases import is_word

CHARACTER = 4  # the most bytes of a character


class Spelling:
    """What each subword of a vocabulary spells, and which ones would complete a phrase."""

    def __init__(self, vocab: Vocabulary) -> None:
        self.bytes = [_spelled(vocab, i) if i > EOS_ID else b"" for i in range(len(vocab))]
        self._order = sorted((spelled, i) for i, spelled in enumerate(self.bytes) if spelled)
        self.rest = cache(self._rest)
        self.inside = cache(self._inside)

    def _rest(self, rest: bytes) -> tuple[int, ...]:
        """Returns the subwords that begin with these bytes."""
        place, found = bisect_left(self._order, (rest, 0)), []
        while place < len(self._order) and self._order[place][0].startswith(rest):
            found.append(self._order[place][1])
            place += 1
        return tuple(found)

    def _inside(self, phrase: str) -> tuple[int, ...]:
        """Returns the subwords in which the phrase occurs after their first byte."""
        needle, anchored = phrase.encode(), is_word(phrase[0])
        found = []
        for spelled, i in self._order:
            at = spelled.find(needle, 1)
            while at > 0 and anchored and _ends_in_word(spelled[:at]):
                at = spelled.find(needle, at + 1)
            if at > 0:
                found.append(i)
        return tuple(found)

    def completing(self, phrase: str, tail: bytes) -> Iterator[int]:
        """Yields the subwords that would complete the phrase after a text that ends in `tail`, which must have
        the bytes of the phrase and of a character before it, unless the text is shorter."""
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


@dataclass
class AvoidingState:
    inner: Any
    avoid: list[tuple[str, ...]]  # per sentence
    tails: list[list[bytes]]  # per sentence, the end of each row's text


class Avoiding:
    """A decoder for which phrases are impossible. `avoid` yields those of each sentence, in the order in which the
    search starts sentences."""

    def __init__(self, decoder: Decoder[Any], spelling: Spelling, avoid: Iterable[tuple[str, ...]]) -> None:
        self.decoder, self.spelling = decoder, spelling
        self._avoid = iter(avoid)

    def start(self, sources: Sequence[Sequence[int]], width: int) -> AvoidingState:
        avoid = [next(self._avoid) for _ in sources]
        return AvoidingState(self.decoder.start(sources, width), avoid, [[b""] * width for _ in sources])

    def step(self, state: AvoidingState, tokens_BK: Tensor, live_r: Tensor) -> Iterator[Block]:
        for b, tokens in enumerate(tokens_BK.tolist()):
            if state.avoid[b]:
                kept = max(len(phrase.encode()) for phrase in state.avoid[b]) + CHARACTER
                spelled = (self.spelling.bytes[token] for token in tokens)
                state.tails[b] = [(t + s)[-kept:] for t, s in zip(state.tails[b], spelled, strict=True)]
        return self._without(state, self.decoder.step(state.inner, tokens_BK, live_r), live_r.tolist())

    def _without(self, state: AvoidingState, blocks: Iterable[Block], rows: Sequence[int]) -> Iterator[Block]:
        K, done = len(state.tails[0]), 0
        for block in blocks:
            logprobs_nV = logprobs_of(block)
            at = [
                (n, token)
                for n, r in enumerate(rows[done : done + len(logprobs_nV)])
                for phrase in state.avoid[r // K]
                for token in self.spelling.completing(phrase, state.tails[r // K][r % K])
            ]
            if at:
                rows_x, columns_x, listed_x = columns_of(block, at)
                logprobs_nV[rows_x[listed_x], columns_x[listed_x]] = -torch.inf
            yield block
            done += len(logprobs_nV)

    def reorder(self, state: AvoidingState, parents_BK: Tensor) -> None:
        self.decoder.reorder(state.inner, parents_BK)
        for b, parents in enumerate(parents_BK.tolist()):
            if state.avoid[b]:
                state.tails[b] = [state.tails[b][k] for k in parents]

    def drop(self, state: AvoidingState, sentences: Sequence[int]) -> None:
        self.decoder.drop(state.inner, sentences)

    def admit(self, state: AvoidingState, sources: Sequence[Sequence[int]], places: Sequence[int]) -> None:
        self.decoder.admit(state.inner, sources, places)
        K, B = len(state.tails[0]), len(state.tails)
        added = len(sources) - len(places)
        state.avoid += [()] * added
        state.tails += [[] for _ in range(added)]
        for b in (*places, *range(B, B + added)):
            state.avoid[b], state.tails[b] = next(self._avoid), [b""] * K

    def select(self, state: AvoidingState, sentences: Sequence[int]) -> None:
        self.decoder.select(state.inner, sentences)
        state.avoid = [state.avoid[b] for b in sentences]
        state.tails = [state.tails[b] for b in sentences]
