"""The processes that train one model: a single one, or those that torchrun has started, which communicate through
torch.distributed. Those of one machine that share memory are in local_ranks.py, behind the same interface."""

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
from vtrans.system.workers import DiedError

CPU = torch.device("cpu")

BEAT = 1.0  # seconds between two signs of life of a rank that works alone


class Ranks:
    """This process among those of one command."""

    processes = 1  # those of this machine that share memory

    def __init__(self) -> None:
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.local = int(os.environ.get("LOCAL_RANK", "0"))
        self._beaten = 0.0  # when this rank last gave a sign of life

    @property
    def threads(self) -> int:
        """The number of threads with which each rank computes on a CPU."""
        return torch.get_num_threads()

    def forked(self) -> AbstractContextManager[None]:
        """Inside the block, the ranks that are forks of this process exist."""
        return nullcontext()

    def alone(self) -> AbstractContextManager[None]:
        """Inside the block, in which the others wait, rank 0 may use their processors."""
        return nullcontext()

    @contextmanager
    def joined(self, device: torch.device, patience: timedelta) -> Iterator[None]:
        """Inside the block the ranks can exchange tensors on this device, and wait that long for a silent one. A dead
        rank is noticed at once: its connections close, or torchrun ends the others with SIGTERM within a second, and by
        force after 30."""
        if self.world == 1:
            yield
            return
        if device.type == "cuda":
            torch.cuda.set_device(device)  # otherwise every rank would use the first GPU for barriers
            dist.init_process_group("nccl", timeout=patience, device_id=device)
        else:
            dist.init_process_group("gloo", timeout=patience)
        yield
        # This is skipped after an exception: it would wait for the other ranks, which have not failed. They notice when
        # this process ends.
        dist.destroy_process_group()

    def limit_silence(self, minutes: float) -> None:
        """Makes a rank that waits that long for another one raise an error, on every rank from now on."""
        if self.world > 1:
            # torch has no other way to change the limit, which the recipe contains, after the ranks have met.
            dist.distributed_c10d._set_pg_timeout(timedelta(minutes=minutes))

    @contextmanager
    def watched(self, advice: Callable[[], str]) -> Iterator[None]:
        """Raises VtransError, which ends with the advice, if another rank dies inside the block."""
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
        """The name of the device of this rank. Unless the user asks for one, several ranks use one GPU each, or the CPU
        if there is none: torch.distributed has no backend for Apple's MPS."""
        if self.world == 1:
            return asked
        if asked == "cuda" or (asked is None and torch.cuda.is_available()):
            if self.local >= (count := torch.cuda.device_count()):
                raise VtransError(f"this process needs the GPU cuda:{self.local}, but the machine has {count}.")
            return f"cuda:{self.local}"
        return asked or "cpu"

    def summed(self, values: Sequence[float], device: torch.device) -> list[float]:
        """The sum of each number over all ranks."""
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
        """Gives the waiting ranks a sign of life, at most once per BEAT; for rank 0 between two parts of its work."""
        if self.world > 1 and time.monotonic() - self._beaten >= BEAT:
            self._tell(1)

    def release(self) -> None:
        """Ends the wait of the other ranks; for rank 0."""
        if self.world > 1:
            self._tell(0)

    def await_leader(self) -> None:
        """Waits while rank 0 works alone. A silence of rank 0 is limited, but not its work."""
        while self._tell(0):
            pass

    def _tell(self, working: int) -> int:
        """Gives the other ranks this number of rank 0. Returns it."""
        device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else CPU
        tensor = torch.tensor(working, device=device)
        dist.broadcast(tensor, 0)
        self._beaten = time.monotonic()
        return int(tensor)
