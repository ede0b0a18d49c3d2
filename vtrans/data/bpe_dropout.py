"""BPE-dropout (Provilkov et al. 2020): in each epoch, a pair is segmented into subwords again, and each merge is
dropped with some probability.

SentencePiece's own sampler is unsuitable. Version 0.2.3 gives equal segmentations for equal seeds only within one
process, so a resumed run could not repeat its draws. Unlike the paper, it also never reconsiders a dropped merge: at a
rate of 0.1, it makes lines 40% longer, this module 21%, and the paper 25%. Here, segmentations are a pure function of
(seed, epoch, shard). At a rate of 0, they equal SentencePiece's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import blake2b
from itertools import chain, count, pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from vtrans.text.vocabulary import Vocabulary

VARIANTS = 64  # segmentations per word; each occurrence picks one
KEPT = 1 << 19  # segmentations cached, of about 100 bytes each; others are drawn again, with the same result

NO_MERGE = 1 << 62  # the rank of two symbols that cannot merge


class Dropout:
    """Segments words with a BPE vocabulary, dropping merges with probability `rate`.

    Each word has VARIANTS segmentations, drawn by Algorithm 1 of the paper: in each step, every possible merge is
    dropped with that probability, and the best remaining merge is made, until none remains.
    """

    def __init__(self, vocabulary: Vocabulary, rate: float, seed: int) -> None:
        merges = vocabulary.merges()
        self.ids = {piece: id for piece, (id, _) in merges.items()}
        self.ranks = {piece: rank for piece, (_, rank) in merges.items()}
        self.pieces = [vocabulary.piece(i) for i in range(len(vocabulary))]
        # Pieces that are not the result of a merge are never segmented: special ids, bytes, user-defined symbols.
        self.whole = np.array([piece not in merges for piece in self.pieces])
        self.begins = self.whole | np.array([piece.startswith("\u2581") for piece in self.pieces])
        self.seed, self.threshold = seed, round(rate * 2**32)
        self.variants: dict[bytes, list[tuple[int, ...] | None]] = {}
        self.kept = 0

    def cut(
        self, flat: NDArray[np.int32], lengths: NDArray[np.int64], generator: torch.Generator
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Returns new segmentations of sentences, which are given and returned as concatenated ids and lengths."""
        ends, words = lengths.cumsum(), np.flatnonzero(self._begin(flat, lengths))
        picks = torch.randint(VARIANTS, (len(words),), generator=generator).tolist()
        raw, width = flat.tobytes(), flat.itemsize
        bounds = pairwise([*(words * width).tolist(), len(raw)])
        drawn = [self._variant(raw[start:end], pick) for (start, end), pick in zip(bounds, picks, strict=True)]
        new = np.fromiter(chain.from_iterable(drawn), np.int32)
        grown = np.zeros(len(flat) + 1, np.int64)  # the number of new ids up to each old position where a word ends
        grown[np.append(words[1:], len(flat))] = np.fromiter(map(len, drawn), np.int64, len(drawn)).cumsum()
        return new, np.diff(grown[ends], prepend=0)

    def words(self, flat: NDArray[np.int32], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the word number of each id, counted across all sentences. Words are segmented independently, so a
        word's number is the same in every segmentation."""
        return self._begin(flat, lengths).cumsum() - 1

    def _begin(self, flat: NDArray[np.int32], lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Returns which ids begin a word."""
        begins: NDArray[np.bool_] = self.begins[flat]
        begins[1:] |= self.whole[flat[:-1]]
        begins[lengths.cumsum() - lengths] = True
        return begins

    def _variant(self, word: bytes, pick: int) -> tuple[int, ...]:
        variants = self.variants.get(word)
        if variants is None:
            variants = self.variants[word] = [None] * VARIANTS
        segmentation = variants[pick]
        if segmentation is None:
            if self.kept == KEPT:
                self.variants, self.kept = {}, 0
            segmentation = variants[pick] = self._draw(np.frombuffer(word, np.int32).tolist(), pick)
            self.kept += 1
        return segmentation

    def _draw(self, ids: list[int], pick: int) -> tuple[int, ...]:
        if len(ids) == 1 and self.whole[ids[0]]:
            return (ids[0],)
        text = "".join(self.pieces[i] for i in ids)
        numbers, ranks = self._numbers(text, pick), self.ranks
        symbols = list(text)
        possible = [ranks.get(a + b, NO_MERGE) for a, b in pairwise(symbols)]
        while True:
            # Equivalent to drawing for every merge first: draw for the best merge, then the next best, until one is
            # kept.
            left = possible
            while (best := min(left, default=NO_MERGE)) < NO_MERGE and next(numbers) < self.threshold:
                left = left.copy()
                left[left.index(best)] = NO_MERGE
            if best == NO_MERGE:
                return tuple(self.ids[symbol] for symbol in symbols)
            place = left.index(best)
            symbol = symbols[place] = symbols[place] + symbols.pop(place + 1)
            del possible[place]
            if place > 0:
                possible[place - 1] = ranks.get(symbols[place - 1] + symbol, NO_MERGE)
            if place < len(possible):
                possible[place] = ranks.get(symbol + symbols[place + 1], NO_MERGE)

    def _numbers(self, text: str, pick: int) -> Iterator[int]:
        """Yields random numbers below 2 ** 32. Never ends."""
        for block in count():
            yield from struct.unpack("<16I", blake2b(f"{self.seed}/{pick}/{block}/{text}".encode()).digest())
