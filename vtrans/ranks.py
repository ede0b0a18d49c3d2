"""The processes that work together under torchrun, through torch.distributed; or the only one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
from torch import distributed as dist

PATIENT = timedelta(hours=24)  # a rank waits while rank 0 validates; torchrun ends the others when one dies


class Ranks:
    """The processes of one training under torchrun, or the only one."""

    def __init__(self) -> None:
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.local = int(os.environ.get("LOCAL_RANK", "0"))

    @contextmanager
    def joined(self, device: torch.device) -> Iterator[None]:
        if self.world == 1:
            yield
            return
        if device.type == "cuda":
            torch.cuda.set_device(device)  # else every rank's barrier would meet on the first GPU
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENT)
        try:
            yield
        finally:
            dist.destroy_process_group()

    def device_name(self, asked: str | None) -> str | None:
        """The device for this rank: of several ranks each takes its own GPU, unless the user names one."""
        shared = asked == "cuda" or (asked is None and torch.cuda.is_available())
        return f"cuda:{self.local}" if self.world > 1 and shared else asked

    def summed(self, values: Sequence[float], device: torch.device) -> list[float]:
        """The sums over all ranks of a few numbers."""
        if self.world == 1:
            return list(values)
        wide = torch.float32 if device.type == "mps" else torch.float64
        tensor = torch.tensor(values, dtype=wide, device=device)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def wait(self) -> None:
        if self.world > 1:
            dist.barrier()
