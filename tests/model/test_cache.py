"""The key-value cache, compared with plain lists: each row sees its own history, whatever enters, leaves or moves."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from vtrans.model.cache import MIN_SLOTS, SLOTS, Cache, DecoderSlots, LayerSlots, Slots, SourceCache

LAYERS, HEADS = 2, 2


def test_the_example_of_the_docstring() -> None:
    """One sentence, two rows, three steps."""
    history = DecoderSlots(2, reuse_slots=True)
    history.admit(SourceCache(torch.zeros(1, 2, 1, 1, 0, 1), torch.ones(1, 0, dtype=torch.bool), [0]), [0], 1)

    def slots() -> list[list[int]]:
        return [row_n.nonzero().flatten().tolist() for row_n in history.attended_BKn[0]]

    for before, parents, after in [
        ([[0], [1]], [0, 0], [[0], [0]]),
        ([[0, 1], [0, 2]], [1, 0], [[0, 2], [0, 1]]),
        ([[0, 2, 3], [0, 1, 4]], [0, 1], [[0, 2, 3], [0, 1, 4]]),
    ]:
        history.layers()
        assert slots() == before
        history.reorder(torch.tensor([parents]))
        assert slots() == after


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


def source_of(sentences: list[Sentence]) -> SourceCache:
    lengths = [len(sentence.source) for sentence in sentences]
    S = max(lengths)
    ids_BS = torch.tensor([sentence.source + [-1] * (S - len(sentence.source)) for sentence in sentences])
    return SourceCache(spread(ids_BS).transpose(2, 3)[..., None].contiguous(), ids_BS >= 0, lengths)


def numbers_in(part: tuple[Tensor, Tensor, Tensor], layer: int) -> list[list[list[int]]]:
    """Returns the numbers that each row of each sentence sees; keys, values and all heads must agree."""
    keys_BHn1, values_BHn1, bias_B1Kn = part
    may_BKn = bias_B1Kn[:, 0] == 0
    assert (may_BKn | (bias_B1Kn[:, 0] == -torch.inf)).all()
    base_2H = torch.arange(1, 1 + LAYERS * 2 * HEADS).view(LAYERS, 2, HEADS)[layer] * 1e6
    both_2BHn = torch.stack((keys_BHn1, values_BHn1))[..., 0] - base_2H.view(2, 1, HEADS, 1)
    sentences = []
    for b, may_Kn in enumerate(may_BKn):
        rows = []
        for may_n in may_Kn:
            views = both_2BHn[:, b, :, may_n].flatten(0, 1).tolist()
            assert views == [views[0]] * len(views)
            rows.append(sorted(map(int, views[0])))
        sentences.append(rows)
    return sentences


def step(cache: Cache, batch: list[Sentence], numbers: Numbers) -> None:
    """Takes a step in which each row stores a number, and checks what the rows see in each layer."""
    begin = [len(s.source) * s.live * (cache.memory is None) for s in batch]  # of the target in its sequence
    assert cache.positions == [start + len(s.rows[0]) for start, s in zip(begin, batch, strict=True)]
    assert cache.position_B.tolist() == cache.positions
    for sentence in batch:
        for row in sentence.rows:
            row.append(numbers.new())
    newest_BK = torch.tensor([[row[-1] for row in sentence.rows] for sentence in batch])
    wanted = [[sorted([*s.source[:start], *row]) for row in s.rows] for start, s in zip(begin, batch, strict=True)]
    for layer, part in enumerate(cache.advance()):
        k_BHK1, v_BHK1 = spread(newest_BK)[layer].transpose(1, 2)[..., None]
        assert isinstance(part.history, LayerSlots)
        assert numbers_in(part.history.append(k_BHK1, v_BHK1), layer) == wanted
        if part.memory is not None:
            sources = numbers_in(part.memory.stored(), layer)
            for sentence, rows in zip(batch, sources, strict=True):
                assert not sentence.live or rows == [sorted(sentence.source)] * len(sentence.rows)


@pytest.mark.parametrize("one_sequence", [False, True])
@pytest.mark.parametrize("reuse_slots", [True, False])
@pytest.mark.parametrize("width", [1, 4, 9])
def test_each_row_sees_its_own_history_and_source(width: int, reuse_slots: bool, one_sequence: bool) -> None:
    numbers, calls = Numbers(width), Counter[str]()
    batch = numbers.sentences(17, width)
    history = DecoderSlots(width, reuse_slots=reuse_slots)
    cache = Cache(history, None if one_sequence else Slots(width))
    cache.admit(source_of(batch), ())
    for t in range(70):
        step(cache, batch, numbers)
        # The slots in use end at the last one that some sentence needs, rounded up.
        if reuse_slots:
            last = int(history.attended_BKn.any(1).any(0).nonzero().max()) + 1
        else:
            last = max(len(s.source) * s.live * one_sequence + len(s.rows[0]) * width for s in batch)
        assert history.used == max(MIN_SLOTS, -(-last // SLOTS) * SLOTS)
        parents_BK = [numbers.parents(width, apart=b % 9 == 4) for b in range(len(batch))]
        cache.reorder(torch.tensor(parents_BK))
        for sentence, parents in zip(batch, parents_BK, strict=True):
            sentence.rows = [list(sentence.rows[parent]) for parent in parents]
        live = [b for b, sentence in enumerate(batch) if sentence.live]
        finished = [b for b in live[1:] if numbers.random.random() < 0.03] if t % 30 < 25 else live[:-2]
        if finished:
            cache.drop(finished)
            for b in finished:
                batch[b].live, batch[b].rows = False, [[] for _ in range(width)]
        empty = [b for b, sentence in enumerate(batch) if not sentence.live]
        chance = numbers.random.random()
        if empty and chance < 0.2:
            calls["select"] += 1
            live = [b for b, sentence in enumerate(batch) if sentence.live]
            cache.select(live)
            batch = [batch[b] for b in live]
        elif chance < 0.4 and len(batch) < 20:
            more = numbers.random.choice([0, 0, 1] if empty else [1, 2])
            calls["append" if more else "admit"] += 1
            fresh = numbers.sentences(len(empty) + more, width)
            cache.admit(source_of(fresh), empty)
            for b, sentence in zip(empty, fresh, strict=False):
                batch[b] = sentence
            batch += fresh[len(empty) :]
        else:
            continue
        if cache.memory is not None:
            longest = max(len(sentence.source) for sentence in batch)
            assert cache.memory.used == max(MIN_SLOTS, -(-longest // SLOTS) * SLOTS)
    assert min(calls["select"], calls["admit"], calls["append"]) >= 2, calls
