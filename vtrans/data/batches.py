"""Training batches, epoch after epoch, and each rank's part of them.

`BatchLoader` takes the pairs of each batch from a plan (epochs.py), or draws them with noise and BPE-dropout
(augmentation.py), and `collate` makes its tensors. Batches depend only on the recipe, the data and the starting place,
so a run can resume in the middle of an epoch.

Legend: B sentences, S source length with EOS, T target length with BOS or EOS, N real target positions out of B * T.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtrans.config import Recipe
from vtrans.data.augmentation import Augmentation
from vtrans.data.epochs import Mixture, plan_epoch, tempered
from vtrans.data.noise import Noise, changes_for
from vtrans.data.store import DataFolder, TokenStore
from vtrans.system.devices import is_gpu, to_device
from vtrans.system.ranks import Ranks
from vtrans.system.resources import usable_processors
from vtrans.system.seeds import derived_seed
from vtrans.text.languages import Languages
from vtrans.text.vocabulary import BOS_ID, EOS_ID, PAD_ID

MOST_WORKERS = 8  # maximum number of processes per rank that draw pairs

T = TypeVar("T")


@dataclass(frozen=True)
class Links:
    """The links of a batch between source subwords and target subwords.

    `at_L` [L] are indices into the flattened [B, T, S]. A link's target position is the one that is fed the target
    subword, so that the attention there knows what to align. `share_L` [L] is 1 / the number of links of that subword.
    """

    at_L: Tensor
    share_L: Tensor


@dataclass(frozen=True)
class Batch:
    """Pairs, padded on the right with PAD_ID.

    `src_BS` [B, S] ends each source with EOS, and `keep_BS` [B, S] is True where it is not padding. `tgt_in_BT` [B, T]
    begins with BOS. `targets_N` [N] are the subwords to predict, including EOS, and `real_N` [N] their positions in the
    flattened [B, T]. `links` is None for pairs without word alignments.
    """

    src_BS: Tensor
    keep_BS: Tensor
    tgt_in_BT: Tensor
    real_N: Tensor
    targets_N: Tensor
    src_tokens: int  # without EOS and padding
    links: Links | None = None

    @property
    def tgt_tokens(self) -> int:
        """The number of target subwords, including EOS."""
        return len(self.targets_N)

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The arguments of `Transformer.hidden`, in order."""
        return self.src_BS, self.keep_BS, self.tgt_in_BT, self.real_N

    @property
    def padded(self) -> int:
        """The number of positions on both sides, including padding."""
        return self.src_BS.numel() + self.tgt_in_BT.numel()

    @property
    def real(self) -> int:
        """The number of positions on both sides without padding, including EOS."""
        return self.src_tokens + len(self.src_BS) + self.tgt_tokens

    def pinned(self) -> Batch:
        """Returns the batch in page-locked memory, from which a GPU copies asynchronously."""
        return self._mapped(Tensor.pin_memory)

    def to(self, device: torch.device) -> Batch:
        """Returns the batch on another device."""
        if device.type == "cpu":
            return self
        return self._mapped(lambda x: to_device(x, device))

    def _mapped(self, move: Callable[[Tensor], Tensor]) -> Batch:
        src_BS, keep_BS, tgt_in_BT, real_N, targets_N = map(move, (*self.inputs, self.targets_N))
        links = self.links and Links(move(self.links.at_L), move(self.links.share_L))
        return Batch(src_BS, keep_BS, tgt_in_BT, real_N, targets_N, self.src_tokens, links)


def collate(
    sources: Sequence[Tensor], targets: Sequence[Tensor], links: Sequence[NDArray[np.int64]] | None = None
) -> Batch:
    """Returns a batch of pairs, given their subword ids without special ids and, optionally, their links in the form of
    `TokenStore.links`."""
    B = len(sources)
    src_lengths = torch.tensor([len(s) + 1 for s in sources])
    tgt_lengths = torch.tensor([len(t) + 1 for t in targets])
    S, T = int(src_lengths.max()), int(tgt_lengths.max())
    keep_BS = torch.arange(S) < src_lengths[:, None]
    keep_BT = torch.arange(T) < tgt_lengths[:, None]
    src_BS = torch.full((B, S), PAD_ID)
    src_BS[torch.arange(S) < src_lengths[:, None] - 1] = torch.cat(list(sources)).long()
    src_BS[torch.arange(B), src_lengths - 1] = EOS_ID
    tgt_BT = torch.full((B, T + 1), PAD_ID)
    tgt_BT[:, 0] = BOS_ID
    tgt_BT[:, 1:][torch.arange(T) < tgt_lengths[:, None] - 1] = torch.cat(list(targets)).long()
    tgt_BT[torch.arange(B), tgt_lengths] = EOS_ID
    real_N = keep_BT.flatten().nonzero()[:, 0]
    tgt_in_BT = tgt_BT[:, :-1].masked_fill(~keep_BT, PAD_ID)
    targets_N = tgt_BT[:, 1:].flatten()[real_N]
    linked = None if links is None else _links(links, S, T)
    return Batch(src_BS, keep_BS, tgt_in_BT, real_N, targets_N, int(src_lengths.sum()) - B, linked)


def _links(links: Sequence[NDArray[np.int64]], S: int, T: int) -> Links:
    src_L, tgt_L = np.concatenate(links).T
    row_L = np.repeat(np.arange(len(links)), [len(some) for some in links]) * T + tgt_L + 1
    share_L = 1 / np.bincount(row_L, minlength=1)[row_L]
    return Links(torch.from_numpy(row_L * S + src_L), torch.from_numpy(share_L.astype(np.float32)))


