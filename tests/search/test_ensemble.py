"""An ensemble averages probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fakes import EOS, FakeDecoder, Ids, Table, hashed, many_sentences, scripted, searched

from vtrans.search.decoder import Ensemble

SOURCE: Ids = (2, EOS)


def averaged(first: Table, second: Table) -> Table:
    def table(source: Ids, prefix: Ids) -> list[float]:
        pairs = zip(first(source, prefix), second(source, prefix), strict=True)
        means = [(math.exp(a) + math.exp(b)) / 2 for a, b in pairs]
        return [math.log(mean) if mean else -math.inf for mean in means]

    return table


def test_an_ensemble_of_one_model_equals_that_model() -> None:
    table = hashed(11, words=25, holes=0.2)
    sources, limits = many_sentences(11)
    assert searched(Ensemble([FakeDecoder(table)]), sources, limits) == searched(FakeDecoder(table), sources, limits)


def test_an_ensemble_averages_probabilities() -> None:
    first, second = hashed(12, words=25, holes=0.3), hashed(13, words=25, holes=0.3)
    sources, limits = many_sentences(12)
    own = dict(zip(sources, limits, strict=True))
    decoders = [FakeDecoder(first, own), FakeDecoder(second, own)]
    together = searched(Ensemble(decoders), sources, limits, nbest=4, batch_tokens=60)
    expected = searched(FakeDecoder(averaged(first, second)), sources, limits, nbest=4)
    for found, wanted in zip(together, expected, strict=True):
        assert [h.tokens for h in found] == [h.tokens for h in wanted]
        assert [h.score for h in found] == pytest.approx([h.score for h in wanted])
    assert "admit" in decoders[1].log


def test_no_probability_of_an_ensemble_exceeds_1() -> None:
    for size in range(1, 12):  # in float32, log(7 * 1.0) - log(7) rounds to 2e-7
        decoders = [FakeDecoder(scripted(3, {}), dtype=np.float32) for _ in range(size)]
        assert searched(Ensemble(decoders), [SOURCE], [3])[0][0].logprob <= 0
