"""The pairs of an epoch (`Mixture`), and their division into batches within a budget of padded tokens (`plan_epoch`).

The order of batches is a pure function of (seed, epoch), so resuming needs only a position in this order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtrans.system.errors import RecipeError
from vtrans.system.seeds import derived_seed


class Mixture:
    """Chooses the pairs of each epoch from a store of several corpora: each pair of a corpus occurs `weight` times.

    For the fractional part of a weight, a random part of the corpus is added, chosen again in each epoch. Without
    weights, an epoch has every pair once.
    """

    def __init__(self, corpora: Sequence[int], weights: Sequence[float] = (), seed: int = 1) -> None:
        assert not weights or len(weights) == len(corpora)
        self.corpora, self.weights, self.seed = tuple(corpora), tuple(weights), seed

    def __len__(self) -> int:
        """Returns the number of pairs per epoch, including repetitions."""
        if not self.weights:
            return sum(self.corpora)
        return sum(whole * n + part for n, whole, part in self._shares())

    def _shares(self) -> list[tuple[int, int, int]]:
        """Returns, for each corpus, its number of pairs, how often all of them are taken, and how many are taken once
        more."""
        return [(n, int(w), round((w - int(w)) * n)) for n, w in zip(self.corpora, self.weights, strict=True)]

    def pairs(self, epoch: int) -> Tensor | None:
        """Returns the pair numbers of an epoch, in arbitrary order; None: every pair once."""
        if not self.weights:
            return None
        generator = torch.Generator().manual_seed(derived_seed("mixture", self.seed, epoch))
        numbers, start = [], 0
        for n, whole, part in self._shares():
            chosen = torch.randperm(n, generator=generator)[:part]
            numbers.append(start + torch.cat([torch.arange(n).repeat(whole), chosen]))
            start += n
        return torch.cat(numbers)


def tempered(corpora: Sequence[int], temperature: float) -> tuple[float, ...]:
    """Returns corpus weights for temperature sampling (Arivazhagan et al. 2019, section 4.2): corpora of n pairs get
    shares proportional to n ** (1 / temperature), and an epoch keeps its length. Returns () if every weight is 1."""
    if temperature == 1:
        return ()
    shares = [n ** (1 / temperature) for n in corpora]
    scale = sum(corpora) / sum(shares)
    return tuple(scale * share / n if n else 0.0 for n, share in zip(corpora, shares, strict=True))


def plan_epoch(
    src_lengths: Tensor, tgt_lengths: Tensor, budget: int, seed: int, epoch: int, numbers: Tensor | None = None
) -> list[Tensor]:
    """Returns the batches of an epoch, each a tensor of pair numbers.

    Lengths [pairs] exclude EOS. `numbers` are the pairs of the epoch, by default every pair once. `budget` is the
    maximum of B * max(S, T). Pairs are shuffled, sorted by length and cut into batches, and the batches are shuffled.
    The first epoch begins with its largest batch, so that training fails early if memory is too small. Raises
    RecipeError if a single pair exceeds the budget.
    """
    generator = torch.Generator().manual_seed(derived_seed("epoch", seed, epoch))
    pairs = len(src_lengths if numbers is None else numbers)
    assert pairs < 1 << 31
    order = torch.randperm(pairs, generator=generator, dtype=torch.int32).numpy()
    if numbers is not None:
        order = numbers.numpy()[order].astype(np.int32)
    sorted_pairs, lengths = _sorted_by_length(order, src_lengths, tgt_lengths, budget)
    plan = [sorted_pairs[start:end] for start, end in pairwise(_cuts(lengths, budget))]
    plan = [plan[i] for i in torch.randperm(len(plan), generator=generator).tolist()]
    if epoch == 1:
        areas = [len(p) * (int(src_lengths[p].max()) + int(tgt_lengths[p].max()) + 2) for p in plan]
        largest = areas.index(max(areas))
        plan[0], plan[largest] = plan[largest], plan[0]
    return plan


def _sorted_by_length(
    order: NDArray[np.int32], src_lengths: Tensor, tgt_lengths: Tensor, budget: int
) -> tuple[Tensor, NDArray[np.int32]]:
    """Returns the pairs in `order`, sorted so that neighbours have similar lengths on both sides, and the longer length
    of each pair.

    Strips of pairs with similar target lengths are sorted by source length, alternately up and down, so that no batch
    spans the longest pairs of one strip and the shortest of the next. About 0.75 sqrt(batches) batches per strip
    minimise padding (measured on Multi30k with 1,024 to 16,384 tokens).
    """
    src, tgt = (lengths.numpy()[order] + 1 for lengths in (src_lengths, tgt_lengths))
    longer = np.maximum(src, tgt)
    strip_tokens = max(1, round(0.75 * math.sqrt(int(longer.sum(dtype=np.int64)) * budget)))
    by_target = np.argsort(tgt, kind="stable")
    strip = np.empty_like(by_target)
    strip[by_target] = longer[by_target].cumsum(dtype=np.int64) // strip_tokens
    by_length = np.lexsort((np.where(strip % 2 == 0, src, -src), strip))
    return torch.from_numpy(order[by_length].astype(np.int64)), longer[by_length]


def _cuts(lengths: NDArray[np.int32], budget: int) -> list[int]:
    """Returns the boundaries of batches of sorted pairs, given the longer length of each pair."""
    cuts, start, widest = [0], 0, 0
    for i, length in enumerate(lengths.tolist()):
        if length > budget:
            raise RecipeError(
                f"train.batch_tokens must be at least {lengths.max()}, the longest pair with EOS, got {budget}."
            )
        widest = max(widest, length)
        while widest * (i + 1 - start) > budget:
            start += _round_number(i - start)
            cuts.append(start)
            widest = int(lengths[start : i + 1].max())
    return [*cuts, len(lengths)]


def _round_number(pairs: int) -> int:
    """Returns `pairs` rounded down to a multiple of the largest power of two that is at most 64 and at
    most a quarter of `pairs`.

    Round numbers give few batch shapes. The first batch of a new shape costs matrix libraries and compilers time. On
    Multi30k, batches of 4,096 tokens have 46 different numbers of positions instead of 113, and are 90% full.
    """
    return pairs - pairs % min(64, 1 << max(0, (pairs // 4).bit_length() - 1))