def prefetch(items: Iterator[T], depth: int) -> Generator[T, None, None]:
    """Yields the items, none of which is None, in order; a thread makes `depth` of them in advance.

    An exception of `items` is raised in place of its item. Closing or collecting the generator ends the thread, and
    closes `items` if that is a generator.
    """
    pool = ThreadPoolExecutor(1, "batches")
    try:
        waiting = deque(pool.submit(next, items, None) for _ in range(depth))
        while (item := waiting.popleft().result()) is not None:
            waiting.append(pool.submit(next, items, None))
            yield item
    finally:
        pool.shutdown(cancel_futures=True)
        if isinstance(items, Generator):
            items.close()


class RankBatch(NamedTuple):
    """A rank's part of a batch."""

    batch: Batch
    tokens_of_all: int  # target tokens in all ranks' parts
    is_counted: bool
    """False if the batch has fewer pairs than ranks, so that this rank computes a pair only to participate."""


class Cursor(NamedTuple):
    """A place in the data between two batches. The default is the start of the first epoch."""

    epoch: int = 1
    drawn: int = 0  # if pairs are drawn: complete windows of the epoch (data/augmentation.py)
    position: int = 0  # batches used of the epoch, or of the current window if pairs are drawn


class BatchLoader:
    """Makes the batches of one rank, in main memory. The training thread copies them to the device, because two threads
    cannot use every device."""

    def __init__(self, data: DataFolder, recipe: Recipe, ranks: Ranks, device: torch.device) -> None:
        self.store, self.config, self.ranks, self.device = data.train, recipe.train, ranks, device
        self._pins = is_gpu(device)
        self.mixture = self.make_mixture(data)
        self.augmentation = _augmentation(data, recipe, self.mixture, _workers(device))

    def make_mixture(self, data: DataFolder) -> Mixture:
        """Returns the Mixture that chooses the pairs of each epoch by the recipe's corpus weights. To define a
        curriculum, return a Mixture whose `pairs` is another function of the epoch."""
        weights = self.config.corpus_weights or tempered(data.corpora, self.config.corpus_temperature)
        return Mixture(data.corpora, weights, self.config.seed)

    def batches(self, cursor: Cursor) -> Generator[tuple[Cursor, RankBatch], None, None]:
        """Yields this rank's part of each batch from `cursor` on, with the cursor after the batch. Never ends."""
        epoch, drawn, position = cursor
        with closing(self._plans(epoch, drawn)) as plans:
            for epoch, drawn, store, plan in plans:
                for following, numbers in enumerate(plan[position:], position + 1):
                    mine = numbers[self.ranks.rank :: self.ranks.world].tolist()
                    pairs = mine or numbers[:1].tolist()
                    links = [store.links(i) for i in pairs] if self.config.guided_alignment > 0 else None
                    batch = collate([store.src(i) for i in pairs], [store.tgt(i) for i in pairs], links)
                    batch = batch.pinned() if self._pins else batch
                    tokens = int(store.tgt_lengths[numbers].sum()) + len(numbers)
                    yield Cursor(epoch, drawn, following), RankBatch(batch, tokens, bool(mine))
                position = 0

    def first_plan(self) -> tuple[TokenStore, list[Tensor]]:
        """Returns the batches of the first epoch, or of its first window if pairs are drawn, for all ranks together: a
        store of pairs, and the pair numbers of each batch."""
        with closing(self._plans(1, 0)) as plans:
            _, _, store, plan = next(plans)
        return store, plan

    def _plans(self, epoch: int, drawn: int) -> Generator[tuple[int, int, TokenStore, list[Tensor]], None, None]:
        """Yields a plan per epoch, or per window if pairs are drawn: the epoch, its number of complete windows, a store
        of pairs, and the pair numbers of each batch in this store. Never ends."""
        config, store = self.config, self.store
        if self.augmentation is None:
            for number in count(epoch):
                pairs = self.mixture.pairs(number)
                sides = store.src_lengths, store.tgt_lengths
                yield number, 0, store, plan_epoch(*sides, config.batch_tokens, config.seed, number, pairs)
        else:
            # A thread draws one window ahead.
            with closing(prefetch(self.augmentation.windows(epoch, drawn), 1)) as windows:
                for number, window, store in windows:
                    seed = derived_seed("window", config.seed, window)
                    plan = plan_epoch(store.src_lengths, store.tgt_lengths, config.batch_tokens, seed, number)
                    yield number, window, store, plan


def _workers(device: torch.device) -> int:
    """Returns the number of processes that draw pairs. On a CPU, only this process does, because training uses all
    cores; with a GPU, there is one process per free core of this rank."""
    if device.type == "cpu":
        return 1
    return max(1, min(MOST_WORKERS, usable_processors() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")) - 1))


def _augmentation(data: DataFolder, recipe: Recipe, mixture: Mixture, workers: int) -> Augmentation | None:
    """Returns the augmentation of the pairs, or None if the recipe has neither noise nor BPE-dropout."""
    config, model = recipe.train, recipe.model
    if config.noise == config.bpe_dropout == 0:
        return None
    longest = config.batch_tokens - 1  # without EOS
    if model.max_length is not None:
        longest = min(longest, model.max_length - 1)
    languages = data.languages[0] if len(data.languages) == 1 else Languages("", "")
    changes = changes_for(languages, data.pair) if config.changes == "usual" else config.changes
    noise = partial(Noise, rate=config.noise, longest=longest, changes=changes)
    return Augmentation(
        data.train,
        data.src_vocab,
        data.tgt_vocab,
        config.seed,
        longest,
        mixture,
        workers,
        noise=noise if config.noise else None,
        dropout=config.bpe_dropout,
        with_links=config.guided_alignment > 0 or (config.noise > 0 and data.train.has_links),
    )
