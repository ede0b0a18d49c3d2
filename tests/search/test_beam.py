"""Beam search, compared with enumeration, a slow reference and known best paths."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from drawn import each_with, seeded, seeded_tensors
from fakes import EOS, TROUBLES, BrokenDecoder, FakeDecoder, Ids, Table, hashed, scripted, searched

from vtrans.config import SearchConfig
from vtrans.search.loop import Hypothesis, length_penalty
from vtrans.search.ranking import best_tokens
from vtrans.system.errors import VtransError

SOURCE: Ids = (2, EOS)


def search_one(table: Table, limit: int, nbest: int = 1, **config: Any) -> list[Hypothesis]:
    decoder = FakeDecoder(table, limits={SOURCE: limit})
    return searched(decoder, [SOURCE], [limit], nbest, **config)[0]


def enumerated(table: Table, limit: int, alpha: float, kind: str) -> list[tuple[float, Ids]]:
    """Returns every translation of at most `limit` tokens, EOS included, as (score, words), best first."""
    words = range(2, len(table(SOURCE, ())))
    found = []
    for length in range(limit):
        for tokens in itertools.product(words, repeat=length):
            path = (*tokens, EOS)
            logprob = sum(table(SOURCE, tokens[:t])[token] for t, token in enumerate(path))
            if logprob > -math.inf:
                found.append((logprob / penalty(length + 1, alpha, kind), tokens))
    return sorted(found, key=lambda pair: -pair[0])


def penalty(length: int, alpha: float, kind: str) -> float:
    return float(((5 + length) / 6) ** alpha if kind == "gnmt" else length**alpha)


def reference(table: Table, source: Ids, limit: int, nbest: int, config: SearchConfig) -> list[dict[str, Any]]:
    """Returns the search's result by definition, without bound, batch or arrays."""
    live: list[tuple[float, Ids]] = [(0.0, ())]
    finished: list[dict[str, Any]] = []
    last: list[tuple[float, Ids]] = []
    for length in range(1, limit + 1):
        extensions = []
        for row, (total, prefix) in enumerate(live):
            for token, logprob in enumerate(table(source, prefix)):
                if logprob > -math.inf:
                    extensions.append((-(total + logprob), row, -logprob, token))
        places = config.beam - len(finished) if config.stop == "shrink" else 2 * config.beam
        ranked = sorted(extensions)[:places]
        refill = []
        for rank, (minus_total, row, _, token) in enumerate(ranked):
            prefix = live[row][1]
            if token != EOS:
                refill.append((-minus_total, (*prefix, token)))
            elif rank < config.beam:
                score = -minus_total / penalty(length, config.alpha, config.length_penalty)
                finished.append({"tokens": prefix, "logprob": -minus_total, "score": score, "finished": True})
        live = refill[: config.beam]
        if live:
            last = live
        if not live:
            break
        if len(finished) >= config.beam and config.stop != "exhaustive":
            worst = sorted(end["score"] for end in finished)[-config.beam]
            now = live[0][0] / penalty(length, config.alpha, config.length_penalty)
            if config.stop == "count" or config.beam == 1 or now <= worst:
                break
    if config.stop == "shrink" and live:  # at the limit
        scored = [
            (total, prefix, total / penalty(len(prefix), config.alpha, config.length_penalty)) for total, prefix in live
        ]
        finished += [{"tokens": p, "logprob": total, "score": score, "finished": False} for total, p, score in scored]
    if finished:
        return sorted(finished, key=lambda end: -end["score"])[:nbest]
    total, prefix = last[0] if last else (0.0, ())
    score = total / penalty(len(prefix), config.alpha, config.length_penalty) if prefix else 0.0
    return [{"tokens": prefix, "logprob": total, "score": score, "finished": False}]


def plain(hypotheses: Sequence[Hypothesis]) -> list[dict[str, Any]]:
    return [{"tokens": h.tokens, "logprob": h.logprob, "score": h.score, "finished": h.finished} for h in hypotheses]


@pytest.mark.parametrize("stop", ["count", "current", "exhaustive", "shrink"])
@pytest.mark.parametrize(("trouble", "kind"), each_with(TROUBLES, ["gnmt", "length"]))
def test_the_search_equals_its_definition(stop: str, kind: str, trouble: dict[str, Any]) -> None:
    for seed in range(40):
        numbers = seeded(seed)
        beam = numbers.choice([1, 2, 3, 4, 5, 9])
        nbest = numbers.randint(1, beam)
        alpha = numbers.choice([0.0, 0.6, 1.0, 2.5, -0.7, -4.0])
        limit = numbers.randint(1, 9)
        table = hashed(seed, words=numbers.choice([1, 2, 3, 7, 30]), **trouble)
        config = SearchConfig(beam=beam, alpha=alpha, length_penalty=kind, stop=stop)
        hyps = search_one(table, limit, nbest, beam=beam, alpha=alpha, length_penalty=kind, stop=stop)
        assert plain(hyps) == reference(table, SOURCE, limit, nbest, config), (seed, config, nbest, limit)


