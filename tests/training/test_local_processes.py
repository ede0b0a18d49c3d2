"""Training with several processes on one machine, which share memory."""

import functools
import io
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import EVERY_STEP, TINY, tiny_train
from drawn import some
from runs import SMOOTH, alike, heard, interrupted, same

from vtrans.config.threads import MEMORY
from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder
from vtrans.system.console import Console
from vtrans.system.errors import InputError, VtransError
from vtrans.system.ranks import CPU, Ranks
from vtrans.training.machine import TOKENS, divide
from vtrans.training.parts import TrainOptions
from vtrans.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("no_orphans")

MUON = ("train.optimizer=muon", "train.precision=float32")
DEEP = ("model.encoder_layers=2", "model.decoder_layers=2")
ROWS = {
    "plain": ("train.clip_norm=0.3",),
    "muon": (*MUON, "train.weight_decay=0.1"),
    "ema": ("train.ema=0.9", "train.bpe_dropout=0.1"),
    "shared": (*DEEP, "model.share_stacks=true", "model.share_layers=all", *MUON),
    "decoder-only": ("model.architecture=decoder-only", "model.encoder_layers=0"),
    "guided": ("train.guided_alignment=0.5",),
    "r-drop": ("train.r_drop=1", "model.dropout=1e-6"),  # which is rounded to none
    "separate": ("model.tie=none", "model.autoregression=ssru", "model.projection_bias=true"),
    "single pairs": ("train.batch_tokens=44", "train.clip_norm=0.3"),
}
SHORTER = ("train.max_steps=10", "train.checkpoint_every=4")
SETTINGS = (*SMOOTH, "train.max_steps=4", "train.warmup=5", "train.accumulate=2", "train.log_every=1")


