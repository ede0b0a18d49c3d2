"""A crash, a failure or a full disk at any moment loses no update."""

import errno
import itertools
import math
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from conftest import EVERY_STEP, tiny_train
from drawn import some
from moments import Moment, Moments, restore
from runs import BRIEF, same

import vtrans.storage.tensors
import vtrans.system.files
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model
from vtrans.storage.run_folder import RunFolder
from vtrans.system.errors import FileError, InputError, VtransError
from vtrans.training.progress import Metrics, Progress
from vtrans.training.trainer import Trainer
from vtrans.training.validation import Validation


class Crash(BaseException):
    """Simulates a power failure."""


AVERAGED = (*EVERY_STEP, "train.ema=0.9")


@pytest.mark.parametrize(
    ("owner", "name", "step"), some([(Validation, "measure", 22), (Metrics, "write", 14), (Progress, "rank", 14)], 1)
)
def test_a_failing_validation_loses_no_update(
    tmp_path: Path, tiny_data: DataFolder, owner: type, name: str, step: int
) -> None:
    """A crash in the validation, or between it and the state that records it."""
    works = getattr(owner, name)

    def fail(self: Any, first: Any, *others: Any) -> Any:
        done = works(self, first, *others)
        record = done or first  # measure returns it, the others take it
        if (record["kind"], record["step"]) == ("valid", step):
            raise Crash
        return done

    for _ in range(2):  # the resumed run fails in the same place
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, fail)
            with pytest.raises(Crash):
                tiny_train(tiny_data, tmp_path / "run", *AVERAGED)
        run = RunFolder(tmp_path / "run")
        assert run.state_steps() == [step]
        assert load_model(run.last).training["step"] == step
    same(tiny_train(tiny_data, tmp_path / "run", *AVERAGED), tiny_train(tiny_data, tmp_path / "whole", *AVERAGED))


class HalfWritten(Moments):
    """Also records moments at which half of a file of tensors is written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        super().__init__(monkeypatch, folder)
        write = safetensors.torch.save_file

        def half(tensors: Any, path: Path, metadata: Any) -> None:
            write(tensors, path, metadata)
            whole = path.read_bytes()
            os.truncate(path, len(whole) // 2)
            self.record()
            path.write_bytes(whole)

        monkeypatch.setattr(safetensors.torch, "save_file", half)


def written(moment: Moment) -> int:
    """The number of bytes of unfinished files."""
    return sum(len(raw or b"") for path, raw in moment.items() if is_temporary(path))


def is_temporary(path: Path) -> bool:
    return any(part.endswith(".tmp") for part in path.parts)


def distinct(moments: list[Moment]) -> list[Moment]:
    """Chooses one of the moments that differ only in an unfinished file: the one with half of the file, if any."""
    groups = [
        list(group)
        for _, group in itertools.groupby(
            moments, lambda moment: {path: raw for path, raw in moment.items() if not is_temporary(path)}
        )
    ]
    return [min(group, key=lambda moment: written(moment) or math.inf) for group in groups]


def moments_of(folder: Path, *settings: str, data: DataFolder, **options: Any) -> list[Moment]:
    """The moments of a training run in this folder."""
    with pytest.MonkeyPatch.context() as patch:
        moments = HalfWritten(patch, folder)
        tiny_train(data, folder, *settings, **options)
    return moments.recorded


def after_crash(moment: Moment, folder: Path) -> RunFolder:
    """A run after a crash."""
    restore(moment, folder)
    return RunFolder(folder)


CRASHING = (
    "train.max_steps=3",
    "train.checkpoint_every=2",
    "train.log_every=1",
    *BRIEF,
    "train.keep_last=1",
    "train.keep_best=1",
    "train.best_metric=nll",
)


@pytest.mark.slow
def test_a_crash_in_any_file_operation_loses_nothing(tmp_path: Path, tiny_data: DataFolder) -> None:
    whole = RunFolder(tmp_path / "whole")
    moments = moments_of(whole.path, *CRASHING, data=tiny_data)
    chosen = distinct(moments)
    assert len(chosen) > 25, "what the operations of three checkpoints leave"
    assert sum(written(moment) > 0 for moment in chosen) > 10
    resumed, had_model = some(range(len(chosen)), 8), False
    for number, moment in enumerate(chosen):
        run = after_crash(moment, tmp_path / "run")
        if run.last.exists() or had_model:
            had_model = True  # from the first checkpoint on there is always a model
            load_model(run.choose_model().file)
            load_model(run.last)
        if number in resumed:
            same(tiny_train(tiny_data, run.path, *CRASHING), whole)


@pytest.mark.slow
def test_a_crash_while_resuming_loses_nothing(tmp_path: Path, tiny_data: DataFolder) -> None:
    whole = RunFolder(tmp_path / "whole")
    moments = moments_of(whole.path, *CRASHING, data=tiny_data)
    # The state of step 2 is written, but `last`, `best` and the old files are not yet updated.
    newest = next(moment for moment in moments if Path("state/step-00000002.safetensors") in moment)
    resumed = moments_of(after_crash(newest, tmp_path / "resumed").path, *CRASHING, data=tiny_data)
    for moment in some(resumed[:10], 4):
        same(tiny_train(tiny_data, after_crash(moment, tmp_path / "run").path, *CRASHING), whole)


def test_a_crash_of_a_fresh_start_never_leaves_half_of_the_old_run(tmp_path: Path, tiny_data: DataFolder) -> None:
    settings = (*CRASHING, "train.seed=9")
    old = tiny_train(tiny_data, tmp_path / "old", *CRASHING)
    whole = RunFolder(shutil.copytree(old.path, tmp_path / "whole"))
    for moment in some(moments_of(whole.path, *settings, data=tiny_data, fresh=True)[:9]):
        run = after_crash(moment, tmp_path / "run")
        with suppress(InputError):  # the old command finds the whole old run or nothing of it, or is refused
            same(tiny_train(tiny_data, run.path, *CRASHING, "train.seed=1"), old)
        run = after_crash(moment, tmp_path / "run")
        same(tiny_train(tiny_data, run.path, *settings, fresh=True), whole)


class FullDisk:
    """Counts the operations that need disk space, and lets the one with this number fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int = -1) -> None:
        self.number, self.count = number, 0
        for owner, name in (
            (os, "replace"),
            (vtrans.system.files._Output, "write"),
            (safetensors.torch, "save_file"),
            (Path, "touch"),
        ):
            monkeypatch.setattr(owner, name, self.taking(getattr(owner, name)))
        monkeypatch.setattr(os, "mkdir", self.taking(os.mkdir, lambda path, *_: not Path(path).exists()))
        monkeypatch.setattr(Path, "open", self.taking(Path.open, lambda path, mode="r", *_: mode == "ab"))

    def taking(self, operation: Callable[..., Any], takes: Callable[..., bool] = lambda *_: True) -> Callable[..., Any]:
        def call(*args: Any, **how: Any) -> Any:
            self.count += takes(*args)
            if takes(*args) and self.count == self.number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return operation(*args, **how)

        return call


