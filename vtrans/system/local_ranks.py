"""Ranks that are processes of one machine: forks of this process, which share memory with it."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from vtrans.system.errors import VtransError
from vtrans.system.files import reason
from vtrans.system.forks import DiedError, end_with_parent, ended, forking
from vtrans.system.ranks import Ranks

CACHE_LINE = 64  # bytes
ADVICE = "use fewer `processes`"


class LocalRanks(Ranks):
    """This process and, inside `forked`, its forks, which share its memory. Each computes with `threads` threads.

    Outside `forked`, this process is rank 0 and exchanges nothing. Inside, messages go through pipes between rank 0 and
    each other rank, so a waiting rank sleeps, and the pipe of a dead rank closes. Ranks wait for each other without
    limit.
    """

    def __init__(self, processes: int, threads: int) -> None:
        self.world = self.processes = processes
        self.rank = self.local = 0
        self._threads = threads
        self._others: dict[
            Connection, int
        ] = {}  # in rank 0: pipes to the other ranks, in order, with their process ids
        self._leader: Connection | None = None  # in another rank: the pipe to rank 0

    @property
    def threads(self) -> int:
        return self._threads

    @contextmanager
    def forked(self) -> Iterator[None]:
        """Runs the block on all ranks. This process is rank 0 and continues after the block; the others end with the
        block, or when rank 0 ends. They ignore Ctrl-C and other terminating signals.

        Enter it before this process starts threads, except OpenMP's, which end here. If a rank dies or raises an
        exception, the next exchange raises DiedError in rank 0.
        """
        try:
            self._fork()
            torch.set_num_threads(self.threads)
            yield
            if self.rank > 0:
                os._exit(0)
        except BaseException as error:
            if self._leader:
                with suppress(OSError):  # rank 0 may have ended
                    what = f"{type(error).__name__}: {error}"
                    self._leader.send(DiedError(f"process {self.rank + 1} of {self.world} has failed ({what})"))
            raise
        finally:
            if self.rank > 0:
                os._exit(1)
            for pipe, pid in self._others.items():
                ended(pid)
                pipe.close()
            self._others.clear()

    @contextmanager
    def alone(self) -> Iterator[None]:
        torch.set_num_threads(self.world * self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(self.threads)

    def _fork(self) -> None:
        parent = os.getpid()
        try:
            with forking():
                for rank in range(1, self.world):
                    ours, theirs = Pipe()
                    if (pid := os.fork()) == 0:
                        end_with_parent(parent)
                        for pipe in (ours, *self._others):
                            pipe.close()
                        self.rank = self.local = rank
                        self._leader = theirs
                        return
                    theirs.close()
                    self._others[ours] = pid
        except OSError as error:
            raise VtransError(f"{self.world} processes cannot be started: {reason(error)}; {ADVICE}.") from None

    def _gathered(self, given: Any) -> list[Any]:
        """Waits for a value from every rank, and returns the values in rank order."""
        if self._leader:
            self._leader.send(given)
            whole: list[Any] = self._leader.recv()
            return whole
        whole = [given]
        for pipe in self._others:
            with self._dying(pipe):
                whole.append(pipe.recv())
            if isinstance(whole[-1], DiedError):
                raise whole[-1]
        for pipe in self._others:
            with self._dying(pipe):
                pipe.send(whole)
        return whole

    @contextmanager
    def _dying(self, pipe: Connection) -> Iterator[None]:
        """Raises DiedError if the rank at the other end of the pipe dies in the block."""
        try:
            yield
        except (EOFError, OSError):
            how = f"one of the {self.world} processes has died ({ended(self._others.pop(pipe))})"
            raise DiedError(f"{how}; if memory ran out, {ADVICE}") from None

    def summed(self, values: Sequence[float], device: torch.device) -> list[float]:
        return [sum(column) for column in zip(*self._gathered(list(values)), strict=True)]

    def all_texts(self, text: str) -> list[str]:
        return self._gathered(text)

    def wait(self) -> None:
        self._gathered(None)

    def limit_silence(self, minutes: float) -> None:
        """Does nothing: a process of this machine that hangs is stopped like this one."""

    def beat(self) -> None:
        """Does nothing: the silence of rank 0 is not limited."""

    release = await_leader = wait


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
