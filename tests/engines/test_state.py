"""The decoding state, compared with plain lists: each row sees its own history, whatever enters, leaves or moves."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from vtrans.engines.state import LEAST, SLOTS, LayerState, Seen, SelfAttentionState

LAYERS, HEADS = 2, 2


def test_the_example_of_the_docstring() -> None:
    """One sentence, two rows, three steps."""
    state = SelfAttentionState(
        torch.zeros(1, 2, 1, 1, 3, 1), torch.ones(1, 3, dtype=torch.bool), [3], width=2, reuse_slots=True
    )

    def ancestors() -> list[list[int]]:
        return [row_n.nonzero().flatten().tolist() for row_n in state.ancestors_BKn[0]]

    for slots, before, parents, after in [
        ([0, 1], [[0], [1]], [0, 0], [[0], [0]]),
        ([1, 2], [[0, 1], [0, 2]], [1, 0], [[0, 2], [0, 1]]),
        ([3, 4], [[0, 2, 3], [0, 1, 4]], [0, 1], [[0, 2, 3], [0, 1, 4]]),
    ]:
        state.advance()
        assert state.slots_BK.tolist() == [slots]
        assert ancestors() == before
        state.reorder(torch.tensor([parents]))
        assert ancestors() == after


@dataclass
class Sentence:
    """A sentence as the numbers that its rows must see. Each key and value has width 1 and holds a unique number."""

    source: list[int]
    rows: list[list[int]]  # one number per step
    live: bool = True


class Numbers:
    """Draws sentences and decisions at random."""

    def __init__(self, seed: int) -> None:
        self.random, self.last = random.Random(seed), 0

    def new(self) -> int:
        self.last += 1
        return self.last

    def sentences(self, count: int, width: int) -> list[Sentence]:
        lengths = [self.random.randint(1, 30 if self.random.random() < 0.2 else 12) for _ in range(count)]
        return [Sentence([self.new() for _ in range(length)], [[] for _ in range(width)]) for length in lengths]

    def parents(self, width: int, apart: bool) -> list[int]:
        """Returns the parents of a beam that continues few of its rows, or of rows that stay apart."""
        few = self.random.choices(range(width), k=1 + width // 4)
        return list(range(width)) if apart else self.random.choices(few, k=width)


def spread(x: Tensor) -> Tensor:
    """Returns numbers [...] as keys and values [L, 2, H, ...], different for each layer, head and kind."""
    signs = torch.arange(1, 1 + LAYERS * 2 * HEADS, dtype=torch.float64).view(LAYERS, 2, HEADS)
    return x.double() + signs.view(LAYERS, 2, HEADS, *[1] * x.ndim) * 1e6


def memory(sentences: list[Sentence]) -> tuple[Tensor, Tensor, list[int]]:
    """Returns the sources as `SelfAttentionState` and its `admit` take them: keys and values, mask, lengths."""
    lengths = [len(sentence.source) for sentence in sentences]
    S = max(lengths)
    ids_BS = torch.tensor([sentence.source + [-1] * (S - len(sentence.source)) for sentence in sentences])
    return spread(ids_BS).transpose(2, 3)[..., None].contiguous(), ids_BS >= 0, lengths


def numbers_in(part: Seen, layer: int, B: int) -> list[list[list[int]]]:
    """Returns the numbers that each row of each sentence sees; keys, values and all heads must agree."""
    x, K, n = part.bias_xKn.shape
    assert x == B * HEADS
    may_xKn = part.bias_xKn == 0
    assert (may_xKn | (part.bias_xKn == -torch.inf)).all()
    base_2H = torch.arange(1, 1 + LAYERS * 2 * HEADS).view(LAYERS, 2, HEADS)[layer] * 1e6
    both_2BHn = torch.stack((part.keys_xdn.transpose(1, 2), part.values_xnd)).view(2, B, HEADS, n)
    own_2BHn = both_2BHn - base_2H.view(2, 1, HEADS, 1)
    found = []
    for b in range(B):
        rows = []
        for k in range(K):
            views = [own_2BHn[kind, b, h][may_xKn[b * HEADS + h, k]].tolist() for kind in (0, 1) for h in range(HEADS)]
            assert views == [views[0]] * len(views)
            rows.append(sorted(map(int, views[0])))
        found.append(rows)
    return found


def step(state: SelfAttentionState, batch: list[Sentence], numbers: Numbers) -> None:
    """Takes a step in which each row stores a number, and checks what the rows see in each layer."""
    age_B = state.advance()
    for sentence in batch:
        for row in sentence.rows:
            row.append(numbers.new())
    assert age_B.tolist() == [len(sentence.rows[0]) - 1 for sentence in batch]
    newest_BK = torch.tensor([[row[-1] for row in sentence.rows] for sentence in batch])
    for layer, own in enumerate(state.layers()):
        own.store(spread(newest_BK)[layer].permute(2, 3, 0, 1)[..., None])  # [B, K, 2, H, d]
        check(own, layer, batch)


def check(layer_state: LayerState, layer: int, batch: list[Sentence]) -> None:
    wanted = [[sorted(row) for row in sentence.rows] for sentence in batch]
    found = numbers_in(layer_state.own, layer, len(batch))
    sources = numbers_in(layer_state.source, layer, len(batch))
    for b, sentence in enumerate(batch):
        assert not sentence.live or sources[b] == [sorted(sentence.source)] * len(sentence.rows), (layer, b)
    if (far_f := layer_state.far_f) is not None:
        members = far_f.tolist()
        assert numbers_in(layer_state.source.select(far_f, HEADS), layer, len(members)) == [sources[b] for b in members]
        for b, rows in zip(members, numbers_in(layer_state.own_of_far(), layer, len(members)), strict=True):
            assert found[b] != rows, "own does not suffice"
            found[b] = rows
    assert found == wanted, layer


@pytest.mark.parametrize("reuse_slots", [True, False])
@pytest.mark.parametrize("width", [1, 4, 9])
def test_each_row_sees_its_own_history_and_source(width: int, reuse_slots: bool) -> None:
    numbers, calls = Numbers(width), Counter[str]()
    batch = numbers.sentences(17, width)
    state = SelfAttentionState(*memory(batch), width, reuse_slots=reuse_slots)
    for t in range(70):
        step(state, batch, numbers)
        calls["far"] += state.far_f is not None
        calls["several far"] += state.far_f is not None and len(state.far_f) > 1
        # The slots in use end at the last one that some sentence needs, rounded up.
        if reuse_slots:
            last = int(state.ancestors_BKn.any(1).any(0).nonzero().max()) + 1
        else:
            last = max(len(sentence.rows[0]) for sentence in batch) * width
        assert state.used == max(LEAST, -(-last // SLOTS) * SLOTS)
        assert state.longest == max(len(s.source) * s.live + len(s.rows[0]) for s in batch)
        parents_BK = [numbers.parents(width, apart=b % 9 == 4) for b in range(len(batch))]
        state.reorder(torch.tensor(parents_BK))
        for sentence, parents in zip(batch, parents_BK, strict=True):
            sentence.rows = [list(sentence.rows[parent]) for parent in parents]
        live = [b for b, sentence in enumerate(batch) if sentence.live]
        finished = [b for b in live[1:] if numbers.random.random() < 0.03] if t % 30 < 25 else live[:-2]
        if finished:
            state.drop(finished)
            for b in finished:
                batch[b].live, batch[b].rows = False, [[] for _ in range(width)]
        empty = [b for b, sentence in enumerate(batch) if not sentence.live]
        chance = numbers.random.random()
        if empty and chance < 0.2:
            calls["select"] += 1
            live = [b for b, sentence in enumerate(batch) if sentence.live]
            state.select(live)
            batch = [batch[b] for b in live]
        elif chance < 0.4 and len(batch) < 20:
            more = numbers.random.choice([0, 0, 1] if empty else [1, 2])
            calls["append" if more else "admit"] += 1
            fresh = numbers.sentences(len(empty) + more, width)
            state.admit(*memory(fresh), empty)
            for b, sentence in zip(empty, fresh, strict=False):
                batch[b] = sentence
            batch += fresh[len(empty) :]
        else:
            continue
        assert state.keep_BS.shape[1] == max(LEAST, *(len(sentence.source) for sentence in batch))
    assert min(calls["select"], calls["admit"], calls["append"]) >= 2, calls
    assert not reuse_slots or width == 1 or min(calls["far"], calls["several far"]) >= 5, calls
