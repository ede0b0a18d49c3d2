"""Stopping runs by signals, and resuming them bit-exactly."""

import os
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import EVERY_STEP, TINY, tiny_train
from drawn import seeded, some
from runs import Stopper, command, heard, interrupted, lines, process, run_trainer, same, set_up_run, wait_for_line
from safetensors.torch import load_file

import vtrans.data.augmentation
from vtrans.data.epochs import plan_epoch
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model
from vtrans.storage.run_folder import RunFolder
from vtrans.storage.states import read_progress
from vtrans.storage.tensors import FORMAT, write_tensors
from vtrans.system.errors import FileError, InputError, VtransError
from vtrans.system.ranks import Ranks
from vtrans.training.trainer import Trainer, train
from vtrans.training.validation import Validation


def test_a_run_stopped_at_any_step_ends_equal(tmp_path: Path, tiny_data: DataFolder, every_step_run: RunFolder) -> None:
    store = tiny_data.train
    epoch = len(plan_epoch(store.src_lengths, store.tgt_lengths, 240, 1, 1))
    assert 10 < epoch < 21, "the end of an epoch must be among the steps below"
    for step in (*some((1, 6, epoch - 1), 1), 7, epoch):
        said = interrupted(tiny_data, tmp_path / str(step), step, *EVERY_STEP)
        after = step if step % 7 == 0 else step + 1  # a signal postpones a validation that is due
        assert f"SIGTERM after step {after}" in said
        run = RunFolder(tmp_path / str(step))
        assert load_model(run.last).training["step"] == after
        assert not [line for line in lines(run) if line["kind"] == "valid" and line["step"] >= step]
        same(tiny_train(tiny_data, run.path, *EVERY_STEP), every_step_run)


