"""Sampling: the distribution, the seeds, and independence of the batch."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from drawn import seeded
from fakes import BOS, EOS, BrokenDecoder, FakeDecoder, Ids, hashed, many_sentences, scripted

from vtrans.config import SearchConfig
from vtrans.search.loop import Hypothesis, SearchTask
from vtrans.search.options import Sampling
from vtrans.search.sampling import sample
from vtrans.system.errors import LogprobsError

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
        (0, 1.0, 0.0, 2.0),
        (4, 0.9, 0.0, 0.5),
        (1, 1.0, 0.0, 1.0),
        (0, 1.0, 0.1, 1.0),
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
            seeded(7).shuffle(order)


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


def test_nan_is_an_error() -> None:
    with pytest.raises(LogprobsError):
        drawn(BrokenDecoder(hashed(1, 20, eos=-5.0)), [SOURCE], [9])
