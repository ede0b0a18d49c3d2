"""What the decoder remembers of its sentences between two steps; the model writes here and reads.

Legend: L layers, B sentences, b some of them, K rows of a sentence, H heads, d head width, S source length, C slots
that there is room for, n slots in use, x = B * H, y = f * H for the f sentences that use slots far back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# On a CPU torch's softmax takes ten times as long for a row of less than a vector register.
LEAST = 16
# Slots are in use by so many at a time; and where they end for most sentences (all but one in so many), the others
# are seen to apart.
SLOTS, FAR_SHARE = 8, 8


class Seen(NamedTuple):
    """Keys and values that a sentence's rows look at; `bias` is -inf where a row may not."""

    keys_xdn: Tensor
    values_xnd: Tensor
    bias_xKn: Tensor

    def of(self, sentences_f: Tensor, heads: int) -> Seen:
        """Of these sentences only."""
        parts = (part.view(-1, heads, *part.shape[1:])[sentences_f].flatten(0, 1) for part in self)
        return Seen(*parts)


class Far(NamedTuple):
    """The sentences that use slots behind those of most."""

    sentences_f: Tensor
    bias_yKn: Tensor  # over all slots


class Past(NamedTuple):
    """What one layer sees of a DecodingState in a step."""

    cache_2BHCd: Tensor
    newest: Tensor  # the places of the newest keys and values among all vectors [2 * B * H * C] of the cache
    own: Seen  # the subwords so far, the newest among them, in the slots that most sentences use
    src: Seen
    far: Far | None

    def add(self, kv_BK2Hd: Tensor) -> None:
        """Keep the newest keys and values."""
        d = kv_BK2Hd.shape[-1]
        self.cache_2BHCd.view(-1, d).index_copy_(0, self.newest, kv_BK2Hd.reshape(-1, d))

    def mixed(self, mix: Callable[[Tensor, Seen, Callable[[], Seen]], Tensor], q_BHKd: Tensor) -> Tensor:
        """What the queries make of the past [B, K, D], by `mix` from queries, own subwords and, if it asks, source."""
        mixed_BKD = mix(q_BHKd, self.own, lambda: self.src)
        if self.far is not None:
            f, bias_yKn = self.far
            keys_yCd, values_yCd = self.cache_2BHCd.index_select(1, f).flatten(1, 2)
            n = bias_yKn.shape[2]
            own = Seen(keys_yCd[:, :n].transpose(1, 2), values_yCd[:, :n], bias_yKn)
            mixed_BKD[f] = mix(q_BHKd[f], own, lambda: self.src.of(f, q_BHKd.shape[1]))
        return mixed_BKD


