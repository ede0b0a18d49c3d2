"""Ranks that are forks of this process."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import torch
from torch import Tensor

from vtrans.errors import VtransError
from vtrans.processes.local_ranks import LocalRanks, share_memory
from vtrans.processes.ranks import CPU
from vtrans.processes.workers import DiedError

pytestmark = pytest.mark.usefixtures("no_orphans")


@pytest.mark.parametrize("world", [1, 2, 5])
def test_ranks_exchange_numbers_and_texts(world: int) -> None:
    ranks = LocalRanks(world, 1)
    assert ranks.all_texts("alone") == ["alone"]
    with ranks.forked():
        for step in range(20):
            assert ranks.summed([ranks.rank, step], CPU) == [world * (world - 1) / 2, world * step]
            texts = ["x" * (step * 20_000 * rank) for rank in range(world)]
            assert ranks.all_texts(texts[ranks.rank]) == texts
    assert ranks.rank == 0
    assert ranks.summed([3.0], CPU) == [3.0]


def test_all_ranks_read_and_write_shared_memory() -> None:
    counts, weight = torch.zeros((), dtype=torch.int64), torch.nn.Parameter(torch.arange(6.0).view(2, 3))
    same = weight
    share_memory([[counts], [weight]])
    ranks = LocalRanks(3, 1)
    with ranks.forked():
        for rank in range(3):
            if rank == ranks.rank:
                counts += 1
                with torch.no_grad():
                    weight[:, rank] = -1
            ranks.wait()
        assert int(counts) == 3
    assert torch.equal(same.data, torch.full((2, 3), -1.0))
    assert same.is_leaf


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_ranks_use_several_threads_after_this_process_has() -> None:
    wide = torch.ones(1000, 1000)
    ranks = LocalRanks(2, 2)
    ranks.limit_silence(0.5)
    for _ in range(2):
        wide.exp().sum()
        with ranks.forked():
            assert ranks.summed([float(wide.exp().isfinite().sum())], CPU) == [2_000_000]


def use(ranks: LocalRanks, work: Callable[[], None]) -> None:
    with ranks.forked():
        work()


def fail() -> None:
    raise MemoryError("no room")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("end", "said"), [(fail, "process 3 of 3.*MemoryError: no room"), (die, "3 processes.*SIGKILL")]
)
@pytest.mark.parametrize("meetings", [0, 1])
def test_rank_0_hears_of_a_rank_that_ends(end: Callable[[], None], said: str, meetings: int) -> None:
    def work() -> None:
        for _ in range(meetings):
            ranks.wait()
        if ranks.rank == 2:
            end()
        ranks.wait()
        ranks.wait()

    ranks = LocalRanks(3, 1)
    with pytest.raises(DiedError, match=said):
        use(ranks, work)


def test_a_silent_rank_is_named() -> None:
    def work() -> None:
        if ranks.rank == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        ranks.wait()

    ranks = LocalRanks(4, 1)
    ranks.limit_silence(0.01)
    with pytest.raises(DiedError, match=r"process 3 of 4.*rank_timeout"):
        use(ranks, work)


@pytest.mark.slow
def test_time_in_which_all_ranks_are_stopped_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A middle process is rank 0. It waits for rank 1 when both are stopped for longer than the limit."""
    monkeypatch.setattr("vtrans.processes.local_ranks.PAUSE", 0.01)
    reader, writer = os.pipe()
    if (middle := os.fork()) == 0:
        os.setpgid(0, 0)
        ranks = LocalRanks(2, 1)
        ranks.limit_silence(0.05)
        with suppress(BaseException), ranks.forked():
            if ranks.rank == 1:
                os.write(writer, b"waiting")
                time.sleep(0.5)
            ranks.wait()
            os.write(writer, b"done") if ranks.rank == 0 else None
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 7) == b"waiting"
    os.killpg(middle, signal.SIGSTOP)
    time.sleep(3.5)
    os.killpg(middle, signal.SIGCONT)
    os.waitpid(middle, 0)
    assert os.read(reader, 4) == b"done"
    os.close(reader)


def test_an_exception_of_rank_0_ends_the_others() -> None:
    def work() -> None:
        if ranks.rank > 0:
            time.sleep(600)
        raise KeyError

    ranks = LocalRanks(3, 1)
    with pytest.raises(KeyError):
        use(ranks, work)


def test_ending_signals_reach_rank_0_only() -> None:
    ranks = LocalRanks(2, 1)
    with ranks.forked():
        pid = int(ranks.all_texts(str(os.getpid()))[1])
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if ranks.rank == 0:
                os.kill(pid, number)
            ranks.wait()
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == (set() if ranks.rank == 0 else {1, 2, 15})


def test_a_fork_that_fails_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    forks, fork = iter((1, 1, 0)), os.fork

    def failing() -> int:
        if not next(forks):
            raise OSError(errno.EAGAIN, "none left")
        return fork()

    monkeypatch.setattr(os, "fork", failing)
    with pytest.raises(VtransError, match="`processes`"), LocalRanks(4, 1).forked():
        raise AssertionError
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())


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


def test_memory_that_cannot_be_shared_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOMEM, "no memory")

    monkeypatch.setattr("mmap.mmap", none)
    weights: list[Tensor] = [torch.ones(3)]
    with pytest.raises(VtransError, match="`processes`"):
        share_memory([weights])
    assert torch.equal(weights[0], torch.ones(3))
