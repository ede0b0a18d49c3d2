"""The state of a decoder between two steps: what its layers keep of the sources and of the subwords fed so far.

A state stores tensors and returns them. The layers compute with them (incremental.py); the state calls no layer.

Legend: L layers, B sentences, b or f some of them, K rows per sentence, H heads, d head width, S source length,
C slots allocated, n slots in use, x = B * H, y = f * H.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# On a CPU torch's softmax takes ten times as long for a row shorter than a vector register.
LEAST = 16
# The number of slots in use is a multiple of SLOTS. At most one sentence in FAR_SHARE may need more slots than the
# other sentences read; such sentences are handled separately.
SLOTS, FAR_SHARE = 8, 8


class Seen(NamedTuple):
    """Keys and values for the rows of some sentences; `bias` is -inf where a row must not attend."""

    keys_xdn: Tensor
    values_xnd: Tensor
    bias_xKn: Tensor

    def select(self, sentences_f: Tensor, heads: int) -> Seen:
        """Returns the part of some of the sentences."""
        return Seen(*(part.view(-1, heads, *part.shape[1:])[sentences_f].flatten(0, 1) for part in self))


class LayerState(NamedTuple):
    """One layer's part of a SelfAttentionState during one step.

    Most sentences need few slots, and `own` covers as many as suffice for them. The sentences `far_f` need more;
    for them, `own_of_far` replaces `own`.
    """

    cache_2BHCd: Tensor
    newest: Tensor  # places of the newest keys and values among the 2 * B * H * C vectors of the cache
    source: Seen
    own: Seen  # the subwords so far, including the newest
    far_f: Tensor | None
    far_bias_yKn: Tensor | None  # over all slots in use

    def store(self, kv_BK2Hd: Tensor) -> None:
        """Stores the keys and values of the newest subwords. Call it before attending to `own`."""
        d = kv_BK2Hd.shape[-1]
        self.cache_2BHCd.view(-1, d).index_copy_(0, self.newest, kv_BK2Hd.reshape(-1, d))

    def own_of_far(self) -> Seen:
        """Returns the keys and values of the sentences `far_f`, in all slots in use."""
        assert self.far_f is not None
        assert self.far_bias_yKn is not None
        keys_yCd, values_yCd = self.cache_2BHCd.index_select(1, self.far_f).flatten(1, 2)
        n = self.far_bias_yKn.shape[2]
        return Seen(keys_yCd[:, :n].transpose(1, 2), values_yCd[:, :n], self.far_bias_yKn)


class DecodingState:
    """The sources of B sentences with K rows each, and how many subwords each sentence was fed.

    `memory` [L, 2, B, H, S, d] holds the keys and values of the sources. What the layers keep of the subwords fed so
    far is up to SelfAttentionState and SSRUState.
    """

    def __init__(self, memory: Tensor, keep_BS: Tensor, lengths: list[int], width: int) -> None:
        S = max(LEAST, *lengths)
        memory, keep_BS = pad_to(memory, S, 4), pad_to(keep_BS, S, 1)
        self.keep_BS, self.width = keep_BS, width
        self.lengths = lengths  # of the sources, on the host; 0 for dropped sentences
        self.memory_cache = Cache(memory)
        self.steps = 0
        self.entered = [0] * len(lengths)  # the step before which a sentence entered
        self.entered_B = torch.zeros(len(lengths), dtype=torch.long, device=memory.device)
        self.seen, self.unseen = memory.new_zeros(()), memory.new_full((), -torch.inf)  # added to attention scores
        self.source_parts: list[Seen] | None = None  # per layer; None: sliced in the next step
        self._set_source_bias()

    @property
    def memory(self) -> Tensor:
        return self.memory_cache.tensor

    @property
    def oldest(self) -> int:
        """The largest number of subwords fed to a sentence, including the newest."""
        return self.steps - min(self.entered)

    @property
    def longest(self) -> int:
        """The largest sum of a sentence's source length and its subwords fed."""
        return self.steps + max(length - step for length, step in zip(self.lengths, self.entered, strict=True))

    def advance(self) -> Tensor:
        """Begins a step, and returns how many subwords each sentence was fed before [B]."""
        age_B = self.steps - self.entered_B
        self.steps += 1
        return age_B

    def sources(self) -> list[Seen]:
        """Returns each layer's keys and values of the sources. All layers are sliced at once, because a small tensor
        operation takes as long as a large one."""
        if self.source_parts is None:
            memory = self.memory.flatten(2, 3)
            parts = zip(memory[:, 0].transpose(2, 3).unbind(), memory[:, 1].unbind(), strict=True)
            self.source_parts = [Seen(keys, values, self.source_xKS) for keys, values in parts]
        return self.source_parts

    def _set_source_bias(self) -> None:
        bias_BS = torch.where(self.keep_BS, self.seen, self.unseen)
        B, H, S = *self.memory.shape[2:4], self.keep_BS.shape[1]
        self.source_xKS = bias_BS[:, None, None].expand(B, H, self.width, S).reshape(B * H, self.width, S)
        self.source_parts = None

    # The search changes the batch between two steps, as `search.Decoder` describes.

    def drop(self, sentences: Sequence[int]) -> None:
        """Ends these sentences. Their places stay, and their ages are 0."""
        for b in sentences:
            self.entered[b], self.lengths[b] = self.steps, 0
        self.entered_B[list(sentences)] = self.steps

    def select(self, sentences: Sequence[int]) -> Tensor:
        """Keeps only these sentences, in this order. Returns them as a tensor [b]."""
        self.entered, self.lengths = [self.entered[b] for b in sentences], [self.lengths[b] for b in sentences]
        at_b = torch.tensor(sentences, device=self.entered_B.device)
        self.entered_B = self.entered_B[at_b]
        S = max(LEAST, *self.lengths)
        self.keep_BS = self.keep_BS[at_b, :S]
        for new_bHSd, old_BHSd in self.memory_cache.resized(len(sentences), S):
            new_bHSd.copy_(old_BHSd[:, :, :S].index_select(0, at_b))
        self._set_source_bias()
        return at_b

    def admit(self, memory: Tensor, keep_BS: Tensor, lengths: list[int], places: Sequence[int]) -> list[int]:
        """Puts new sentences into the places of dropped ones, and the remaining new sentences after the last. Returns
        their places."""
        B, added = len(self.lengths), len(lengths) - len(places)
        S, taken = max(LEAST, *self.lengths, *lengths), [*places, *range(B, B + added)]
        common, at = min(S, self.keep_BS.shape[1]), torch.tensor(taken, device=memory.device)
        self.keep_BS = pad_to(pad_to(self.keep_BS[:, :common], S, 1), B + added, 0)
        self.keep_BS[taken] = pad_to(keep_BS, S, 1)
        if added or self.memory.shape[4] != S:
            for new_BHSd, old_BHSd in self.memory_cache.resized(B + added, S):
                new_BHSd[:B, :, :common] = old_BHSd[:, :, :common]
        self.memory.index_copy_(2, at, pad_to(memory, S, 4))
        self.entered_B = pad_to(self.entered_B, B + added, 0)
        self.entered_B[taken] = self.steps
        self.entered, self.lengths = self.entered + [0] * added, self.lengths + [0] * added
        for b, length in zip(taken, lengths, strict=True):
            self.entered[b], self.lengths[b] = self.steps, length
        self._set_source_bias()
        return taken


