"""Compiled code that projects only the subwords that a sentence lists."""

from __future__ import annotations

import dataclasses
import math
import os
import random
import shlex
import shutil
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from networks import BOS, SMALL, make, sequences

from vtrans.checkpoint import arrays_of
from vtrans.compiled import compiler
from vtrans.compiled.decoder import CompiledDecoder, compiled_decoder
from vtrans.compiled.weights import PRECISIONS
from vtrans.search.decoder import Best, logprobs_of
from vtrans.search.history import Ints
from vtrans.text.vocabulary import PAD_ID

COMPILER = shutil.which(shlex.split(os.environ.get("CXX") or "g++")[0])
pytestmark = pytest.mark.skipif(COMPILER is None, reason="a C++ compiler is not installed: apt-get install g++")
ALL = list(compiler.INSTRUCTIONS)
INSTRUCTIONS = pytest.mark.parametrize("instructions", ALL[ALL.index(compiler.instructions()) :])
SIZE = 150  # several panels of any processor


class Lists:
    """Random subwords for each sentence that enters, besides the common ones; some have none."""

    def __init__(self, common: Sequence[int]) -> None:
        self.numbers, self.common, self.listed = random.Random(6), set(common), list[list[int]]()

    def __call__(self, sources: Sequence[Sequence[int]]) -> Ints:
        more_BV = np.zeros((len(sources), SIZE), dtype=bool)
        for row in more_BV:
            chosen = set(self.numbers.sample(range(1, SIZE), self.numbers.choice((0, 3, 90)))) - self.common
            row[list(chosen)] = True
            self.listed.append(sorted(chosen | self.common))
        return np.argwhere(more_BV)


@INSTRUCTIONS
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("common", [(3,), (3, *range(7, 140, 2))])
def test_the_logits_of_listed_subwords_are_those_of_the_vocabulary(
    precision: str, common: tuple[int, ...], instructions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentences end, others take their places, and the batch shrinks; a row's list is always that of its sentence."""
    monkeypatch.setattr(compiler, "instructions", lambda: instructions)
    model = make(dataclasses.replace(SMALL, projection_bias=True), src=SIZE, tgt=SIZE).float()
    library, lists, width, numbers = compiled_decoder(None), Lists(common), 3, random.Random(2)
    whole = CompiledDecoder(arrays_of(model), library, precision)
    limited = CompiledDecoder(arrays_of(model), library, precision, common).limited(lists)
    states = [d.start(sequences(6, 9, 4), width) for d in (whole, limited)]
    batch: list[int | None] = [0, 1, 2]  # the list of the sentence in each place
    batches: dict[int, list[int | None]] = {5: [0, None, 2], 8: [0, 3, 2, 4], 11: [0, None, 2, 4], 14: [2, 4]}
    with torch.inference_mode():
        for t in range(24):
            tokens = np.array([[numbers.randrange(4, SIZE) for _ in range(width)] for _ in batch])
            live = [
                b * width + k for b, n in enumerate(batch) if n is not None for k in range(width) if (b + k + t) % 4
            ]
            [full] = whole.step(states[0], tokens, np.array(live))
            [block] = limited.step(states[1], tokens, np.array(live), 9 if t % 2 else None)
            for place, row in enumerate(live):
                n = batch[row // width]
                assert n is not None
                ids = torch.tensor(lists.listed[n])
                expected = torch.full((SIZE,), -torch.inf)
                expected[ids] = torch.from_numpy(logprobs_of(full)[place])[ids].log_softmax(0)
                if isinstance(block, Best):
                    check_best(block, place, expected)
                else:
                    torch.testing.assert_close(torch.from_numpy(block[place]), expected, rtol=0, atol=1e-5)
            parents = np.array([[numbers.randrange(width) for _ in range(width)] for _ in batch])
            for decoder, state in zip((whole, limited), states, strict=True):
                decoder.reorder(state, parents)
                if t in (5, 11):
                    decoder.drop(state, [1])
                if t == 8:
                    decoder.admit(state, sequences(5, 7), [1])
                if t == 14:
                    decoder.select(state, [2, 3])
            batch = batches.get(t, batch)


def check_best(block: Best, place: int, expected: torch.Tensor) -> None:
    values, ids = torch.tensor(block.logprobs[place]), torch.tensor(block.ids[place])
    possible = min(len(values), int((expected > -torch.inf).sum()))
    torch.testing.assert_close(values[:possible], expected.topk(possible).values, rtol=0, atol=1e-5)
    torch.testing.assert_close(values[:possible], expected[ids[:possible]], rtol=0, atol=1e-5)
    assert (values[possible:] == -torch.inf).all()
    assert (ids[possible:] == PAD_ID).all()
    ranked = list(zip((-values[:possible]).tolist(), ids.tolist(), strict=False))
    assert ranked == sorted(ranked)


def test_equal_logprobs_rank_by_id_whether_a_subword_is_common_or_not() -> None:
    model = make(SMALL).float()
    model.projection.weight.data[:] = 0
    decoder = CompiledDecoder(arrays_of(model), compiled_decoder(None), "float32", (5, 9, 20))
    decoder = decoder.limited(lambda sources: np.array([[0, 4], [0, 7], [0, 12], [0, 30]]))
    [block] = decoder.step(decoder.start(sequences(4), 1), np.array([[BOS]]), np.array([0]), 5)
    assert isinstance(block, Best)
    assert block.ids.tolist() == [[4, 5, 7, 9, 12]]
    assert block.logprobs[0] == pytest.approx(-math.log(7), abs=1e-6)
