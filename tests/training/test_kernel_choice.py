"""The kernels and the precision of a run: fixed, automatic or recorded, and the same again in every process."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
from conftest import EVERY_STEP, TINY, tiny_train
from runs import command, heard, interrupted, process, same, set_up_run

import vtrans
from vtrans.data.store import DataFolder
from vtrans.errors import FileError, RecipeError
from vtrans.numerics import automatic, kernels
from vtrans.numerics.automatic import automatic_kernels
from vtrans.numerics.kernels import Kernels
from vtrans.storage.run_folder import RunFolder
from vtrans.storage.states import read_progress, save_state
from vtrans.training import log, machine
from vtrans.training.machine import choose_kernels
from vtrans.training.recipe import load_recipe

AUTO = ('train.kernels="auto"', 'train.attention="auto"')


def test_two_fresh_processes_on_a_busy_machine_train_to_equal_bytes(tmp_path: Path, tiny_data: DataFolder) -> None:
    """The matrices are near the sizes at which the libraries are equally fast."""
    settings = (*AUTO, 'train.precision="auto"', "model.d_model=64", "model.d_ff=96", "train.max_steps=3")
    runs = [RunFolder(tmp_path / name) for name in ("a", "b")]
    with process([sys.executable, "-c", "while True: sum(range(100_000))"]):
        for run in runs:
            words, cache = command(tiny_data, run.path, *settings), {"VTRANS_CACHE": str(tmp_path / "empty")}
            with process(words, cache) as training:
                said = training.communicate(timeout=600)[1]
            assert training.returncode == 0, said
    same(*runs)


def test_a_run_resumes_with_its_recorded_kernels(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = (*EVERY_STEP, *AUTO)
    recorded = Kernels("blas", bmm=True)
    with monkeypatch.context() as earlier:
        earlier.setattr(machine, "automatic_kernels", lambda: recorded)
        whole = tiny_train(tiny_data, tmp_path / "whole", *settings)
        interrupted(tiny_data, tmp_path / "run", 9, *settings)
    kernels.use(Kernels())
    monkeypatch.setattr(machine, "automatic_kernels", Kernels)
    same(tiny_train(tiny_data, tmp_path / "run", *settings), whole)
    assert kernels.current() == recorded
    # The choice matters: with other kernels the bytes differ.
    other = tiny_train(tiny_data, tmp_path / "other", *settings)
    assert other.last.read_bytes() != whole.last.read_bytes()


def test_a_state_with_kernels_that_were_measured_is_refused(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = tiny_train(tiny_data, tmp_path / "run", *TINY, "train.max_steps=1")
    progress = read_progress(run.state_file(1))
    progress["kernels"]["products"] = [[32, 48, True, True, False, True]]
    save_state(run.state_file(1), {}, progress)
    with pytest.raises(FileError, match="another version"):
        set_up_run(tiny_data, run.path)


def test_the_recipe_fixes_the_kernels_and_the_log_names_them(tmp_path: Path, tiny_data: DataFolder) -> None:
    set_up_run(tiny_data, tmp_path / "a", 'train.kernels="blas"', 'train.attention="bmm"')
    assert kernels.current() == Kernels("blas", bmm=True)
    said = heard(tiny_data, tmp_path / "b", *TINY, *AUTO, "train.max_steps=1")
    assert kernels.current() == automatic_kernels()
    assert f"kernels: {kernels.current()}" in said


def test_other_kernels_than_before_are_reported(tmp_path: Path, tiny_data: DataFolder) -> None:
    settings = (*TINY, "train.max_steps=2")
    heard(tiny_data, tmp_path / "run", *settings)
    assert "bit-exactly" not in heard(tiny_data, tmp_path / "run", *TINY, "train.max_steps=3")
    assert "bit-exactly" in heard(tiny_data, tmp_path / "run", *TINY, "train.max_steps=4", 'train.kernels="blas"')


def test_a_run_from_another_device_chooses_again(tmp_path: Path, tiny_data: DataFolder) -> None:
    ready = set_up_run(tiny_data, tmp_path / "run", *AUTO)
    there = dataclasses.replace(ready.progress, environment={"device": "cuda"}, kernels=Kernels("blas"))
    choose_kernels(ready.job, there)
    assert kernels.current() == automatic_kernels()


def test_a_missing_library_is_refused_or_replaced(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = set_up_run(tiny_data, tmp_path / "b", *AUTO)
    monkeypatch.setattr(machine, "HAS_ONEDNN", False)
    monkeypatch.setattr(automatic, "HAS_ONEDNN", False)
    with pytest.raises(RecipeError, match=r"train\.kernels .*onednn"):
        set_up_run(tiny_data, tmp_path / "a", 'train.kernels="onednn"')
    choose_kernels(ready.job, dataclasses.replace(ready.progress, kernels=Kernels()))
    assert kernels.current() == Kernels("blas")


def test_translating_with_torch_uses_the_automatic_library(tiny_run: RunFolder) -> None:
    kernels.use(Kernels("none", bmm=True))
    vtrans.load(tiny_run.path, device="cpu", engine="torch")
    assert kernels.current() == dataclasses.replace(automatic_kernels(), bmm=True)


def test_auto_is_one_precision_also_after_a_resume(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ('train.precision="auto"', "train.max_steps=2")
    monkeypatch.setattr(machine, "automatic_precision", lambda device: "bfloat16")
    run = tiny_train(tiny_data, tmp_path / "run", *settings)
    assert load_recipe(str(run.recipe)).train.precision == "bfloat16"
    fixed = tiny_train(tiny_data, tmp_path / "fixed", 'train.precision="bfloat16"', "train.max_steps=2")
    same(run, fixed)
    monkeypatch.setattr(machine, "automatic_precision", lambda device: "float32")
    resumed = set_up_run(tiny_data, run.path, *settings, recipe="small")
    assert resumed.job.recipe.train.precision == resumed.learner.config.precision == "bfloat16"


def test_emulated_bfloat16_has_a_warning(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for precision, emulated in (("bfloat16", True), ("bfloat16", False), ("float32", True)):
        monkeypatch.setattr(log, "emulates_bfloat16", lambda device, emulated=emulated: emulated)
        run = tmp_path / f"{precision} {emulated}"
        said = heard(tiny_data, run, *TINY, "train.max_steps=1", f'train.precision="{precision}"')
        warned = "warning" in said and "set train.precision to float32" in said
        assert warned == (precision == "bfloat16" and emulated)
