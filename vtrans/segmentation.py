"""BPE-dropout (Provilkov et al. 2020): each time that a pair is seen, its two sides are cut into subwords anew,
and any merge is left out now and then.

SentencePiece has a sampler for it, but a resumed run could not repeat what it draws: version 0.2.3 gives equal
segmentations for equal seeds within one process only. Nor does it offer a merge again that it has left out, as the
paper does, so that lines grow by 40% at a rate of 0.1, here by 21% (the paper: 25%). So the merges are made here,
as a pure function of (seed, epoch, shard); with a rate of 0 they are SentencePiece's.

What is drawn is longer than what is stored, some of it more than the rest. Batches planned by the stored lengths
were 30% padding (Multi30k, rate 0.1), and half over their budget; so a window of shards is drawn first, and planned
by what came out: 3 to 6%.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from contextlib import closing
from hashlib import blake2b
from itertools import chain, count, islice, pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vtrans.batching import Mixture, ahead, derived_seed
from vtrans.store import TokenStore
from vtrans.vocab import Vocabulary

SHARD = 1024  # pairs drawn at a time
WINDOW = 64  # shards that are planned together; as many are drawn ahead
VARIANTS = 64  # of a word: each time that it is seen, one of these is picked
KEPT = 1 << 19  # variants kept in memory, some 100 bytes each; they are a pure function, and can be made again

NEVER = 1 << 62  # the rank of a merge that is none

# Of both sides: the ids of its sentences one after the other, int32, and the length of each sentence.
Shard = tuple[tuple[Tensor, Tensor], ...]


class Dropout:
    """Cuts words of a BPE vocabulary into subwords, leaving out merges with probability `rate`.

    Each word has VARIANTS ways to be cut, drawn as the paper's Algorithm 1 has it: at every step each merge
    that is possible is left out with that probability, and the best of the others is made, until none is.
    """

    def __init__(self, vocabulary: Vocabulary, rate: float, seed: int) -> None:
        merges = vocabulary.merges()
        self.ids = {piece: id for piece, (id, _) in merges.items()}
        self.ranks = {piece: rank for piece, (_, rank) in merges.items()}
        self.pieces = [vocabulary.piece(i) for i in range(len(vocabulary))]
        # What no merge can make is not cut: special ids, bytes, symbols of the user's.
        self.whole = np.array([piece not in merges for piece in self.pieces])
        self.begins = self.whole | np.array([piece.startswith("\u2581") for piece in self.pieces])
        self.seed, self.threshold = seed, round(rate * 2**32)
        self.variants: dict[bytes, list[tuple[int, ...] | None]] = {}
        self.kept = 0

    def cut(self, ids: Tensor, lengths: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Other subwords for sentences, given as ids one after the other and lengths, and returned likewise."""
        flat = ids.numpy().astype(np.int32)
        begins = self.begins[flat]
        begins[1:] |= self.whole[flat[:-1]]
        ends = lengths.cumsum(0)
        begins[(ends - lengths).numpy()] = True
        words = np.flatnonzero(begins)
        picks = torch.randint(VARIANTS, (len(words),), generator=generator).tolist()
        raw, width = flat.tobytes(), flat.itemsize
        bounds = pairwise([*(words * width).tolist(), len(raw)])
        drawn = [self._variant(raw[start:end], pick) for (start, end), pick in zip(bounds, picks, strict=True)]
        new = np.fromiter(chain.from_iterable(drawn), np.int32)
        grown = np.zeros(len(flat) + 1, np.int64)  # ids before each of the old places, where a word ends there
        grown[np.append(words[1:], len(flat))] = np.fromiter(map(len, drawn), np.int64, len(drawn)).cumsum()
        return torch.from_numpy(new), torch.from_numpy(np.diff(grown[ends.numpy()], prepend=0))

    def _variant(self, word: bytes, pick: int) -> tuple[int, ...]:
        variants = self.variants.get(word)
        if variants is None:
            variants = self.variants[word] = [None] * VARIANTS
        found = variants[pick]
        if found is None:
            if self.kept == KEPT:
                self.variants, self.kept = {}, 0
            found = variants[pick] = self._draw(np.frombuffer(word, np.int32).tolist(), pick)
            self.kept += 1
        return found

    def _draw(self, ids: list[int], pick: int) -> tuple[int, ...]:
        if len(ids) == 1 and self.whole[ids[0]]:
            return (ids[0],)
        text = "".join(self.pieces[i] for i in ids)
        numbers, ranks = self._numbers(text, pick), self.ranks
        symbols = list(text)
        possible = [ranks.get(a + b, NEVER) for a, b in pairwise(symbols)]
        while True:
            # To draw for each of them and take the best that is left, is to draw for the best first.
            left = possible
            while (best := min(left, default=NEVER)) < NEVER and next(numbers) < self.threshold:
                left = left.copy()
                left[left.index(best)] = NEVER
            if best == NEVER:
                return tuple(self.ids[symbol] for symbol in symbols)
            place = left.index(best)
            symbol = symbols[place] = symbols[place] + symbols.pop(place + 1)
            del possible[place]
            if place > 0:
                possible[place - 1] = ranks.get(symbols[place - 1] + symbol, NEVER)
            if place < len(possible):
                possible[place] = ranks.get(symbol + symbols[place + 1], NEVER)

    def _numbers(self, text: str, pick: int) -> Iterator[int]:
        """Numbers below 2 ** 32 without end, at random."""
        for block in count():
            yield from struct.unpack("<16I", blake2b(f"{self.seed}/{pick}/{block}/{text}".encode()).digest())