@pytest.mark.slow
def test_a_disk_that_is_full_at_any_operation_loses_nothing(tmp_path: Path, tiny_data: DataFolder) -> None:
    with pytest.MonkeyPatch.context() as patch:
        disk = FullDisk(patch)
        whole = tiny_train(tiny_data, tmp_path / "whole", *CRASHING)
    assert disk.count > 50
    for number in (*some(range(1, 10), 2), *some(range(disk.count - 14, disk.count + 1))):
        run = RunFolder(tmp_path / f"run-{number}")
        with pytest.MonkeyPatch.context() as patch:
            FullDisk(patch, number)
            with pytest.raises(VtransError, match=rf"{run.path}.*No space left on device") as caught:
                tiny_train(tiny_data, run.path, *CRASHING)
        assert caught.value.exit_code == 1, number
        assert ".tmp" not in str(caught.value)
        assert not list(run.path.rglob("*.tmp"))
        same(tiny_train(tiny_data, run.path, *CRASHING), whole)


def test_an_error_names_a_foreign_file(tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(tiny_data.path / "train.safetensors")

    def lost(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error", file)

    monkeypatch.setattr(Metrics, "begin", lost)
    with pytest.raises(FileError) as caught:
        tiny_train(tiny_data, tmp_path / "run")
    assert str(caught.value).startswith(file)
    assert "Input/output error" in str(caught.value)


def test_changed_data_is_never_learned(tmp_path: Path, tiny_data: DataFolder, every_step_run: RunFolder) -> None:
    path = shutil.copytree(tiny_data.path, tmp_path / "data")
    store, write = path / "train.safetensors", Metrics.write

    def changing(metrics: Metrics, record: dict[str, Any]) -> None:
        write(metrics, record)
        if record["step"] == 10:
            raw = store.read_bytes()
            store.write_bytes(raw[:-1] + b"\xff")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Metrics, "write", changing)
        with pytest.raises(FileError, match=str(store)):
            tiny_train(DataFolder.open(path), tmp_path / "run", *EVERY_STEP)
    run = RunFolder(tmp_path / "run")
    assert run.state_steps() == [7]
    same(tiny_train(tiny_data, run.path, *EVERY_STEP), every_step_run)


def test_too_little_memory_gets_advice(tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(trainer: Trainer, group: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(Trainer, "update", full)
    with pytest.raises(VtransError, match=r"cpu.* train\.batch_tokens = 120 .*train\.accumulate = 2"):
        tiny_train(tiny_data, tmp_path / "run")
