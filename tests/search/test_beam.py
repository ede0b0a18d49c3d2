"""Beam search and diverse beam search, compared with enumeration, a slow reference and known best paths."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from drawn import each_with, seeded, seeded_tensors
from fakes import EOS, TROUBLES, BrokenDecoder, FakeDecoder, Ids, Table, hashed, scripted, searched
from translators import translator

from vtrans.config import Recipe, SearchConfig, check_together
from vtrans.search.loop import Hypothesis, length_penalty
from vtrans.search.options import Sampling
from vtrans.search.ranking import best_tokens
from vtrans.system.errors import InputError, RecipeError, VtransError

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


Path = tuple[float, Ids]
"""The sum and tokens of a hypothesis."""
Result = tuple[Ids, float, float, bool]
"""Tokens, log-probability, score and whether the hypothesis is finished."""


class Group:
    """A group of the definition, or its whole beam."""

    def __init__(self, config: SearchConfig) -> None:
        self.config, self.width = config, config.beam // config.beam_groups
        self.live: list[Path] = [(0.0, ())]
        self.last = self.live
        self.ends: list[Result] = []
        self.done = False

    def end(self, path: Path, length: int, *, finished: bool) -> Result:
        total, tokens = path
        score = total / penalty(length, self.config.alpha, self.config.length_penalty) if length else 0.0
        return tokens, total, score, finished

    def step(self, table: Table, length: int, limit: int, chosen: Counter[int]) -> None:
        extensions = []
        for row, (total, prefix) in enumerate(self.live):
            for token, logprob in enumerate(table(SOURCE, prefix)):
                if logprob > -math.inf:
                    rank = total + logprob - self.config.diversity * chosen[token]
                    extensions.append((-rank, row, -logprob, token, (total + logprob, (*prefix, token))))
        places = self.width - len(self.ends) if self.config.stop == "shrink" else len(extensions)
        others: list[Path] = []
        for rank, (_, _, _, token, (total, tokens)) in enumerate(sorted(extensions)[:places]):
            if token != EOS:
                others.append((total, tokens))
            elif rank < self.width:
                self.ends.append(self.end((total, tokens[:-1]), length, finished=True))
        self.live = others[: self.width]
        self.last = self.live or self.last
        if self.config.stop == "shrink" and length == limit:
            self.ends += [self.end(path, length, finished=False) for path in self.live]
        self.done = length == limit or not self.live or self.decided(length, limit)

    def decided(self, length: int, limit: int) -> bool:
        stop, groups = self.config.stop, self.config.beam_groups
        if len(self.ends) < self.width or (groups == 1 and stop in ("exhaustive", "shrink")):
            return False  # without groups, the bound must not change the result, so the definition has none
        if stop == "count" or (stop == "current" and self.width == 1):
            return True
        worst = sorted(score for _, _, score, _ in self.ends)[-self.width]
        now, *later = (
            max(self.live)[0] / penalty(n, self.config.alpha, self.config.length_penalty)
            for n in (length, length + 1, limit)
        )
        return (groups > 1 and max(later) <= worst) or (stop == "current" and now <= worst)


def reference(table: Table, limit: int, config: SearchConfig) -> list[Result]:
    """Returns the search's result by definition, without batch or arrays."""
    groups = [Group(config) for _ in range(config.beam_groups)]
    for length in range(1, limit + 1):
        chosen: Counter[int] = Counter()
        for group in groups:
            if not group.done:
                group.step(table, length, limit, chosen)
            if not group.done:
                chosen.update(tokens[-1] for _, tokens in group.live)
    ends = [end for group in groups for end in sorted(group.ends, key=lambda end: -end[2])[: group.width]]
    results = sorted(ends, key=lambda end: -end[2])
    if not ends:
        best = [max(group.last, key=lambda path: path[0]) for group in groups]
        left = [group.end(path, len(path[1]), finished=False) for group, path in zip(groups, best, strict=True)]
        results = [max(left, key=lambda end: end[2])]
    return [result for i, result in enumerate(results) if result[0] not in {other[0] for other in results[:i]}]


def plain(hypotheses: Sequence[Hypothesis]) -> list[Result]:
    return [(h.tokens, h.logprob, h.score, h.finished) for h in hypotheses]


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
        assert plain(hyps) == reference(table, limit, config)[:nbest], (seed, config, nbest, limit)


@pytest.mark.parametrize(("trouble", "stop"), each_with(TROUBLES, ["count", "current", "exhaustive"]))
def test_diverse_search_equals_its_definition(stop: str, trouble: dict[str, Any]) -> None:
    different = 0
    for seed in range(60):
        numbers = seeded(seed)
        groups, own = numbers.choice([(1, 3), (2, 1), (2, 2), (3, 1), (3, 2), (2, 4), (5, 3)])
        limit = numbers.randint(1, 9)
        table = hashed(seed, words=numbers.choice([1, 2, 3, 7, 30]), **trouble)
        config: dict[str, Any] = {
            "beam": groups * own,
            "beam_groups": groups,
            "diversity": numbers.choice([0.25, 0.5, 3.0]),
            "alpha": numbers.choice([0.0, 0.6, 2.5, -0.7]),
            "length_penalty": numbers.choice(["gnmt", "length"]),
            "stop": stop,
        }
        expected = reference(table, limit, SearchConfig(**config))
        decoder = FakeDecoder(table, limits={SOURCE: limit})
        [best] = searched(decoder, [SOURCE], [limit], groups * own, **config)
        assert plain(best) == expected, (seed, config)
        for nbest in (1, 2):
            assert searched(FakeDecoder(table), [SOURCE], [limit], nbest, **config)[0] == best[:nbest]
        [alike] = searched(FakeDecoder(table), [SOURCE], [limit], groups * own, **config | {"diversity": 0})
        different += plain(best) != plain(alike)
    assert different > 5


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


def test_groups_refuse_options_they_cannot_combine_with() -> None:
    with pytest.raises(InputError, match=r"`beam_groups`.*`beam` \(6\).*4"):
        translator(beam=6, beam_groups=4)
    with pytest.raises(InputError, match=r"`stop`.*`beam_groups`.*shrink"):
        translator(beam=4, beam_groups=2, stop="shrink")
    with pytest.raises(InputError, match=r"`beam_groups`.*`constraints`.*2"):
        translator(beam=4, beam_groups=2).nbest(["dog"], constraints=[{"constraints": ["cat"]}])
    with pytest.raises(InputError, match=r"`nbest`.*`beam` \(4\).*5"):
        translator(beam=4, beam_groups=2).nbest(["dog"], 5)
    with pytest.raises(RecipeError, match=r"search\.beam_groups.*search\.beam \(4\).*3"):
        check_together(Recipe(search=SearchConfig(beam_groups=3)), "recipe")
    assert list(translator(beam=4, beam_groups=2).translate(["dog"], Sampling())) == list(
        translator(beam=4).translate(["dog"], Sampling())
    )
