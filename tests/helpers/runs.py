"""Helpers for tests of training: they train, interrupt and compare runs, in this process or in others."""

import dataclasses
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from conftest import TINY
from forking import start_python
from safetensors.torch import load_file

import vtrans
from vtrans.data.batches import RankBatch, collate
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model
from vtrans.storage.run_folder import RunFolder, RunLock
from vtrans.storage.states import read_progress
from vtrans.system.console import Console
from vtrans.system.errors import VtransError
from vtrans.system.ranks import Ranks
from vtrans.training.parts import TrainOptions
from vtrans.training.progress import Progress
from vtrans.training.setup import SetUp, set_up
from vtrans.training.trainer import Trainer, train

CPU = torch.device("cpu")

# Validations that take a few milliseconds.
BRIEF = ("train.valid_sentences=1", "search.beam=1", "search.max_length=3")

# Two processes add in another order than one, so their sums differ in the last bits. A ReLU would turn that into a
# different network where its input is within rounding of 0. Adam would turn it into large updates where a gradient
# is 0 except for rounding (the biases of the keys), unless epsilon is much larger than rounding.
SMOOTH = ("model.dropout=0.0", "model.activation=gelu", "train.epsilon=1e-3")


def lines(run: RunFolder) -> list[dict[str, Any]]:
    """The records of metrics.jsonl."""
    return [json.loads(line) for line in run.metrics.read_bytes().split(b"\n")[:-1]]


def story(run: RunFolder) -> dict[str, Any]:
    """Returns the reproducible part of a run: the bytes of all model files, and the metrics except for the time."""
    files = {p.name: p.read_bytes() for p in run.path.iterdir() if p.suffix == ".safetensors"}
    others = {p.name for p in run.path.rglob("*")} - set(files)
    return {
        "files": files,
        "others": others,
        "metrics": [{k: v for k, v in line.items() if k != "seconds"} for line in lines(run)],
        "best": read_progress(run.state_file(run.state_steps()[-1]))["best"],
    }


def same(run: RunFolder, reference: RunFolder) -> None:
    """Asserts that two runs ended with the same bytes."""
    a, b = story(run), story(reference)
    assert a["metrics"] == b["metrics"]
    assert a["others"] == b["others"]
    assert set(a["files"]) == set(b["files"])
    for name in a["files"]:
        assert a["files"][name] == b["files"][name], name
    assert a["best"] == b["best"]


def alike(run: RunFolder, reference: RunFolder, *, rel: float = 1e-4, atol: float = 1e-5) -> None:
    """Asserts that two runs have the same losses, weights and optimizer states, except for rounding."""
    step = reference.state_steps()[-1]
    for file in (RunFolder.step_file, RunFolder.state_file):
        a, b = load_file(file(reference, step)), load_file(file(run, step))
        assert set(a) == set(b)
        for key in a:
            torch.testing.assert_close(b[key], a[key], rtol=0, atol=atol)
    for ours, theirs in zip(lines(run), lines(reference), strict=True):
        assert all(ours.get(key) == theirs.get(key) for key in ("kind", "step", "skipped", "tgt_tokens", "src_tokens"))
        assert ours["nll"] == pytest.approx(theirs["nll"], rel=rel)
        assert ours.get("loss", 0) == pytest.approx(theirs.get("loss", 0), rel=rel)
    configs = [dataclasses.asdict(load_model(each.last).model.config) for each in (run, reference)]
    assert configs[0] == configs[1]


class Stopper(Console):
    """Sends this process a signal when the log reaches a step."""

    def __init__(self, step: int, number: int = signal.SIGTERM) -> None:
        super().__init__(quiet=True)
        self.start, self.number = f"step {step}  ", number

    def info(self, text: str, advice: str = "") -> None:
        if text.startswith(self.start):
            os.kill(os.getpid(), self.number)


