"""The compiled plain search equals the search in Python, token by token and bit by bit: both read the same
log-probabilities, so there are no near-ties."""

import ctypes
import dataclasses
import random
from typing import Any

import numpy as np
import pytest
from compilers import needs_compiler
from drawn import seeded, seeded_arrays, some
from networks import EOS, SEQUENCES, SMALL, VARIANTS, V, arrays_of, make

from vtrans.config import ModelConfig, SearchConfig
from vtrans.engines.compiled.decoder import CompiledDecoder, compiled_decoder
from vtrans.engines.compiled.plain_search import STOPS, plain_search
from vtrans.search.beam import beam_search
from vtrans.search.loop import SearchTask
from vtrans.search.rules import Begin, MinimumLength, RuleSet, Suppressed
from vtrans.system.errors import AbandonedError, LogprobsError

pytestmark = needs_compiler
CASES = 150  # of each model, with several sentences each


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return compiled_decoder(None)


def decoder_of(library: ctypes.CDLL, config: ModelConfig = SMALL, *, seed: int = 1, ends: float = 2.0) -> Any:
    """A small random model that often predicts EOS, a few other tokens, and several with equal probability."""
    model = make(dataclasses.replace(config, projection_bias=True), seed=seed).float()
    numbers = seeded_arrays(seed)
    weights = arrays_of(model)
    bias_V = np.round(numbers.normal(size=V)).astype(np.float32)
    bias_V[EOS] = ends
    weights["projection.bias"][:] = bias_V
    weights["projection.weight"][10:14] = weights["projection.weight"][10]
    weights["projection.bias"][10:14] = 3.0  # so likely that hypotheses of equal score finish
    return CompiledDecoder(weights, library)


def case(numbers: random.Random, config: ModelConfig) -> SearchTask:
    count = numbers.choice((1, 2, 5, 12))
    lengths = sorted((numbers.randrange(0, 12) for _ in range(count)), reverse=True)
    sources = [[*(numbers.randrange(4, V) for _ in range(n)), EOS] for n in lengths]
    limits = [numbers.choice((1, 2, 5, 20)) for _ in sources]
    beam = numbers.choice((1, 1, 2, 3, 4, 6))
    settings = SearchConfig(
        beam=beam,
        alpha=numbers.choice((0.0, 0.6, 1.0, 2.5, -0.5)),
        length_penalty=numbers.choice(("gnmt", "length")),
        stop=numbers.choice(STOPS),
        batch_tokens=numbers.choice((1, 20, 60, 4000)),
    )
    rules: list[Any] = []
    if numbers.random() < 0.3:  # the first rule, as in `rules_of`
        rules.append(Begin(tuple(numbers.choices(range(4, V), k=numbers.choice((1, 2, 6))))))
    if numbers.random() < 0.3:
        rules.append(Suppressed(tuple(sorted(numbers.sample(range(4, V), numbers.choice((1, 5, 30)))))))
    if numbers.random() < 0.3:
        rules.append(MinimumLength(numbers.randrange(1, 6)))
    nbest = numbers.randint(1, beam)
    return SearchTask(sources, limits, settings, nbest, RuleSet(rules))


@pytest.mark.parametrize("config", some([SMALL, VARIANTS[1], VARIANTS[-3], SEQUENCES[0], SEQUENCES[-1]]))
@pytest.mark.parametrize("ends", [-2.0, 1.0, 4.0])
def test_random_searches_equal_the_search_in_python(
    library: ctypes.CDLL, config: ModelConfig, ends: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("vtrans.engines.compiled.plain_search.beam_search")
    numbers, decoder = seeded(int(ends)), decoder_of(library, config, ends=ends)
    for _ in range(CASES):
        task = case(numbers, config)
        assert dict(plain_search(decoder, task)) == dict(beam_search(decoder, task)), task


def searched(decoder: Any, sources: list[list[int]], limit: int, **options: Any) -> Any:
    settings = SearchConfig(beam=2, batch_tokens=options.pop("batch_tokens", 4000))
    return plain_search(decoder, SearchTask(sources, [limit] * len(sources), settings, 1, **options))


def test_a_search_can_be_abandoned_before_each_step(library: ctypes.CDLL) -> None:
    calls = []

    def abandoned() -> bool:
        calls.append(1)
        return len(calls) == 30

    search = searched(decoder_of(library, ends=-30.0), [[5, EOS]], 1000, abandoned=abandoned)
    with pytest.raises(AbandonedError):
        next(search)
    assert len(calls) == 30


def test_log_probabilities_that_are_not_numbers_are_an_error(library: ctypes.CDLL) -> None:
    decoder = decoder_of(library)
    weights = decoder.compiled.weights
    weights["projection.weight"][7] = np.nan
    with pytest.raises(LogprobsError):
        list(searched(CompiledDecoder(weights, library), [[5, EOS]], 20))
