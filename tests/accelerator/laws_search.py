"""Searching and scoring on a pretended device give what they give on the CPU. test_pretended.py runs this file."""

import copy
import dataclasses
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pretended
import pytest
import torch
from drawn import seeded_arrays
from gpu_check import Counting
from pretended import waits
from translators import SEARCH, VARIANTS, loaded, same, vocabulary

from vtrans.config import ModelConfig
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model.checkpoint import LoadedModel
from vtrans.search.options import Sampling
from vtrans.storage.model_file import Shortlist, with_network
from vtrans.translate.translation import Translation
from vtrans.translate.translator import Translator

pretended.register()
DEVICE = torch.device(pretended.NAME)
LINES = ["a dog runs", "Łódź", "the park sleeps in ein Hund", "cat cat", "in the park"]
OTHER, CPU = torch.device(pretended.NAME, 1), torch.device("cpu")


def moved(model: LoadedModel, device: torch.device) -> LoadedModel:
    return with_network(model, copy.deepcopy(model.model).to(device))


def listed(model: LoadedModel) -> LoadedModel:
    V = len(vocabulary())
    table = seeded_arrays(1).integers(4, V, (V, 3)).astype(np.int32)
    return dataclasses.replace(model, shortlist=Shortlist(table, np.arange(3, 9, dtype=np.int32)))


def translators(
    configs: Sequence[ModelConfig], device: torch.device = DEVICE, *, shortlist: bool = False, **search: Any
) -> tuple[Translator, Translator]:
    """Returns translators with an ensemble of random models, on the device and on the CPU."""
    models = [listed(loaded(config, seed)) for seed, config in enumerate(configs, 1)]
    engines = [TorchEngine([moved(model, on) for model in models], shortlist=shortlist) for on in (device, CPU)]
    for engine in engines:
        engine.decoders = [Counting(model.model) for model in engine.models]
    # Small batches, which sentences leave and enter.
    settings = dataclasses.replace(SEARCH, **{"batch_tokens": 16, "max_length": 8, **search})
    ours, theirs = (Translator(engine, settings, retry=False) for engine in engines)
    return ours, theirs


WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "beam": ({}, {"n": 3, "alignments": True}),
    "greedy": ({"beam": 1}, {}),
    "groups": ({"beam": 4, "beam_groups": 2, "diversity": 0.5}, {"n": 2}),
    "rules": ({"no_repeat_ngram": 2, "repetition_penalty": 1.2, "min_length": 3}, {}),
    "prefixes": ({}, {"prefixes": ["ein"] * len(LINES)}),
    "constraints": ({}, {"constraints": [{"constraints": ["Hund"], "avoid": ["dog"]}] * len(LINES)}),
    "sampling": ({}, {"n": 2, "sampling": Sampling(3, top_k=9)}),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_search_finds_what_it_finds_on_the_cpu(way: str) -> None:
    search, options = WAYS[way]
    ours, theirs = translators([VARIANTS["post-norm, one matrix"]], **search)
    equal([*ours.nbest(LINES, **options)], [*theirs.nbest(LINES, **options)])


def equal(found: list[list[Translation]], expected: list[list[Translation]]) -> None:
    assert same(found, expected)
    for t, other in zip(chain(*found), chain(*expected), strict=True):
        assert t.alignment == other.alignment
        assert t.token_logprobs == pytest.approx(other.token_logprobs, abs=1e-9)  # a confidence is a function of these


@pytest.mark.parametrize("variant", ["rotary positions", "SSRU, pre-norm", "decoder-only, causal, learned positions"])
def test_each_architecture_translates_and_scores_as_on_the_cpu(variant: str) -> None:
    ours, theirs = translators([VARIANTS[variant]])
    found, expected = [*ours.nbest(LINES, 2)], [*theirs.nbest(LINES, 2)]
    equal(found, expected)
    targets = [best[0].text for best in expected]
    scored = [[[t] for t in translator.logprob(LINES, targets)] for translator in (ours, theirs)]
    equal(*scored)


@pytest.mark.parametrize(
    ("variant", "shortlist", "sampling"),
    [
        ("post-norm, one matrix", True, None),
        ("SSRU, pre-norm", False, None),
        ("decoder-only, prefix", False, Sampling(3)),
    ],
)
def test_a_step_of_a_search_waits_once(variant: str, shortlist: bool, sampling: Sampling | None) -> None:
    ours, _ = translators([VARIANTS[variant]], shortlist=shortlist)
    with waits() as waited:
        assert len([*ours.nbest(LINES, 2, sampling)]) == len(LINES)
    assert isinstance(ours.engine, TorchEngine)
    (decoder,) = ours.engine.decoders
    assert isinstance(decoder, Counting)
    assert len(waited) == decoder.steps, waited
