"""Draws training pairs for each epoch: with training noise, and segmented with BPE-dropout.

Drawn pairs are longer than stored ones, by varying amounts. With BPE-dropout, batches planned by stored lengths had 30%
padding (Multi30k, rate 0.1), and half of them exceeded their budget. So a window of shards is drawn first, and its
batches are planned by the drawn lengths, which gives 3 to 6% padding. Each drawn pair is a pure function of (seed,
epoch, shard).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vtrans.data.bpe_dropout import Dropout
from vtrans.data.epochs import Mixture
from vtrans.data.links import Rows, between_subwords, divided
from vtrans.data.noise import Noise
from vtrans.data.store import TokenStore
from vtrans.system.seeds import derived_seed
from vtrans.system.workers import map_in_workers
from vtrans.text.vocabulary import Vocabulary

SHARD = 1024  # pairs drawn at a time
WINDOW = 64  # shards planned together

Shard = tuple[Rows, ...]
"""The sources and targets of pairs, and their links if the data has word alignments."""
MakeNoise = Callable[[Vocabulary, Vocabulary], Noise]


class Drawer:
    """Draws the pairs of a shard with noise and with BPE-dropout at this rate, in this process or in a worker.

    A pair keeps its stored segmentation if a side would become longer than `longest` subwords.
    """

    def __init__(
        self, src_proto: bytes, tgt_proto: bytes, noise: MakeNoise | None, dropout: float, seed: int, longest: int
    ) -> None:
        src = Vocabulary(src_proto)
        tgt = src if tgt_proto == src_proto else Vocabulary(tgt_proto)
        self.longest = longest
        self.noise = noise(src, tgt) if noise else None
        self.dropouts: tuple[Dropout, ...] = ()
        if dropout:
            src_dropout = Dropout(src, dropout, seed)
            self.dropouts = (src_dropout, src_dropout if tgt is src else Dropout(tgt, dropout, seed))

    def __call__(self, item: tuple[int, Shard]) -> Shard:
        """Returns a newly drawn shard, given a seed and the stored shard."""
        seed, shard = item
        if self.noise:
            shard = self.noise(shard, seed)
        return self._segmented(seed, shard) if self.dropouts else shard

    def _segmented(self, seed: int, shard: Shard) -> Shard:
        src, tgt, *links = shard
        stored = [src, tgt]
        generator = torch.Generator().manual_seed(seed)
        drawn = [d.cut(*side, generator) for d, side in zip(self.dropouts, stored, strict=True)]
        fits = np.maximum(drawn[0][1], drawn[1][1]) <= self.longest
        if not fits.all():
            drawn = [_chosen(fits, new, old) for new, old in zip(drawn, stored, strict=True)]
        return *drawn, *(self._linked(some, stored, drawn) for some in links)

    def _linked(self, links: Rows, stored: list[Rows], drawn: list[Rows]) -> Rows:
        """Returns the links for the drawn segmentations: between all subwords of two words that had linked subwords."""
        at_L2, pair_L = links[0].reshape(-1, 2), np.repeat(np.arange(len(links[1])), links[1] // 2)
        sides = []
        for side, (dropout, old, new) in enumerate(zip(self.dropouts, stored, drawn, strict=True)):
            first_L = (old[1].cumsum() - old[1])[pair_L]
            sides.append((dropout.words(*old)[first_L + at_L2[:, side]], (dropout.words(*new), new[1])))
        (src_L, src), (tgt_L, tgt) = sides
        values, lengths = between_subwords(np.stack((src_L, tgt_L), 1), src, tgt)
        return values.astype(np.int32), lengths


class Augmentation:
    """Draws the pairs of a store for each epoch, with `noise` and with BPE-dropout at the rate `dropout`.

    With two or more `processes`, worker processes draw the pairs, with the same result. One process draws about 100,000
    subwords per second with BPE-dropout, enough for training on a CPU. See Drawer for `longest`.
    """

    def __init__(
        self,
        store: TokenStore,
        src_vocab: Vocabulary,
        tgt_vocab: Vocabulary,
        seed: int,
        longest: int,
        mixture: Mixture | None = None,
        processes: int = 1,
        *,
        noise: MakeNoise | None = None,
        dropout: float = 0.0,
        with_links: bool = False,
    ) -> None:
        self.store, self.seed, self.processes, self.with_links = store, seed, processes, with_links
        self.mixture = mixture or Mixture([len(store)])
        self.drawer = partial(Drawer, src_vocab.proto, tgt_vocab.proto, noise, dropout, seed, longest)

    def windows(self, epoch: int, window: int) -> Generator[tuple[int, int, TokenStore], None, None]:
        """Yields (epoch, window, pairs as an in-memory store) from the given epoch and window on. Never ends.

        Each epoch has the pairs of the mixture, in an order that is a pure function of (seed, epoch).
        """
        stored, advice = self._stored(epoch, window * WINDOW), "the same command resumes from the last checkpoint"
        with closing(map_in_workers(self.drawer, stored, self.processes, "drawing pairs", advice)) as shards:
            number = -(-len(self.mixture) // SHARD)
            while True:
                drawn = list(islice(shards, min(WINDOW, number - window * WINDOW)))
                yield epoch, window, _in_memory(self.store.path, drawn)
                window += 1
                if window * WINDOW >= number:
                    epoch, window = epoch + 1, 0

    def _stored(self, epoch: int, shard: int) -> Iterator[tuple[int, Shard]]:
        """Yields (seed for drawing, stored shard) from the given epoch and shard on. Never ends.

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


def _chosen(fits: NDArray[np.bool_], new: Rows, old: Rows) -> Rows:
    """Returns the new sentences where they fit, and the old ones elsewhere."""
    choices = zip(divided(*new), divided(*old), fits.tolist(), strict=True)
    return np.concatenate([ours if fit else theirs for ours, theirs, fit in choices]), np.where(fits, new[1], old[1])


def _in_memory(path: Path, shards: list[Shard]) -> TokenStore:
    columns: dict[str, NDArray[Any]] = {}
    names = (("src_ids", "src_offsets"), ("tgt_ids", "tgt_offsets"), ("links", "links_offsets"))
    for (values, offsets), rows in zip(names, zip(*shards, strict=True), strict=False):
        numbers, lengths = zip(*rows, strict=True)
        columns[values] = np.concatenate(numbers)
        columns[offsets] = np.concatenate([np.zeros(1, np.int64), *lengths]).cumsum()
    return TokenStore(path, columns)