@pytest.mark.parametrize(("name", "counts"), [(name, (3,)) for name in some(ROWS, 4)] + [("plain", (2, 3))])
def test_processes_train_as_one(name: str, counts: tuple[int, ...], tmp_path: Path, linked_data: DataFolder) -> None:
    settings = (*SETTINGS, *ROWS[name])
    one = tiny_train(linked_data, tmp_path / "one", *settings)
    for count in counts:
        alike(tiny_train(linked_data, tmp_path / str(count), *settings, processes=count), one)


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_an_interrupted_run_of_several_processes_resumes_to_equal_bytes(
    tmp_path: Path, tiny_data: DataFolder, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtrans.training.machine.available_memory", lambda: 1000 * MEMORY)  # else a warning
    settings = (*EVERY_STEP, *SHORTER, "train.ema=0.9", f"train.optimizer={optimizer}")
    whole = tiny_train(tiny_data, tmp_path / "whole", *settings, processes=3)
    for step in (2, 6):
        said = interrupted(tiny_data, tmp_path / "run", step, *settings, processes=3 if step == 2 else None)
        assert f"SIGTERM after step {step + 1}" in said
    resumed = heard(tiny_data, tmp_path / "run", *TINY, *settings)
    assert "processes: 3, threads: 1, as in the run so far" in resumed
    others = [line for line in resumed.split("\n") if "warning" in line and "hardly begun" not in line]
    assert not others  # so short a training may have learned nothing
    same(RunFolder(tmp_path / "run"), whole)


def test_a_run_resumes_with_another_number_of_processes(tmp_path: Path, tiny_data: DataFolder) -> None:
    settings = (*SMOOTH, "train.log_every=1", "train.checkpoint_every=4", "train.max_steps=8")
    one = tiny_train(tiny_data, tmp_path / "one", *settings)
    begun = tiny_train(tiny_data, tmp_path / "begun", *settings, "train.max_steps=4", processes=2)
    for asked, warning in (
        ({"processes": 1}, "processes 2 -> 1"),
        ({"threads": 1}, "processes 2 -> 1"),
        ({"processes": 3}, "2 -> 3"),
    ):
        run = RunFolder(shutil.copytree(begun.path, tmp_path / str(asked)))
        assert warning in heard(tiny_data, run.path, *TINY, *settings, **asked)
        alike(run, one)


def in_rank(monkeypatch: pytest.MonkeyPatch, rank: int, step: int, act: Callable[[], Any]) -> None:
    """Makes a rank do something before the update that follows a step."""
    update = Trainer.update

    def acting(trainer: Trainer, group: Any) -> None:
        if (trainer.job.ranks.rank, trainer.progress.step) == (rank, step):
            act()
        update(trainer, group)

    monkeypatch.setattr(Trainer, "update", acting)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise MemoryError("no room")


def test_a_process_that_dies_ends_the_run_which_can_resume(tmp_path: Path, tiny_data: DataFolder) -> None:
    settings = (*EVERY_STEP, *SHORTER, "train.ema=0.9")
    whole = tiny_train(tiny_data, tmp_path / "whole", *settings, processes=2)
    for act, step, said in (
        (die, 5, r"2 processes.*SIGKILL.*`processes`.*step 4\."),
        (fail, 9, r"process 2 of 2.*no room.*step 8\."),
    ):
        with pytest.MonkeyPatch.context() as patch:
            in_rank(patch, 1, step, act)
            with pytest.raises(VtransError, match=said):
                tiny_train(tiny_data, tmp_path / "run", *settings, processes=2)
    same(tiny_train(tiny_data, tmp_path / "run", *settings), whole)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with plenty of memory on which this process can be forked."""
    monkeypatch.setattr("threading.active_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for name in ("total_memory", "available_memory"):
        monkeypatch.setattr(f"vtrans.training.machine.{name}", lambda: 1000 * MEMORY)
    yield
    torch.set_num_threads(1)


def divided_ranks(
    batch_tokens: int = 2 * TOKENS,
    ranks: Ranks | None = None,
    cores: int = 2,
    device: torch.device = CPU,
    console: Console | None = None,
    **options: Any,
) -> Ranks:
    torch.set_num_threads(cores)
    return divide(ranks or Ranks(), device, batch_tokens, None, console or Console(), TrainOptions(**options))


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("cores", "tokens", "memory", "expected"),
    [
        (16, 16 * TOKENS, 1000 * MEMORY, 16),
        (16, 2 * TOKENS, 1000 * MEMORY, 2),
        (16, 16 * TOKENS, 3.5 * MEMORY, 3),
        (16, TOKENS - 1, 1000 * MEMORY, 1),
        (16, 16 * TOKENS, 0, 1),
        (1, 16 * TOKENS, 1000 * MEMORY, 1),
    ],
)
def test_the_number_of_processes_follows_cores_batch_and_memory(
    monkeypatch: pytest.MonkeyPatch, cores: int, tokens: int, memory: float, expected: int
) -> None:
    monkeypatch.setattr("vtrans.training.machine.total_memory", lambda: memory)
    assert divided_ranks(tokens, cores=cores).processes == expected


@pytest.mark.usefixtures("machine")
def test_free_memory_does_not_change_the_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, the same command could train different bytes."""
    warned = []
    for free in (2 * MEMORY, 1.9 * MEMORY, 0):
        monkeypatch.setattr("vtrans.training.machine.available_memory", lambda free=free: free)
        stream = io.StringIO()
        assert divided_ranks(console=Console(stream=stream)).processes == 2
        warned.append("processes" in stream.getvalue())
    assert warned == [False, True, True]


CUDA = torch.device("cuda")


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("device", "gpu", "system", "world", "compiled", "named"),
    [
        (CPU, False, "linux", 1, False, ""),
        (CUDA, True, "linux", 1, False, "cuda"),
        (CPU, True, "linux", 1, False, "GPU"),
        (CPU, False, "darwin", 1, False, "system"),
        (CPU, False, "linux", 2, False, "torchrun"),
        (CPU, False, "linux", 1, True, "`compile`"),
    ],
)
def test_threads_replace_processes_that_cannot_share_memory(
    monkeypatch: pytest.MonkeyPatch,
    device: torch.device,
    gpu: bool,
    system: str,
    world: int,
    compiled: bool,
    named: str,
) -> None:
    ranks = Ranks()
    ranks.world = world
    divided = functools.partial(divided_ranks, ranks=ranks, device=device, compile=compiled)
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    chosen = divided()
    assert (chosen.processes, chosen.threads) == ((1, 2) if named else (2, 1))
    assert divided(threads=2) is ranks
    assert divided(processes=1) is ranks
    if named:
        with pytest.raises(InputError, match=f"`processes`.*{named}"):
            divided(processes=2)
    else:
        both = divided(processes=3, threads=4)
        assert (both.processes, both.threads) == (3, 4)
