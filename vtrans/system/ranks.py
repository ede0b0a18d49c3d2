"""The ranks that train one model: a single process, or processes started by torchrun, which communicate through
torch.distributed. local_ranks.py has the same interface for processes that share memory."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch
from torch import distributed as dist

from vtrans.system.errors import VtransError
from vtrans.system.forks import DiedError

CPU = torch.device("cpu")

BEAT = 1.0  # seconds between two heartbeats of a rank that works alone


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
        """Makes every rank, from now on, raise an error once it has waited this long for another one."""
        if self.world > 1:
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
            reason = re.sub(r"^\[[^]]*\] ", "", str(error)).partition(". ")[0].strip()  # without torch's source line
            what = "does not answer" if "timed out" in reason.lower() else "has died"
            message = f"one of the {self.world} processes {what} ({reason}); {advice()}."
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
        if self.world > 1 and time.monotonic() - self._beaten >= BEAT:
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