class SSRUState(DecodingState):
    """A DecodingState with the states of the SSRUs after the subwords fed so far, [L, B, K, D] in float32 at least."""

    def __init__(self, memory: Tensor, keep_BS: Tensor, lengths: list[int], width: int) -> None:
        super().__init__(memory, keep_BS, lengths, width)
        L, _, B, H, _, d = memory.shape
        dtype = torch.promote_types(memory.dtype, torch.float32)
        self.cells_LBKD = memory.new_zeros(L, B, width, H * d, dtype=dtype)

    def layers(self) -> list[tuple[Seen, Tensor]]:
        """Returns each layer's part for this step: the source, and the states [B, K, D], which a step overwrites."""
        return list(zip(self.sources(), self.cells_LBKD.unbind(), strict=True))

    def reorder(self, parents_BK: Tensor) -> None:
        """Row k of each sentence continues the old row `parents_BK[:, k]`."""
        B, K = parents_BK.shape
        rows_BK = parents_BK + torch.arange(0, B * K, K, device=parents_BK.device)[:, None]
        cells_LND = self.cells_LBKD.flatten(1, 2)
        self.cells_LBKD = cells_LND.index_select(1, rows_BK.flatten().to(cells_LND.device)).view_as(self.cells_LBKD)

    def select(self, sentences: Sequence[int]) -> Tensor:
        at_b = super().select(sentences)
        self.cells_LBKD = self.cells_LBKD.index_select(1, at_b)
        return at_b

    def admit(self, memory: Tensor, keep_BS: Tensor, lengths: list[int], places: Sequence[int]) -> list[int]:
        taken = super().admit(memory, keep_BS, lengths, places)
        self.cells_LBKD = pad_to(self.cells_LBKD, len(self.lengths), 1)
        self.cells_LBKD[:, taken] = 0
        return taken


