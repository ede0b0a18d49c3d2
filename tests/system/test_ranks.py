"""The processes of one command, some of which are forks of the first."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import CPU

from vtrans.cli import _run
from vtrans.data.store import DataFolder
from vtrans.system.ranks import LocalRanks, Ranks
from vtrans.training.trainer import train

pytestmark = pytest.mark.usefixtures("no_orphans")

SILENCE = timedelta(hours=1)


@pytest.mark.parametrize(
    ("asked", "world", "gpu", "expected"),
    [
        ("cuda", 4, True, "cuda:2"),
        (None, 4, True, "cuda:2"),
        ("cuda:1", 4, True, "cuda:1"),
        (None, 4, False, "cpu"),
        ("mps", 4, False, "mps"),
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
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr("vtrans.training.trainer.pick_device", choose)
    with pytest.raises(Chosen):
        train(tiny_data, out=tmp_path / "run", device=asked)
    assert chosen == [expected]


def test_each_rank_makes_its_gpu_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "set_device", done.append)
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda backend, timeout, **_: done.append(backend))
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: done.append("ended"))
    with Ranks().joined(torch.device("cuda:1"), SILENCE):
        pass
    with Ranks().joined(CPU, SILENCE):
        pass
    assert done == [torch.device("cuda:1"), "nccl", "ended", "gloo", "ended"]
    # A rank that raises an error does not wait for the others, which do not know about it.
    with pytest.raises(OSError, match="no such thing"), Ranks().joined(CPU, SILENCE):
        raise OSError("no such thing.")
    assert done[5:] == ["gloo"]


@pytest.mark.parametrize("words", [["inspect", "missing"], ["inspect", "--unknown"]])
def test_the_other_ranks_of_a_machine_wait_before_they_report_the_same_error(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = []
    for rank in ("0", "1"):
        waits: list[float] = []
        monkeypatch.setattr("vtrans.cli.time.sleep", waits.append)
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("LOCAL_RANK", rank)
        assert _run(words, debug=False) == 2
        assert len(waits) == int(rank)
        told.append(capsys.readouterr().err)
    assert told[1] == told[0].replace("error: ", "error: process 1: ") != ""


def use(ranks: LocalRanks, work: Callable[[], None]) -> None:
    with ranks.forked():
        work()


def test_an_exception_of_rank_0_ends_the_others() -> None:
    def work() -> None:
        if ranks.rank > 0:
            time.sleep(600)
        raise KeyError

    ranks = LocalRanks(3, 1)
    with pytest.raises(KeyError):
        use(ranks, work)


def test_the_others_end_with_rank_0() -> None:
    """A middle process is rank 0, which is killed while one rank computes and another one waits."""
    reader, writer = os.pipe()
    if (middle := os.fork()) == 0:
        ranks = LocalRanks(3, 1)
        with suppress(BaseException), ranks.forked():
            pids = ranks.all_texts(str(os.getpid()))
            if ranks.rank == 0:
                os.write(writer, " ".join(pids).encode())
            if ranks.rank == 2:
                ranks.wait()
            time.sleep(600)
        os._exit(1)
    os.close(writer)
    told = os.read(reader, 1000).split()
    os.kill(middle, signal.SIGKILL)
    os.waitpid(middle, 0)
    assert os.read(reader, 1) == b""  # once all that could write have ended
    os.close(reader)
    assert len(set(told)) == 3