class DecodingState:
    """What the decoder remembers of B sentences with K rows each, between two steps.

    `memory` [L, 2, B, H, S, d] holds the keys and values of the sources, `own` [L, 2, B, H, C, d] those of
    the subwords fed so far. A step fills K slots of each sentence, one a row, and nothing is moved from
    row to row: `past_BKn` says for each row which slots are its own ancestors', and reordering the beam
    reorders only that. Slots that are no row's ancestor any more are filled anew, the first of them first: beams
    have most of their past in common, so that a sentence needs about twice as many as its rows are long. So it
    is on a CPU; see `counted`.
    """

    def __init__(self, memory: Tensor, keep_BS: Tensor, lengths: list[int], width: int) -> None:
        S = max(LEAST, *lengths)
        memory, keep_BS = pad_to(memory, S, 4), pad_to(keep_BS, S, 1)
        B = memory.shape[2]
        self.keep_BS, self.width = keep_BS, width
        self.lengths = lengths  # of the sources, known to the host; 0 of dropped ones
        self.memory_cache = Cache(memory)
        self.own_cache = Cache(memory.new_zeros(*memory.shape[:4], LEAST + 12 * width, memory.shape[5]))
        self.steps = 0
        self.entered = [0] * B  # the step at which a sentence came
        self.entered_B = torch.zeros(B, dtype=torch.long, device=memory.device)
        self.past_BKn = self.keep_BS.new_zeros(B, width, LEAST)  # which slots are a row's ancestors', and its own
        self.slots_BK = self.entered_B.new_empty(B, width)  # where the newest subwords go
        self.near = LEAST  # slots that most sentences get by with
        self.far_f: Tensor | None = None  # those that do not
        self.source_xKS = self._source_bias()
        self.src_parts: list[Seen] | None = None  # by layer
        self.itself_KK = torch.eye(width, dtype=torch.bool, device=memory.device)
        self.seen, self.unseen = memory.new_zeros(()), memory.new_full((), -torch.inf)  # added to attention scores
        self._places = self._place_of_slot_0()

    @property
    def memory(self) -> Tensor:
        return self.memory_cache.tensor

    @property
    def own(self) -> Tensor:
        return self.own_cache.tensor

    @property
    def used(self) -> int:
        """Slots of `own` that are in use by some sentence."""
        return self.past_BKn.shape[2]

    @property
    def oldest(self) -> int:
        """Subwords fed to the sentence that has been here longest, the newest counted."""
        return self.steps - min(self.entered)

    @property
    def furthest(self) -> int:
        """The same with a sentence's own source before them, of the sentence that has most of both."""
        return self.steps + max(length - step for length, step in zip(self.lengths, self.entered, strict=True))

    def pasts(self) -> list[Past]:
        """What each layer sees. Cut out for all layers at once: a small operation costs as much as a large one."""
        if self.src_parts is None:
            memory = self.memory.flatten(2, 3)
            parts = zip(memory[:, 0].transpose(2, 3).unbind(), memory[:, 1].unbind(), strict=True)
            self.src_parts = [Seen(keys, values, self.source_xKS) for keys, values in parts]
        n = self.near
        newest = (self._places + self.slots_BK[:, :, None, None]).flatten()
        bias_xKn = self._for_heads(self.past_BKn[:, :, :n])
        far = None if self.far_f is None else Far(self.far_f, self._for_heads(self.past_BKn[self.far_f]))
        own = self.own.flatten(2, 3)
        keys, values = own[:, 0, :, :n].transpose(2, 3).unbind(), own[:, 1, :, :n].unbind()
        return [
            Past(cache, newest, Seen(k, v, bias_xKn), src, far)
            for cache, k, v, src in zip(self.own.unbind(), keys, values, self.src_parts, strict=True)
        ]

    def _place_of_slot_0(self) -> Tensor:
        """Among all vectors of a layer's cache [2, B, H, C], those of a sentence's first slot [B, 1, 2, H]: in the
        order in which the newest keys and values come, [B, K, 2, H]."""
        B, H, C = self.own.shape[2:5]
        places = torch.arange(2 * B * H, device=self.own.device).view(2, B, H) * C
        return places.transpose(0, 1)[:, None]

    def _for_heads(self, past_bKn: Tensor) -> Tensor:
        """As what is added to attention scores, for each head [b * H, K, n]."""
        b, K, n = past_bKn.shape
        bias_bKn = torch.where(past_bKn, self.seen, self.unseen)
        return bias_bKn[:, None].expand(b, self.own.shape[3], K, n).reshape(-1, K, n)

    def next_slots(self) -> Tensor:
        """Finds one more slot a row; returns the positions [B] at which the newest subwords stand."""
        age_B = self.steps - self.entered_B
        self.steps += 1
        B, K = self.past_BKn.shape[:2]
        if self.counted:
            self._take_free_slots()
        else:
            self._fit(self.oldest * K)
            self._cut(in_eights(self.oldest * K))
            self.slots_BK = age_B[:, None] * K + torch.arange(K, device=age_B.device)
            self.near, self.far_f = self.used, None
        at_BKK = self.slots_BK[:, None].expand(B, K, K)
        self.past_BKn.scatter_(2, at_BKK, self.itself_KK.expand(B, K, K))
        return age_B

    @property
    def counted(self) -> bool:
        """Whether slots are looked at before they are given away. Elsewhere than on a CPU that would mean to wait
        for the device: there each step has slots of its own."""
        return self.own.device.type == "cpu"

    def _take_free_slots(self) -> None:
        """The first that are nobody's. Leaves out those that nobody uses at the end, and those that few sentences
        do for all but these."""
        K = self.width
        live_Bn: NDArray[np.bool_] = np.logical_or.reduce(self.past_BKn.numpy(), 1)
        self._fit(int(live_Bn.sum(1).max()) + K)
        if live_Bn.shape[1] < self.used:
            live_Bn = np.logical_or.reduce(self.past_BKn.numpy(), 1)
        slots_BK = live_Bn.argsort(axis=1, kind="stable")[:, :K]
        live_Bn[np.arange(len(live_Bn))[:, None], slots_BK] = True
        self.slots_BK = torch.from_numpy(slots_BK)
        last_B = self.used - live_Bn[:, ::-1].argmax(1)
        ends = np.sort(last_B).tolist()
        most, all_ = in_eights(ends[-1 - len(ends) // FAR_SHARE]), in_eights(ends[-1])
        self._cut(all_)
        self.near, self.far_f = all_, None
        if all_ - most >= 2 * SLOTS:
            self.near, self.far_f = most, torch.from_numpy(np.flatnonzero(last_B > most))

    def _fit(self, slots: int) -> None:
        """Room for so many slots of each sentence."""
        n, used = in_eights(slots), self.used
        B, C = self.own.shape[2], self.own.shape[4]
        if n > C:
            for new_BHCd, old_BHCd in self.own_cache.resized(B, max(n, C * 3 // 2)):
                new_BHCd[:, :, :used] = old_BHCd[:, :, :used]
            self._places = self._place_of_slot_0()
        if n > used:
            self.past_BKn = pad_to(self.past_BKn, n, 2)

    def _cut(self, n: int) -> None:
        """Leaves out the slots from `n` on, which are nobody's."""
        if n < self.used:
            self.past_BKn = self.past_BKn[:, :, :n].contiguous()

    def _source_bias(self) -> Tensor:
        self.src_parts = None
        bias_BS = torch.zeros_like(self.keep_BS, dtype=self.memory.dtype).masked_fill_(~self.keep_BS, -torch.inf)
        B, H, S = *self.memory.shape[2:4], self.keep_BS.shape[1]
        return bias_BS[:, None, None].expand(B, H, self.width, S).reshape(B * H, self.width, S)

    def reorder(self, parents_BK: Tensor) -> None:
        """See Transformer.reorder."""
        at_B1 = torch.arange(len(parents_BK), device=self.past_BKn.device)[:, None]
        self.past_BKn = self.past_BKn[at_B1, parents_BK.to(self.past_BKn.device)]

    def drop(self, sentences: Sequence[int]) -> None:
        """See Transformer.drop. They count as fresh, so as not to keep any slot in use."""
        for b in sentences:
            self.entered[b], self.lengths[b] = self.steps, 0
        self.entered_B[list(sentences)] = self.steps
        self.past_BKn[list(sentences)] = False

    def select(self, sentences: Sequence[int]) -> None:
        """See Transformer.select."""
        self.entered, self.lengths = [self.entered[b] for b in sentences], [self.lengths[b] for b in sentences]
        at_b = torch.tensor(sentences, device=self.entered_B.device)
        self.entered_B, self.past_BKn = self.entered_B[at_b], self.past_BKn[at_b]
        S, n = max(LEAST, *self.lengths), self.used
        self.keep_BS = self.keep_BS[at_b, :S]
        for new_bHSd, old_BHSd in self.memory_cache.resized(len(sentences), S):
            new_bHSd.copy_(old_BHSd[:, :, :S].index_select(0, at_b))
        for new_bHCd, old_BHCd in self.own_cache.resized(len(sentences), self.own.shape[4]):
            new_bHCd[:, :, :n] = old_BHCd[:, :, :n].index_select(0, at_b)
        self._places = self._place_of_slot_0()
        self.source_xKS = self._source_bias()

    def admit(self, memory: Tensor, keep_BS: Tensor, lengths: list[int], places: Sequence[int]) -> None:
        """See Transformer.admit; `memory`, `keep_BS` and `lengths` are of the fresh sentences."""
        B, added, n = len(self.lengths), len(lengths) - len(places), self.used
        S, taken = max(LEAST, *self.lengths, *lengths), [*places, *range(B, B + added)]
        common, at = min(S, self.keep_BS.shape[1]), torch.tensor(taken, device=memory.device)
        self.keep_BS = pad_to(pad_to(self.keep_BS[:, :common], S, 1), B + added, 0)
        self.keep_BS[taken] = pad_to(keep_BS, S, 1)
        if added or self.memory.shape[4] != S:
            for new_BHSd, old_BHSd in self.memory_cache.resized(B + added, S):
                new_BHSd[:B, :, :common] = old_BHSd[:, :, :common]
        self.memory.index_copy_(2, at, pad_to(memory, S, 4))
        if added:
            for new_BHCd, old_BHCd in self.own_cache.resized(B + added, self.own.shape[4]):
                new_BHCd[:B, :, :n] = old_BHCd[:, :, :n]
            self._places = self._place_of_slot_0()
        self.past_BKn, self.entered_B = pad_to(self.past_BKn, B + added, 0), pad_to(self.entered_B, B + added, 0)
        self.past_BKn[taken] = False  # the slots of those who had the places are nobody's now
        self.entered_B[taken] = self.steps
        self.entered, self.lengths = self.entered + [0] * added, self.lengths + [0] * added
        for b, length in zip(taken, lengths, strict=True):
            self.entered[b], self.lengths[b] = self.steps, length
        self.source_xKS = self._source_bias()


class Cache:
    """Keys and values [L, 2, B, H, n, d] that change their shape by moving between two buffers: memory that
    was in use before costs no page faults, which are dearer than the copy itself. What nobody has written
    yet is zero, so that it can be multiplied by a weight of 0."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self._buffer, self._spare = tensor.view(-1), tensor.new_empty(0)

    def resized(self, B: int, n: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Makes `tensor` one of that many sentences and places; yields its parts [B, H, n, d], filled with
        anything, each with what it was before. They have to be read before the next call."""
        old = self.tensor
        shape = (*old.shape[:2], B, old.shape[3], n, old.shape[5])
        size = math.prod(shape)
        if self._spare.numel() < size:
            self._spare = old.new_zeros(size * 5 // 4)
        self._buffer, self._spare = self._spare, self._buffer
        self.tensor = self._buffer[:size].view(shape)
        return zip(self.tensor.flatten(0, 1), old.flatten(0, 1), strict=True)


def in_eights(slots: int) -> int:
    """As many slots as are in use when so many are wanted."""
    return max(LEAST, -(-slots // SLOTS) * SLOTS)


def pad_to(x: Tensor, length: int, dim: int) -> Tensor:
    """`x` with zeros (False) behind it up to `length` along `dim`."""
    missing = length - x.shape[dim]
    if missing == 0:
        return x
    shape = list(x.shape)
    shape[dim] = missing
    return torch.cat([x, x.new_zeros(shape)], dim)
