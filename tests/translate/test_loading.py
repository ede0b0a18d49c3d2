"""Loading a translator: models, precisions, devices."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

import vtrans
from vtrans.console import Console
from vtrans.errors import FileError, InputError, RecipeError
from vtrans.numerics.devices import pick_device
from vtrans.storage.run_folder import RunFolder
from vtrans.translate.loading import load


def test_load_takes_a_run_and_overrides_by_name(tiny_run: RunFolder) -> None:
    made = vtrans.load(tiny_run.path, device="cpu", beam=3)
    assert (made.search.beam, made.search.max_length) == (3, 20)
    assert len(list(made.translate(["The dog sees me today.", ""]))) == 2
    assert vtrans.load(str(tiny_run.last), device="cpu").search.beam == 2
    both = vtrans.load([tiny_run.last, tiny_run.path], device="cpu")
    assert len(both.engine.models) == 2
    with pytest.raises(RecipeError, match=r"unknown key search\.baem; did you mean beam\?"):
        vtrans.load(tiny_run.path, baem=3)
    with pytest.raises(RecipeError, match=r"search\.beam"):
        vtrans.load(tiny_run.path, beam=0)
    with pytest.raises(InputError, match="there is no model"):
        load([])
    with pytest.raises(FileError, match="nowhere"):
        load("nowhere")


def test_a_loaded_model_is_frozen(tiny_run: RunFolder) -> None:
    (model,) = load(tiny_run.path, device="cpu", engine="torch").engine.models
    assert not any(parameter.requires_grad for parameter in model.model.parameters())


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "int8"])
def test_lower_precisions_give_nearly_equal_log_probabilities(tiny_run: RunFolder, precision: str) -> None:
    lines = ["a dog runs in the park", "", "the cat sleeps"]
    exact = load(tiny_run.path, device="cpu", stop="exhaustive")
    rough = load(tiny_run.path, device="cpu", stop="exhaustive", precision=precision)
    translations = list(rough.nbest(lines, raw=True))
    assert [len(best) for best in translations] == [1, 1, 1]
    given = exact.logprob([line for line in lines if line], [best[0].tokens for best in translations if best[0].tokens])
    for own, other in zip([best[0] for best in translations if best[0].tokens], given, strict=True):
        assert own.logprob == pytest.approx(other.logprob, rel=0.05, abs=0.05)
        assert own.logprob != other.logprob


def test_invalid_precisions_are_refused(tiny_run: RunFolder) -> None:
    with pytest.raises(InputError, match=r"`precision` .*'int4'"):
        load(tiny_run.path, precision="int4")


def test_load_says_which_model_it_chose_once_it_is_loaded(tmp_path: Path, tiny_run: RunFolder) -> None:
    heard = io.StringIO()
    load([tiny_run.path, tiny_run.last], device="cpu", engine="torch", console=Console(stream=heard))
    first, second = heard.getvalue().removesuffix("\n").split("\n")
    assert first.startswith(f"model: {tiny_run.best} (the best checkpoint; there is no averaged.safetensors), on cpu")
    assert second == f"model: {tiny_run.last}, on cpu"
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(tiny_run.last.read_bytes()[:-1])
    stream = io.StringIO()
    with pytest.raises(FileError, match="damaged"):
        vtrans.load(damaged, console=Console(stream=stream))
    assert not stream.getvalue()


def test_a_given_setting_without_effect_is_named(tiny_run: RunFolder) -> None:
    for settings, named in (
        ({"diversity": 1.0}, ["diversity"]),
        ({"diversity": 1.0, "beam_groups": 2}, []),
        ({"alpha": 0.0}, []),
        ({"alpha": 0.0, "length_penalty": "length"}, ["length_penalty"]),
    ):
        heard = io.StringIO()
        load(tiny_run.path, device="cpu", console=Console(stream=heard, quiet=True), **settings)
        assert re.findall(r"search\.(\w+) = \S+ has no effect", heard.getvalue()) == named


@pytest.mark.parametrize("name", ["", "nonsense", "cuda:x", "cuda:-1", "meta", "CPU", "cuda:99"])
def test_an_invalid_device_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"`device`.*{name}"):
        pick_device(name)
