"""Training batches, epoch after epoch, and each rank's part of them.

Batches depend only on the recipe, the data and the starting place, so a run can resume in the middle of an epoch.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor

from vtrans.config import Recipe
from vtrans.data.augmentation import Augmentation
from vtrans.data.batches import Batch, Mixture, collate, plan_epoch, tempered
from vtrans.data.noise import Noise, changes_for
from vtrans.data.store import DataFolder, TokenStore
from vtrans.system.devices import is_gpu
from vtrans.system.ranks import Ranks
from vtrans.system.resources import usable_processors
from vtrans.system.seeds import derived_seed
from vtrans.text.languages import Languages

MOST_WORKERS = 8  # maximum number of processes per rank that draw pairs


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


@dataclass(frozen=True)
class EpochSize:
    """The size of an epoch, estimated from `planned` pairs: one window if pairs are drawn, otherwise all."""

    pairs: int
    planned: int
    src_tokens: float
    tgt_tokens: float  # with EOS
    batches: float
    padded: int  # positions on both sides, including padding
    padding: float  # the share of padding in `padded`


class BatchLoader:
    """Makes the batches of one rank, in main memory. The training thread copies them to the device, because two threads
    cannot use every device. `workers` processes apply noise and BPE-dropout."""

    def __init__(
        self, data: DataFolder, recipe: Recipe, ranks: Ranks, device: torch.device, workers: int | None = None
    ) -> None:
        self.store, self.config, self.ranks, self.device = data.train, recipe.train, ranks, device
        self.mixture = self.make_mixture(data)
        self.augmentation = _augmentation(data, recipe, self.mixture, workers or _workers(device))

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
                    batch = batch.pinned() if is_gpu(self.device) else batch
                    tokens = int(store.tgt_lengths[numbers].sum()) + len(numbers)
                    yield Cursor(epoch, drawn, following), RankBatch(batch, tokens, bool(mine))
                position = 0

    def epoch_size(self) -> EpochSize:
        """Returns the size of the first epoch, for all ranks together."""
        with closing(self._plans(1, 0)) as plans:
            _, _, store, plan = next(plans)
        pairs, planned = len(self.mixture), sum(map(len, plan))
        share = planned / pairs  # of an epoch; below 1 for a window of drawn pairs
        padded = sum(len(p) * (int(store.src_lengths[p].max()) + int(store.tgt_lengths[p].max()) + 2) for p in plan)
        sources = sum(int(store.src_lengths[p].sum()) for p in plan)
        targets = sum(int(store.tgt_lengths[p].sum()) for p in plan) + planned
        padding = 1 - (sources + planned + targets) / padded
        return EpochSize(
            pairs, planned, sources / share, targets / share, len(plan) / share, round(padded / share), padding
        )

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
            with closing(self.augmentation.windows(epoch, drawn)) as windows:
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