@pytest.mark.parametrize(("alpha", "kind"), each_with([0.0, 0.6, 1.0, 3.0, -1.0], ["gnmt", "length"]))
def test_an_exhaustive_beam_as_wide_as_the_space_equals_enumeration(kind: str, alpha: float) -> None:
    for seed in range(12):
        words, limit = [(2, 5), (3, 4), (5, 3), (1, 7)][seed % 4]
        table = hashed(seed, words, holes=0.2 if seed % 3 == 0 else 0.0, eos=-1.0)
        best = enumerated(table, limit, alpha, kind)
        for nbest in (1, 3, 1000):  # the bound ends the first two early, the last one never
            hyps = search_one(table, limit, nbest, beam=1000, alpha=alpha, length_penalty=kind, stop="exhaustive")
            if best:
                assert [h.tokens for h in hyps] == [tokens for _, tokens in best[:nbest]]
                assert [h.score for h in hyps] == pytest.approx([score for score, _ in best[:nbest]], abs=1e-12)
            assert all(h.finished for h in hyps) == bool(best)


@pytest.mark.parametrize("stop", ["count", "exhaustive"])
def test_the_bound_is_the_best_that_a_live_row_can_reach(stop: str) -> None:
    """With alpha = -1 and "length", scores are sums times lengths: a live row scores best by ending immediately."""
    for chance, steps in [(0.9, 2), (0.4, 2), (0.32, 2), (0.31, 1)]:
        # (): log 0.1 * 1 = -2.303; (2,): at best log(chance) * 2, which 0.31 makes -2.342.
        table = scripted(3, {(): {2: chance, EOS: 0.1}})
        decoder = FakeDecoder(table)
        config: dict[str, Any] = {"beam": 2, "stop": stop, "alpha": -1.0, "length_penalty": "length"}
        [[found]] = searched(decoder, [SOURCE], [200], **config)
        assert found.tokens == ((2,) if steps == 2 else ())
        assert decoder.log.count("step") == steps
    # With alpha = 1 by ending at the limit of 10: log(chance) / 10 against log(0.1).
    for limit, steps in [(10, 2), (1, 1)]:
        decoder = FakeDecoder(scripted(3, {(): {2: 1e-9, EOS: 0.1}}))
        searched(decoder, [SOURCE], [limit], beam=2, stop=stop, alpha=1.0, length_penalty="length")
        assert decoder.log.count("step") == steps


def test_token_logprobs_are_the_decoders_and_sum_to_the_logprob() -> None:
    met = set()
    for table in (hashed(3, words=20), hashed(3, words=20, eos=-30.0)):
        for dtype in (np.float64, np.float32):
            decoder = FakeDecoder(table, dtype=dtype)
            for h in searched(decoder, [SOURCE], [12], nbest=6, beam=6, stop="exhaustive")[0]:
                path = (*h.tokens, EOS) if h.finished else h.tokens
                answers = np.array([table(SOURCE, path[:t])[token] for t, token in enumerate(path)], dtype=dtype)
                assert list(h.token_logprobs) == answers.tolist()
                # Sums are in float64, so the sum of a long float32 sentence loses no digits.
                assert h.logprob == pytest.approx(math.fsum(h.token_logprobs), abs=1e-14)
                assert h.score == h.logprob / length_penalty(len(path), 0.6, "gnmt")
                met.add(h.finished)
    assert met == {True, False}


def test_nan_is_an_error() -> None:
    with pytest.raises(VtransError):
        searched(BrokenDecoder(hashed(1, 20, eos=-5.0)), [SOURCE], [9])


@pytest.mark.parametrize(("V", "count"), each_with([5, 700, 2048, 8000, 8037], [1, 2, 5, 17]))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_best_tokens_equal_a_stable_sort(V: int, count: int, dtype: torch.dtype) -> None:
    generator = seeded_tensors(V)
    logprobs_nV = torch.randn(80, V, generator=generator, dtype=dtype)
    logprobs_nV[10:20] = logprobs_nV[10:20].mul(3).round()  # many ties
    logprobs_nV[20:30, torch.randperm(V, generator=generator)[: V - 3]] = -math.inf
    logprobs_nV[30, -5:] = 9.0  # in the remainder that fills no group, if there is one
    values_Nm, tokens_Nm = best_tokens([block.numpy() for block in torch.split(logprobs_nV, 33)], count)
    values, tokens = (part[:, :count].numpy() for part in logprobs_nV.sort(dim=1, descending=True, stable=True))
    assert np.array_equal(values_Nm, values)
    possible = values > -math.inf
    assert np.array_equal(tokens_Nm[possible], tokens[possible])