class Segmentations:
    """Segmentations of a store's pairs, drawn epoch by epoch, merges being left out with probability `rate`.

    A pair of which a side would be longer than `longest` subwords keeps its stored segmentation.
    """

    def __init__(
        self,
        store: TokenStore,
        src_vocab: Vocabulary,
        tgt_vocab: Vocabulary,
        rate: float,
        seed: int,
        longest: int,
        mixture: Mixture | None = None,
    ) -> None:
        self.store, self.seed, self.longest = store, seed, longest
        self.mixture = mixture or Mixture([len(store)])
        src = Dropout(src_vocab, rate, seed)
        self.dropouts = (src, src if tgt_vocab is src_vocab else Dropout(tgt_vocab, rate, seed))

    def windows(self, epoch: int, window: int) -> Generator[tuple[int, int, TokenStore], None, None]:
        """Without end, from that window of that epoch on: epoch, window, and its pairs as a store in memory.

        Each epoch has the pairs of the mixture, in an order that is a pure function of (seed, epoch). A thread is a
        window ahead.
        """
        with closing(ahead(self._shards(epoch, window * WINDOW), WINDOW)) as shards:
            number = -(-len(self.mixture) // SHARD)
            while True:
                drawn = list(islice(shards, min(WINDOW, number - window * WINDOW)))
                yield epoch, window, _in_memory(self.store.path, drawn)
                window += 1
                if window * WINDOW >= number:
                    epoch, window = epoch + 1, 0

    def _shards(self, epoch: int, shard: int) -> Iterator[Shard]:
        while True:
            generator = torch.Generator().manual_seed(derived_seed("order", self.seed, epoch))
            order = torch.randperm(len(self.mixture), generator=generator)
            numbers = self.mixture.pairs(epoch)
            if numbers is not None:
                order = numbers[order]
            for start in range(shard * SHARD, len(order), SHARD):
                yield self._draw(order[start : start + SHARD], epoch, start // SHARD)
            epoch, shard = epoch + 1, 0

    def _draw(self, numbers: Tensor, epoch: int, shard: int) -> Shard:
        """The pairs with these numbers, as (seed, epoch, shard) have them."""
        store = self.store
        generator = torch.Generator().manual_seed(derived_seed("segmentation", self.seed, epoch, shard))
        stored = (_taken(store.src_ids, store.src_offsets, numbers), _taken(store.tgt_ids, store.tgt_offsets, numbers))
        drawn = tuple(d.cut(*side, generator) for d, side in zip(self.dropouts, stored, strict=True))
        fits = torch.maximum(drawn[0][1], drawn[1][1]) <= self.longest
        if fits.all():
            return drawn
        sides = []
        for (new, new_lengths), (old, old_lengths) in zip(drawn, stored, strict=True):
            choices = zip(_cut(new, new_lengths), _cut(old, old_lengths), fits.tolist(), strict=True)
            ids = torch.cat([new if fit else old for new, old, fit in choices])
            sides.append((ids, torch.where(fits, new_lengths, old_lengths)))
        return tuple(sides)


def _cut(ids: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    return torch.split(ids, lengths.tolist())


def _taken(ids: Tensor, offsets: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """The sentences with these numbers: ids one after the other, int32, and lengths. (Sliced as numpy: torch
    takes 20 microseconds a slice.)"""
    starts, ends = offsets[numbers], offsets[numbers + 1]
    array = ids.numpy()
    slices = [array[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return torch.from_numpy(np.concatenate(slices).astype(np.int32)), ends - starts


def _in_memory(path: Path, shards: list[Shard]) -> TokenStore:
    tensors: dict[str, Tensor] = {}
    for name, sides in zip(("src", "tgt"), zip(*shards, strict=True), strict=True):
        ids, lengths = zip(*sides, strict=True)
        tensors[f"{name}_ids"] = torch.cat(ids)
        tensors[f"{name}_offsets"] = torch.cat([torch.zeros(1, dtype=torch.int64), *lengths]).cumsum(0)
    return TokenStore(path, tensors)
