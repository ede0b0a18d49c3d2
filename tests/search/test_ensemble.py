"""An ensemble averages probabilities."""

from __future__ import annotations

import math

import pytest
from fakes import FakeDecoder, Ids, Table, hashed, many_sentences, searched

from vtrans.search.decoder import Ensemble


def averaged(first: Table, second: Table) -> Table:
    def table(source: Ids, prefix: Ids) -> list[float]:
        pairs = zip(first(source, prefix), second(source, prefix), strict=True)
        means = [(math.exp(a) + math.exp(b)) / 2 for a, b in pairs]
        return [math.log(mean) if mean else -math.inf for mean in means]

    return table


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
