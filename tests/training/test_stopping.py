"""Signals: the first one saves the state and stops, the second one ends the process at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import EVERY_STEP, TINY, tiny_train
from runs import Stopper, heard, interrupted, lines, run_trainer, same, set_up_run

from vtrans.checkpoint import load_model
from vtrans.data.store import DataFolder
from vtrans.errors import VtransError
from vtrans.storage.run_folder import RunFolder
from vtrans.training.setup import TrainOptions
from vtrans.training.trainer import Trainer, train
from vtrans.training.validation import Validation


def test_a_second_signal_ends_training_at_once(tmp_path: Path, tiny_data: DataFolder) -> None:
    class Twice(Stopper):
        def info(self, text: str, advice: str = "") -> None:
            super().info(text)
            super().info(text)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        train(
            tiny_data,
            RunFolder(tmp_path / "run"),
            Twice(12),
            TrainOptions(overrides=(*TINY, *EVERY_STEP), device="cpu"),
        )
    assert signal.getsignal(signal.SIGTERM) is before
    assert load_model(RunFolder(tmp_path / "run").last).training["step"] == 7


def test_sighup_stops_a_run_except_under_nohup(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = tmp_path / "run"
    said = interrupted(tiny_data, run, 3, *EVERY_STEP, number=signal.SIGHUP)
    assert "SIGHUP after step 4" in said
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        train(
            tiny_data,
            RunFolder(run),
            Stopper(12, signal.SIGHUP),
            TrainOptions(overrides=(*TINY, *EVERY_STEP), device="cpu"),
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    assert load_model(RunFolder(run).last).training["step"] == 22


def test_after_a_signal_in_the_last_step_resuming_validates_it(
    tmp_path: Path, tiny_data: DataFolder, every_step_run: RunFolder
) -> None:
    said = interrupted(tiny_data, tmp_path / "run", 22, *EVERY_STEP)
    assert "SIGTERM after step 22" in said
    assert load_model(RunFolder(tmp_path / "run").last).training["step"] == 22
    assert "is finished at step" not in heard(tiny_data, tmp_path / "run", *TINY, *EVERY_STEP)
    same(RunFolder(tmp_path / "run"), every_step_run)
    assert "is finished at step 22" in heard(tiny_data, tmp_path / "run", *TINY, *EVERY_STEP)


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


def test_training_ends_when_its_time_is_over(tmp_path: Path, tiny_data: DataFolder) -> None:
    run, settings = RunFolder(tmp_path / "run"), (*TINY, "train.checkpoint_every=5", "train.schedule=linear")
    said = heard(tiny_data, run.path, *settings, "train.max_minutes=1e-6")
    assert "done at step 1" in said
    assert load_model(run.last).training["step"] == 1
    assert "valid at step 1:" in said
    assert "(train.max_minutes = 1e-06)" in heard(tiny_data, run.path, *settings, "train.max_minutes=1e-6")
    longer = heard(tiny_data, run.path, *settings, "train.max_minutes=1000", "train.max_steps=7")
    assert "done at step 7" in longer
    assert load_model(run.last).training["step"] == 7


def test_the_closing_says_that_training_has_diverged(tmp_path: Path, tiny_data: DataFolder) -> None:
    settings = (*TINY, "train.max_steps=60", "train.checkpoint_every=30", "train.valid_sentences=2")
    diverged = heard(tiny_data, tmp_path / "diverged", *settings, "train.learning_rate=10").split("\n")[-2]
    assert "done at step 60" in diverged
    assert "train.learning_rate" in diverged
    assert "vtrans average" not in diverged
    closing = heard(tiny_data, tmp_path / "sound", *settings).split("\n")[-2]
    assert "vtrans average" in closing
    assert "train.learning_rate" not in closing


def test_a_validation_that_outlasts_the_time_ends_training_for_good(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_metrics_count_the_updates_after_the_last_line(
    tmp_path: Path, tiny_data: DataFolder, interrupted: bool
) -> None:
    """BLEU is 0, so the second validation ends the training."""
    settings = ("train.max_steps=30", "train.checkpoint_every=7", "train.log_every=6", "train.keep_last=1")
    trainer = Trainer(set_up_run(tiny_data, tmp_path / "run", *settings, "train.patience=1"))
    if interrupted:
        trainer.validation = Signalled(trainer.validation, 1)
        with pytest.raises(VtransError, match=r"SIGTERM after step 14"):
            run_trainer(trainer)
        trainer = Trainer(set_up_run(tiny_data, tmp_path / "run", *settings, "train.patience=1"))
    run_trainer(trainer)
    records = [line for line in lines(trainer.job.run) if line["kind"] == "train"]
    assert [line["step"] for line in records] == [6, 12, 14]
    whole = lines(tiny_train(tiny_data, tmp_path / "whole", *settings, "train.max_steps=14"))
    for key in ("src_tokens", "tgt_tokens"):
        assert [line[key] for line in records] == [line[key] for line in whole if line["kind"] == "train"]
    assert trainer.log.left == 0