class SelfAttentionState(DecodingState):
    """A DecodingState with the keys and values of the subwords fed so far, and which of them each row may see.

    `own` [L, 2, B, H, C, d] holds the keys and values. Each step fills one slot per row. Reordering the beam moves no
    keys or values: `ancestors_BKn` says which slots belong to a row's own history, and only these marks are reordered.

    With `reuse_slots`, a step takes the first slots that are not in any row's history. Rows of a beam have most of
    their history in common, so a sentence needs about twice as many slots as its rows are long. Finding free slots
    reads the marks on the host. That would synchronise a GPU, so a GPU takes new slots in each step.

    Example: one sentence, two rows, three steps, with reused slots. After each step, `reorder` says which old row
    each row continues.

        step  subwords fed   slots taken   ancestors of row 0, row 1   rows continued
        1     <s>   <s>      0  1          0          1                0  0   (slot 1 is free again)
        2     Ein   Der      1  2          0 1        0 2              1  0
        3     Hund  Mann     3  4          0 2 3      0 1 4

    Row 0 now stands for "Der Hund" and row 1 for "Ein Mann"; slot 0 belongs to both.
    """

    def __init__(self, memory: Tensor, keep_BS: Tensor, lengths: list[int], width: int, *, reuse_slots: bool) -> None:
        super().__init__(memory, keep_BS, lengths, width)
        B = len(lengths)
        self.reuse_slots = reuse_slots
        self.own_cache = Cache(memory.new_zeros(*memory.shape[:4], LEAST + 12 * width, memory.shape[5]))
        self.ancestors_BKn = keep_BS.new_zeros(B, width, LEAST)
        self.slots_BK = self.entered_B.new_empty(B, width)  # of the newest subwords
        self.near = LEAST  # slots that suffice for most sentences
        self.far_f: Tensor | None = None  # the other sentences
        self.itself_KK = torch.eye(width, dtype=torch.bool, device=memory.device)
        self._places = self._places_of_slot_0()

    @property
    def own(self) -> Tensor:
        return self.own_cache.tensor

    @property
    def used(self) -> int:
        """The number of slots in use, the same for all sentences."""
        return self.ancestors_BKn.shape[2]

    def advance(self) -> Tensor:
        """Begins a step: takes one slot per row, and returns how many subwords each sentence was fed before [B]."""
        age_B = super().advance()
        B, K = self.ancestors_BKn.shape[:2]
        if self.reuse_slots:
            self._take_free_slots()
        else:
            n = self.oldest * K
            self._reserve(n)
            self._cut(whole_slots(n))
            self.slots_BK = age_B[:, None] * K + torch.arange(K, device=age_B.device)
            self.near, self.far_f = self.used, None
        at_BKK = self.slots_BK[:, None].expand(B, K, K)
        self.ancestors_BKn.scatter_(2, at_BKK, self.itself_KK.expand(B, K, K))
        return age_B

    def _take_free_slots(self) -> None:
        """Takes the first free slots of each sentence, and finds how many slots most sentences need."""
        K = self.width
        live_Bn: NDArray[np.bool_] = np.logical_or.reduce(self.ancestors_BKn.numpy(), 1)
        self._reserve(int(live_Bn.sum(1).max()) + K)
        if live_Bn.shape[1] < self.used:
            live_Bn = np.logical_or.reduce(self.ancestors_BKn.numpy(), 1)
        slots_BK = live_Bn.argsort(axis=1, kind="stable")[:, :K]
        live_Bn[np.arange(len(live_Bn))[:, None], slots_BK] = True
        self.slots_BK = torch.from_numpy(slots_BK)
        last_B = self.used - live_Bn[:, ::-1].argmax(1)
        ends = np.sort(last_B).tolist()
        most, all_ = whole_slots(ends[-1 - len(ends) // FAR_SHARE]), whole_slots(ends[-1])
        self._cut(all_)
        self.near, self.far_f = all_, None
        if all_ - most >= 2 * SLOTS:
            self.near, self.far_f = most, torch.from_numpy(np.flatnonzero(last_B > most))

    def _reserve(self, slots: int) -> None:
        """Allocates at least that many slots per sentence, and marks the new ones as free."""
        n, used = whole_slots(slots), self.used
        B, C = self.own.shape[2], self.own.shape[4]
        if n > C:
            for new_BHCd, old_BHCd in self.own_cache.resized(B, max(n, C * 3 // 2)):
                new_BHCd[:, :, :used] = old_BHCd[:, :, :used]
            self._places = self._places_of_slot_0()
        if n > used:
            self.ancestors_BKn = pad_to(self.ancestors_BKn, n, 2)

    def _cut(self, n: int) -> None:
        """Stops using the slots from `n` on, which must be free."""
        if n < self.used:
            self.ancestors_BKn = self.ancestors_BKn[:, :, :n].contiguous()

    def layers(self) -> list[LayerState]:
        """Returns each layer's part for this step, sliced like `sources`."""
        n = self.near
        newest = (self._places + self.slots_BK[:, :, None, None]).flatten()
        bias_xKn = self._bias(self.ancestors_BKn[:, :, :n])
        far_bias = None if self.far_f is None else self._bias(self.ancestors_BKn[self.far_f])
        own = self.own.flatten(2, 3)
        keys, values = own[:, 0, :, :n].transpose(2, 3).unbind(), own[:, 1, :, :n].unbind()
        return [
            LayerState(cache, newest, source, Seen(k, v, bias_xKn), self.far_f, far_bias)
            for cache, source, k, v in zip(self.own.unbind(), self.sources(), keys, values, strict=True)
        ]

    def _places_of_slot_0(self) -> Tensor:
        """Returns the index of each sentence's first slot in a layer's flattened cache [2 * B * H * C], in the order
        [B, 1, 2, H] in which the newest keys and values [B, K, 2, H] are stored."""
        B, H, C = self.own.shape[2:5]
        places = torch.arange(2 * B * H, device=self.own.device).view(2, B, H) * C
        return places.transpose(0, 1)[:, None]

    def _bias(self, ancestors_bKn: Tensor) -> Tensor:
        """Returns the summand of the attention scores of each head [b * H, K, n]: 0 at ancestors, -inf elsewhere."""
        b, K, n = ancestors_bKn.shape
        bias_bKn = torch.where(ancestors_bKn, self.seen, self.unseen)
        return bias_bKn[:, None].expand(b, self.own.shape[3], K, n).reshape(-1, K, n)

    def reorder(self, parents_BK: Tensor) -> None:
        """Row k of each sentence continues the old row `parents_BK[:, k]`."""
        at_B1 = torch.arange(len(parents_BK), device=self.ancestors_BKn.device)[:, None]
        self.ancestors_BKn = self.ancestors_BKn[at_B1, parents_BK.to(self.ancestors_BKn.device)]

    def drop(self, sentences: Sequence[int]) -> None:
        super().drop(sentences)
        self.ancestors_BKn[list(sentences)] = False  # their slots are free

    def select(self, sentences: Sequence[int]) -> Tensor:
        at_b, n = super().select(sentences), self.used
        self.ancestors_BKn = self.ancestors_BKn[at_b]
        for new_bHCd, old_BHCd in self.own_cache.resized(len(sentences), self.own.shape[4]):
            new_bHCd[:, :, :n] = old_BHCd[:, :, :n].index_select(0, at_b)
        self._places = self._places_of_slot_0()
        return at_b

    def admit(self, memory: Tensor, keep_BS: Tensor, lengths: list[int], places: Sequence[int]) -> list[int]:
        B, n = len(self.lengths), self.used
        taken = super().admit(memory, keep_BS, lengths, places)
        if (now := len(self.lengths)) > B:
            for new_BHCd, old_BHCd in self.own_cache.resized(now, self.own.shape[4]):
                new_BHCd[:B, :, :n] = old_BHCd[:, :, :n]
            self._places = self._places_of_slot_0()
        self.ancestors_BKn = pad_to(self.ancestors_BKn, now, 0)
        self.ancestors_BKn[taken] = False
        return taken


class Cache:
    """Keys and values [L, 2, B, H, n, d] that are resized by copying between two buffers.

    Reusing memory avoids page faults, which cost more than the copy. New memory is zero, because attention multiplies
    unused slots by weights of 0, and 0 * NaN is NaN.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self._buffer, self._spare = tensor.view(-1), tensor.new_empty(0)

    def resized(self, B: int, n: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Resizes `tensor` to [L, 2, B, H, n, d]. Yields pairs of new and old [B, H, n, d]. The caller copies the old
        into the new; the old are valid until the next call."""
        old = self.tensor
        shape = (*old.shape[:2], B, old.shape[3], n, old.shape[5])
        size = math.prod(shape)
        if self._spare.numel() < size:
            self._spare = old.new_empty(0)  # frees its memory before more is allocated
            self._spare = old.new_zeros(size * 5 // 4)
        self._buffer, self._spare = self._spare, self._buffer
        self.tensor = self._buffer[:size].view(shape)
        return zip(self.tensor.flatten(0, 1), old.flatten(0, 1), strict=True)


def whole_slots(slots: int) -> int:
    """Returns the smallest allowed number of slots in use that is at least `slots`."""
    return max(LEAST, -(-slots // SLOTS) * SLOTS)


def pad_to(x: Tensor, length: int, dim: int) -> Tensor:
    """Returns `x` with zeros (False) appended up to `length` along `dim`."""
    missing = length - x.shape[dim]
    if missing == 0:
        return x
    shape = list(x.shape)
    shape[dim] = missing
    return torch.cat([x, x.new_zeros(shape)], dim)
