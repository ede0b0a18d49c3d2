"""Rules, compared with enumeration: prefixes, minimum length, no repeated n-grams, repetition penalty."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from drawn import each_with, seeded, seeded_arrays
from translators import (
    SEARCH,
    VARIANTS,
    forward,
    network,
    sentences,
    translator,
    vocabulary,
)

from vtrans.config import SearchConfig
from vtrans.engines.incremental import IncrementalDecoder
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model.checkpoint import LoadedModel
from vtrans.model.network import Transformer
from vtrans.search.beam import beam_search
from vtrans.search.decoder import Best, logprobs_of
from vtrans.search.history import RowHistory
from vtrans.search.loop import SearchTask, length_penalty
from vtrans.search.options import Sampling
from vtrans.search.rules import (
    NO_RULES,
    MinimumLength,
    NoRepeatedNgram,
    Prefix,
    RepetitionPenalty,
    Rule,
    RuleSet,
    SearchRule,
    Step,
    Suppressed,
)
from vtrans.system.errors import InputError
from vtrans.text.vocabulary import BOS_ID, EOS_ID, UNK_ID
from vtrans.translate.translator import Translator


@dataclass(frozen=True)
class Case:
    """Rules of a search, and their definition. Even tokens begin a word."""

    tokens: tuple[int, ...] = ()  # the prefix
    closed: bool = False
    suppressed: tuple[int, ...] = ()
    min_length: int = 0
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    repeatable: tuple[int, ...] = ()

    def own(self, V: int) -> list[Rule]:
        if not self.tokens and not self.closed:
            return []
        starts_V = np.array([t == EOS_ID or t % 2 == 0 for t in range(V)])
        return [Prefix(self.tokens, starts_V if self.closed else None)]

    def common(self) -> list[Rule]:
        return [
            RepetitionPenalty(self.repetition_penalty),
            *([NoRepeatedNgram(self.no_repeat_ngram, self.repeatable)] if self.no_repeat_ngram else []),
            Suppressed(self.suppressed),
            MinimumLength(self.min_length),
        ]

    def allows(self, said: Sequence[int], token: int) -> bool:
        """Returns whether a token may come after `said`."""
        if len(said) < len(self.tokens):
            return token == self.tokens[len(said)]
        if token in self.suppressed or (token == EOS_ID and len(said) < self.min_length):
            return False
        n = self.no_repeat_ngram
        grams = {tuple(said[i : i + n]) for i in range(len(said) - n + 1)}
        repeats = len(said) >= n > 0 and (*said[len(said) - n + 1 :], token) in grams
        if repeats and token not in (EOS_ID, *self.repeatable):
            return False
        closed = self.closed and len(said) == len(self.tokens)
        return not closed or token == EOS_ID or token % 2 == 0

    def adjusted(self, logprob: float, said: Sequence[int], token: int) -> float:
        penalised = token in said and len(said) >= len(self.tokens)
        return logprob * (self.repetition_penalty if penalised else 1.0)


CASES: dict[str, Case] = {
    "no constraint": Case(),
    "prefix": Case((5, 4)),
    "closed prefix": Case((5, 4), closed=True),
    "minimum length": Case(min_length=2),
    "minimum length at the limit": Case(min_length=3),
    "no repeated token": Case(no_repeat_ngram=1),
    "no repeated bigram": Case(no_repeat_ngram=2),
    "no repeated token but one": Case(no_repeat_ngram=1, repeatable=(4,)),
    "repetition penalty": Case(repetition_penalty=1.7),
    "a suppressed token": Case(suppressed=(5,)),
    "all constraints": Case((5,), False, (UNK_ID,), 2, 2, 1.3),
    "a prefix that breaks the other rules": Case((4, 4), no_repeat_ngram=1, repetition_penalty=1.3),
}


WIDE_V, WIDE_LIMIT, WIDE_SOURCE = 6, 4, [4, 5, 5]


@cache
def wide() -> tuple[Transformer, dict[tuple[int, ...], list[float]]]:
    """A model, and the log-probabilities after every prefix of the space."""
    model, words = network(VARIANTS["pre-norm, tgt-softmax"], WIDE_V, eos=1.0), [UNK_ID, BOS_ID, 4, 5]
    every = [tokens for length in range(WIDE_LIMIT) for tokens in itertools.product(words, repeat=length)]
    return model, {tokens: forward([model], WIDE_SOURCE, tokens).tolist() for tokens in every}


@pytest.mark.parametrize(("name", "alpha"), each_with(CASES, [0.0, 0.6, -0.5]))
def test_a_constrained_beam_as_wide_as_the_space_equals_enumeration(name: str, alpha: float) -> None:
    V, limit, nbest, source = WIDE_V, WIDE_LIMIT, 8, WIDE_SOURCE
    (model, following), case, scored = wide(), CASES[name], []
    for tokens in following:
        path = (*tokens, EOS_ID)
        if all(case.allows(path[:i], token) for i, token in enumerate(path)):
            steps = [case.adjusted(following[path[:i]][token], path[:i], token) for i, token in enumerate(path)]
            scored.append((math.fsum(steps) / length_penalty(len(path), alpha, "gnmt"), tokens))
    assert len(scored) >= (1 if case.tokens else nbest)
    expected = sorted(scored, reverse=True)[:nbest]
    config = SearchConfig(beam=5 * 4 ** (limit - 1), alpha=alpha, stop="exhaustive")  # so that EOS is always within
    with torch.inference_mode():
        rules = RuleSet(case.common(), {0: case.own(V)})
        task = SearchTask([[*source, EOS_ID]], [limit], config, nbest, rules)
        ((_, found),) = beam_search(IncrementalDecoder(model), task)
    assert [h.tokens for h in found] == [tokens for _, tokens in expected]
    assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-9)
    assert all(h.logprob == pytest.approx(math.fsum(h.token_logprobs), abs=1e-9) for h in found)


def test_a_rule_changes_the_best_tokens_as_it_changes_the_whole_vocabulary() -> None:
    """Given the best tokens plus as many as the rules may forbid, the search finds the same as with all tokens."""
    V, best = 9, 3
    for seed in range(60):
        numbers, random_nV = seeded(seed), seeded_arrays(seed)
        said = random_nV.integers(4, V, (5, 4))
        case = Case(suppressed=tuple(numbers.sample(range(V), 2)), min_length=numbers.choice((0, 9)))
        rules = RuleSet(case.common()[2:])
        logprobs_nV = np.log(random_nV.dirichlet(np.ones(V), 5))
        order_nV = (-logprobs_nV).argsort(1)[:, : best + (rules.most_forbidden or 0)]
        few = Step(Best(np.take_along_axis(logprobs_nV, order_nV, 1), order_nV), said)
        whole = Step(logprobs_nV, said)
        for rule in rules.common:
            rule.apply(few)
            rule.apply(whole)
        found, full_nV = few.block(), logprobs_of(whole.block())
        assert isinstance(found, Best)
        ids_nm = (-full_nV).argsort(1, kind="stable")[:, :best]
        assert np.array_equal(found.ids[:, :best], ids_nm)
        assert np.array_equal(found.logprobs[:, :best], np.take_along_axis(full_nV, ids_nm, 1))


def test_only_rules_that_still_matter_are_active() -> None:
    history = RowHistory(1, BOS_ID)
    history.enter([0, 1])
    rules = RuleSet([MinimumLength(1), Suppressed((7,))], {0: [Prefix((4, 5))]})
    for newest, active, forbidden in ((4, 2, None), (5, 1, None), (6, 1, 1)):
        now = rules.now(history)
        assert (len(now.common), now.most_forbidden) == (active, forbidden)
        history.extend(None, np.array([[newest], [newest]]), np.zeros((2, 1)))
    assert NO_RULES.now(history).most_forbidden == 0


class First(SearchRule):
    def __init__(self) -> None:
        self.steps = 1


def test_a_rule_of_a_user_may_set_its_number_of_steps() -> None:
    history = RowHistory(1, BOS_ID)
    history.enter([0])
    rules = RuleSet([First()])
    assert len(rules.now(history).common) == 1
    history.extend(None, np.array([[4]]), np.zeros((1, 1)))
    assert not rules.now(history).common


# Through the translator.

LINES = sentences(40, seed=8)
SETTINGS: dict[str, Any] = {"min_length": 3, "no_repeat_ngram": 2, "repetition_penalty": 1.2}
PREFIXES = ["", "ein", "ein ", "Łódź läuft", "the p", " "]


@pytest.mark.parametrize("sampling", [None, Sampling(seed=5)])
def test_translations_obey_all_rules(sampling: Sampling | None) -> None:
    vocab, begun = vocabulary(), list(itertools.islice(itertools.cycle(PREFIXES), len(LINES)))
    seeded(1).shuffle(begun)
    made = translator(**SETTINGS)
    met = 0
    for line, prefix, (t,) in zip(LINES, begun, made.nbest(LINES, 1, sampling, prefixes=begun), strict=True):
        if not any(map(str.isalpha, line)):
            assert t.text == line, "lines without letters are copied"
            continue
        tokens = [token for token in t.tokens if token != EOS_ID]
        forced = vocab.encode(prefix)
        assert tokens[: len(forced)] == forced
        assert t.text.startswith(prefix.strip())
        assert len(tokens) >= 3 or not t.finished
        grams = list(itertools.pairwise(tokens[max(0, len(forced) - 1) :]))
        assert len(set(grams)) == len(grams)
        if prefix == "ein " and len(tokens) > len(forced):
            assert t.text.startswith("ein ") or t.text == "ein", "a space after the prefix ends its last word"
            met += 1
    assert met
    if sampling is None:
        unbound = [best[0] for best in translator().nbest(LINES)]
        assert any(len(set(itertools.pairwise(t.tokens))) < len(t.tokens) - 1 for t in unbound), (
            "without the rule, no bigram is repeated"
        )


def test_the_length_limit_leaves_room_for_the_prefix_and_the_minimum_length() -> None:
    made = translator(max_length=0, min_length=70)
    (t,) = next(iter(made.nbest(["dog"])))
    assert len(t.token_logprobs) > 70
    made = translator(max_length=0)
    (t,) = next(iter(made.nbest(["dog"], prefixes=[" ".join(["park"] * 80)])))
    assert t.text.split()[:79] == ["park"] * 79
    too_long: list[tuple[dict[str, Any], int]] = [
        ({}, 14),
        ({"max_length": 0, "max_ratio": 0.5}, 17),
        ({"max_length": 0, "config": VARIANTS["learned positions, untied"]}, 60),
    ]
    for settings, limit in too_long:
        with pytest.raises(InputError, match=rf"prefix of line 2 .* fewer than {limit} "):
            list(translator(**settings).translate(["dog", "cat"], prefixes=["", "park " * (limit + 16)]))
    with pytest.raises(InputError, match=r"`max_length`.*14"):
        translator(min_length=14)
    config, vocab = VARIANTS["learned positions, untied"], vocabulary()
    with pytest.raises(InputError, match=r"`min_length` .* 60, .*the model"):
        Translator(
            TorchEngine([LoadedModel(network(config, len(vocab)), vocab, vocab, SEARCH, {})]),
            translator(max_length=0, min_length=60).search,
        )
