"""The kernels of a run are fixed, measured or recorded, and the same again when it resumes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from conftest import EVERY_STEP, TINY, tiny_train
from runs import heard, interrupted, same, set_up_run

import vtrans
from vtrans.checkpoint import RunFolder
from vtrans.config import PRECISIONS
from vtrans.data.store import DataFolder
from vtrans.errors import InputError, RecipeError
from vtrans.runtime import kernels
from vtrans.runtime.kernels import Kernels
from vtrans.states import read_progress
from vtrans.training import kernel_choice
from vtrans.training.kernel_choice import choose_kernels, fastest_precision
from vtrans.training.progress import Progress
from vtrans.training.recipe import load_recipe

AUTO = ('train.kernels="auto"', 'train.attention="auto"')
MEASURED = Kernels(
    "onednn", {(32, 48, True): (True, False, True), (48, 32, True): (False, True, False)}, frozenset({0})
)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replaces the measurement by MEASURED. Returns a list that grows with each measurement."""
    calls: list[int] = []

    def products(weights: object, *, training: bool) -> object:
        calls.append(1)
        return MEASURED.products

    monkeypatch.setattr(kernel_choice, "measured_products", products)
    monkeypatch.setattr(kernel_choice, "measured_attention", lambda heads, D: MEASURED.bmm)
    return calls


def test_a_run_resumes_with_the_kernels_that_it_measured(
    tmp_path: Path, tiny_data: DataFolder, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = (*EVERY_STEP, *AUTO, "model.d_model=64")
    whole = tiny_train(tiny_data, tmp_path / "whole", *settings)
    interrupted(tiny_data, tmp_path / "run", 9, *settings)
    run = RunFolder(tmp_path / "run")
    assert Kernels.from_record(read_progress(run.state_file(10))["kernels"]) == MEASURED
    assert len(measured) == 2
    kernels.use(Kernels())
    same(tiny_train(tiny_data, run.path, *settings), whole)
    assert kernels.current() == MEASURED
    assert len(measured) == 2
    # The choice matters: with other kernels the bytes differ.
    monkeypatch.setattr(kernel_choice, "measured_products", lambda weights, *, training: {})
    monkeypatch.setattr(kernel_choice, "measured_attention", lambda heads, D: frozenset())
    other = tiny_train(tiny_data, tmp_path / "other", *settings)
    assert other.last.read_bytes() != whole.last.read_bytes()


def test_the_recipe_fixes_the_kernels_and_the_log_names_them(
    tmp_path: Path, tiny_data: DataFolder, measured: list[int]
) -> None:
    set_up_run(tiny_data, tmp_path / "a", 'train.kernels="blas"', 'train.attention="bmm"')
    assert kernels.current() == Kernels("blas", {}, frozenset({0, 1}))
    assert not measured
    said = heard(tiny_data, tmp_path / "b", *TINY, *AUTO, "train.max_steps=1")
    assert f"kernels: {MEASURED}" in said


def test_other_kernels_than_before_are_reported(tmp_path: Path, tiny_data: DataFolder) -> None:
    settings = (*TINY, "train.max_steps=2")
    heard(tiny_data, tmp_path / "run", *settings)
    assert "bit-exactly" not in heard(tiny_data, tmp_path / "run", *TINY, "train.max_steps=3")
    assert "bit-exactly" in heard(tiny_data, tmp_path / "run", *TINY, "train.max_steps=4", 'train.kernels="blas"')


def test_a_state_without_kernels_has_those_of_its_version(tmp_path: Path, tiny_data: DataFolder) -> None:
    ready = set_up_run(tiny_data, tmp_path / "run", *AUTO)
    old = {key: value for key, value in vars(ready.progress).items() if key != "kernels"}
    choose_kernels(ready.job, ready.learner.model, Progress(**old))
    assert kernels.current() == Kernels()


def test_a_run_from_another_device_measures(tmp_path: Path, tiny_data: DataFolder, measured: list[int]) -> None:
    ready = set_up_run(tiny_data, tmp_path / "run", *AUTO)
    ready.progress.environment["device"] = "cuda"
    choose_kernels(ready.job, ready.learner.model, ready.progress)
    assert len(measured) == 2


def test_a_missing_library_is_refused_or_replaced(
    tmp_path: Path, tiny_data: DataFolder, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_choice, "HAS_ONEDNN", False)
    with pytest.raises(RecipeError, match=r"train\.kernels .*onednn"):
        set_up_run(tiny_data, tmp_path / "a", 'train.kernels="onednn"')
    ready = set_up_run(tiny_data, tmp_path / "b", *AUTO)
    monkeypatch.setattr(kernel_choice, "measured_products", lambda weights, *, training: {})
    choose_kernels(ready.job, ready.learner.model, dataclasses.replace(ready.progress, kernels=Kernels().record()))
    assert kernels.current() == Kernels("blas")


def test_translating_measures_unless_the_kernels_are_given(
    tiny_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    vtrans.load(tiny_run.path, device="cpu", kernels="blas")
    assert kernels.current() == Kernels("blas")
    vtrans.load(tiny_run.path, device="cpu")  # the tests' environment says onednn
    assert kernels.current() == Kernels("onednn")
    vtrans.load(tiny_run.path, device="cpu", kernels="auto")
    assert {(32, 320, True), (32, 320, False), (48, 32, True)} <= set(kernels.current().products)
    monkeypatch.setenv("VTRANS_KERNELS", "cublas")
    with pytest.raises(InputError, match=r"VTRANS_KERNELS .*'cublas'"):
        vtrans.load(tiny_run.path)
    with pytest.raises(InputError, match=r"`kernels` .*'mkl'"):
        vtrans.load(tiny_run.path, kernels="mkl")


def test_auto_is_the_precision_that_was_measured_also_after_a_resume(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ('train.precision="auto"', "train.max_steps=2")
    found = iter(["bfloat16"])
    monkeypatch.setattr(kernel_choice, "fastest_precision", lambda recipe, model: next(found))
    run = tiny_train(tiny_data, tmp_path / "run", *settings)
    assert load_recipe(str(run.recipe)).train.precision == "bfloat16"
    fixed = tiny_train(tiny_data, tmp_path / "fixed", 'train.precision="bfloat16"', "train.max_steps=2")
    same(run, fixed)
    resumed = set_up_run(tiny_data, run.path, *settings, recipe="small")
    assert resumed.job.recipe.train.precision == resumed.learner.config.precision == "bfloat16"


def test_a_measured_precision_leaves_no_gradient(tmp_path: Path, tiny_data: DataFolder) -> None:
    ready = set_up_run(tiny_data, tmp_path / "run", "model.positions=learned", "model.max_positions=40")
    assert fastest_precision(ready.job.recipe, ready.learner.model) in PRECISIONS
    assert all(p.grad is None for p in ready.learner.model.parameters())