def interrupted(
    data: DataFolder, run: Path, step: int, *overrides: str, number: int = signal.SIGTERM, processes: int | None = None
) -> str:
    """Trains until a signal comes after `step`. Returns the error message."""
    with pytest.raises(VtransError) as caught:
        train(
            data,
            out=run,
            console=Stopper(step, number),
            overrides=(*TINY, *overrides),
            device="cpu",
            processes=processes,
        )
    assert caught.value.exit_code == 1
    return str(caught.value)


def heard(data: DataFolder, run: Path, *overrides: str, **options: Any) -> str:
    """Trains without TINY. Returns what the console printed."""
    stream = io.StringIO()
    train(data, out=run, console=Console(stream=stream), overrides=overrides, device="cpu", **options)
    return stream.getvalue()


def set_up_run(data: DataFolder, run: Path, *overrides: str, device: torch.device = CPU, **options: Any) -> SetUp:
    """A run that is ready to train in this process, with TINY and `overrides`."""
    chosen = TrainOptions(overrides=(*TINY, *overrides), **options)
    return set_up(data, RunFolder(run), Console(quiet=True), Ranks(), device, chosen)


def run_trainer(trainer: Trainer) -> Progress:
    """Runs a trainer that a test has changed."""
    with RunLock(trainer.job.run) as lock:
        return trainer.run(lock)


def rank_batch(data: DataFolder, numbers: list[int]) -> RankBatch:
    """A batch of these training pairs."""
    batch = collate([data.train.src(i) for i in numbers], [data.train.tgt(i) for i in numbers])
    return RankBatch(batch, batch.tgt_tokens, is_counted=True)


def command(data: DataFolder, run: Path, *overrides: str) -> list[str]:
    """The words of a `vtrans train` command with TINY and `overrides`."""
    words = [sys.executable, "-m", "vtrans", "train", "--data", str(data.path), "--out", str(run), "--device", "cpu"]
    return [*words, *(word for value in (*TINY, *overrides) for word in ("--set", value))]


@contextmanager
def process(words: list[str], environment: Mapping[str, str] = MappingProxyType({})) -> Iterator[subprocess.Popen[str]]:
    """A running program of Python, which is killed at the end of the block."""
    root = str(Path(vtrans.__file__).parent.parent)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root, **environment}
    with start_python(words[1:], env, stderr=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def wait_for_line(child: subprocess.Popen[str], run: RunFolder, number: int) -> None:
    """Waits until metrics.jsonl has that many lines."""
    until = time.monotonic() + 60
    while time.monotonic() < until and child.poll() is None:
        if run.metrics.exists() and run.metrics.read_bytes().count(b"\n") >= number:
            return
        time.sleep(0.001)
    raise AssertionError(f"it ended before: {child.stderr and child.stderr.read()}")


def held_port(stack: ExitStack) -> str:
    """A port that stays free for the store of rank 0 until the stack is closed: a socket is bound to it and does not
    listen, so Linux gives it to no program that does not share its address."""
    holding = stack.enter_context(socket.socket())
    holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holding.bind(("127.0.0.1", 0))
    return str(holding.getsockname()[1])


@contextmanager
def ranks_of(count: int, words: list[str]) -> Iterator[list[subprocess.Popen[str]]]:
    """A command as several ranks, without torchrun."""
    with ExitStack() as stack:
        common = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": held_port(stack)}
        ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
        yield [stack.enter_context(process(words, common | rank)) for rank in ranks]


SEVERAL = """
import json, os, sys
from vtrans import cli

for os.environ["MASTER_PORT"], words in json.loads(sys.argv[1]):
    if code := cli._run(words[1:], debug=False):
        sys.exit(code)
"""


def by_ranks(count: int, commands: list[list[str]], first: str = "") -> list[str]:
    """Has the same processes run `vtrans` commands, one after the other, which is faster than starting them for each.
    `first` is Python that they run before. Returns what each rank printed."""
    with ExitStack() as stack:
        together = [(held_port(stack), words[2:]) for words in commands]
        ranks = stack.enter_context(ranks_of(count, [sys.executable, "-c", first + SEVERAL, json.dumps(together)]))
        said = [rank.communicate(timeout=600)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * count, "".join(said)
    return said
