"""Makes batches from a token store within a budget of padded tokens: `plan_epoch` chooses the pairs of each batch, and
`collate` makes its tensors.

The order of batches is a pure function of (seed, epoch), so resuming needs only a position in this order.

Legend: B sentences, S source length with EOS, T target length with BOS or EOS, N real target positions out of B * T.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtrans.system.devices import to_device
from vtrans.system.errors import RecipeError
from vtrans.system.seeds import derived_seed
from vtrans.text.vocabulary import BOS_ID, EOS_ID, PAD_ID


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
        tensors = (self.src_BS, self.keep_BS, self.tgt_in_BT, self.real_N, self.targets_N)
        src_BS, keep_BS, tgt_in_BT, real_N, targets_N = map(move, tensors)
        links = self.links and Links(move(self.links.at_L), move(self.links.share_L))
        return Batch(src_BS, keep_BS, tgt_in_BT, real_N, targets_N, self.src_tokens, links)


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


T = TypeVar("T")


def prefetch(items: Iterator[T], depth: int) -> Generator[T, None, None]:
    """Yields the items in order; a thread makes up to `depth` of them in advance.

    An exception of `items` is raised in place of its item. Closing or collecting the generator ends the thread, and
    closes `items` if that is a generator.
    """
    made: queue.Queue[tuple[bool, Any]] = queue.Queue(depth)
    wanted = threading.Event()
    wanted.set()

    def put(entry: tuple[bool, Any]) -> None:
        while wanted.is_set():
            with suppress(queue.Full):
                made.put(entry, timeout=0.1)
                return

    def work() -> None:
        try:
            for item in items:
                put((True, item))
                if not wanted.is_set():
                    return
            put((False, None))
        except BaseException as error:  # a KeyboardInterrupt must not be lost with the thread
            put((False, error))
        finally:
            if isinstance(items, Generator):
                items.close()

    thread = threading.Thread(target=work, name="batches", daemon=True)
    thread.start()
    try:
        while True:
            more, item = made.get()
            if more:
                yield item
            elif item is None:
                return
            else:
                raise item
    finally:
        wanted.clear()
        thread.join()


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