def test_every_option_resumes_exactly(tmp_path: Path, two_corpora: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    # With several windows per epoch, some stops come inside a window and others between two.
    monkeypatch.setattr(vtrans.data.augmentation, "SHARD", 8)
    monkeypatch.setattr(vtrans.data.augmentation, "WINDOW", 3)
    settings = (
        *EVERY_STEP,
        "train.max_steps=16",
        "train.ema=0.9",
        "train.bpe_dropout=0.2",
        "train.noise=0.4",
        "train.corpus_weights=1.5,0.5",
        "train.r_drop=2",
        "train.precision=bfloat16",
        "train.accumulate=2",
        "train.clip_norm=0.5",
        "train.weight_decay=0.1",
        "model.attention_dropout=0.1",
        "model.activation_dropout=0.1",
        "model.autoregression=ssru",
    )
    whole = tiny_train(two_corpora, tmp_path / "whole", *settings)
    assert load_model(whole.last).training["epoch"] > 1
    for step in (2, 7, 12):
        interrupted(two_corpora, tmp_path / "run", step, *settings)
    same(tiny_train(two_corpora, tmp_path / "run", *settings), whole)


LONG = (
    "train.max_steps=60",
    "train.accumulate=2",
    "train.log_every=1",
    "train.checkpoint_every=15",
    "train.valid_sentences=2",
)


@pytest.mark.slow
def test_a_command_that_was_killed_and_terminated_resumes_exactly(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = RunFolder(tmp_path / "run")
    words = command(tiny_data, run.path, *LONG)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201 - to repeat a failure, though the moment of a kill is never quite the same
    chance = seeded(seed)
    for ending in (signal.SIGKILL, signal.SIGTERM):
        with process(words) as child:
            have = run.metrics.read_bytes().count(b"\n") if run.metrics.exists() else 0
            wait_for_line(child, run, have + chance.randint(1, 20))
            if ending == signal.SIGKILL:  # the lock of a live process keeps others out, that of a dead one does not
                with pytest.raises(InputError, match="another `vtrans train`"):
                    tiny_train(tiny_data, run.path)
            time.sleep(chance.random() / 50)
            child.send_signal(ending)
            _, said = child.communicate(timeout=60)
        assert child.returncode == (1 if ending == signal.SIGTERM else -ending)
        file, _ = run.choose_model()
        load_model(file)
    assert "Traceback" not in said
    step = read_progress(run.state_file(run.state_steps()[-1]))["step"]
    assert f"error: stopped by SIGTERM after step {step};" in said
    assert f"resuming {run.path} after step {step}" in heard(tiny_data, run.path, *TINY, *LONG)
    same(run, tiny_train(tiny_data, tmp_path / "whole", *LONG))


def test_the_last_undamaged_checkpoint_is_resumed(tmp_path: Path, tiny_data: DataFolder, tiny_run: RunFolder) -> None:
    settings = ("train.checkpoint_every=10",)
    run = tiny_train(tiny_data, tmp_path / "run", *settings, "train.max_steps=10")
    keep = run.state_file(10).read_bytes()
    tiny_train(tiny_data, run.path, *settings, "train.max_steps=20")
    run.state_file(10).write_bytes(keep)
    run.state_file(20).write_bytes(run.state_file(20).read_bytes()[:-1])
    same(tiny_train(tiny_data, run.path), tiny_run)
    for file in (run.state_file(30), run.step_file(30)):
        whole = file.read_bytes()
        file.write_bytes(whole[:-1])
        with pytest.raises(FileError, match=r"truncated.*`fresh`"):
            tiny_train(tiny_data, run.path)
        file.write_bytes(whole)
    run.step_file(30).unlink()
    with pytest.raises(FileError, match="no complete training state"):
        tiny_train(tiny_data, run.path)


def test_sums_since_the_last_logged_line_survive_a_resume(tmp_path: Path, tiny_data: DataFolder) -> None:
    settings = ("train.log_every=7", "train.max_steps=21")
    whole = tiny_train(tiny_data, tmp_path / "whole", *settings)
    run = tiny_train(tiny_data, tmp_path / "run", *settings, "train.max_steps=10", "train.log_every=100")
    seconds = read_progress(run.state_file(10))["window"].get("seconds", 0)
    assert seconds == 0  # the last step writes a line
    tokens = [r["tgt_tokens"] for r in lines(whole) if r["kind"] == "train"]
    tiny_train(tiny_data, run.path, *settings)
    assert sum(r["tgt_tokens"] for r in lines(run) if r["kind"] == "train") == sum(tokens)
    interrupted(tiny_data, tmp_path / "b", 7, *settings)
    state = read_progress(RunFolder(tmp_path / "b").state_file(8))
    assert state["window"]["tgt_tokens"] > 0
    assert state["window"]["seconds"] > 0
    same(tiny_train(tiny_data, tmp_path / "b", *settings), whole)


@pytest.mark.parametrize(
    ("key", "value", "threads"),
    [("ranks", 1, 1), ("ranks", 2, 2), ("machine", "abacus", 2), ("processor", "abacus", 1)],
)
def test_threads_are_restored_on_a_machine_of_the_same_kind_and_a_warning_names_what_differs(
    run_copy: RunFolder, tiny_data: DataFolder, key: str, value: object, threads: int
) -> None:
    state = run_copy.state_file(30)
    progress = read_progress(state)
    same_machine = progress["environment"][key] == value
    progress["environment"][key] = value
    write_tensors(state, load_file(state), {"format": FORMAT, "kind": "state", "progress": progress})
    torch.set_num_threads(2)
    try:
        said = heard(tiny_data, run_copy.path)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(1)
    warning = said.partition("warning: ")[2].partition("\n")[0]
    assert (f"{key} {value} -> " in warning) != same_machine
    assert ("threads 1 -> 2" in warning) == (threads == 2)
    assert ("threads: 1" in said) == (threads == 1)


def test_ranks_must_read_one_state(run_copy: RunFolder, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_the_run(ranks: Ranks, own: str) -> list[str]:
        return [own, re.sub("step 30", "step 0", own)]

    monkeypatch.setattr(Ranks, "all_texts", without_the_run)
    with pytest.raises(InputError) as caught:
        tiny_train(tiny_data, run_copy.path, "train.max_steps=40")
    assert "rank 1 has data" in str(caught.value)
    assert "step 0, recipe" in str(caught.value)


OPTIONS: dict[str, Any] = {"overrides": (*TINY, *EVERY_STEP), "device": "cpu"}


def test_a_second_signal_ends_training_at_once(tmp_path: Path, tiny_data: DataFolder) -> None:
    class Twice(Stopper):
        def info(self, text: str, advice: str = "") -> None:
            super().info(text)
            super().info(text)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        train(tiny_data, out=tmp_path / "run", console=Twice(12), **OPTIONS)
    assert signal.getsignal(signal.SIGTERM) is before
    assert load_model(RunFolder(tmp_path / "run").last).training["step"] == 7


def test_sighup_stops_a_run_except_under_nohup(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = tmp_path / "run"
    said = interrupted(tiny_data, run, 3, *EVERY_STEP, number=signal.SIGHUP)
    assert "SIGHUP after step 4" in said
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        train(tiny_data, out=run, console=Stopper(12, signal.SIGHUP), **OPTIONS)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert load_model(RunFolder(run).last).training["step"] == 22


class Signalled(Validation):
    """A validation after step 14 that gets a signal at its n-th check for cancellation."""

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
