"""Sampling: the distribution, the seeds, and what a sample does not depend on."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from drawn import each_with
from fakes import BOS, EOS, BrokenDecoder, FakeDecoder, Ids, hashed, many_sentences, scripted

from vtrans.config import SearchConfig
from vtrans.errors import LogprobsError
from vtrans.search.loop import Hypothesis, SearchTask
from vtrans.search.options import Sampling
from vtrans.search.sampling import distribution, sample, tokens_at

SOURCE: Ids = (2, EOS)


def drawn(
    decoder: Any,
    sources: Sequence[Sequence[int]],
    limits: Sequence[int],
    *,
    seeds: Sequence[int] | None = None,
    nbest: int = 1,
    batch_tokens: int = 100,
    **settings: Any,
) -> list[list[Hypothesis]]:
    """Returns the samples of every source, in the order of the sources; each must come exactly once."""
    config = SearchConfig(batch_tokens=batch_tokens)
    task = SearchTask(sources, limits, config, nbest, bos_id=BOS, eos_id=EOS)
    results = sample(decoder, task, Sampling(**settings), range(len(sources)) if seeds is None else seeds)
    found = list(results)
    assert sorted(i for i, _ in found) == list(range(len(sources)))
    return [hypotheses for _, hypotheses in sorted(found, key=lambda pair: pair[0])]


def filtered(chances: Sequence[float], top_k: int, top_p: float, epsilon: float, temperature: float) -> list[float]:
    """Returns the distribution to draw from, computed token by token."""
    weights = [chance ** (1 / temperature) for chance in chances]
    lowest = min(max(weights), epsilon * sum(weights))
    weights = [weight if weight >= lowest else 0.0 for weight in weights]
    order = sorted(range(len(weights)), key=lambda token: (-weights[token], token))[: top_k or None]
    total, mass, kept = sum(weights[token] for token in order), 0.0, []
    for token in order:
        if mass >= top_p * total:
            break
        kept.append(token)
        mass += weights[token]
    return [weight / mass if token in kept else 0.0 for token, weight in enumerate(weights)]


@pytest.mark.parametrize(
    ("top_k", "top_p", "epsilon", "temperature"),
    [
        (0, 1.0, 0.0, 1.0),
        (3, 1.0, 0.0, 1.0),
        (0, 0.7, 0.0, 1.0),
        (5, 0.8, 0.0, 1.0),
        (0, 1.0, 0.0, 2.0),
        (4, 0.9, 0.0, 0.5),
        (1, 1.0, 0.0, 1.0),
        (0, 1.0, 0.1, 1.0),
        (0, 1.0, 0.1, 2.0),
        (3, 0.9, 0.15, 1.0),
        (0, 1.0, 0.99, 1.0),
    ],
)
def test_sample_frequencies_fit_the_filtered_distribution(
    top_k: int, top_p: float, epsilon: float, temperature: float
) -> None:
    n, table = 4000, hashed(8, words=6)
    filters: dict[str, Any] = {"top_k": top_k, "top_p": top_p, "epsilon": epsilon, "temperature": temperature}
    [samples] = drawn(FakeDecoder(table), [SOURCE], [2], nbest=n, **filters)
    counts = Counter((*h.tokens, EOS) if h.finished else h.tokens for h in samples)

    def chances(prefix: Ids) -> list[float]:
        return filtered([math.exp(x) for x in table(SOURCE, prefix)], **filters)

    expected: dict[Ids, float] = {}
    for first, p in enumerate(chances(())):
        if first == EOS and p > 0:
            expected[(EOS,)] = n * p
        elif p > 0:
            expected |= {(first, second): n * p * q for second, q in enumerate(chances((first,))) if q > 0}
    assert set(counts) <= set(expected)
    chi_square = sum((counts[path] - mean) ** 2 / mean for path, mean in expected.items())
    freedom = len(expected) - 1
    assert chi_square <= freedom + 3.5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("temperature", [1e-6, 1e-310, 5e-324])
def test_a_tiny_temperature_draws_only_the_most_probable_tokens(temperature: float) -> None:
    table = scripted(4, {(): {2: 0.2, 3: 0.3, 4: 0.3, 5: 0.2}})
    [samples] = drawn(FakeDecoder(table), [SOURCE], [1], nbest=100, temperature=temperature)
    counts = Counter(sample.tokens for sample in samples)
    assert set(counts) == {(3,), (4,)}
    assert min(counts.values()) > 30


def test_top_k_and_top_p_keep_the_fewest_most_probable_tokens() -> None:
    table = scripted(4, {(): {2: 0.125, 3: 0.5, 4: 0.25, 5: 0.125}})
    for top_k, top_p, support in [
        (0, 0.5, {3}),
        (0, 0.51, {3, 4}),
        (0, 0.75, {3, 4}),
        (0, 0.76, {2, 3, 4}),  # 2 and 5 are equal; the lower id is kept
        (3, 1.0, {2, 3, 4}),
        (2, 0.67, {3, 4}),  # token 3 has two thirds of the mass that top_k leaves
        (2, 0.66, {3}),
        (99, 1.0, {2, 3, 4, 5}),
        (0, 1e-9, {3}),
    ]:
        [samples] = drawn(FakeDecoder(table), [SOURCE], [4], nbest=300, top_k=top_k, top_p=top_p)
        assert {h.tokens[0] for h in samples} == support, (top_k, top_p)


@pytest.mark.parametrize(("top_p", "top_k"), each_with([0.3171, 0.9137, 0.99991, 1.0], [0, 1, 40]))
@pytest.mark.parametrize("temperature", [0.3, 3.0])
def test_a_large_vocabulary_is_filtered_as_by_sorting_it(top_k: int, top_p: float, temperature: float) -> None:
    V = 200
    torch.manual_seed(top_k)
    logprobs = torch.cat(
        [
            torch.randn(2, V, dtype=torch.float64),
            torch.randint(-3, 3, (2, V)).double(),  # many equal values
            torch.zeros(1, V, dtype=torch.float64),
            torch.full((1, V), -math.inf, dtype=torch.float64).index_fill(1, torch.tensor([5, 170]), 0.0),
        ]
    ).log_softmax(1)
    found = distribution(logprobs.numpy(), Sampling(top_k=top_k, top_p=top_p, temperature=temperature))
    for row, chances in zip(found.tolist(), logprobs.exp().tolist(), strict=True):
        expected = filtered(chances, top_k, top_p, 0.0, temperature)
        assert [p > 0 for p in row] == [p > 0 for p in expected]
        assert row == pytest.approx([p * sum(row) for p in expected], rel=1e-9)


def test_a_sample_depends_neither_on_its_batch_nor_on_the_number_of_samples() -> None:
    table = hashed(6, words=25)
    sources, limits = many_sentences(6)
    seeds = [1000 - i for i in range(len(sources))]
    options: dict[str, Any] = {"top_k": 12, "top_p": 0.95, "temperature": 1.3}
    alone = [
        drawn(FakeDecoder(table), [source], [limit], seeds=[seed], nbest=3, **options)[0]
        for source, limit, seed in zip(sources, limits, seeds, strict=True)
    ]
    for batch_tokens in (1, 7, 100):
        order = list(range(len(sources)))
        for nbest in (3, 1):
            ordered, ordered_limits = [sources[i] for i in order], [limits[i] for i in order]
            own = dict(zip(ordered, ordered_limits, strict=True))
            decoder = FakeDecoder(table, limits=own, batch_tokens=batch_tokens)
            found = drawn(
                decoder,
                ordered,
                ordered_limits,
                seeds=[seeds[i] for i in order],
                nbest=nbest,
                batch_tokens=batch_tokens,
                **options,
            )
            assert found == [alone[i][:nbest] for i in order]
            random.Random(7).shuffle(order)


def test_equal_seeds_give_equal_samples_and_different_seeds_different_ones() -> None:
    table = hashed(9, words=25, eos=-3.0)
    first, again, other = (drawn(FakeDecoder(table), [SOURCE], [9], seeds=[seed], nbest=4)[0] for seed in (1, 1, 2))
    assert first == again
    assert not {h.tokens for h in first} & {h.tokens for h in other}
    assert len({h.tokens for h in first}) == 4  # each row draws its own numbers
    # Golden values: the samples of a seed are part of the interface.
    words = scripted(8, {(): dict.fromkeys(range(2, 10), 0.125)})
    [samples] = drawn(FakeDecoder(words), [SOURCE], [9], seeds=[1], nbest=8)
    assert [h.tokens[0] for h in samples] == [9, 6, 9, 4, 6, 8, 8, 9]


def test_the_logprob_of_a_sample_is_the_models_own() -> None:
    table = hashed(10, words=9)
    [samples] = drawn(FakeDecoder(table), [SOURCE], [4], nbest=50, top_k=3, temperature=0.7)
    for h in samples:
        path = (*h.tokens, EOS) if h.finished else h.tokens
        assert list(h.token_logprobs) == [table(SOURCE, path[:t])[token] for t, token in enumerate(path)]
        assert h.logprob == pytest.approx(math.fsum(h.token_logprobs))
        assert h.score == pytest.approx(h.logprob / len(path))
        assert h.finished == (len(h.tokens) < 4)
    assert {h.finished for h in samples} == {True, False}


def test_the_end_of_the_distribution_is_the_last_possible_token() -> None:
    probs_nV = np.array([[0.0, 0.3, 0.1, 0.3, 0.0]])
    for place, token in [(0.0, 1), (0.4, 1), (0.43, 2), (0.58, 3), (1 - 2**-53, 3), (1.0, 3)]:
        assert tokens_at(probs_nV, np.array([place])).tolist() == [token]


def test_nan_is_an_error() -> None:
    with pytest.raises(LogprobsError):
        drawn(BrokenDecoder(hashed(1, 20, eos=-5.0)), [SOURCE], [9])


def test_a_sample_ends_where_no_token_is_possible() -> None:
    """It is then unfinished, as the result of a search is."""
    words = scripted(4, {(): {2: 0.5, 3: 0.5}, (2,): {}, (3,): {2: 1.0}, (3, 2): {EOS: 1.0}})
    [samples] = drawn(FakeDecoder(words), [SOURCE], [9], nbest=20, top_p=0.9)
    assert {(h.tokens, h.finished) for h in samples} == {((2,), False), ((3, 2), True)}
    [[sample]] = drawn(FakeDecoder(scripted(3, {(): {}})), [SOURCE], [9])
    assert (sample.tokens, sample.score, sample.finished) == ((), 0.0, False)
