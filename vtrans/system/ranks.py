"""The ranks that train one model: a single process, processes that torchrun started, which communicate through
torch.distributed, or forks of this process, which share memory with it."""

from __future__ import annotations

import mmap
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from vtrans.system.errors import VtransError
from vtrans.system.files import reason
from vtrans.system.forks import DiedError, end_with_parent, ended, forking

CPU = torch.device("cpu")

BEAT = 1.0  # seconds between two heartbeats of a rank that works alone
CACHE_LINE = 64  # bytes
ADVICE = "use fewer `processes`"


class Ranks:
    """This process as one rank of a command."""

    processes = 1  # that share memory

    def __init__(self) -> None:
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.local = int(os.environ.get("LOCAL_RANK", "0"))
        self._beaten = 0.0  # time of this rank's last heartbeat

    @property
    def threads(self) -> int:
        """The number of CPU threads per rank."""
        return torch.get_num_threads()

    def forked(self) -> AbstractContextManager[None]:
        """Runs the block on all ranks. Here, nothing needs to be forked."""
        return nullcontext()

    def alone(self) -> AbstractContextManager[None]:
        """Lets rank 0 use the processors of the other ranks, which wait during the block."""
        return nullcontext()

    @contextmanager
    def joined(self, device: torch.device, patience: timedelta) -> Iterator[None]:
        """Lets the ranks exchange tensors on `device` inside the block, and wait for a silent rank for `patience`. A
        dead rank is noticed at once: its connections close, or torchrun ends the others with SIGTERM within a second,
        and with SIGKILL after 30."""
        if self.world == 1:
            yield
            return
        if device.type == "cuda":
            torch.cuda.set_device(device)  # otherwise every rank uses the first GPU for barriers
            dist.init_process_group("nccl", timeout=patience, device_id=device)
        else:
            dist.init_process_group("gloo", timeout=patience)
        yield
        # Skipped after an exception: it would wait for the other ranks, which have not failed. They notice when this
        # process ends.
        dist.destroy_process_group()

    def limit_silence(self, minutes: float) -> None:
        """Makes every rank, from now on, raise an error once it has waited this long for another one, except for a
        fork: if that hangs, it is stopped like this process."""
        if self.world > self.processes:
            # The recipe sets the limit, and torch has no other way to change it after the ranks have joined.
            dist.distributed_c10d._set_pg_timeout(timedelta(minutes=minutes))

    @contextmanager
    def watched(self, advice: Callable[[], str]) -> Iterator[None]:
        """Raises VtransError, which ends with `advice()`, if another rank dies inside the block."""
        try:
            yield
        except DiedError as died:
            raise VtransError(f"{died}; {advice()}.") from None
        except RuntimeError as error:
            if self.world == 1 or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
                raise
            why = re.sub(r"^\[[^]]*\] ", "", str(error)).partition(". ")[0].strip()  # without torch's source line
            what = "does not answer" if "timed out" in why.lower() else "has died"
            message = f"one of the {self.world} processes {what} ({why}); {advice()}."
            raise VtransError(message) from None

    def device_name(self, asked: str | None) -> str | None:
        """The device name of this rank: `asked` if given. By default, several ranks use one GPU each, or the CPU if
        there is none, since torch.distributed has no backend for Apple's MPS."""
        if self.world == 1:
            return asked
        if asked == "cuda" or (asked is None and torch.cuda.is_available()):
            if self.local >= (count := torch.cuda.device_count()):
                raise VtransError(f"this process needs the GPU cuda:{self.local}, but the machine has {count}.")
            return f"cuda:{self.local}"
        return asked or "cpu"

    def summed(self, values: Sequence[float], device: torch.device) -> list[float]:
        """The sum of each value over all ranks."""
        if self.world == 1:
            return list(values)
        wide = torch.float32 if device.type == "mps" else torch.float64
        tensor = torch.tensor(values, dtype=wide, device=device)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def all_texts(self, text: str) -> list[str]:
        """The texts of all ranks, in order."""
        if self.world == 1:
            return [text]
        texts: list[Any] = [None] * self.world
        dist.all_gather_object(texts, text)
        return texts

    def wait(self) -> None:
        if self.world > 1:
            dist.barrier()

    # Rank 0 works alone at times, and the others wait for it: each `await_leader` lasts until rank 0 calls `release`.

    def beat(self) -> None:
        """Sends a heartbeat to the waiting ranks, at most once per BEAT; for rank 0 between two parts of its work."""
        if self.world > self.processes and time.monotonic() - self._beaten >= BEAT:
            self._tell(1)

    def release(self) -> None:
        """Ends the wait of the other ranks; for rank 0."""
        if self.world > 1:
            self._tell(0)

    def await_leader(self) -> None:
        """Waits while rank 0 works alone. The limit is on its silence, not on the duration of its work."""
        while self._tell(0):
            pass

    def _tell(self, working: int) -> int:
        """Broadcasts rank 0's number to all ranks, and returns it."""
        device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else CPU
        tensor = torch.tensor(working, device=device)
        dist.broadcast(tensor, 0)
        self._beaten = time.monotonic()
        return int(tensor)


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
        # In rank 0: the pipes to the other ranks, in order, with their process ids.
        self._others: dict[Connection, int] = {}
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
