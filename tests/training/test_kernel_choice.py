"""The kernels and the precision of a run: fixed, automatic or recorded, and equal in all processes."""

import dataclasses
import sys
from pathlib import Path

import pytest
from conftest import EVERY_STEP, TINY, tiny_train
from runs import command, interrupted, process, same, set_up_run

from vtrans.data.store import DataFolder
from vtrans.model import automatic, kernels
from vtrans.model.kernels import Kernels
from vtrans.storage.run_folder import RunFolder
from vtrans.storage.states import read_progress, save_state
from vtrans.system.errors import FileError, RecipeError
from vtrans.training import machine
from vtrans.training.machine import choose_kernels

AUTO = ('train.kernels="auto"', "train.compiled=true")


def test_two_fresh_processes_on_a_busy_machine_train_to_equal_bytes(tmp_path: Path, tiny_data: DataFolder) -> None:
    """The matrices have sizes at which the libraries are about equally fast."""
    settings = (*AUTO, 'train.precision="auto"', "model.d_model=64", "model.d_ff=96", "train.max_steps=3")
    runs = [RunFolder(tmp_path / name) for name in ("a", "b")]
    with process([sys.executable, "-c", "while True: sum(range(100_000))"]):
        for run in runs:
            words, cache = command(tiny_data, run.path, *settings), {"VTRANS_CACHE": str(tmp_path / "empty")}
            with process(words, cache) as training:
                said = training.communicate(timeout=600)[1]
            assert training.returncode == 0, said
    same(*runs)


def test_a_run_resumes_with_its_kernels(tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = (*EVERY_STEP, *AUTO)
    recorded = Kernels("blas")
    with monkeypatch.context() as earlier:
        earlier.setattr(machine, "automatic_kernels", lambda: recorded)
        earlier.setattr(machine, "compiled_training", lambda console: None)  # there was no compiler
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


def test_a_missing_library_is_noticed(tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = set_up_run(tiny_data, tmp_path / "b", *AUTO)
    monkeypatch.setattr(machine, "HAS_ONEDNN", False)
    monkeypatch.setattr(automatic, "HAS_ONEDNN", False)
    with pytest.raises(RecipeError, match=r"train\.kernels .*onednn"):
        set_up_run(tiny_data, tmp_path / "a", 'train.kernels="onednn"')
    choose_kernels(ready.job, dataclasses.replace(ready.progress, kernels=Kernels()))
    assert kernels.current() == Kernels("blas")
