"""The key-value cache of a decoder (Cache): the state of its layers between search steps, for B sentences with K rows
each.

A step feeds one subword per row, so self-attention has K queries per sentence. The keys and values of all rows of a
sentence lie in its slots. A layer's step is therefore its forward pass with another mask.

A cache stores tensors and returns them; it calls no layer.

Legend: L layers, B sentences in the cache, b some of them, K rows per sentence, H heads, d = D / H head width, S source
length, C slots allocated, n slots in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtrans.system.devices import to_device

# The number of slots in use is a multiple of SLOTS and at least MIN_SLOTS: on a CPU torch's softmax takes ten times as
# long for a row that is shorter than a vector register.
SLOTS, MIN_SLOTS = 8, 16


class SourceCache(NamedTuple):
    """The source keys and values of some sentences, per layer."""

    kv_L2bHSd: Tensor
    keep_bS: Tensor  # True at the positions that are attended to
    lengths: Sequence[int]


class LayerSlots(NamedTuple):
    """One layer's keys and values during one step, with the bias of the attention scores: 0 at the slots that a row
    attends to, else -inf."""

    keys_BHnd: Tensor
    values_BHnd: Tensor
    bias_B1Kn: Tensor
    slots_xd: Tensor  # the memory of all keys, then of all values; x = 2 * B * H * C
    newest: Tensor  # where `append` writes; empty for slots that are only read

    def append(self, k_BHKd: Tensor, v_BHKd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Stores the keys and values of each row's newest subword. Returns the keys and values of all slots, and the
        bias."""
        self.slots_xd.index_copy_(0, self.newest, torch.stack((k_BHKd, v_BHKd)).flatten(0, 3))
        return self.stored()

    def stored(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the keys and values of all slots, and the bias."""
        return self.keys_BHnd, self.values_BHnd, self.bias_B1Kn


class Prefill:
    """Replaces LayerSlots while a decoder-only model reads the sources: collects the keys and values of each layer."""

    def __init__(self, keep_B1SS: Tensor) -> None:
        self.keep_B1SS, self.layers = keep_B1SS, list[Tensor]()

    def append(self, k_BHSd: Tensor, v_BHSd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.layers.append(torch.stack((k_BHSd, v_BHSd)))
        return k_BHSd, v_BHSd, self.keep_B1SS


class LayerCache(NamedTuple):
    """One layer's part of a Cache during one step. The history of an SSRU is its state [B, K, D], which it
    overwrites."""

    history: LayerSlots | Prefill | Tensor
    memory: LayerSlots | None


class Slots:
    """Keys and values of all layers in slots, and which slots each row attends to. This class serves cross-attention: a
    source fills the first slots of its sentence, and all rows attend to them."""

    def __init__(self, width: int, device: torch.device) -> None:
        self.width, self.device = width, device
        self.kv_L2BHCd = torch.empty(1, 2, 0, 1, 0, 1, device=device)
        self.attended_BKn = torch.empty(0, width, 0, dtype=torch.bool, device=device)
        self.ends: list[int] = []  # per sentence, an upper bound on the slots in use
        self._layers: list[LayerSlots] | None = None  # None: sliced in the next step

    @property
    def used(self) -> int:
        """The number of slots in use, the same for all sentences."""
        return self.attended_BKn.shape[2]

    def begin_step(self) -> list[LayerSlots]:
        """Returns each layer's part for this step."""
        if self._layers is None:
            self._layers = self._sliced(torch.empty(0, dtype=torch.long, device=self.device))
        return self._layers

    def _sliced(self, newest: Tensor) -> list[LayerSlots]:
        """Slices all layers at once, because a small tensor operation takes as long as a large one."""
        kv, n = self.kv_L2BHCd, self.used
        keys, values = kv[:, 0, :, :, :n].unbind(), kv[:, 1, :, :, :n].unbind()
        bias_BKn = torch.zeros_like(self.attended_BKn, dtype=kv.dtype).masked_fill_(~self.attended_BKn, -torch.inf)
        slots = kv.view(len(kv), -1, kv.shape[-1]).unbind()
        parts = zip(keys, values, slots, strict=True)
        return [LayerSlots(k, v, bias_BKn[:, None], every, newest) for k, v, every in parts]

    def select(self, sentences: Sequence[int], at_b: Tensor) -> None:
        """Keeps only these sentences; `at_b` is the same list as a tensor."""
        self.ends = [self.ends[b] for b in sentences]
        self.attended_BKn = self.attended_BKn[at_b]
        self.kv_L2BHCd = self.kv_L2BHCd.index_select(2, at_b)
        self._use(self._needed())

    def admit(self, source: SourceCache, places: Sequence[int], at_b: Tensor, B: int) -> None:
        """Stores new sentences at `places`, in a cache of now `B` sentences. `at_b` is `places` as a tensor."""
        kv_L2bHSd, keep_bS, lengths = source
        self.ends += [0] * (B - len(self.ends))
        for b, length in zip(places, lengths, strict=True):
            self.ends[b] = length
        S = keep_bS.shape[1]
        if len(self.attended_BKn) < B:
            self.attended_BKn = pad_to(self.attended_BKn, B, 0)
        self._use(max(self._needed(), whole_slots(S)))
        self._reserve(B, self.used, kv_L2bHSd)
        self.kv_L2BHCd[:, :, :, :, :S].index_copy_(2, at_b, kv_L2bHSd)
        self.attended_BKn[at_b] = pad_to(keep_bS, self.used, 1)[:, None]

    def _needed(self) -> int:
        """Returns how many slots suffice for all sentences."""
        return whole_slots(max(self.ends, default=0))

    def drop(self, sentences: Sequence[int], at_b: Tensor) -> None:
        """Ends these sentences. They still attend to their sources: a row that attends to nothing would be NaN."""
        for b in sentences:
            self.ends[b] = 0

    def _use(self, n: int) -> None:
        """Uses the first `n` slots of each sentence. New ones are free."""
        self._layers = None
        if n > self.used:
            self.attended_BKn = pad_to(self.attended_BKn, n, 2)
        elif n < self.used:
            self.attended_BKn = self.attended_BKn[:, :, :n].contiguous()

    def _reserve(self, B: int, slots: int, like_L2bHSd: Tensor) -> None:
        """Allocates at least that many slots for each of `B` sentences. New memory is zero, because attention
        multiplies free slots by weights of 0, and 0 * NaN is NaN."""
        L, _, _, H, _, d = like_L2bHSd.shape
        old_B, C = self.kv_L2BHCd.shape[2], self.kv_L2BHCd.shape[4]
        if slots <= C and old_B == B:
            return
        new = like_L2bHSd.new_zeros(L, 2, B, H, C if slots <= C else max(slots, C * 3 // 2), d)
        if old_B:
            new[:, :, :old_B, :, :C] = self.kv_L2BHCd
        self.kv_L2BHCd = new


class DecoderSlots(Slots):
    """The slots of self-attention, with the subwords fed so far. In a decoder-only model they begin with the source.

    Each step fills one slot per row. Reordering the beam moves no keys or values: `attended_BKn` says which slots
    belong to the history of a row, and only these marks are reordered.

    With `reuse_slots`, a step takes the first slots that are not in any row's history. Rows of a beam have most of
    their history in common, so a sentence needs about twice as many slots as its rows are long. Finding free slots
    reads the marks on the host. That would synchronise a GPU, so a GPU takes new slots in each step.

    Example: one sentence, two rows, three steps, with reused slots. After each step, `reorder` says which old row
    each row continues.

        step  subwords fed   slots taken   slots of row 0, row 1       rows continued
        1     <s>   <s>      0  1          0          1                0  0   (slot 1 is free again)
        2     Ein   Der      1  2          0 1        0 2              1  0
        3     Hund  Mann     3  4          0 2 3      0 1 4

    Row 0 now stands for "Der Hund" and row 1 for "Ein Mann"; slot 0 belongs to both.
    """

    def __init__(self, width: int, device: torch.device, *, reuse_slots: bool) -> None:
        super().__init__(width, device)
        self.reuse_slots = reuse_slots
        self.itself_KK = torch.eye(width, dtype=torch.bool, device=device)
        self.next_B = torch.empty(0, dtype=torch.long, device=device)  # the first slot that was never taken

    def begin_step(self) -> list[LayerSlots]:
        """Takes a slot for each row's newest subword, and returns each layer's part for this step."""
        B, K = self.attended_BKn.shape[:2]
        slots_BK = self._free_slots() if self.reuse_slots else self._next_slots()
        self.attended_BKn.scatter_(2, slots_BK[:, None].expand(B, K, K), self.itself_KK.expand(B, K, K))
        H, C = self.kv_L2BHCd.shape[3:5]
        first_2BH1 = torch.arange(0, 2 * B * H * C, C, device=slots_BK.device).view(2, B, H, 1)
        return self._sliced((first_2BH1 + slots_BK[:, None]).flatten())

    def _free_slots(self) -> Tensor:
        """Returns the first free slots of each sentence, and uses as many slots as this takes."""
        K, taken_Bn = self.width, self._taken()
        self._use(max(self.used, whole_slots(int(taken_Bn.sum(1).max()) + K)))
        if self.used > taken_Bn.shape[1]:
            taken_Bn = self._taken()
        slots_BK = taken_Bn.argsort(axis=1, kind="stable")[:, :K]
        taken_Bn[np.arange(len(taken_Bn))[:, None], slots_BK] = True
        self._use(whole_slots(int(np.flatnonzero(taken_Bn.any(0))[-1]) + 1))
        self._reserve(len(taken_Bn), self.used, self.kv_L2BHCd)
        return torch.from_numpy(slots_BK)

    def _taken(self) -> NDArray[np.bool_]:
        taken_Bn: NDArray[np.bool_] = np.logical_or.reduce(self.attended_BKn.numpy(), 1)
        return taken_Bn

    def _next_slots(self) -> Tensor:
        slots_BK = self.next_B[:, None] + torch.arange(self.width, device=self.device)
        self.next_B += self.width
        self.ends = [end + self.width for end in self.ends]
        self._use(whole_slots(max(self.ends)))
        self._reserve(len(self.ends), self.used, self.kv_L2BHCd)
        return slots_BK

    def _needed(self) -> int:
        return self.used if self.reuse_slots else super()._needed()

    def reorder(self, parents_BK: Tensor) -> None:
        """Row k of each sentence continues the old row `parents_BK[:, k]`."""
        at_B1 = torch.arange(len(parents_BK), device=self.device)[:, None]
        self.attended_BKn = self.attended_BKn[at_B1, parents_BK]

    def select(self, sentences: Sequence[int], at_b: Tensor) -> None:
        self.next_B = self.next_B[at_b]
        super().select(sentences, at_b)

    def admit(self, source: SourceCache, places: Sequence[int], at_b: Tensor, B: int) -> None:
        super().admit(source, places, at_b, B)
        starts_b = to_device(torch.tensor(source.lengths), self.device)
        self.next_B = pad_to(self.next_B, B, 0).index_copy(0, at_b, starts_b)

    def drop(self, sentences: Sequence[int], at_b: Tensor) -> None:
        super().drop(sentences, at_b)
        self.attended_BKn.index_fill_(0, at_b, False)  # their slots are free
        self.next_B.index_fill_(0, at_b, 0)


class States:
    """The SSRU states of all layers after the subwords fed so far, [L, B, K, D], in at least float32."""

    def __init__(self, width: int, device: torch.device) -> None:
        self.width = width
        self.states_LBKD = torch.empty(1, 0, width, 1, device=device)

    def begin_step(self) -> list[Tensor]:
        return list(self.states_LBKD.unbind())

    def reorder(self, parents_BK: Tensor) -> None:
        B, K = parents_BK.shape
        rows_BK = parents_BK + torch.arange(0, B * K, K, device=parents_BK.device)[:, None]
        chosen_LND = self.states_LBKD.flatten(1, 2).index_select(1, rows_BK.flatten())
        self.states_LBKD = chosen_LND.view_as(self.states_LBKD)

    def select(self, sentences: Sequence[int], at_b: Tensor) -> None:
        self.states_LBKD = self.states_LBKD.index_select(1, at_b)

    def admit(self, source: SourceCache, places: Sequence[int], at_b: Tensor, B: int) -> None:
        L, _, _, H, _, d = source.kv_L2bHSd.shape
        dtype = torch.promote_types(source.kv_L2bHSd.dtype, torch.float32)
        states_LBKD = source.kv_L2bHSd.new_zeros(L, B, self.width, H * d, dtype=dtype)
        states_LBKD[:, : self.states_LBKD.shape[1]] = self.states_LBKD
        self.states_LBKD = states_LBKD.index_fill_(1, at_b, 0)

    def drop(self, sentences: Sequence[int], at_b: Tensor) -> None:
        """Does nothing: `admit` resets the states."""


class Cache:
    """The incremental state of a decoder for B sentences with K rows each, initially empty.

    `history` is the state of the subwords fed so far, `memory` the source for cross-attention. A decoder-only model has
    no memory, and its history begins with the source. The methods match `search.Decoder`.
    """

    def __init__(self, history: DecoderSlots | States, memory: Slots | None, device: torch.device) -> None:
        self.history, self.memory, self.device = history, memory, device
        # The position of each sentence's next subword, on the host and on the device. Dropped sentences restart at 0.
        self.positions: list[int] = []
        self.position_B = torch.empty(0, dtype=torch.long, device=device)

    @property
    def parts(self) -> list[Slots | States]:
        return [self.history] if self.memory is None else [self.history, self.memory]

    def advance(self) -> list[LayerCache]:
        """Begins a step. Returns each layer's part."""
        self.positions = [position + 1 for position in self.positions]
        self.position_B += 1
        histories: Sequence[LayerSlots | Tensor] = self.history.begin_step()
        memories = [None] * len(histories) if self.memory is None else self.memory.begin_step()
        return [LayerCache(*parts) for parts in zip(histories, memories, strict=True)]

    def reorder(self, parents_BK: Tensor) -> None:
        """Row k of each sentence continues the old row `parents_BK[:, k]`."""
        self.history.reorder(parents_BK)

    def drop(self, sentences: Sequence[int]) -> None:
        """Ends these sentences, which keep their places."""
        at_b = self._numbers(sentences)
        for part in self.parts:
            part.drop(sentences, at_b)
        for b in sentences:
            self.positions[b] = 0
        self.position_B.index_fill_(0, at_b, 0)

    def select(self, sentences: Sequence[int]) -> None:
        """Keeps only these sentences, in this order."""
        at_b = self._numbers(sentences)
        self.positions, self.position_B = [self.positions[b] for b in sentences], self.position_B[at_b]
        for part in self.parts:
            part.select(sentences, at_b)

    def admit(self, source: SourceCache, places: Sequence[int]) -> None:
        """Puts new sentences into the places of dropped ones, and the remaining new sentences after the last."""
        one_sequence, first = self.memory is None, len(self.positions)
        B = first + len(source.lengths) - len(places)
        taken = [*places, *range(first, B)]
        at_b, kv_L2bHSd = self._numbers(taken), source.kv_L2bHSd
        nothing = SourceCache(kv_L2bHSd[..., :0, :], source.keep_bS[:, :0], [0] * len(source.lengths))
        self.history.admit(source if one_sequence else nothing, taken, at_b, B)
        if self.memory is not None:
            self.memory.admit(source, taken, at_b, B)
        starts = source.lengths if one_sequence else nothing.lengths
        self.positions += [0] * (B - first)
        for b, start in zip(taken, starts, strict=True):
            self.positions[b] = start
        self.position_B = pad_to(self.position_B, B, 0).index_copy(0, at_b, self._numbers(starts))

    def _numbers(self, numbers: Sequence[int]) -> Tensor:
        return to_device(torch.tensor(numbers, dtype=torch.long), self.device)


def whole_slots(slots: int) -> int:
    """Returns the smallest allowed number of slots in use that is at least `slots`."""
    return max(MIN_SLOTS, -(-slots // SLOTS) * SLOTS)


def pad_to(x: Tensor, length: int, dim: int) -> Tensor:
    """Returns `x` with zeros (False) appended up to `length` along `dim`."""
    missing = length - x.shape[dim]
    if missing == 0:
        return x
    shape = list(x.shape)
    shape[dim] = missing
    return torch.cat([x, x.new_zeros(shape)], dim)
