"""Incremental decoding equals the full forward pass, however the batch changes between steps."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch
from drawn import seeded, seeded_tensors, some
from networks import SEQUENCES, SMALL, VARIANTS, V, make, padded, sequences, step

from vtrans.config import ModelConfig
from vtrans.engines.incremental import IncrementalDecoder, best_of
from vtrans.model.cache import DecoderSlots
from vtrans.search.ranking import best_tokens
from vtrans.system.errors import LogprobsError

EVERY = [*VARIANTS, *SEQUENCES, dataclasses.replace(SMALL, source_eos=False)]
# Slots are the business of a cache, which differs by positions, history and source.
CACHES = [SMALL, VARIANTS[2], VARIANTS[4], VARIANTS[11], VARIANTS[12], SEQUENCES[0], SEQUENCES[1], SEQUENCES[4]]


@pytest.mark.parametrize(
    ("config", "reuse_slots"),
    [*((config, True) for config in some(EVERY, 6)), *((config, False) for config in some(CACHES, 2))],
)
def test_each_row_attends_to_its_own_history(config: ModelConfig, reuse_slots: bool) -> None:
    """Rows change parents, sentences end, others take their places, the batch grows and shrinks: each live row
    still equals its full forward pass."""
    model = make(config)
    decoder, width = IncrementalDecoder(model), 3
    decoder.reuse_slots = reuse_slots
    numbers = seeded(3)
    batch: list[list[int] | None] = list(sequences(6, 4, 9))  # the sources; None: an empty place
    histories: list[list[list[int]]] = [[[] for _ in range(width)] for _ in batch]
    calls = Counter[str]()
    with torch.inference_mode():
        state = decoder.start([source for source in batch if source], width)
        for t in range(45):  # more than the caches hold at first
            tokens = torch.tensor([[numbers.randrange(4, V) for _ in range(width)] for _ in batch])
            logprobs = step(decoder, state, tokens)
            for b, source in enumerate(batch):
                histories[b] = [[*row, token] for row, token in zip(histories[b], tokens[b].tolist(), strict=True)]
                if source is not None and (t % 3 == 0 or t > 40):
                    src, keep = padded([source] * width)
                    full = model(src, keep, torch.tensor(histories[b]))[:, -1].log_softmax(-1)
                    torch.testing.assert_close(logprobs[b][:, 1:], full[:, 1:], rtol=0, atol=1e-10)
            parents = [[numbers.randrange(width) for _ in range(width)] for _ in batch]
            decoder.reorder(state, np.array(parents))
            histories = [[rows[k] for k in chosen] for rows, chosen in zip(histories, parents, strict=True)]
            live = [b for b, source in enumerate(batch) if source is not None]
            over = [b for b in live[1:] if numbers.random() < 0.08]
            if over:
                decoder.drop(state, over)
                batch = [None if b in over else source for b, source in enumerate(batch)]
            empty = [b for b, source in enumerate(batch) if source is None]
            if len(empty) > 1 and numbers.random() < 0.5:
                calls["select"] += 1
                live = [b for b, source in enumerate(batch) if source is not None]
                decoder.select(state, live)
                batch, histories, empty = [batch[b] for b in live], [histories[b] for b in live], []
            if len(batch) < 6 and numbers.random() < (0.7 if empty else 0.2):
                fresh = sequences(*(numbers.randint(1, 12) for _ in range(len(empty) + numbers.randint(not empty, 1))))
                calls["admit" if empty else "append"] += 1
                decoder.admit(state, fresh, empty)
                batch += [None] * (len(fresh) - len(empty))
                histories += [[] for _ in range(len(fresh) - len(empty))]
                for b, source in zip([b for b, s in enumerate(batch) if s is None], fresh, strict=True):
                    batch[b], histories[b] = source, [[] for _ in range(width)]
    assert min(calls["select"], calls["admit"], calls["append"]) >= 1, calls


def test_slots_outside_every_rows_history_are_reused() -> None:
    decoder = IncrementalDecoder(make(SMALL))
    with torch.inference_mode():
        state = decoder.start(sequences(4, 6), 4)
        for _ in range(40):
            step(decoder, state, torch.full((2, 4), 5))
            decoder.reorder(state, np.array([[0, 0, 0, 0], [2, 2, 2, 2]]))
    assert isinstance(state.history, DecoderSlots)
    assert state.history.used == 48  # 40 slots in all rows' history, and the newest of each row, rounded up


@pytest.mark.parametrize("V", [5, 300])
@pytest.mark.parametrize("count", [2, 9])
def test_the_best_tokens_on_a_gpu_equal_the_search(V: int, count: int) -> None:
    logprobs_nV = torch.randn(60, V, generator=seeded_tensors(V))
    logprobs_nV[10:40] = logprobs_nV[10:40].mul(3).round()  # many ties, in whichever order topk leaves them
    logprobs_nV[40:50, 3:] = -torch.inf
    values, ids = best_of(logprobs_nV.clone(), count)
    expected_values, expected_ids = best_tokens([logprobs_nV.numpy()], count)
    assert np.array_equal(values, expected_values)
    possible = values > -np.inf
    assert np.array_equal(ids[possible], expected_ids[possible])
    logprobs_nV[7, 2] = torch.nan
    with pytest.raises(LogprobsError):
        best_of(logprobs_nV, count)
