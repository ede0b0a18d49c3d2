"""Ranks that are processes of one machine: forks of this process, which share memory with it."""

from __future__ import annotations

import gc
import math
import mmap
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from vtrans.system.errors import VtransError
from vtrans.system.files import reason
from vtrans.system.process import end_openmp_threads
from vtrans.system.ranks import Ranks
from vtrans.system.signals import ENDING
from vtrans.system.workers import DiedError

CACHE_LINE = 64  # bytes
PAUSE = 1.0  # seconds between two checks of how long another rank has been silent
ADVICE = "use fewer `processes`"


class LocalRanks(Ranks):
    """This process and, inside `forked`, its forks, which share its memory. Each computes with `threads` threads.

    Outside `forked`, this process is rank 0 and exchanges nothing. Inside, messages go through pipes between rank 0 and
    each other rank, so a waiting rank sleeps, and the pipe of a dead rank closes. The other ranks wait for rank 0
    without limit. Rank 0 waits for them as long as `limit_silence` allows, not counting time for which all are stopped,
    for example by Ctrl-Z.
    """

    def __init__(self, processes: int, threads: int) -> None:
        self.world = self.processes = processes
        self.rank = self.local = 0
        self._threads = threads
        self._patience = math.inf  # seconds that rank 0 waits for another rank
        self._pids: list[int] = []  # in rank 0: process ids of the other ranks, in order
        self._pipes: list[Connection] = []  # in rank 0: to the other ranks, in order; in another rank: to rank 0

    @property
    def threads(self) -> int:
        return self._threads

    @contextmanager
    def forked(self) -> Iterator[None]:
        """Runs the block on all ranks. This process is rank 0 and continues after the block; the others end with the
        block, or when rank 0 ends. They ignore Ctrl-C and other terminating signals.

        Enter it before this process starts threads, except OpenMP's, which end here. If a rank dies, is silent for too
        long or raises an exception, the next exchange raises DiedError in rank 0.
        """
        pipes, alive = [Pipe() for _ in range(1, self.world)], os.pipe()
        end_openmp_threads()
        try:
            self._fork(pipes, alive)
            torch.set_num_threads(self.threads)
            yield
            if self.rank > 0:
                os._exit(0)
        except BaseException as error:
            if self.rank > 0:
                with suppress(OSError):  # rank 0 may have ended
                    what = f"{type(error).__name__}: {error}"
                    self._pipes[0].send(DiedError(f"process {self.rank + 1} of {self.world} has failed ({what})"))
            raise
        finally:
            if self.rank > 0:
                os._exit(1)
            self._end(alive)

    @contextmanager
    def alone(self) -> Iterator[None]:
        torch.set_num_threads(self.world * self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(self.threads)

    def _fork(self, pipes: Sequence[tuple[Connection, Connection]], alive: tuple[int, int]) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            with warnings.catch_warnings():
                # Python warns about other threads. numpy's threads only wait for work and hold no lock.
                warnings.simplefilter("ignore", DeprecationWarning)
                for rank in range(1, self.world):
                    if (pid := os.fork()) == 0:
                        self._become(rank, pipes, alive)
                        return
                    self._pids.append(pid)
        except OSError as error:
            raise VtransError(f"{self.world} processes cannot be started: {reason(error)}; {ADVICE}.") from None
        finally:
            if self.rank == 0:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for _, theirs in pipes:
            theirs.close()
        self._pipes = [ours for ours, _ in pipes]

    def _become(self, rank: int, pipes: Sequence[tuple[Connection, Connection]], alive: tuple[int, int]) -> None:
        """Turns this process, a new fork, into rank `rank`."""
        self.rank = self.local = rank
        self._pids, self._pipes = [], [pipes[rank - 1][1]]
        for other, (theirs, ours) in enumerate(pipes, 1):
            theirs.close()
            if other != rank:
                ours.close()
        os.close(alive[1])  # only rank 0 keeps it open, so it closes when rank 0 ends
        threading.Thread(target=_end_after, args=(alive[0],), daemon=True).start()
        # Garbage collection writes to every object that it examines, and so would copy shared pages.
        gc.freeze()

    def _end(self, alive: tuple[int, int]) -> None:
        """Ends the other ranks."""
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
        for pid in self._pids:
            os.waitpid(pid, 0)
        for pipe in self._pipes:
            pipe.close()
        for handle in alive:
            os.close(handle)
        self._pids, self._pipes = [], []

    def _gathered(self, given: Any) -> list[Any]:
        """Waits for a value from every rank, and returns the values in rank order."""
        if self.rank > 0:
            self._pipes[0].send(given)
            whole: list[Any] = self._pipes[0].recv()
            return whole
        whole, other = [given], 0
        try:
            for other in range(len(self._pipes)):
                whole.append(self._received(other))
                if isinstance(whole[-1], DiedError):
                    raise whole[-1]
            for other in range(len(self._pipes)):
                self._pipes[other].send(whole)
        except (EOFError, OSError):
            raise self._died(other) from None
        return whole

    def _received(self, other: int) -> Any:
        """Returns the next message of another rank. Raises DiedError if the rank is silent for too long."""
        # Wait in short pauses: while this process is stopped, at most one of them is counted.
        waited, pause = 0.0, min(PAUSE, self._patience)
        while not self._pipes[other].poll(pause):
            waited += pause
            if waited >= self._patience:
                limit = f"train.rank_timeout = {self._patience / 60:g} minutes"
                raise DiedError(f"process {other + 2} of {self.world} has not answered within {limit}")
        return self._pipes[other].recv()

    def _died(self, other: int) -> DiedError:
        code = os.waitstatus_to_exitcode(os.waitpid(self._pids.pop(other), 0)[1])
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return DiedError(f"one of the {self.world} processes has died ({how}); if memory ran out, {ADVICE}")

    def summed(self, values: Sequence[float], device: torch.device) -> list[float]:
        return [sum(column) for column in zip(*self._gathered(list(values)), strict=True)]

    def all_texts(self, text: str) -> list[str]:
        return self._gathered(text)

    def wait(self) -> None:
        self._gathered(None)

    def limit_silence(self, minutes: float) -> None:
        """Makes rank 0 raise DiedError once it has waited this long for another rank."""
        self._patience = 60 * minutes

    def beat(self) -> None:
        """Does nothing: the silence of rank 0 is not limited."""

    release = await_leader = wait


def _end_after(alive: int) -> None:
    """Ends this process when the last process with the write end of the pipe has ended."""
    os.read(alive, 1)
    os._exit(1)


def share_memory(groups: Sequence[Sequence[Tensor]]) -> None:
    """Moves tensors to memory that this process shares with its later forks. Raises VtransError if there is too little.

    The memory is anonymous: a small /dev/shm does not limit it, and the system frees it however the processes end.
    """
    tensors = [tensor for group in groups for tensor in group]
    sizes = [-(-tensor.nbytes // CACHE_LINE) * CACHE_LINE for tensor in tensors]
    try:
        block = mmap.mmap(-1, max(CACHE_LINE, sum(sizes)))
    except OSError as error:
        raise VtransError(f"there is too little memory to share: {reason(error)}; {ADVICE}.") from None
    start = 0
    for tensor, size in zip(tensors, sizes, strict=True):
        moved = torch.frombuffer(block, dtype=tensor.dtype, count=tensor.numel(), offset=start).view(tensor.shape)
        tensor.data = moved.copy_(tensor.data)
        start += size
