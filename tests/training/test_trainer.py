"""Exact resume, whatever interrupts; refusals; what a run keeps; sums that do not depend on how they are cut."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import math
import multiprocessing
import os
import platform
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import safetensors.torch
import torch
from conftest import TINY, TRAIN_PAIRS, VALID_PAIRS, make_data, tiny_train, write_pairs
from safetensors.torch import load_file

import vtrans
import vtrans.checkpoint
import vtrans.data.bpe_dropout
from vtrans.checkpoint import RunFolder, RunLock, load_model, read_progress, write_tensors
from vtrans.config import PrepareOptions, Recipe, SearchConfig, TrainConfig
from vtrans.console import Console
from vtrans.data.batches import Batch, Mixture, collate, plan_epoch
from vtrans.data.prepare import prepare
from vtrans.data.store import DataFolder
from vtrans.errors import FileError, InputError, RecipeError, VtransError
from vtrans.runtime.ranks import Ranks
from vtrans.score import corpus_scores
from vtrans.training.optimizer import learning_rate, make_optimizer
from vtrans.training.progress import Metrics, Progress
from vtrans.training.recipe import load_recipe, settled
from vtrans.training.trainer import NON_FINITE_LIMIT, _Training, train
from vtrans.training.validation import Validation, manner

CPU = torch.device("cpu")


def lines(run: RunFolder) -> list[dict[str, Any]]:
    """metrics.jsonl."""
    return [json.loads(line) for line in run.metrics.read_bytes().split(b"\n")[:-1]]


def story(run: RunFolder) -> dict[str, Any]:
    """All that two equal runs have in common: every model file's bytes, and the metrics but for the time."""
    files = {p.name: p.read_bytes() for p in run.path.iterdir() if p.suffix == ".safetensors"}
    others = {p.name for p in run.path.rglob("*")} - set(files)
    return {
        "files": files,
        "others": others,
        "metrics": [{k: v for k, v in line.items() if k != "seconds"} for line in lines(run)],
        "best": read_progress(run.state_file(run.state_steps()[-1]))["best"],
    }


def same(run: RunFolder, reference: RunFolder) -> None:
    """The two runs ended alike."""
    a, b = story(run), story(reference)
    assert a["metrics"] == b["metrics"]
    assert a["others"] == b["others"]
    assert set(a["files"]) == set(b["files"])
    for name in a["files"]:
        assert a["files"][name] == b["files"][name], name
    assert a["best"] == b["best"]


class Stopper(Console):
    """Sends this process a signal when the log tells of a certain step."""

    def __init__(self, step: int, number: int = signal.SIGTERM) -> None:
        super().__init__(quiet=True)
        self.start, self.number = f"step {step}  ", number

    def info(self, text: str) -> None:
        if text.startswith(self.start):
            os.kill(os.getpid(), self.number)


def interrupted(data: DataFolder, run: Path, step: int, *overrides: str, number: int = signal.SIGTERM) -> str:
    """Trains until a signal comes after `step`; what was said in the end."""
    with pytest.raises(VtransError) as caught:
        train(data, RunFolder(run), Stopper(step, number), overrides=(*TINY, *overrides), device="cpu")
    assert caught.value.exit_code == 1
    return str(caught.value)


def heard(data: DataFolder, run: Path, *overrides: str, **how: Any) -> str:
    """Trains, and gives what was said on stderr."""
    stream = io.StringIO()
    train(data, RunFolder(run), Console(stream=stream), overrides=overrides, device="cpu", **how)
    return stream.getvalue()


# Exact resume: signals.

EVERY_STEP = (
    "train.max_steps=22",
    "train.log_every=1",
    "train.checkpoint_every=7",
    "train.valid_sentences=1",
    "model.dropout=0.2",
)


def test_a_run_stopped_after_any_step_ends_with_equal_bytes(tmp_path: Path, tiny_data: DataFolder) -> None:
    store = tiny_data.train
    epoch = len(plan_epoch(store.src_lengths, store.tgt_lengths, 240, 1, 1))
    assert 10 < epoch < 21  # so that the end of an epoch is among the steps below
    whole = tiny_train(tiny_data, tmp_path / "whole", *EVERY_STEP)
    for step in (1, 6, 7, *range(epoch - 2, epoch + 1), 20):
        said = interrupted(tiny_data, tmp_path / str(step), step, *EVERY_STEP)
        after = step if step % 7 == 0 else step + 1  # a validation that is due is put off
        assert said.startswith(f"stopped by SIGTERM after step {after}, with the state saved")
        run = RunFolder(tmp_path / str(step))
        assert load_model(run.last).training["step"] == after
        assert not [line for line in lines(run) if line["kind"] == "valid" and line["step"] >= step]
        same(tiny_train(tiny_data, run.path, *EVERY_STEP), whole)


def test_with_accumulation_several_stops_and_batches_that_straddle_epochs(
    tmp_path: Path, tiny_data: DataFolder
) -> None:
    settings = (*EVERY_STEP, "train.accumulate=3", "train.clip_norm=0.5", "train.weight_decay=0.1")
    whole = tiny_train(tiny_data, tmp_path / "whole", *settings)
    assert load_model(whole.last).training["epoch"] == 4
    for step in (3, 5, 8, 13, 15):
        interrupted(tiny_data, tmp_path / "run", step, *settings, number=signal.SIGINT)
    same(tiny_train(tiny_data, tmp_path / "run", *settings), whole)


def test_two_equal_runs_are_equal(tmp_path: Path, tiny_data: DataFolder, tiny_run: RunFolder) -> None:
    same(tiny_train(tiny_data, tmp_path / "again"), tiny_run)
    other = tiny_train(tiny_data, tmp_path / "other", "train.seed=2")
    assert other.last.read_bytes() != tiny_run.last.read_bytes()


def command(data: DataFolder, run: Path, *overrides: str) -> list[str]:
    words = [sys.executable, "-m", "vtrans", "train", "--data", str(data.path), "--out", str(run), "--device", "cpu"]
    return [*words, *(word for value in (*TINY, *overrides) for word in ("--set", value))]


@contextmanager
def process(words: list[str], environment: Mapping[str, str] = MappingProxyType({})) -> Iterator[subprocess.Popen[str]]:
    """A running command."""
    root = str(Path(vtrans.__file__).parent.parent)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root, **environment}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=env) as child:
        try:
            yield child
        finally:
            child.kill()


def wait_for_line(child: subprocess.Popen[str], run: RunFolder, number: int) -> None:
    """Until metrics.jsonl has that many lines."""
    until = time.monotonic() + 60
    while time.monotonic() < until and child.poll() is None:
        if run.metrics.exists() and run.metrics.read_bytes().count(b"\n") >= number:
            return
        time.sleep(0.001)
    raise AssertionError(f"it ended before: {child.stderr and child.stderr.read()}")


LONG = (
    "train.max_steps=150",
    "train.accumulate=2",
    "train.log_every=1",
    "train.checkpoint_every=25",
    "train.valid_sentences=2",
)


