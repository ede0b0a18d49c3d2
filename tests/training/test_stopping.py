"""Signals: the first one saves the state and stops, the second one ends the process at once."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import EVERY_STEP, TINY, tiny_train
from runs import Stopper, heard, interrupted, lines, run_trainer, same, set_up_run

from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model
from vtrans.storage.run_folder import RunFolder
from vtrans.system.errors import VtransError
from vtrans.training.setup import TrainOptions
from vtrans.training.trainer import Trainer, train
from vtrans.training.validation import Validation

OPTIONS = TrainOptions(overrides=(*TINY, *EVERY_STEP), device="cpu")


def test_a_second_signal_ends_training_at_once(tmp_path: Path, tiny_data: DataFolder) -> None:
    class Twice(Stopper):
        def info(self, text: str, advice: str = "") -> None:
            super().info(text)
            super().info(text)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        train(tiny_data, RunFolder(tmp_path / "run"), Twice(12), OPTIONS)
    assert signal.getsignal(signal.SIGTERM) is before
    assert load_model(RunFolder(tmp_path / "run").last).training["step"] == 7


def test_sighup_stops_a_run_except_under_nohup(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = tmp_path / "run"
    said = interrupted(tiny_data, run, 3, *EVERY_STEP, number=signal.SIGHUP)
    assert "SIGHUP after step 4" in said
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        train(tiny_data, RunFolder(run), Stopper(12, signal.SIGHUP), OPTIONS)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert load_model(RunFolder(run).last).training["step"] == 22


class Signalled(Validation):
    """A validation that gets a signal at the n-th time that it asks whether it is cancelled after step 14."""

    def __init__(self, validation: Validation, nth: int) -> None:
        self.__dict__.update(vars(validation))
        self.nth = nth
        self.asked: list[int] = []

    def measure(self, step: int, cancelled: Callable[[], bool] = lambda: False) -> dict[str, Any] | None:
        def asking() -> bool:
            self.asked.append(step)
            if self.asked.count(14) == self.nth:
                os.kill(os.getpid(), signal.SIGTERM)
            return cancelled()

        return super().measure(step, asking)


@pytest.mark.parametrize("nth", [1, 4])
def test_a_signal_ends_a_validation(tmp_path: Path, tiny_data: DataFolder, nth: int) -> None:
    settings = (*EVERY_STEP, "train.valid_sentences=0")
    whole = tiny_train(tiny_data, tmp_path / "whole", *settings)
    trainer = Trainer(set_up_run(tiny_data, tmp_path / "run", *settings))
    trainer.validation = signalled = Signalled(trainer.validation, nth)
    with pytest.raises(VtransError, match=r"SIGTERM after step 14"):
        run_trainer(trainer)
    assert signalled.asked.count(14) == nth < signalled.asked.count(7)
    assert {line["step"] for line in lines(RunFolder(tmp_path / "run")) if line["kind"] == "valid"} == {7}
    same(tiny_train(tiny_data, tmp_path / "run", *settings), whole)


def test_a_validation_may_end_training(tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = Validation.measure

    def slow(*arguments: Any) -> Any:
        time.sleep(0.6)
        return measure(*arguments)

    monkeypatch.setattr(Validation, "measure", slow)
    run, settings = RunFolder(tmp_path / "run"), (*TINY, "train.checkpoint_every=1", "train.max_minutes=0.01")
    assert "done at step" in heard(tiny_data, run.path, *settings)
    steps = run.state_steps()
    assert "is finished at step" in heard(tiny_data, run.path, *settings)
    assert run.state_steps() == steps
