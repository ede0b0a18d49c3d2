"""Near-ties are told from real differences."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable

import near_ties
import pytest
import torch
from exports import LINES, encoded, random_model
from near_ties import Plain, equal_or_tied, is_near_tie, plain

from vtrans.checkpoint import LoadedModel
from vtrans.config import SearchConfig
from vtrans.data.store import DataFolder
from vtrans.engines.engine import Source
from vtrans.engines.torch_engine import TorchEngine
from vtrans.search.loop import Hypothesis
from vtrans.text.vocabulary import EOS_ID

UNUSED = 7  # a subword


def translated(models: list[LoadedModel], source: Source, beam: int = 3) -> list[Hypothesis]:
    ((_, hypotheses),) = TorchEngine(models).search([source], SearchConfig(beam=beam), nbest=beam)
    return hypotheses


def searched(models: list[LoadedModel], source: Source) -> Plain:
    return plain(translated(models, source))


def greedy(models: list[LoadedModel], source: Source) -> Plain:
    return plain(translated(models, source, 1))


@pytest.fixture
def loaded(tiny_data: DataFolder) -> LoadedModel:
    """A model that ends its translations."""
    made = random_model(tiny_data, tie="none", projection_bias=True)
    assert made.model.projection.bias is not None
    with torch.no_grad():
        made.model.projection.bias[EOS_ID] += 2.0
    return made


@pytest.fixture
def source(loaded: LoadedModel) -> Source:
    return Source(encoded(loaded, LINES[:1])[0], 12, "")


def preferring(loaded: LoadedModel, source: Source, gap: float) -> LoadedModel:
    """Returns a copy in which the logit of UNUSED is always larger by `gap` than that of the first subword of greedy
    search. What follows the two differs."""
    first = translated([loaded], source, 1)[0].tokens[0]
    other = copy.deepcopy(loaded)
    projection = other.model.projection
    assert projection.bias is not None
    with torch.no_grad():
        projection.weight[UNUSED] = projection.weight[first]
        projection.bias[UNUSED] = projection.bias[first] + gap
    return other


@pytest.mark.parametrize(("gap", "tied"), [(1e-6, True), (2e-6, True), (1e-3, False), (0.1, False)])
def test_what_follows_a_gap_is_accepted_either_way_if_it_is_within_rounding(
    gap: float, tied: bool, loaded: LoadedModel, source: Source
) -> None:
    models = [preferring(loaded, source, gap), preferring(loaded, source, -gap)]
    ours, theirs = ([greedy([model], source)] for model in models)
    assert ours != theirs
    logprob = translated(models[:1], source, 1)[0].logprob
    for model in models:
        with contextlib.nullcontext() if tied else pytest.raises(AssertionError):
            assert equal_or_tied([model], greedy, [source], ours, theirs, logprob) == [False]


WRONG: dict[str, Callable[[Plain], Plain]] = {
    "another subword": lambda best: [*best[:-1], ((*best[-1][0][:-1], UNUSED), best[-1][1])],
    "a subword less": lambda best: [*best[:-1], (best[-1][0][:-1], best[-1][1])],
    "another order": lambda best: best[::-1],
    "a missing hypothesis": lambda best: best[:-1],
    "not finished": lambda best: [(tokens, not finished) for tokens, finished in best],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_result_is_no_near_tie(
    name: str, loaded: LoadedModel, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near_ties, "SEARCHES", 20)
    right = searched([loaded], source)
    logprob = translated([loaded], source)[0].logprob
    assert is_near_tie([loaded], lambda models: searched(models, source), right, logprob)
    assert not is_near_tie([loaded], lambda models: searched(models, source), WRONG[name](right), logprob)