@pytest.mark.slow
def test_a_command_killed_and_terminated_ends_with_equal_bytes(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = RunFolder(tmp_path / "run")
    words = command(tiny_data, run.path, *LONG)
    chance = random.Random(1)  # the moment of a kill differs between runs anyway
    for ending in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
        with process(words) as child:
            have = run.metrics.read_bytes().count(b"\n") if run.metrics.exists() else 0
            wait_for_line(child, run, min(have, 100) + chance.randint(1, 30))
            time.sleep(chance.random() / 50)
            child.send_signal(ending)
            _, said = child.communicate(timeout=60)
        assert child.returncode == (1 if ending == signal.SIGTERM else -ending)
        file, _ = run.choose_model()
        load_model(file)
    assert "Traceback" not in said
    step = read_progress(run.state_file(run.state_steps()[-1]))["step"]
    sentence = f"stopped by SIGTERM after step {step}, with the state saved; the same command goes on from there."
    assert said.endswith(f"{sentence}\n")
    with process(words) as child:
        _, said = child.communicate(timeout=120)
    assert child.returncode == 0, said
    assert f"resuming {run.path} after step {step}" in said
    same(run, tiny_train(tiny_data, tmp_path / "whole", *LONG))


def test_a_second_signal_ends_at_once(tmp_path: Path, tiny_data: DataFolder) -> None:
    class Twice(Stopper):
        def info(self, text: str) -> None:
            super().info(text)
            super().info(text)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        train(tiny_data, RunFolder(tmp_path / "run"), Twice(12), overrides=(*TINY, *EVERY_STEP), device="cpu")
    assert signal.getsignal(signal.SIGTERM) is before
    assert load_model(RunFolder(tmp_path / "run").last).training["step"] == 7


def test_a_terminal_that_closes_ends_a_run_as_ctrl_c_does_but_under_nohup(
    tmp_path: Path, tiny_data: DataFolder
) -> None:
    run = tmp_path / "run"
    said = interrupted(tiny_data, run, 3, *EVERY_STEP, number=signal.SIGHUP)
    assert said.startswith("stopped by SIGHUP after step 4, with the state saved")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        train(tiny_data, RunFolder(run), Stopper(12, signal.SIGHUP), overrides=(*TINY, *EVERY_STEP), device="cpu")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert load_model(RunFolder(run).last).training["step"] == 22


def test_a_signal_in_the_last_step_leaves_its_validation_to_who_goes_on(tmp_path: Path, tiny_data: DataFolder) -> None:
    said = interrupted(tiny_data, tmp_path / "run", 22, *EVERY_STEP)
    assert said.startswith("stopped by SIGTERM after step 22, with the state saved")
    assert load_model(RunFolder(tmp_path / "run").last).training["step"] == 22
    assert "is done at step" not in heard(tiny_data, tmp_path / "run", *TINY, *EVERY_STEP)
    same(RunFolder(tmp_path / "run"), tiny_train(tiny_data, tmp_path / "whole", *EVERY_STEP))
    assert "is done at step 22" in heard(tiny_data, tmp_path / "run", *TINY, *EVERY_STEP)


@pytest.mark.parametrize("sentence", [0, 3])
def test_a_signal_breaks_a_validation_off(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch, sentence: int
) -> None:
    settings = (*EVERY_STEP, "train.valid_sentences=0")
    whole = tiny_train(tiny_data, tmp_path / "whole", *settings)
    asked = []

    def nth(training: _Training) -> bool:
        asked.append(training.progress.step)
        if asked.count(14) == sentence + 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return training.signal.number > 0

    with monkeypatch.context() as patch:
        patch.setattr(_Training, "_signalled", nth)
        said = interrupted(tiny_data, tmp_path / "run", 99, *settings)
    assert said.startswith("stopped by SIGTERM after step 14, with the state saved")
    assert asked.count(14) == sentence + 1 < asked.count(7)
    assert {line["step"] for line in lines(RunFolder(tmp_path / "run")) if line["kind"] == "valid"} == {7}
    same(tiny_train(tiny_data, tmp_path / "run", *settings), whole)


class Crash(BaseException):
    """The power went."""


@pytest.mark.parametrize(
    ("room", "name", "step"), [(Validation, "measure", 22), (Metrics, "write", 14), (Progress, "rank", 14)]
)
def test_a_validation_that_fails_loses_no_update(
    tmp_path: Path, tiny_data: DataFolder, room: type, name: str, step: int
) -> None:
    """A crash in the validation, or between it and the state that records it."""
    settings = (*EVERY_STEP, "train.ema=0.9")
    whole = tiny_train(tiny_data, tmp_path / "whole", *settings)
    works = getattr(room, name)

    def fail(self: Any, first: Any, *others: Any) -> Any:
        done = works(self, first, *others)
        record = done or first  # measure returns it, the others take it
        if (record["kind"], record["step"]) == ("valid", step):
            raise Crash
        return done

    for _ in range(2):  # the resumed run fails in the same place
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(room, name, fail)
            with pytest.raises(Crash):
                tiny_train(tiny_data, tmp_path / "run", *settings)
        run = RunFolder(tmp_path / "run")
        assert run.state_steps() == [step]
        assert load_model(run.last).training["step"] == step
    same(tiny_train(tiny_data, tmp_path / "run", *settings), whole)


def test_a_contradictory_search_is_refused_before_training(tmp_path: Path, tiny_data: DataFolder) -> None:
    for dry_run in (True, False):
        with pytest.raises(RecipeError, match=r"search\.min_length"):
            heard(tiny_data, tmp_path / "run", *TINY, "search.min_length=20", dry_run=dry_run)
    assert not (tmp_path / "run").exists()


def test_memory_that_is_not_enough_brings_advice(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(training: _Training, group: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(_Training, "_update", full)
    with pytest.raises(VtransError, match=r"^cpu has not .* train.batch_tokens = 120 and train.accumulate = 2 makes"):
        tiny_train(tiny_data, tmp_path / "run")


# Exact resume: a crash in every file operation.


class Disk:
    """Counts file operations; from number `fatal` on, none is carried out any more, cleaning up included."""

    OPERATIONS = ("replace", "rename", "link", "unlink", "rmdir", "mkdir", "fsync")

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fatal: int) -> None:
        self.fatal, self.count = fatal, 0
        for name in self.OPERATIONS:
            monkeypatch.setattr(os, name, self.guarded(getattr(os, name)))
        real = safetensors.torch.save_file

        def save(tensors: Any, path: Path, metadata: Any) -> None:
            if self.count + 1 == self.fatal:  # in the middle of it
                real(tensors, path, metadata)
                os.truncate(path, path.stat().st_size // 2)
            self.guarded(lambda: real(tensors, path, metadata))()

        monkeypatch.setattr(vtrans.checkpoint, "save_file", save)

    def guarded(self, operation: Any) -> Any:
        def run(*args: Any, **how: Any) -> Any:
            self.count += 1
            if self.count >= self.fatal:
                raise Crash
            return operation(*args, **how)

        return run


CRASHING = (
    "train.max_steps=4",
    "train.checkpoint_every=2",
    "train.log_every=1",
    "train.valid_sentences=1",
    "train.keep_last=1",
    "train.keep_best=1",
    "train.best_metric=nll",
)


@pytest.mark.slow
def test_a_crash_in_any_file_operation_loses_nothing(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tiny_train(tiny_data, tmp_path / "whole", *CRASHING)
    fatal, had_model, done = 0, False, False
    while not done:
        fatal += 1
        run = RunFolder(tmp_path / str(fatal))
        with monkeypatch.context() as patch:
            Disk(patch, fatal)
            try:
                tiny_train(tiny_data, run.path, *CRASHING)
                done = True
            except Crash:
                pass
        if run.last.exists() or had_model:
            had_model = True  # from the first checkpoint on there is always one
            file, _ = run.choose_model()
            load_model(file)
            load_model(run.last)
        same(tiny_train(tiny_data, run.path, *CRASHING), whole)
    assert fatal > 50  # the operations of three checkpoints


@pytest.mark.slow
def test_a_crash_while_resuming_loses_nothing(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tiny_train(tiny_data, tmp_path / "whole", *CRASHING)
    run = RunFolder(tmp_path / "run")
    # Every operation is the last once: each resumption dies one later than the one before it.
    for fatal in range(2, 60, 3):
        with monkeypatch.context() as patch:
            Disk(patch, fatal)
            try:
                tiny_train(tiny_data, run.path, *CRASHING)
                break
            except Crash:
                continue
    same(tiny_train(tiny_data, run.path, *CRASHING), whole)


def test_fresh_interrupted_is_never_half_of_the_old_run(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = (*CRASHING, "train.seed=9")
    whole = tiny_train(tiny_data, tmp_path / "whole", *settings)
    old = tiny_train(tiny_data, tmp_path / "old", *CRASHING)
    for fatal in range(1, 20):
        run = RunFolder(shutil.copytree(old.path, tmp_path / str(fatal)))
        with monkeypatch.context() as patch:
            Disk(patch, fatal)
            with pytest.raises(Crash):
                tiny_train(tiny_data, run.path, *settings, fresh=True)
        copy = RunFolder(shutil.copytree(run.path, tmp_path / f"copy-{fatal}"))
        with suppress(InputError):  # the old command meets the old run whole, or nothing of it, or is refused
            same(tiny_train(tiny_data, copy.path, *CRASHING, "train.seed=1"), old)
        same(tiny_train(tiny_data, run.path, *settings, fresh=True), whole)


def test_a_damaged_newest_pair_gives_way_to_the_one_before(
    tmp_path: Path, tiny_data: DataFolder, tiny_run: RunFolder
) -> None:
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
        with pytest.raises(FileError, match=r"no training state with its model to go on from .*truncated.*--fresh"):
            tiny_train(tiny_data, run.path)
        file.write_bytes(whole)
    run.step_file(30).unlink()
    with pytest.raises(FileError, match="no training state with its model"):
        tiny_train(tiny_data, run.path)


# What a resumption may change, and what not.


def test_other_data_is_refused(
    run_copy: RunFolder, tiny_data: DataFolder, tiny_data_separate: DataFolder, tmp_path: Path
) -> None:
    fewer = tmp_path / "fewer"
    fewer.mkdir()
    before = story(run_copy)
    for other in (tiny_data_separate, make_data(fewer, train=tuple(TRAIN_PAIRS[1:]))):
        with pytest.raises(InputError, match=r"was trained on other data than .* --fresh to start over"):
            tiny_train(other, run_copy.path, "train.max_steps=40")
    assert story(run_copy) == before


def test_a_warm_up_beyond_the_end_is_warned_of(tiny_data: DataFolder, tmp_path: Path) -> None:
    settings = (*TINY, "train.max_steps=2")
    said = heard(tiny_data, tmp_path / "run", *settings, "train.warmup=3")
    assert "ends at step 2, before the warm-up does: train.warmup is 3" in said
    assert "warm-up" not in heard(tiny_data, tmp_path / "other", *settings, "train.warmup=2")


def test_a_data_folder_is_no_run_folder(tiny_data: DataFolder) -> None:
    before = sorted(tiny_data.path.iterdir())
    with pytest.raises(InputError, match="is the data folder; give the run a folder of its own"):
        tiny_train(tiny_data, tiny_data.path / ".")
    assert sorted(tiny_data.path.iterdir()) == before


def test_another_recipe_is_refused_with_all_differences(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    before, recipe = story(run_copy), run_copy.recipe.read_bytes()
    changes = {
        "model.d_ff=64": "model.d_ff 48 -> 64",
        "model.tie=none": 'model.tie "src-tgt-softmax" -> "none"',
        "model.dropout=0.2": "model.dropout 0.1 -> 0.2",
        "train.seed=3": "train.seed 1 -> 3",
        "train.warmup=11": "train.warmup 10 -> 11",
        "train.batch_tokens=300": "train.batch_tokens 240 -> 300",
        "train.accumulate=2": "train.accumulate 1 -> 2",
        "train.label_smoothing=0.0": "train.label_smoothing 0.1 -> 0.0",
        "train.learning_rate=0.02": "train.learning_rate 0.01 -> 0.02",
    }
    with pytest.raises(InputError) as caught:
        tiny_train(tiny_data, run_copy.path, "train.max_steps=40", *changes)
    for difference in changes.values():
        assert difference in str(caught.value)
    assert "max_steps" not in str(caught.value)
    for change, difference in changes.items():
        with pytest.raises(InputError, match=difference):
            tiny_train(tiny_data, run_copy.path, change)
    assert story(run_copy) == before
    assert run_copy.recipe.read_bytes() == recipe
    # An edited recipe.toml is a request like any other, and the recipe of the state is what it is held against.
    run_copy.recipe.write_text(recipe.decode().replace("seed = 1", "seed = 5"))
    with pytest.raises(InputError, match=r"train\.seed 1 -> 5"):
        train(tiny_data, run_copy, Console(quiet=True), device="cpu")


ALLOWED = (
    "train.max_steps=40",
    "train.patience=9",
    "train.log_every=3",
    "train.checkpoint_every=4",
    "train.keep_last=3",
    "train.keep_best=1",
    "train.valid_sentences=2",
    "train.valid_beam=2",
    "train.samples=0",
    "train.precision=float32",
    "search.beam=7",
    "search.alpha=1.0",
)


def test_what_concerns_saving_and_validation_may_change(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    tiny_train(tiny_data, run_copy.path, *ALLOWED)
    recipe = load_recipe(str(run_copy.recipe))
    for change in ALLOWED:
        section, _, rest = change.partition(".")
        key, _, value = rest.partition("=")
        assert str(getattr(getattr(recipe, section), key)) == value
    assert [line["step"] for line in lines(run_copy) if line["kind"] == "valid"] == [10, 20, 30, 32, 36, 40]
    assert load_model(run_copy.last).search.beam == 7
    # And what is trained is what would have been.
    weights = load_file(run_copy.last)
    straight = tiny_train(tiny_data, run_copy.path.parent / "straight", "train.max_steps=40")
    assert all(torch.equal(value, weights[name]) for name, value in load_file(straight.last).items())


def test_a_run_goes_on_without_its_options_and_without_recipe_toml(
    run_copy: RunFolder, tiny_data: DataFolder, tmp_path: Path
) -> None:
    whole = tiny_train(tiny_data, tmp_path / "whole", "train.max_steps=40")
    run_copy.recipe.unlink()
    said = heard(tiny_data, run_copy.path, "train.max_steps=40")
    assert "resuming" in said
    same(run_copy, whole)
    assert run_copy.recipe.read_bytes() == whole.recipe.read_bytes()


def test_a_validation_searches_each_line_once(tiny_run: RunFolder) -> None:
    recorded = {line["step"]: line["chrf"] for line in lines(tiny_run) if line["kind"] == "valid"}
    sources, references = zip(*VALID_PAIRS[:4], strict=True)

    def chrf(step: int, *, retry: bool) -> float:
        made = vtrans.load(tiny_run.step_file(step), device="cpu", beam=1, retry=retry)
        return float(corpus_scores([best[0].text for best in made.translate_window(sources)], references)["chrf"])

    once = {step: chrf(step, retry=False) for step in tiny_run.steps()}
    assert once == {step: recorded[step] for step in once}
    assert any(chrf(step, retry=True) != once[step] for step in once), "else the test shows nothing"


def test_another_metric_ranks_the_checkpoints_anew(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    tiny_train(tiny_data, run_copy.path, "train.best_metric=nll", "train.max_steps=40", "train.keep_last=9")
    progress = read_progress(run_copy.state_file(40))
    nll = {line["step"]: line["nll"] for line in lines(run_copy) if line["kind"] == "valid"}
    expected = sorted((-nll[step], step) for step in (20, 30, 40))[::-1][:2]
    assert [tuple(entry) for entry in progress["best"]] == expected
    assert load_model(run_copy.best).training["step"] == expected[0][1]


def test_another_metric_without_its_record_starts_from_nothing(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    run_copy.metrics.unlink()
    tiny_train(tiny_data, run_copy.path, "train.best_metric=nll", "train.max_steps=40")
    assert [step for _, step in read_progress(run_copy.state_file(40))["best"]] == [40]


@pytest.mark.parametrize(
    ("change", "back"),
    [
        ("train.valid_sentences=2", "train.valid_sentences=4"),
        ("train.valid_beam=2", "train.valid_beam=1"),
        ("search.max_length=6", "search.max_length=20"),
    ],
)
def test_scores_of_other_translations_do_not_rank_beside_new_ones(
    run_copy: RunFolder, tiny_data: DataFolder, change: str, back: str
) -> None:
    said = heard(tiny_data, run_copy.path, change, "train.max_steps=40", "train.keep_last=9")
    assert "no validation so far was measured in this way" in said
    bleu = {line["step"]: line["bleu"] for line in lines(run_copy) if line["kind"] == "valid"}
    new = [(bleu[step], step) for step in bleu if step > 30]
    best = [tuple(entry) for entry in read_progress(run_copy.state_file(40))["best"]]
    assert best == sorted(new, key=lambda entry: (-entry[0], entry[1]))[: len(best)]
    assert best
    # With the first setting again, the first scores count and those in between do not.
    tiny_train(tiny_data, run_copy.path, back, "train.max_steps=50", "train.keep_last=9")
    bleu = {line["step"]: line["bleu"] for line in lines(run_copy) if line["kind"] == "valid"}
    old = [(bleu[step], step) for step in (20, 30, 50) if step in run_copy.steps()]
    best = [tuple(entry) for entry in read_progress(run_copy.state_file(50))["best"]]
    assert best == sorted(old, key=lambda entry: (-entry[0], entry[1]))[: len(best)]
    assert len(best) == 2


def test_a_search_setting_is_in_the_signature_exactly_if_translations_depend_on_it() -> None:
    train, search = TrainConfig(), SearchConfig()
    other: dict[str, Any] = {
        "alpha": 1.0,
        "length_penalty": "length",
        "stop": "exhaustive",
        "max_length": 6,
        "min_length": 2,
        "no_repeat_ngram": 3,
        "repetition_penalty": 1.5,
        "max_source": 9,
        "beam": 7,  # validation has its own
        "batch_tokens": 9,
    }
    inert = {"beam", "batch_tokens"}
    assert set(other) == {field.name for field in dataclasses.fields(SearchConfig)}
    for beam, unused in ((1, inert | {"alpha", "length_penalty"}), (2, inert)):
        train = dataclasses.replace(train, valid_beam=beam)
        for name, value in other.items():
            changed = dataclasses.replace(search, **{name: value})
            assert (manner(train, changed, 20) == manner(train, search, 20)) == (name in unused), name
    assert manner(TrainConfig(valid_sentences=20), search, 20) == manner(TrainConfig(), search, 20)
    assert manner(TrainConfig(valid_sentences=19), search, 20) != manner(TrainConfig(), search, 20)


@pytest.mark.parametrize("change", ["search.alpha=2.0", "search.batch_tokens=999", "train.valid_sentences=12"])
def test_what_no_translation_depends_on_ranks_nothing_again(tmp_path: Path, tiny_data: DataFolder, change: str) -> None:
    assert len(tiny_data.valid) == 12
    settings = ("train.valid_sentences=0", "train.max_steps=10")
    run = tiny_train(tiny_data, tmp_path / "run", *settings)
    before = read_progress(run.state_file(10))["best"]
    tiny_train(tiny_data, run.path, *settings, "train.max_steps=20", change)
    best = read_progress(run.state_file(20))["best"]
    assert {step for _, step in best} == {10, 20}
    assert before[0] in best


def test_the_beam_of_validations_does_not_matter_to_likelihood(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    settings = ("train.best_metric=nll", "train.max_steps=40", "train.keep_last=9")
    tiny_train(tiny_data, run_copy.path, *settings, "train.valid_beam=2")
    nll = {line["step"]: line["nll"] for line in lines(run_copy) if line["kind"] == "valid"}
    expected = sorted((-nll[step], step) for step in (20, 30, 40))[::-1][:2]
    assert [tuple(entry) for entry in read_progress(run_copy.state_file(40))["best"]] == expected


def test_fresh_removes_the_runs_own_files_alone(run_copy: RunFolder, tiny_data: DataFolder, tmp_path: Path) -> None:
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


def test_a_finished_run_says_that_it_is_done(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    before = story(run_copy)
    said = heard(tiny_data, run_copy.path)
    assert f"the run in {run_copy.path} is done at step 30 (train.max_steps = 30)" in said
    assert "--set train.max_steps=N with a larger N goes on, --fresh starts over" in said
    assert story(run_copy) == before


def test_a_finished_run_keeps_its_settings(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    before = {path: path.read_bytes() for path in run_copy.path.rglob("*") if path.is_file()}
    said = heard(tiny_data, run_copy.path, "search.alpha=3", "train.best_metric=nll", "train.keep_best=1")
    for change in ("search.alpha 0.6 -> 3.0", "train.best_metric bleu -> nll", "train.keep_best 2 -> 1"):
        assert change in said
    assert {path: path.read_bytes() for path in run_copy.path.rglob("*") if path.is_file()} == before
    assert "search.alpha" not in heard(tiny_data, run_copy.path)
    # With updates to make, the models that follow have the setting.
    tiny_train(tiny_data, run_copy.path, "search.alpha=3", "train.max_steps=40")
    assert load_model(run_copy.last).search.alpha == load_recipe(str(run_copy.recipe)).search.alpha == 3


def test_a_run_that_is_ended_by_its_settings_stays_ended(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    tiny_train(tiny_data, run_copy.path, "train.max_steps=33")
    said = heard(tiny_data, run_copy.path, "train.max_steps=20", "search.alpha=3")
    assert "max_steps 33 -> 20" not in said
    recipe = load_recipe(str(run_copy.recipe))
    assert (recipe.train.max_steps, recipe.search.alpha) == (20, 0.6)
    assert "is done at step 33" in heard(tiny_data, run_copy.path)


# Whose recipe.toml it is.

OWN = "# my notes\n" + "".join(
    f"[{section}]\n" + "".join(f"{name.partition('.')[2]}\n" for name in TINY if name.startswith(f"{section}."))
    for section in ("model", "train", "search")
)


@pytest.mark.parametrize("text", [OWN, OWN.partition("\n")[2], "[model\n"])
@pytest.mark.parametrize("fresh", [False, True])
def test_a_recipe_of_the_users_own_is_never_overwritten(
    tmp_path: Path, tiny_data: DataFolder, tiny_run: RunFolder, text: str, fresh: bool
) -> None:
    for folder in (tmp_path / "new", Path(shutil.copytree(tiny_run.path, tmp_path / "run"))):
        run = RunFolder(folder)
        folder.mkdir(exist_ok=True)
        run.recipe.write_text(text)
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for name in (str(run.recipe), None, "small"):
            for dry_run in (False, True):
                with pytest.raises(InputError, match=re.escape(str(run.recipe))):
                    heard(tiny_data, folder, *TINY, recipe_name=name, fresh=fresh, dry_run=dry_run)
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_recipe_elsewhere_is_left_alone(tmp_path: Path, tiny_data: DataFolder, tiny_run: RunFolder) -> None:
    (tmp_path / "mine.toml").write_text(OWN)
    run = RunFolder(tmp_path / "run")
    for _ in range(2):
        train(tiny_data, run, Console(quiet=True), recipe_name=str(tmp_path / "mine.toml"), device="cpu")
    same(run, tiny_run)
    assert (tmp_path / "mine.toml").read_text() == OWN


def test_the_recipe_that_training_wrote_starts_it_again(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    own, wanted = str(run_copy.recipe), story(run_copy)
    for fresh in (False, True):
        train(tiny_data, run_copy, Console(quiet=True), recipe_name=own, fresh=fresh, device="cpu")
        assert story(run_copy) == wanted
    train(tiny_data, run_copy, Console(quiet=True), recipe_name=own, overrides=["train.max_steps=40"], device="cpu")
    assert load_recipe(own).train.max_steps == 40
    # Without any state: it is what a crash before the first one leaves.
    shutil.rmtree(run_copy.states)
    for file in run_copy.path.glob("*.safetensors"):
        file.unlink()
    tiny_train(tiny_data, run_copy.path)
    assert story(run_copy) == wanted


def test_comments_in_the_recipe_of_a_run_stay(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    text = "# the good one\n" + run_copy.recipe.read_text().replace("max_steps = 30", "max_steps = 40")
    run_copy.recipe.write_text(text)
    train(tiny_data, run_copy, Console(quiet=True), device="cpu")
    assert load_model(run_copy.last).training["step"] == 40
    assert run_copy.recipe.read_text() == text
    with pytest.raises(InputError, match=re.escape(str(run_copy.recipe))):
        train(tiny_data, run_copy, Console(quiet=True), overrides=["train.max_steps=50"], device="cpu")
    assert run_copy.recipe.read_text() == text


def test_another_thread_count_is_put_back_or_warned_of(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    torch.set_num_threads(2)
    try:
        said = heard(tiny_data, run_copy.path)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(1)
    assert "threads: 1, as in the run so far" in said
    assert "equal bytes" not in said


@pytest.mark.parametrize(("key", "value"), [("ranks", 2), ("machine", "abacus")])
def test_threads_are_put_back_only_where_the_rest_is_alike(
    run_copy: RunFolder, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch, key: str, value: object
) -> None:
    now = _Training._environment

    def before(training: _Training) -> dict[str, Any]:
        return now(training) | {key: value}

    monkeypatch.setattr(_Training, "_environment", before)
    torch.set_num_threads(2)
    try:
        said = heard(tiny_data, run_copy.path)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert "threads: 1" not in said
    assert f"{key} " in said.partition("not to equal bytes: ")[2].partition("\n")[0]
    assert "threads 1 -> 2" in said


def test_another_processor_is_warned_of(
    run_copy: RunFolder, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = torch.backends.cpu.get_cpu_capability()
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "ABACUS")
    said = heard(tiny_data, run_copy.path)
    assert f"not to equal bytes: processor {own} -> ABACUS" in said


def test_ranks_that_read_other_states_are_refused(
    run_copy: RunFolder, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_the_run(ranks: Ranks, own: str) -> list[str]:
        return [own, re.sub("step 30", "step 0", own)]

    monkeypatch.setattr(Ranks, "all_texts", without_the_run)
    with pytest.raises(InputError) as caught:
        tiny_train(tiny_data, run_copy.path, "train.max_steps=40")
    assert "rank 1 has data" in str(caught.value)
    assert "step 0, recipe" in str(caught.value)
    assert "on a disk that they share" in str(caught.value)


def test_a_warning_where_bytes_can_not_be_equal(
    run_copy: RunFolder, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = platform.machine()
    monkeypatch.setattr(platform, "machine", lambda: "abacus")
    said = heard(tiny_data, run_copy.path)
    assert f"the run goes on, but not to equal bytes: machine {before} -> abacus" in said


def test_lost_metrics_are_told(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    run_copy.metrics.write_bytes(run_copy.metrics.read_bytes()[:100])
    assert "its lost lines stay lost" in heard(tiny_data, run_copy.path)


def test_on_cuda_equal_bytes_are_not_promised(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    for device, times in (("cuda", 1), ("cpu", 0)):
        heard = io.StringIO()
        settings = (*TINY, "train.max_steps=40")
        training = _Training(
            tiny_data, run_copy, Console(stream=heard), Ranks(), CPU, None, settings, False, RunLock(run_copy)
        )
        training.device = torch.device(device)  # where it says that it is
        training._introduce()
        assert heard.getvalue().count("equal bytes are promised on the CPU alone") == times
        training.resumed = False
        training._introduce()
        assert heard.getvalue().count("equal bytes are promised on the CPU alone") == times


# One process a run folder.

BUSY = r"^another `vtrans train` is at work in .*; let it end, stop it, or give another --out\.$"


def test_a_second_training_in_a_folder_is_refused(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tiny_train(tiny_data, tmp_path / "whole")
    run, refusals = RunFolder(tmp_path / "run"), []
    measure = Validation.measure

    def meanwhile(validation: Validation, step: int, cancelled: Callable[[], bool]) -> dict[str, Any] | None:
        # Refused before the state is read: another recipe would be, too.
        for overrides, fresh in (((), False), (("train.seed=9",), False), ((), True)):
            with pytest.raises(InputError, match=BUSY) as caught:
                tiny_train(tiny_data, run.path, *overrides, fresh=fresh)
            refusals.append(caught.value.exit_code)
        return measure(validation, step, cancelled)

    monkeypatch.setattr(Validation, "measure", meanwhile)
    same(tiny_train(tiny_data, run.path), whole)
    assert refusals == [2] * 9


@pytest.mark.slow
def test_a_process_that_was_killed_keeps_no_folder(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = RunFolder(tmp_path / "run")
    with process(command(tiny_data, run.path, "train.max_steps=100000", "train.log_every=1")) as child:
        wait_for_line(child, run, 3)
        with pytest.raises(InputError, match=BUSY):
            tiny_train(tiny_data, run.path)
        child.kill()
        child.communicate(timeout=60)
    tiny_train(tiny_data, run.path, "train.log_every=1")
    assert load_model(run.last).training["step"] == 30


def test_a_run_that_another_process_made_meanwhile_is_not_overwritten(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = RunFolder(tmp_path / "run")
    slow = training_of(tiny_data, run.path)  # it has found no run
    tiny_train(tiny_data, run.path)
    before = story(run)
    with slow.lock, pytest.raises(InputError, match=r"was at work in .* meanwhile; the same command goes on"):
        slow.run_to_end()
    assert story(run) == before


def test_a_disk_without_locks_refuses_nothing(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unknown)
    tiny_train(tiny_data, tmp_path / "run", "train.max_steps=1")


# Bad folders, before anything is written.


def test_a_run_folder_that_is_a_file(tmp_path: Path, tiny_data: DataFolder) -> None:
    (tmp_path / "run").write_text("mine")
    for path in (tmp_path / "run", tmp_path / "run" / "deeper"):
        with pytest.raises(FileError, match="can't be made"):
            tiny_train(tiny_data, path)
    assert (tmp_path / "run").read_text() == "mine"


def test_a_disk_that_fills_up_ends_a_run_that_can_go_on(
    tmp_path: Path, tiny_data: DataFolder, tiny_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Metrics.write

    def full(metrics: Metrics, record: dict[str, Any]) -> None:
        if record["step"] == 25:
            with metrics.file.open("ab") as file:
                file.write(b'{"kind": "tr')
            raise OSError(errno.ENOSPC, "No space left on device")
        write(metrics, record)

    with monkeypatch.context() as patch:
        patch.setattr(Metrics, "write", full)
        with pytest.raises(FileError, match=r"run can't be written: No space left on device; the .* from step 20\.$"):
            tiny_train(tiny_data, tmp_path / "run")
    same(tiny_train(tiny_data, tmp_path / "run"), tiny_run)


def test_a_file_outside_the_run_folder_is_named(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tiny_data.path / "train.safetensors")

    def lost(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error", file)

    monkeypatch.setattr(Metrics, "begin", lost)
    with pytest.raises(FileError) as caught:
        tiny_train(tiny_data, tmp_path / "run")
    assert str(caught.value).startswith(f"{file} can't be read or written: Input/output error; ")


def test_drawn_subwords_stay_within_learned_positions(tmp_path: Path, tiny_data: DataFolder) -> None:
    # A decoder-only model has half of its positions for either side, which dropped merges may not outgrow.
    store = tiny_data.train
    longest = max(int(store.src_lengths.max()), int(store.tgt_lengths.max())) + 1
    settings = ("model.architecture=decoder-only", "model.encoder_layers=0", "model.positions=learned")
    tiny_train(
        tiny_data,
        tmp_path / "run",
        *(*settings, f"model.max_positions={2 * longest}", "train.bpe_dropout=0.9", "train.max_steps=20"),
    )


def test_what_can_not_be_trained_on_leaves_no_run_folder(tmp_path: Path, tiny_data: DataFolder) -> None:
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


@pytest.mark.parametrize("part", ["train", "valid"])
def test_data_without_pairs_is_refused(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    class Empty:
        def __len__(self) -> int:
            return 0

    data = DataFolder.open(tiny_data.path)
    monkeypatch.setattr(data, part, Empty())
    with pytest.raises(InputError, match=f"no {part}.* pair"):
        tiny_train(data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_separate_vocabularies_refuse_a_joint_matrix(tmp_path: Path, tiny_data_separate: DataFolder) -> None:
    with pytest.raises(InputError, match="needs a joint vocabulary"):
        tiny_train(tiny_data_separate, tmp_path / "run", "model.tie=src-tgt-softmax")
    assert not (tmp_path / "run").exists()
    run = tiny_train(tiny_data_separate, tmp_path / "run", "train.max_steps=2")
    assert load_recipe(str(run.recipe)).model.tie == "tgt-softmax"


# What is kept, when it ends.


class Scripted(Validation):
    """A validation that is told what to find: figures by step."""

    def __init__(self, figures: Callable[[int], dict[str, float]]) -> None:
        self.figures = figures

    def measure(self, step: int, cancelled: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        record = {"kind": "valid", "step": step, "nll": 1.0, "ppl": math.e, "chrf": 1.0, "signature": "x"}
        return record | self.figures(step)


def scripted(data: DataFolder, run: Path, bleu: list[float], *overrides: str) -> tuple[RunFolder, Progress]:
    folder = RunFolder(run)
    settings = (*TINY, "train.max_steps=100", *overrides)
    with RunLock(folder) as lock:
        training = _Training(data, folder, Console(quiet=True), Ranks(), CPU, None, settings, False, lock)
        training.validation = Scripted(lambda step: {"bleu": bleu[step // 10 - 1]})
        return folder, training.run_to_end()


def test_last_and_best_are_two_sets_and_the_best_stays(tmp_path: Path, tiny_data: DataFolder) -> None:
    bleu = [1.0, 9.0, 3.0, 8.0, 2.0, 2.0, 2.0, 1.0, 1.0, 0.0]
    run, progress = scripted(tiny_data, tmp_path / "run", bleu)
    assert run.steps() == [20, 40, 90, 100]
    assert progress.best == [(9.0, 20), (8.0, 40)]
    assert load_model(run.best).training["step"] == 20
    assert load_model(run.last).training["step"] == 100
    assert run.state_steps() == [100]
    assert not list(run.path.rglob(".*"))
    run, _ = scripted(tiny_data, tmp_path / "one", bleu, "train.keep_last=1", "train.keep_best=1")
    assert run.steps() == [20, 100]


def test_of_equals_the_earlier_is_best(tmp_path: Path, tiny_data: DataFolder) -> None:
    run, progress = scripted(tiny_data, tmp_path / "run", [1, 5, 5, 5, 1], "train.max_steps=50")
    assert progress.best == [(5, 20), (5, 30)]
    assert progress.since_best == 3
    assert load_model(run.best).training["step"] == 20


@pytest.mark.parametrize("stop", [0, 10, 25, 40, 45])
def test_patience_ends_a_run_also_over_a_resume(tmp_path: Path, tiny_data: DataFolder, stop: int) -> None:
    bleu = [1.0, 5.0, 4.0, 5.0, 5.0, 9.0, 9.0, 9.0, 9.0, 9.0]
    if stop:
        scripted(tiny_data, tmp_path / "run", bleu, "train.patience=3", f"train.max_steps={stop}")
    run, progress = scripted(tiny_data, tmp_path / "run", bleu, "train.patience=3")
    # A run that ended between two validations was validated there too: at 25 and 45 one more.
    assert progress.step == {0: 50, 10: 50, 25: 40, 40: 50, 45: 45}[stop]
    assert progress.stopped_early
    said = heard(tiny_data, run.path)
    assert "(train.patience = 3); --set train.patience=N with a larger N goes on" in said
    if not stop:
        _, progress = scripted(tiny_data, run.path, bleu, "train.patience=4")
        assert progress.step == 100
        assert progress.best[0] == (9.0, 60)


def test_a_checkpoint_that_was_deleted_does_not_stop_training(tmp_path: Path, tiny_data: DataFolder) -> None:
    bleu = [9.0, 1.0, 2.0, 0.0]
    run, _ = scripted(tiny_data, tmp_path / "run", bleu, "train.max_steps=20")
    run.step_file(10).unlink()
    run, progress = scripted(tiny_data, tmp_path / "run", bleu, "train.max_steps=40", "train.keep_best=3")
    assert progress.best[0] == (9.0, 10)  # patience still goes by it
    assert load_model(run.best).training["step"] == 30
    assert run.steps() == [20, 30, 40]


def test_multi30k_tiny_has_patience_by_the_likelihood_as_its_source(tmp_path: Path, tiny_data: DataFolder) -> None:
    """A slow start, in which BLEU stands still, ends nothing."""
    run = RunFolder(tmp_path / "run")
    settings = [value for value in TINY if value.startswith("model.")]
    settings += ["train.max_steps=30", "train.checkpoint_every=1", "train.batch_tokens=240"]
    with RunLock(run) as lock:
        slow = _Training(tiny_data, run, Console(quiet=True), Ranks(), CPU, "multi30k-tiny", settings, False, lock)
        slow.validation = Scripted(lambda step: {"nll": 9 - step / 99, "bleu": 0.0})
        progress = slow.run_to_end()
    assert slow.recipe.train.patience == 10
    assert (progress.step, progress.stopped_early) == (30, False)


# metrics.jsonl, the learning rate, the sums.


def test_metrics_are_as_documented(tiny_run: RunFolder, tiny_data: DataFolder) -> None:
    kinds: dict[str, list[str]] = {
        "train": [
            "kind",
            "step",
            "epoch",
            "loss",
            "nll",
            "lr",
            "src_tokens",
            "tgt_tokens",
            "padding",
            "seconds",
            "skipped",
        ],
        "valid": ["kind", "step", "nll", "ppl", "bleu", "chrf", "signature"],
    }
    records = lines(tiny_run)
    for record in records:
        assert list(record) == kinds[record["kind"]]
    assert [(r["kind"], r["step"]) for r in records] == [
        *(("train", 5), ("train", 10), ("valid", 10)),
        *(("train", 15), ("train", 20), ("valid", 20)),
        *(("train", 25), ("train", 30), ("valid", 30)),
    ]
    recipe = load_recipe(str(tiny_run.recipe))
    store, trained = tiny_data.train, [r for r in records if r["kind"] == "train"]
    plan = [
        *plan_epoch(store.src_lengths, store.tgt_lengths, 240, 1, 1),
        *plan_epoch(store.src_lengths, store.tgt_lengths, 240, 1, 2),
    ]
    for r in trained:
        assert r["lr"] == learning_rate(r["step"], recipe.train, 32)
        numbers = torch.cat(plan[r["step"] - 5 : r["step"]])
        assert r["src_tokens"] == int(store.src_lengths[numbers].sum())
        assert r["tgt_tokens"] == int(store.tgt_lengths[numbers].sum()) + len(numbers)
        padded = sum(
            len(p) * int((side[p] + 1).max()) for p in plan[r["step"] - 5 : r["step"]] for side in _sides(store)
        )
        assert r["padding"] == pytest.approx(1 - (r["src_tokens"] + r["tgt_tokens"] + len(numbers)) / padded)
        assert r["nll"] < r["loss"] or r["step"] <= 10
        assert r["seconds"] > 0
    assert trained[-1]["loss"] < trained[0]["loss"] - 1
    valid = [r for r in records if r["kind"] == "valid"]
    assert valid[-1]["nll"] < valid[0]["nll"]
    for r in valid:
        assert r["ppl"] == pytest.approx(math.exp(r["nll"]))
        assert "|beam:1|" in r["signature"]
        assert "|max_length:20|" in r["signature"]
        assert r["signature"].endswith("|sentences:4")
        assert "version:" in r["signature"]


def _sides(store: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return store.src_lengths, store.tgt_lengths


def test_counts_since_the_line_before_survive_a_resume(tmp_path: Path, tiny_data: DataFolder) -> None:
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


def training_of(data: DataFolder, run: Path, *overrides: str) -> _Training:
    """A training that has not begun, in float64."""
    settings = (*TINY, "model.dropout=0.0", *overrides)
    folder = RunFolder(run)
    training = _Training(data, folder, Console(quiet=True), Ranks(), CPU, None, settings, False, RunLock(folder))
    training.model.double()
    training.optimizer = torch.optim.SGD(training.model.parameters(), lr=1.0, fused=True)
    return training


def batch_of(data: DataFolder, numbers: list[int]) -> tuple[Batch, int, bool]:
    batch = collate([data.train.src(i) for i in numbers], [data.train.tgt(i) for i in numbers])
    return batch, batch.tgt_tokens, True


def test_batches_accumulated_are_one_update_on_their_union(tmp_path: Path, tiny_data: DataFolder) -> None:
    parts = [[0, 1, 2], [50, 3], [9, 100, 101, 102, 33, 77], [8]]
    after = []
    for group in (parts, [[i for part in parts for i in part]], [[i] for part in parts for i in part]):
        training = training_of(tiny_data, tmp_path / "run", "train.clip_norm=0.7")
        training._update([batch_of(tiny_data, numbers) for numbers in group])
        assert training.optimizer.param_groups[0]["lr"] == learning_rate(1, training.recipe.train, 32)
        assert training.progress.step == 1
        training._update([batch_of(tiny_data, [4, 5])])
        assert training.optimizer.param_groups[0]["lr"] == learning_rate(2, training.recipe.train, 32)
        training._read()
        after.append((training.model.state_dict(), training.progress.window))
    start = training_of(tiny_data, tmp_path / "run").model.state_dict()
    for weights, window in after[1:]:
        for name, value in weights.items():
            torch.testing.assert_close(value, after[0][0][name], rtol=0, atol=1e-12)
        for key in ("loss", "nll"):
            assert window[key] == pytest.approx(after[0][1][key], rel=1e-12)
        for key in ("src_tokens", "tgt_tokens", "real"):
            assert window[key] == after[0][1][key]
    assert not torch.equal(start["src_embedding.weight"], after[0][0]["src_embedding.weight"])
    assert not (tmp_path / "run").exists()


def test_padding_adds_nothing_to_the_loss(tmp_path: Path, tiny_data: DataFolder) -> None:
    training = training_of(tiny_data, tmp_path / "run")
    by_length = torch.argsort(tiny_data.train.tgt_lengths).tolist()
    numbers = [*by_length[:3], *by_length[-3:]]
    together = training._forward(batch_of(tiny_data, numbers)[0])
    alone = [training._forward(batch_of(tiny_data, [i])[0]) for i in numbers]
    for part in (0, 1):
        total = sum(one[part].item() for one in alone)
        assert together[part].item() == pytest.approx(total, rel=1e-12)


def test_validation_disturbs_nothing(tmp_path: Path, tiny_data: DataFolder) -> None:
    settings = (*TINY, "model.dropout=0.5")
    run = RunFolder(tmp_path)
    training = _Training(tiny_data, run, Console(quiet=True), Ranks(), CPU, None, settings, False, RunLock(run))
    training.wrapped.train()
    weights = {name: value.clone() for name, value in training.model.state_dict().items()}
    random_state = torch.random.get_rng_state()
    record = training.validation.measure(0)
    assert record is not None
    assert record == training.validation.measure(0)  # no dropout in it
    assert all(module.training for module in training.model.modules())
    assert torch.equal(torch.random.get_rng_state(), random_state)
    assert all(torch.equal(value, weights[name]) for name, value in training.model.state_dict().items())
    # The mean a token, over every pair of the store.
    store = tiny_data.valid
    batch = collate([store.src(i) for i in range(len(store))], [store.tgt(i) for i in range(len(store))])
    training.model.eval()
    with torch.inference_mode():
        logits = training.model(batch.src_BS, batch.keep_BS, batch.tgt_in_BT).flatten(0, 1)[batch.real_N]
        nll = torch.nn.functional.cross_entropy(logits, batch.targets_N).item()
    assert record["nll"] == pytest.approx(nll, rel=1e-5)
    assert len(store) == len(VALID_PAIRS)


def test_updates_without_a_finite_gradient_are_skipped_and_end_the_run(tmp_path: Path, tiny_data: DataFolder) -> None:
    training = training_of(tiny_data, tmp_path / "run", "train.clip_norm=1.0")
    training.optimizer = make_optimizer(training.model.parameters(), training.recipe.train)
    group = [batch_of(tiny_data, [0, 1])]
    before = {name: value.clone() for name, value in training.model.state_dict().items()}
    good = training._forward

    def bad(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        loss, nll = good(batch)
        return loss * torch.nan, nll

    training._forward = bad  # type: ignore[method-assign]  # as a model that diverged
    for _ in range(NON_FINITE_LIMIT - 1):
        training._update(group)
    assert training.progress.skipped == 0  # not known until it is read
    training._read()
    assert training.progress.step == NON_FINITE_LIMIT - 1
    assert all(torch.equal(value, before[name]) for name, value in training.model.state_dict().items())
    assert training.progress.skipped == training.progress.skipped_in_row == NON_FINITE_LIMIT - 1
    assert set(training.progress.window) == {"seconds", "skipped"}
    assert training.progress.window["skipped"] == NON_FINITE_LIMIT - 1
    assert all(float(state["step"]) == 0 for state in training.optimizer.state.values())
    training._forward = good  # type: ignore[method-assign]  # its own again
    training._update(group)
    training._read()
    assert training.progress.skipped_in_row == 0
    assert not torch.equal(training.model.src_embedding.weight, before["src_embedding.weight"])
    training.progress.skipped_in_row = NON_FINITE_LIMIT - 1
    training._forward = bad  # type: ignore[method-assign]  # and again
    training._update(group)
    with pytest.raises(VtransError, match=r"had no finite gradient; .* --init-from .*/step-00000000\.safetensors"):
        training._read()


def test_a_skipped_update_is_in_the_metrics(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = _Training._forward

    def now_and_then(training: _Training, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        loss, nll = forward(training, batch)
        return (loss * torch.nan if training.progress.step in (6, 7) else loss), nll

    monkeypatch.setattr(_Training, "_forward", now_and_then)
    run = tiny_train(tiny_data, tmp_path / "run")
    assert [line["skipped"] for line in lines(run) if line["kind"] == "train"] == [0, 2, 0, 0, 0, 0]
    assert all(math.isfinite(line["loss"]) for line in lines(run) if line["kind"] == "train")
    # A line has nothing to say of updates that were all skipped: they are in the next one.
    every = tiny_train(tiny_data, tmp_path / "every", "train.log_every=1", "train.max_steps=10")
    told = [(line["step"], line["skipped"]) for line in lines(every) if line["kind"] == "train"]
    assert told == [*((step, 0) for step in range(1, 7)), (9, 2), (10, 0)]


def test_when_the_losses_are_read_changes_nothing(
    tmp_path: Path, tiny_data: DataFolder, tiny_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, read = [], _Training._read

    def reading(training: _Training) -> None:
        reads.append(training.progress.step)
        read(training)

    monkeypatch.setattr(_Training, "_read", reading)
    monkeypatch.setattr("vtrans.training.trainer.READ_EVERY", {})  # as on a GPU
    monkeypatch.setattr("vtrans.training.trainer.READ_EVERY_ELSEWHERE", 4)
    same(tiny_train(tiny_data, tmp_path / "run"), tiny_run)
    assert reads == [4, 5, 9, 10, 14, 15, 19, 20, 24, 25, 29, 30]


# The moving average of the weights.


def test_the_saved_model_is_the_moving_average(tmp_path: Path, tiny_data: DataFolder) -> None:
    each = ("train.max_steps=6", "train.checkpoint_every=1", "train.keep_last=9", "train.valid_sentences=1")
    plain = tiny_train(tiny_data, tmp_path / "plain", *each)
    run = tiny_train(tiny_data, tmp_path / "run", *each, "train.ema=0.4")
    start = training_of(tiny_data, tmp_path / "start").model
    expected = {name: p.detach().float() for name, p in start.named_parameters()}
    weights = [expected, *(load_file(plain.step_file(step)) for step in range(1, 7))]
    for step in range(1, 7):
        decay = min(0.4, (1 + step) / (10 + step))
        expected = {name: decay * mean + (1 - decay) * weights[step][name] for name, mean in expected.items()}
        saved = load_file(run.step_file(step))
        for name, mean in expected.items():
            torch.testing.assert_close(saved[name], mean, rtol=0, atol=1e-6)
        assert not torch.equal(saved["src_embedding.weight"], weights[step]["src_embedding.weight"])
    # What was trained is what would have been, and the state has it.
    state = load_file(run.state_file(6))
    assert all(torch.equal(state[f"{name}:weight"], weights[6][name]) for name in expected)
    # And the average is what was validated.
    saved_nll, plain_nll = ([line["nll"] for line in lines(r) if line["kind"] == "valid"] for r in (run, plain))
    assert saved_nll != plain_nll
    translator = vtrans.load(run.last, beam=1)
    assert len(list(translator.translate(["The big dog sees me now."]))) == 1


def test_with_everything_switched_on_a_stopped_run_ends_with_equal_bytes(
    tmp_path: Path, two_corpora: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several windows an epoch, so that a stop comes in the middle of one, and others between two.
    monkeypatch.setattr(vtrans.data.bpe_dropout, "SHARD", 8)
    monkeypatch.setattr(vtrans.data.bpe_dropout, "WINDOW", 3)
    settings = (
        *EVERY_STEP,
        "train.ema=0.9",
        "train.bpe_dropout=0.2",
        "train.corpus_weights=1.5,0.5",
        "train.precision=bfloat16",
        "train.accumulate=2",
        "train.clip_norm=0.5",
        "train.weight_decay=0.1",
        "model.attention_dropout=0.1",
        "model.activation_dropout=0.1",
    )
    whole = tiny_train(two_corpora, tmp_path / "whole", *settings)
    for step in (2, 7, 13):
        interrupted(two_corpora, tmp_path / "run", step, *settings)
    same(tiny_train(two_corpora, tmp_path / "run", *settings), whole)
    other = tiny_train(two_corpora, tmp_path / "other", *settings, "train.precision=float32")
    assert other.last.read_bytes() != whole.last.read_bytes()


def test_bpe_dropout_trains_on_other_subwords_each_time(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = tiny_train(tiny_data, tmp_path / "run", "train.bpe_dropout=0.2", "train.log_every=1")
    store = tiny_data.train
    first = [line for line in lines(run) if line["kind"] == "train" and line["epoch"] == 1]
    src_tokens, tgt_tokens = (sum(line[key] for line in first) for key in ("src_tokens", "tgt_tokens"))
    assert 1.1 * int(store.src_lengths.sum()) < src_tokens < 2 * int(store.src_lengths.sum())
    assert 1.05 * int(store.tgt_lengths.sum()) < tgt_tokens - len(store) < 2 * int(store.tgt_lengths.sum())
    assert max(line["src_tokens"] for line in first) < 240  # the budget holds for what was drawn


def test_bpe_dropout_can_not_begin_in_the_middle_of_a_run(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    # Also where the run is of a version that did not know of it.
    state = run_copy.state_file(30)
    progress = read_progress(state)
    del progress["recipe"]["train"]["bpe_dropout"]
    write_tensors(state, load_file(state), {"format": 1, "kind": "state", "progress": progress})
    with pytest.raises(InputError, match=r"train\.bpe_dropout 0\.0 -> 0\.1"):
        tiny_train(tiny_data, run_copy.path, "train.max_steps=40", "train.bpe_dropout=0.1")


@pytest.fixture(scope="module")
def two_corpora(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """The tiny corpus as two, of 40 pairs and of the rest."""
    folder = tmp_path_factory.mktemp("two")
    files = [write_pairs(folder, n, part) for n, part in (("a", TRAIN_PAIRS[:40]), ("b", TRAIN_PAIRS[40:]))]
    valid_src, valid_tgt = write_pairs(folder, "valid", VALID_PAIRS)
    src, tgt = zip(*files, strict=True)
    options = PrepareOptions(src, tgt, (valid_src,), (valid_tgt,), out=folder / "data", vocab_size=320, threads=1)
    prepare(options, Console(quiet=True))
    return DataFolder.open(folder / "data")


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_weights_decide_what_an_epoch_has_and_a_run_resumes_exactly(
    tmp_path: Path, two_corpora: DataFolder, dropout: float
) -> None:
    settings = (*EVERY_STEP, "train.max_steps=24", "train.corpus_weights=3,0.25", f"train.bpe_dropout={dropout}")
    whole = tiny_train(two_corpora, tmp_path / "whole", *settings)
    sentences = 3 * 40 + round((len(two_corpora.train) - 40) * 0.25)
    said = heard(two_corpora, tmp_path / "dry", *TINY, *settings, dry_run=True)
    assert f"an epoch: {sentences:,} pairs" in said
    if not dropout:
        batches = len(plan_epoch(two_corpora.train.src_lengths, two_corpora.train.tgt_lengths, 240, 1, 1))
        mixture = Mixture(two_corpora.corpora, (3, 0.25))
        numbers = mixture.pairs(1)
        store = two_corpora.train
        plan = plan_epoch(store.src_lengths, store.tgt_lengths, 240, 1, 1, numbers)
        assert len(plan) != batches
        first = [line for line in lines(whole) if line["kind"] == "train" and line["epoch"] == 1]
        tokens = sum(int(store.tgt_lengths[p].sum()) + len(p) for p in plan)
        assert sum(line["tgt_tokens"] for line in first) == tokens
        assert len(first) == len(plan) < 24
    for step in (3, 13, 22):
        interrupted(two_corpora, tmp_path / "run", step, *settings)
    same(tiny_train(two_corpora, tmp_path / "run", *settings), whole)
    with pytest.raises(InputError, match=r"train\.corpus_weights"):
        tiny_train(two_corpora, tmp_path / "run", *settings, "train.corpus_weights=3,1")


def test_processes_that_draw_subwords_change_nothing_and_leave_with_the_run(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = (*EVERY_STEP, "train.bpe_dropout=0.2", "train.max_steps=9")
    whole = tiny_train(tiny_data, tmp_path / "whole", *settings)
    monkeypatch.setattr("vtrans.training.feed._drawers", lambda _: 2)
    interrupted(tiny_data, tmp_path / "run", 3, *settings)
    assert not multiprocessing.active_children()
    same(tiny_train(tiny_data, tmp_path / "run", *settings), whole)
    assert not multiprocessing.active_children()


def test_weights_that_do_not_fit_the_data_are_refused(tmp_path: Path, two_corpora: DataFolder) -> None:
    def refused(data: DataFolder, weights: str, error: type[InputError], message: str) -> None:
        with pytest.raises(error, match=message):
            tiny_train(data, tmp_path / "run", f"train.corpus_weights={weights}")
        assert not (tmp_path / "run").exists()

    for weights in ("2", "1, 2, 3"):
        refused(
            two_corpora, weights, RecipeError,
            rf"corpus_weights .*a\.en 40 pairs, b\.en \d+ pairs.*got \[{weights}\]",
        )  # fmt: skip
    refused(two_corpora, "0.001,0", RecipeError, "leaves no pair")
    # As a version of vtrans made it that did not record the corpora.
    old = DataFolder.open(two_corpora.path)
    old.corpora = (len(old.train),)
    refused(old, "2,1", InputError, "corpus_weights")


def test_equal_weights_of_one_are_no_other_training(tmp_path: Path, two_corpora: DataFolder) -> None:
    """The pairs are those of a run without weights, and so are the batches and their order."""
    plain, weighed = (
        tiny_train(two_corpora, tmp_path / name, *EVERY_STEP, *extra)
        for name, extra in (("plain", ()), ("weighed", ("train.corpus_weights=1,1",)))
    )
    assert plain.last.read_bytes() == weighed.last.read_bytes()


def test_a_unigram_vocabulary_has_no_merges_to_leave_out(tmp_path: Path) -> None:
    data = make_data(tmp_path, subword="unigram", vocab_size=None)
    with pytest.raises(RecipeError, match=r"train\.bpe_dropout = 0\.1 .* a unigram vocabulary"):
        tiny_train(data, tmp_path / "run", "train.bpe_dropout=0.1")
    assert not (tmp_path / "run").exists()


def test_an_average_can_not_begin_in_the_middle_of_a_run(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    with pytest.raises(InputError, match=r"train\.ema 0\.0 -> 0\.9"):
        tiny_train(tiny_data, run_copy.path, "train.max_steps=40", "train.ema=0.9")


# Precision.


def test_half_precision_is_of_the_products_alone(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = tiny_train(tiny_data, tmp_path / "run", "train.precision=bfloat16")
    exact = tiny_train(tiny_data, tmp_path / "exact")
    for file in (run.last, run.state_file(30)):
        assert {v.dtype for v in load_file(file).values()} <= {torch.float32, torch.uint8}
    half, full = ([line["nll"] for line in lines(r) if line["kind"] == "valid"] for r in (run, exact))
    assert half != full
    assert half == pytest.approx(full, rel=0.1)


@pytest.mark.parametrize(
    ("device", "has", "expected"), [("cuda", True, "bfloat16"), ("cuda", False, "float32"), ("cpu", True, "float32")]
)
def test_the_default_precision_is_that_of_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, has: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has)
    recipe = settled(Recipe(), torch.device(device), joint=True)
    assert recipe.train.precision == expected


# Compiled layers.


def test_without_a_compiler_training_goes_on_with_one_warning(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tiny_train(tiny_data, tmp_path / "plain", *EVERY_STEP)

    def broken(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            torch.rand(3)  # what has been drawn by then does not matter
            function(*arguments)
            raise RuntimeError("no C++ compiler found.\nA long story.")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    said = heard(tiny_data, tmp_path / "run", *TINY, *EVERY_STEP, compiled=True)
    assert said.count("--compile does not work here") == said.count("warning: ") == 1
    assert "(RuntimeError: no C++ compiler found); training goes on without it\n" in said
    same(RunFolder(tmp_path / "run"), plain)


def test_compiled_layers_are_used_in_training_alone(
    tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def fake(function: Callable[..., Any], *, dynamic: bool) -> Callable[..., Any]:
        assert dynamic

        def call(*arguments: Any) -> Any:
            calls.append(len(arguments))
            return function(*arguments)

        return call

    monkeypatch.setattr(torch, "compile", fake)
    settings = (*TINY, "train.max_steps=4", "train.checkpoint_every=2")
    heard(tiny_data, tmp_path / "run", *settings, compiled=True)
    assert len(calls) == 1 + 4  # one to try it, one a step; none in the two validations
    run = RunFolder(tmp_path / "run")
    same(tiny_train(tiny_data, tmp_path / "plain", *settings), run)
    assert not [name for name in load_file(run.last) if "_orig_mod" in name]
    said = heard(tiny_data, run.path, *settings, "train.max_steps=5")
    assert "the run goes on, but not to equal bytes: compiled True -> False" in said
    # A state that is older than the option was not compiled.
    progress = read_progress(run.state_file(5))
    del progress["environment"]["compiled"]
    write_tensors(run.state_file(5), load_file(run.state_file(5)), {"format": 1, "kind": "state", "progress": progress})
    assert "equal bytes" not in heard(tiny_data, run.path, *settings, "train.max_steps=6")


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")) is None,
    reason="torch.compile needs a C++ compiler",
)
def test_compiled_layers_learn_what_others_do(tmp_path: Path, tiny_data: DataFolder) -> None:
    settings = (*SMOOTH, "train.max_steps=12", "train.accumulate=2")
    plain = tiny_train(tiny_data, tmp_path / "plain", *settings)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with warnings.catch_warnings():  # of torch, in its own code
        warnings.simplefilter("ignore")
        said = heard(tiny_data, tmp_path / "run", *TINY, *settings, compiled=True)
    assert "does not work" not in said
    assert 1 <= torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3
    for first, second in zip(lines(plain), lines(RunFolder(tmp_path / "run")), strict=True):
        assert second["nll"] == pytest.approx(first["nll"], rel=1e-3)


# A dry run.


def test_a_dry_run_says_what_training_takes_and_writes_nothing(tmp_path: Path, tiny_data: DataFolder) -> None:
    said = heard(tiny_data, tmp_path / "run", *TINY, "train.accumulate=2", dry_run=True)
    assert not (tmp_path / "run").exists()
    store = tiny_data.train
    plan = plan_epoch(store.src_lengths, store.tgt_lengths, 240, 1, 1)
    assert f"{len(store):,} pairs, {int(store.src_lengths.sum()):,} source and" in said
    assert f"in {len(plan)} batches, " in said
    assert f"; {len(plan) / 2:,.1f} updates" in said
    assert re.search(r"\d+\.\d\d seconds an update \(of 10 measured\), .* for 30 steps", said)
    peak = re.search(r"memory: (\d+\.\d\d) GB in these updates, .* takes some 0\.3 GB more\n", said)
    assert peak
    assert 0.01 < float(peak[1]) < 100
    assert said.endswith("dry run: nothing was written\n")


def test_a_dry_run_draws_segmentations(tmp_path: Path, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    said = heard(tiny_data, tmp_path / "run", *TINY, "train.bpe_dropout=0.1", dry_run=True)
    pairs = len(tiny_data.train)
    whole = re.search(rf"{pairs} pairs, (\d,\d+) source and .* [0-9.]+% padding; [0-9.]+ updates\n", said)
    assert whole
    monkeypatch.setattr(vtrans.data.bpe_dropout, "SHARD", 40)
    monkeypatch.setattr(vtrans.data.bpe_dropout, "WINDOW", 2)
    said = heard(tiny_data, tmp_path / "run", *TINY, "train.bpe_dropout=0.1", dry_run=True)
    part = re.search(rf"{pairs} pairs, (\d,\d+) source and .* padding; [0-9.]+ updates \(from 80 pairs\)\n", said)
    assert part
    tokens = [int(found[1].replace(",", "")) for found in (whole, part)]
    assert tokens[1] == pytest.approx(tokens[0], rel=0.05)
    assert min(tokens) > 1.05 * int(tiny_data.train.src_lengths.sum())
    assert "BPE-dropout 0.1" in said


def test_a_dry_run_on_a_run_changes_nothing(run_copy: RunFolder, tiny_data: DataFolder) -> None:
    before = {path: path.read_bytes() for path in run_copy.path.rglob("*") if path.is_file()}
    said = heard(tiny_data, run_copy.path, "train.max_steps=50", dry_run=True)
    assert "for 20 steps" in said
    assert "for 70 steps" in heard(tiny_data, run_copy.path, *TINY, "train.max_steps=70", fresh=True, dry_run=True)
    assert "the run is done at step 30" in heard(tiny_data, run_copy.path, dry_run=True)
    with pytest.raises(InputError, match=r"train\.seed 1 -> 2"):
        heard(tiny_data, run_copy.path, "train.seed=2", dry_run=True)
    assert {path: path.read_bytes() for path in run_copy.path.rglob("*") if path.is_file()} == before


def test_a_small_corpus_is_learnt_by_heart(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = tiny_train(
        tiny_data,
        tmp_path / "run",
        *("model.d_model=64", "model.d_ff=128", "model.dropout=0.0", "train.max_steps=300", "train.warmup=50"),
        *("train.learning_rate=0.003", "train.batch_tokens=600", "train.checkpoint_every=300", "train.log_every=50"),
    )
    translator = vtrans.load(run.last, beam=1, max_length=0)
    sources, references = zip(*TRAIN_PAIRS, strict=True)
    hypotheses = list(translator.translate(sources))
    right = sum(h == r for h, r in zip(hypotheses, references, strict=True))
    assert right >= 0.95 * len(references), hypotheses[:5]
    losses = [r["loss"] for r in lines(run) if r["kind"] == "train"]
    assert losses == sorted(losses, reverse=True)


# Several processes.


@pytest.mark.parametrize(
    ("asked", "world", "gpu", "expected"),
    [
        ("cuda", 4, True, "cuda:2"),
        (None, 4, True, "cuda:2"),
        ("cuda:1", 4, True, "cuda:1"),
        ("cpu", 4, True, "cpu"),
        (None, 4, False, "cpu"),
        ("mps", 4, False, "mps"),
        ("cuda", 1, True, "cuda"),
        (None, 1, True, None),
    ],
)
def test_each_rank_takes_its_own_gpu(
    tmp_path: Path,
    tiny_data: DataFolder,
    monkeypatch: pytest.MonkeyPatch,
    asked: str | None,
    world: int,
    gpu: bool,
    expected: str | None,
) -> None:
    class Chosen(BaseException):
        pass

    def choose(name: str | None) -> None:
        chosen.append(name)
        raise Chosen

    chosen: list[str | None] = []
    for name, value in (("WORLD_SIZE", world), ("RANK", 6), ("LOCAL_RANK", 2)):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr("vtrans.training.trainer.pick_device", choose)
    with pytest.raises(Chosen):
        train(tiny_data, RunFolder(tmp_path / "run"), Console(quiet=True), device=asked)
    assert chosen == [expected]


def test_each_rank_makes_its_gpu_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "set_device", done.append)
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda backend, timeout, **_: done.append(backend))
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: done.append("ended"))
    with Ranks().joined(torch.device("cuda:1")):
        pass
    with Ranks().joined(CPU):
        pass
    assert done == [torch.device("cuda:1"), "nccl", "ended", "gloo", "ended"]
    # Who ends by an error does not wait for the others, who know nothing of it.
    with pytest.raises(InputError), Ranks().joined(CPU):
        raise InputError("no such thing.")
    assert done[5:] == ["gloo"]


# The sums of two processes differ from those of one in the last bits. A ReLU turns that into a different network
# where an input is within rounding of 0, and Adam divides it by the root of the second moment: with the usual epsilon,
# rounding in gradients that are exactly 0 in theory (those of the keys' biases) would come out as large as any other.
SMOOTH = ("model.dropout=0.0", "model.activation=gelu", "train.epsilon=1e-3")
TOGETHER = {
    "plain": ("train.bpe_dropout=0.0",),
    "bpe-dropout": ("train.bpe_dropout=0.1",),
    "shared": ("model.share_stacks=true", "model.share_layers=all", "model.encoder_layers=2", "model.decoder_layers=2"),
    "decoder-only": ("model.architecture=decoder-only", "model.encoder_layers=0"),
}
SEVERAL = """
import json, os, sys
from vtrans import cli

for os.environ["MASTER_PORT"], sys.argv in json.loads(sys.argv[1]):
    try:
        cli.main()
    except SystemExit as ended:
        if ended.code:
            raise
"""


def together_settings(name: str) -> tuple[str, ...]:
    return (*SMOOTH, "train.max_steps=5", "train.warmup=5", "train.accumulate=2", *TOGETHER[name])


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory, tiny_data: DataFolder) -> Path:
    """A folder with a run for each of TOGETHER. The same two processes train them all, one after the other."""
    folder = tmp_path_factory.mktemp("by-two")
    commands = []
    with ExitStack() as ports:
        for name in TOGETHER:
            _, _, *words = command(tiny_data, folder / name, *together_settings(name))
            free = ports.enter_context(socket.socket())
            free.bind(("127.0.0.1", 0))
            commands.append((str(free.getsockname()[1]), words))
    words = [sys.executable, "-c", SEVERAL, json.dumps(commands)]
    ranks = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    with (
        process(words, ranks | {"RANK": "0", "LOCAL_RANK": "0"}) as first,
        process(words, ranks | {"RANK": "1", "LOCAL_RANK": "1"}) as second,
    ):
        _, said = first.communicate(timeout=240)
        _, other = second.communicate(timeout=60)
    assert (first.returncode, second.returncode, other) == (0, 0, ""), said + other
    assert said.count("2 ranks") == said.count("next: vtrans average") == len(TOGETHER)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", TOGETHER)
def test_two_processes_train_what_one_does(name: str, tmp_path: Path, tiny_data: DataFolder, by_two: Path) -> None:
    one, run = tiny_train(tiny_data, tmp_path / "one", *together_settings(name)), RunFolder(by_two / name)
    a, b = load_file(one.last), load_file(run.last)
    assert set(a) == set(b)
    for key in a:
        torch.testing.assert_close(b[key], a[key], rtol=0, atol=1e-5)
    for first, second in zip(lines(one), lines(run), strict=True):
        assert first["step"] == second["step"]
        for key in ("loss", "nll", "src_tokens", "tgt_tokens"):
            assert second.get(key, 0) == pytest.approx(first.get(key, 0), rel=1e-4)
    assert dataclasses.asdict(load_model(run.last).model.config) == dataclasses.asdict(
        load_model(one.last).model.config
    )


@pytest.mark.slow
def test_two_processes_that_are_told_to_stop_save_and_go_on(tmp_path: Path, tiny_data: DataFolder) -> None:
    settings = (*SMOOTH, "train.max_steps=60", "train.log_every=1", "train.ema=0.9")
    run = RunFolder(tmp_path / "two")
    python, *rest = command(tiny_data, run.path, *settings)
    words = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *rest]
    with process(words) as child:
        wait_for_line(child, run, 7)
        child.terminate()  # which torchrun hands on to all of them
        _, said = child.communicate(timeout=60)
    assert child.returncode != 0
    stopped = re.search(r"^error: stopped by SIGTERM after step (\d+), with the state saved;", said, re.MULTILINE)
    assert stopped, said
    assert 7 <= int(stopped[1]) < 60
    assert run.state_steps() == [int(stopped[1])]
    with process(words) as child:
        _, said = child.communicate(timeout=120)
    assert child.returncode == 0, said
    assert f"resuming {run.path} after step {stopped[1]}" in said
    one = tiny_train(tiny_data, tmp_path / "one", *settings)
    a, b = load_file(one.last), load_file(run.last)
    for name in a:
        torch.testing.assert_close(b[name], a[name], rtol=0, atol=1e-4)
    assert [line["step"] for line in lines(run)] == [line["step"] for line in lines(one)]


DYING = """
import os, signal
from vtrans import cli
from vtrans.training.trainer import _Training

update = _Training._update


def dying(training, group):
    if training.ranks.rank == 1 and training.progress.step == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    update(training, group)


_Training._update = dying
cli.main()
"""


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_run_and_fewer_ranks_go_on(tmp_path: Path, tiny_data: DataFolder) -> None:
    # Batches of a pair or two, so that now and then a rank has none.
    settings = (
        *(*SMOOTH, "train.batch_tokens=44", "train.max_steps=12"),
        *("train.checkpoint_every=5", "train.log_every=1"),
    )
    plan = plan_epoch(tiny_data.train.src_lengths, tiny_data.train.tgt_lengths, 44, 1, 1)
    assert {1, 2} <= set(map(len, plan[:5]))
    script, run = tmp_path / "dying.py", RunFolder(tmp_path / "two")
    script.write_text(DYING)
    python, _, _, *rest = command(tiny_data, run.path, *settings)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    with process([python, *launcher, *rest]) as child:
        _, said = child.communicate(timeout=60)  # as the README has it
    assert child.returncode == 1
    own = [line for line in said.split("\n") if line.startswith("error: ")]
    assert len(own) == 1
    assert re.fullmatch(
        r"error: one of the 2 processes has ended before its time \([^\[].*\); the same command goes on from step 5\.",
        own[0],
    )
    told = heard(tiny_data, run.path, *TINY, *settings)
    assert "the run goes on, but not to equal bytes: ranks 2 -> 1" in told
    one = tiny_train(tiny_data, tmp_path / "one", *settings)
    a, b = load_file(one.last), load_file(run.last)
    for name in a:
        torch.testing.assert_close(b[name], a[name], rtol=0, atol=1e-5)
    assert [line.get("tgt_tokens") for line in lines(run)] == [line.get("tgt_tokens") for line in lines(one)]
