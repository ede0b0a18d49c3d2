"""BPE-dropout (Provilkov et al. 2020): each time a pair is seen, its sides are segmented into subwords again, and each
merge is left out with some probability.

SentencePiece's own sampler is not used. A resumed run could not repeat its draws, because version 0.2.3 gives equal
segmentations for equal seeds only within one process. Unlike the paper, it also never reconsiders a merge that it has
left out: at a rate of 0.1 it makes lines 40% longer, this module 21% and the paper 25%. Here segmentations are a pure
function of (seed, epoch, shard). At a rate of 0 they equal SentencePiece's.

Drawn segmentations are longer than stored ones, by varying amounts. Batches planned by the stored lengths were 30%
padding (Multi30k, rate 0.1), and half of them exceeded their budget. Therefore a window of shards is drawn first, and
its batches are planned by the drawn lengths, which leaves 3 to 6% padding.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from hashlib import blake2b
from itertools import chain, count, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vtrans.data.batches import Mixture, ahead
from vtrans.data.store import TokenStore
from vtrans.data.vocabulary import Vocabulary
from vtrans.data.words import between_subwords
from vtrans.runtime.seeds import derived_seed
from vtrans.runtime.workers import map_in_workers

SHARD = 1024  # pairs drawn at a time
WINDOW = 64  # shards that are planned together; as many are drawn in advance
VARIANTS = 64  # segmentations per word, one of which is picked each time the word is seen
KEPT = 1 << 19  # segmentations kept in memory, of about 100 bytes; others are drawn again, with the same result

NEVER = 1 << 62  # the rank of two symbols that do not merge

Sentences = tuple[NDArray[np.int32], NDArray[np.int64]]
# For each side, the concatenated ids of all sentences, and the length of each sentence. If there are word alignments,
# also the positions of all links, source and target in turns, and the number of these per pair.
Shard = tuple[Sentences, ...]


class Dropout:
    """Segments words with a BPE vocabulary, leaving out merges with probability `rate`.

    Each word has VARIANTS segmentations, drawn by Algorithm 1 of the paper: at every step each possible merge is left
    out with that probability, and the best remaining one is made, until none remains.
    """

    def __init__(self, vocabulary: Vocabulary, rate: float, seed: int) -> None:
        merges = vocabulary.merges()
        self.ids = {piece: id for piece, (id, _) in merges.items()}
        self.ranks = {piece: rank for piece, (_, rank) in merges.items()}
        self.pieces = [vocabulary.piece(i) for i in range(len(vocabulary))]
        # Pieces that no merge makes are not segmented: special ids, bytes, the user's symbols.
        self.whole = np.array([piece not in merges for piece in self.pieces])
        self.begins = self.whole | np.array([piece.startswith("\u2581") for piece in self.pieces])
        self.seed, self.threshold = seed, round(rate * 2**32)
        self.variants: dict[bytes, list[tuple[int, ...] | None]] = {}
        self.kept = 0

    def cut(
        self, flat: NDArray[np.int32], lengths: NDArray[np.int64], generator: torch.Generator
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Returns new segmentations of sentences, given as their concatenated ids and lengths, in the same form."""
        ends, words = lengths.cumsum(), np.flatnonzero(self._begin(flat, lengths))
        picks = torch.randint(VARIANTS, (len(words),), generator=generator).tolist()
        raw, width = flat.tobytes(), flat.itemsize
        bounds = pairwise([*(words * width).tolist(), len(raw)])
        drawn = [self._variant(raw[start:end], pick) for (start, end), pick in zip(bounds, picks, strict=True)]
        new = np.fromiter(chain.from_iterable(drawn), np.int32)
        grown = np.zeros(len(flat) + 1, np.int64)  # new ids up to each old position at which a word ends
        grown[np.append(words[1:], len(flat))] = np.fromiter(map(len, drawn), np.int64, len(drawn)).cumsum()
        return new, np.diff(grown[ends], prepend=0)

    def words(self, flat: NDArray[np.int32], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the number of the word of each id, counted through all sentences. A word is what is segmented by
        itself, so its number is the same in every segmentation."""
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
        possible = [ranks.get(a + b, NEVER) for a, b in pairwise(symbols)]
        while True:
            # Drawing for every merge and then taking the best one left equals drawing for the best one first.
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
        """Yields random numbers below 2 ** 32 without end."""
        for block in count():
            yield from struct.unpack("<16I", blake2b(f"{self.seed}/{pick}/{block}/{text}".encode()).digest())


class Drawer:
    """Draws new segmentations for the pairs of a shard, in this process or in a worker.

    A pair keeps its stored segmentation if a side would become longer than `longest` subwords.
    """

    def __init__(self, src_proto: bytes, tgt_proto: bytes, rate: float, seed: int, longest: int) -> None:
        src = Dropout(Vocabulary(src_proto), rate, seed)
        tgt = src if tgt_proto == src_proto else Dropout(Vocabulary(tgt_proto), rate, seed)
        self.dropouts, self.longest = (src, tgt), longest

    def __call__(self, item: tuple[int, Shard]) -> Shard:
        """Returns new segmentations, given a seed and the stored segmentations."""
        seed, (src, tgt, *links) = item
        stored = [src, tgt]
        generator = torch.Generator().manual_seed(seed)
        drawn = [d.cut(*side, generator) for d, side in zip(self.dropouts, stored, strict=True)]
        fits = np.maximum(drawn[0][1], drawn[1][1]) <= self.longest
        if not fits.all():
            drawn = [_chosen(fits, new, old) for new, old in zip(drawn, stored, strict=True)]
        return *drawn, *(self._linked(some, stored, drawn) for some in links)

    def _linked(self, links: Sentences, stored: list[Sentences], drawn: list[Sentences]) -> Sentences:
        """Returns the links between the words whose subwords are linked, for the drawn segmentations."""
        at_L2, pair_L = links[0].reshape(-1, 2), np.repeat(np.arange(len(links[1])), links[1] // 2)
        sides = []
        for side, (dropout, old, new) in enumerate(zip(self.dropouts, stored, drawn, strict=True)):
            first_L = (old[1].cumsum() - old[1])[pair_L]
            sides.append((dropout.words(*old)[first_L + at_L2[:, side]], (dropout.words(*new), new[1])))
        (src_L, src), (tgt_L, tgt) = sides
        values, lengths = between_subwords(np.stack((src_L, tgt_L), 1), src, tgt)
        return values.astype(np.int32), lengths


class Segmentations:
    """New segmentations of the pairs of a store for each epoch, with merges left out with probability `rate`.

    With two or more `processes`, worker processes draw them, with the same result. One process draws about 100,000
    subwords per second, which is enough for training on a CPU. For `longest` see Drawer.
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
        processes: int = 1,
        *,
        with_links: bool = False,
    ) -> None:
        self.store, self.seed, self.processes, self.with_links = store, seed, processes, with_links
        self.mixture = mixture or Mixture([len(store)])
        self.drawer = partial(Drawer, src_vocab.proto, tgt_vocab.proto, rate, seed, longest)

    def windows(self, epoch: int, window: int) -> Generator[tuple[int, int, TokenStore], None, None]:
        """Yields (epoch, window, its pairs as a store in memory) without end, from the given epoch and window.

        Each epoch has the pairs of the mixture, in an order that is a pure function of (seed, epoch). A thread draws
        one window in advance.
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
        stored = self._stored(epoch, shard)
        if self.processes < 2:
            yield from map(self.drawer(), stored)
            return
        advice = "the same command resumes from the last checkpoint"
        yield from map_in_workers(self.drawer, stored, self.processes, "drawing segmentations", advice)

    def _stored(self, epoch: int, shard: int) -> Iterator[tuple[int, Shard]]:
        """Yields (seed of the drawing, stored segmentations) without end, from the given epoch and shard.

        Each element is a pure function of (seed, epoch, shard).
        """
        store = self.store
        while True:
            generator = torch.Generator().manual_seed(derived_seed("order", self.seed, epoch))
            order = torch.randperm(len(self.mixture), generator=generator)
            numbers = self.mixture.pairs(epoch)
            if numbers is not None:
                order = numbers[order]
            for start in range(shard * SHARD, len(order), SHARD):
                pairs = order[start : start + SHARD]
                seed = derived_seed("segmentation", self.seed, epoch, start // SHARD)
                names = ("src", "tgt", "links") if self.with_links else ("src", "tgt")
                yield seed, tuple(store.joined(name, pairs) for name in names)
            epoch, shard = epoch + 1, 0


def _chosen(fits: NDArray[np.bool_], new: Sentences, old: Sentences) -> Sentences:
    """Returns the new sentences where they fit, and the old ones elsewhere."""
    choices = zip(_cut(*new), _cut(*old), fits.tolist(), strict=True)
    return np.concatenate([ours if fit else theirs for ours, theirs, fit in choices]), np.where(fits, new[1], old[1])


def _cut(ids: NDArray[np.int32], lengths: NDArray[np.int64]) -> list[NDArray[np.int32]]:
    return np.split(ids, lengths.cumsum()[:-1])


def _in_memory(path: Path, shards: list[Shard]) -> TokenStore:
    columns: dict[str, NDArray[Any]] = {}
    names = (("src_ids", "src_offsets"), ("tgt_ids", "tgt_offsets"), ("links", "links_offsets"))
    for (values, offsets), rows in zip(names, zip(*shards, strict=True), strict=False):
        numbers, lengths = zip(*rows, strict=True)
        columns[values] = np.concatenate(numbers)
        columns[offsets] = np.concatenate([np.zeros(1, np.int64), *lengths]).cumsum()
    return TokenStore(path, columns)
