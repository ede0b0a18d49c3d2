"""Diverse beam search, compared with a slow reference and with beam search."""

import math
from collections import Counter
from typing import Any

import pytest
from drawn import each_with, seeded
from fakes import EOS, TROUBLES, FakeDecoder, Ids, Table, hashed, searched
from translators import translator

from vtrans.config import Recipe, SearchConfig, check_together
from vtrans.search.loop import Hypothesis, length_penalty
from vtrans.search.options import Sampling
from vtrans.system.errors import InputError, RecipeError

SOURCE: Ids = (2, EOS)
STOPS = ("count", "current", "exhaustive")


Path = tuple[float, Ids]
"""The sum and tokens of a hypothesis."""


class Group:
    """A group of the reference."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.live: list[Path] = [(0.0, ())]
        self.last = self.live
        self.finished: list[tuple[float, float, Ids]] = []  # score, sum and tokens
        self.done = False

    def step(self, table: Table, length: int, limit: int, config: SearchConfig, chosen: Counter[int]) -> None:
        extensions = []
        for row, (total, prefix) in enumerate(self.live):
            for token, logprob in enumerate(table(SOURCE, prefix)):
                if logprob > -math.inf:
                    rank = total + logprob - config.diversity * chosen[token]
                    extensions.append((-rank, row, -logprob, token, (total + logprob, (*prefix, token))))
        others: list[Path] = []
        for rank, (_, _, _, token, (total, tokens)) in enumerate(sorted(extensions)):
            if token != EOS:
                others.append((total, tokens))
            elif rank < self.width:
                self.finished.append((total / self.penalty(length, config), total, tokens[:-1]))
        self.live = others[: self.width]
        self.last = self.live or self.last
        self.done = length == limit or not self.live or self.decided(length, limit, config)

    def decided(self, length: int, limit: int, config: SearchConfig) -> bool:
        if len(self.finished) < self.width:
            return False
        worst = sorted(score for score, _, _ in self.finished)[-self.width]
        top = max(total for total, _ in self.live)
        if config.stop == "count" or (config.stop == "current" and self.width == 1):
            return True
        now = top / self.penalty(length, config)
        best = max(top / self.penalty(n, config) for n in (length + 1, limit))
        return best <= worst or (config.stop == "current" and now <= worst)

    @staticmethod
    def penalty(length: int, config: SearchConfig) -> float:
        return length_penalty(length, config.alpha, config.length_penalty)


def reference(table: Table, limit: int, config: SearchConfig) -> list[tuple[Ids, float, float, bool]]:
    """Returns the result by definition: tokens, log-probability, score and whether the hypothesis is finished."""
    groups = [Group(config.beam // config.beam_groups) for _ in range(config.beam_groups)]
    for length in range(1, limit + 1):
        chosen: Counter[int] = Counter()
        for group in groups:
            if not group.done:
                group.step(table, length, limit, config, chosen)
            if not group.done:
                chosen.update(tokens[-1] for _, tokens in group.live)
    ends = [end for group in groups for end in sorted(group.finished, key=lambda end: -end[0])[: group.width]]
    results = [(tokens, total, score, True) for score, total, tokens in sorted(ends, key=lambda end: -end[0])]
    if not ends:
        best = [max(group.last, key=lambda path: path[0]) for group in groups]
        scores = [total / Group.penalty(len(tokens), config) if tokens else 0.0 for total, tokens in best]
        first = max(range(len(best)), key=lambda g: scores[g])
        results = [(best[first][1], best[first][0], scores[first], False)]
    return [result for i, result in enumerate(results) if result[0] not in {other[0] for other in results[:i]}]


def plain(hypotheses: list[Hypothesis]) -> list[tuple[Ids, float, float, bool]]:
    return [(h.tokens, h.logprob, h.score, h.finished) for h in hypotheses]


@pytest.mark.parametrize(("trouble", "stop"), each_with(TROUBLES, STOPS))
def test_the_search_equals_its_definition(stop: str, trouble: dict[str, Any]) -> None:
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
