"""The run folder: one process trains in it, and nothing is written before everything is checked."""

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import TRAIN_PAIRS, make_data, tiny_train
from runs import run_trainer, same, set_up_run, story

from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder
from vtrans.system.errors import InputError, RecipeError
from vtrans.training.trainer import Trainer
from vtrans.training.validation import Validation


def test_resuming_on_other_data_is_refused(
    run_copy: RunFolder, tiny_data: DataFolder, tiny_data_separate: DataFolder, tmp_path: Path
) -> None:
    fewer = tmp_path / "fewer"
    fewer.mkdir()
    before = story(run_copy)
    for other in (tiny_data_separate, make_data(fewer, train=tuple(TRAIN_PAIRS[1:]))):
        with pytest.raises(InputError, match=r"data.*`fresh`"):
            tiny_train(other, run_copy.path, "train.max_steps=40")
    assert story(run_copy) == before


def test_fresh_removes_only_the_files_of_the_run(run_copy: RunFolder, tiny_data: DataFolder, tmp_path: Path) -> None:
    (run_copy.path / "notes.txt").write_text("mine")
    steps = run_copy.steps()
    assert len(steps) in (2, 3)
    run_copy.averaged.write_bytes(run_copy.last.read_bytes())
    with pytest.raises(RecipeError):  # what can't be trained removes nothing
        tiny_train(tiny_data, run_copy.path, "train.batch_tokens=3", fresh=True)
    with pytest.raises(InputError):
        tiny_train(tiny_data, run_copy.path, "model.positions=learned", "model.max_positions=5", fresh=True)
    assert run_copy.averaged.exists()
    assert run_copy.steps() == steps
    tiny_train(tiny_data, run_copy.path, "train.seed=4", fresh=True)
    assert (run_copy.path / "notes.txt").read_text() == "mine"
    (run_copy.path / "notes.txt").unlink()
    assert not run_copy.averaged.exists()
    same(run_copy, tiny_train(tiny_data, tmp_path / "whole", "train.seed=4"))


def test_a_second_training_in_the_same_folder_is_refused(
    tmp_path: Path, tiny_data: DataFolder, tiny_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, refusals = RunFolder(tmp_path / "run"), []
    measure = Validation.measure

    def meanwhile(validation: Validation, step: int, cancelled: Callable[[], bool]) -> dict[str, Any] | None:
        # Refused before the state is read: another recipe would be, too.
        for overrides, fresh in (((), False), (("train.seed=9",), False), ((), True)):
            with pytest.raises(InputError, match="another `vtrans train`") as caught:
                tiny_train(tiny_data, run.path, *overrides, fresh=fresh)
            refusals.append(caught.value.exit_code)
        return measure(validation, step, cancelled)

    monkeypatch.setattr(Validation, "measure", meanwhile)
    same(tiny_train(tiny_data, run.path), tiny_run)
    assert refusals == [2] * 9


def test_a_run_that_another_process_started_is_not_overwritten(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = RunFolder(tmp_path / "run")
    slow = Trainer(set_up_run(tiny_data, run.path))  # it has found no run
    tiny_train(tiny_data, run.path)
    before = story(run)
    with pytest.raises(InputError, match=re.escape(str(run.path))):
        run_trainer(slow)
    assert story(run) == before


def test_a_disk_may_lack_file_locks(tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unknown)
    tiny_train(tiny_data, tmp_path / "run", "train.max_steps=1")


def test_what_cannot_be_trained_leaves_no_run_folder(tmp_path: Path, tiny_data: DataFolder) -> None:
    store = tiny_data.train
    longest = max(int(store.src_lengths.max()), int(store.tgt_lengths.max())) + 1
    with pytest.raises(RecipeError, match=f"batch_tokens .*{longest}, .* {longest - 1}"):
        tiny_train(tiny_data, tmp_path / "run", f"train.batch_tokens={longest - 1}")
    with pytest.raises(InputError, match=r"model\.max_positions .* \d+"):
        tiny_train(tiny_data, tmp_path / "run", "model.positions=learned", "model.max_positions=5")
    with pytest.raises(RecipeError, match="did you mean d_model"):
        tiny_train(tiny_data, tmp_path / "run", "model.dmodel=3")
    assert not (tmp_path / "run").exists()
    tiny_train(tiny_data, tmp_path / "run", f"train.batch_tokens={longest}", "train.max_steps=1")
