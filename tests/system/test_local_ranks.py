"""Ranks that are forks of this process."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from vtrans.system.local_ranks import LocalRanks

pytestmark = pytest.mark.usefixtures("no_orphans")


def use(ranks: LocalRanks, work: Callable[[], None]) -> None:
    with ranks.forked():
        work()


@pytest.mark.slow
def test_time_in_which_all_ranks_are_stopped_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A middle process is rank 0. It waits for rank 1 when both are stopped for longer than the limit."""
    monkeypatch.setattr("vtrans.system.local_ranks.PAUSE", 0.01)
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
