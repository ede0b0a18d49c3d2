"""The decoder's memory against lists: whatever enters, leaves and changes its parents, each row sees its own past."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from vtrans.decoding.state import LEAST, SLOTS, DecodingState, Past, Seen

LAYERS, HEADS = 2, 2


@dataclass
class Sentence:
    """What is to be seen of it: each vector is of width 1 and holds a number of its own."""

    source: list[int]
    rows: list[list[int]]  # one number a step
    live: bool = True


class Numbers:
    """A source of sentences and of decisions."""

    def __init__(self, seed: int) -> None:
        self.random, self.last = random.Random(seed), 0

    def new(self) -> int:
        self.last += 1
        return self.last

    def sentences(self, count: int, width: int) -> list[Sentence]:
        lengths = [self.random.randint(1, 30 if self.random.random() < 0.2 else 12) for _ in range(count)]
        return [Sentence([self.new() for _ in range(length)], [[] for _ in range(width)]) for length in lengths]

    def parents(self, width: int, apart: bool) -> list[int]:
        """Of a beam, which goes on from few of its rows; or of rows that stay apart."""
        few = self.random.choices(range(width), k=1 + width // 4)
        return list(range(width)) if apart else self.random.choices(few, k=width)


def spread(x: Tensor) -> Tensor:
    """Numbers [...] as keys and values [L, 2, H, ...] of which each layer, head and kind has its own."""
    signs = torch.arange(1, 1 + LAYERS * 2 * HEADS, dtype=torch.float64).view(LAYERS, 2, HEADS)
    return x.double() + signs.view(LAYERS, 2, HEADS, *[1] * x.ndim) * 1e6


def memory(sentences: list[Sentence]) -> tuple[Tensor, Tensor, list[int]]:
    """As of Transformer._memory, and the lengths."""
    lengths = [len(sentence.source) for sentence in sentences]
    S = max(lengths)
    ids_BS = torch.tensor([sentence.source + [-1] * (S - len(sentence.source)) for sentence in sentences])
    return spread(ids_BS).transpose(2, 3)[..., None].contiguous(), ids_BS >= 0, lengths


def numbers_of(part: Seen, layer: int, B: int) -> list[list[list[int]]]:
    """What the rows of each sentence see [B, K, any number], keys and values and all heads checked to agree."""
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


def looked(past: Past, layer: int, B: int, K: int) -> dict[int, tuple[list[list[int]], list[list[int]]]]:
    """What the rows of each sentence see, of their own past and of the source."""
    asked: dict[int, tuple[list[list[int]], list[list[int]]]] = {}

    def mix(q_BHKd: Tensor, own: Seen, source: Callable[[], Seen]) -> Tensor:
        members = q_BHKd[:, 0, 0, 0].tolist()
        parts = zip(numbers_of(own, layer, len(members)), numbers_of(source(), layer, len(members)), strict=True)
        # Of those that are far back the last answer counts.
        asked.update(zip(map(int, members), parts, strict=True))
        return torch.empty_like(q_BHKd).transpose(1, 2).flatten(2)

    past.mixed(mix, torch.arange(B, dtype=torch.float64)[:, None, None, None].expand(B, HEADS, K, 1))
    return asked


def step(state: DecodingState, batch: list[Sentence], numbers: Numbers) -> None:
    """A step, in which each row of each sentence keeps a number and all layers look."""
    B, K = len(batch), state.width
    age_B = state.next_slots()
    for sentence in batch:
        for row in sentence.rows:
            row.append(numbers.new())
    assert age_B.tolist() == [len(sentence.rows[0]) - 1 for sentence in batch]
    newest_BK = torch.tensor([[row[-1] for row in sentence.rows] for sentence in batch])
    wanted = [[sorted(row) for row in sentence.rows] for sentence in batch]
    sources = [[sorted(sentence.source)] * K for sentence in batch]
    for layer, past in enumerate(state.pasts()):
        past.add(spread(newest_BK)[layer].permute(2, 3, 0, 1)[..., None])  # [B, K, 2, H, d]
        asked = looked(past, layer, B, K)
        for b, sentence in enumerate(batch):
            rows, source = asked[b]
            assert rows == wanted[b], (layer, b)
            assert not sentence.live or source == sources[b], (layer, b)


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("width", [1, 4, 9])
def test_each_row_sees_its_own_past_and_source(width: int, counted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`counted` False is as on a GPU."""
    monkeypatch.setattr(DecodingState, "counted", counted)
    numbers, calls = Numbers(width), Counter[str]()
    batch = numbers.sentences(17, width)
    state = DecodingState(*memory(batch), width)
    for t in range(70):
        step(state, batch, numbers)
        calls["far"] += state.far_f is not None
        calls["several far"] += state.far_f is not None and len(state.far_f) > 1
        # No more is read than somebody needs.
        if counted:
            last = int(state.past_BKn.any(1).any(0).nonzero().max()) + 1
        else:
            last = max(len(sentence.rows[0]) for sentence in batch) * width
        assert state.used == max(LEAST, -(-last // SLOTS) * SLOTS)
        assert state.furthest == max(len(s.source) * s.live + len(s.rows[0]) for s in batch)
        parents_BK = [numbers.parents(width, apart=b % 9 == 4) for b in range(len(batch))]
        state.reorder(torch.tensor(parents_BK))
        for sentence, parents in zip(batch, parents_BK, strict=True):
            sentence.rows = [list(sentence.rows[parent]) for parent in parents]
        live = [b for b, sentence in enumerate(batch) if sentence.live]
        over = [b for b in live[1:] if numbers.random.random() < 0.03] if t % 30 < 25 else live[:-2]
        if over:
            state.drop(over)
            for b in over:
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
    assert not counted or width == 1 or min(calls["far"], calls["several far"]) >= 5, calls
