"""The processes that work together under torchrun, through torch.distributed; or the only one."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from vtrans.errors import VtransError

CPU = torch.device("cpu")

# How long a rank waits for another that is silent, as while rank 0 validates or an open pipe brings nothing. One
# that has died is noticed at once: its connections close, or torchrun, which sees it within a second, ends the rest
# by SIGTERM, and after 30 seconds by force.
PATIENT = timedelta(hours=24)
SIGNALS = timedelta(milliseconds=200)  # within which a rank that waits for another heeds Ctrl-C


class Ranks:
    """The processes of one command under torchrun, or the only one."""

    def __init__(self) -> None:
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.local = int(os.environ.get("LOCAL_RANK", "0"))
        self._answered = True  # whether rank 0 has heard from all since it last dealt

    @contextmanager
    def joined(self, device: torch.device) -> Iterator[None]:
        """While it lasts the ranks can speak to each other, with tensors on that device."""
        if self.world == 1:
            yield
            return
        if device.type == "cuda":
            torch.cuda.set_device(device)  # else every rank's barrier would meet on the first GPU
            dist.init_process_group("nccl", timeout=PATIENT, device_id=device)
        else:
            dist.init_process_group("gloo", timeout=PATIENT)
        yield
        # Not after an exception: the others, who know nothing of it, would be waited for. They notice that this
        # process ends.
        dist.destroy_process_group()

    @contextmanager
    def watched(self, advice: Callable[[], str]) -> Iterator[None]:
        """Around what the ranks do together: where one of them dies, the others raise VtransError, which ends with
        the advice."""
        try:
            yield
        except RuntimeError as error:
            if self.world == 1 or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
                raise
            raise self._ended(error, f"; {advice()}") from None

    def _ended(self, error: RuntimeError, rest: str = "") -> VtransError:
        """What torch says of the end of another rank, as a sentence."""
        reason = re.sub(r"^\[[^]]*\] ", "", str(error)).partition(". ")[0].strip()  # without the place in its source
        return VtransError(f"one of the {self.world} processes has ended before its time ({reason}){rest}.")

    def device_name(self, asked: str | None) -> str | None:
        """The device for this rank: of several ranks each takes its own GPU, unless the user names one. Without GPUs
        it is the CPU: there is no way for them to speak to each other from Apple's MPS."""
        if self.world == 1:
            return asked
        if asked == "cuda" or (asked is None and torch.cuda.is_available()):
            return f"cuda:{self.local}"
        return asked or "cpu"

    def wrapped(self, module: nn.Module, device: torch.device) -> nn.Module:
        """The module, whose gradients are from now on the mean over all ranks; the only one's are its own."""
        if self.world == 1:
            return module
        # The only buffers are position tables, which a rank may have grown and another not. torch has
        # renamed the option, and warns of the old name where it knows the new one.
        known = inspect.signature(DistributedDataParallel).parameters
        buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        settings: dict[str, Any] = {buffers: False}
        own = [device.index] if device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=own, **settings)

    def summed(self, values: Sequence[float], device: torch.device) -> list[float]:
        """The sums over all ranks of a few numbers."""
        if self.world == 1:
            return list(values)
        wide = torch.float32 if device.type == "mps" else torch.float64
        tensor = torch.tensor(values, dtype=wide, device=device)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def all_texts(self, own: str) -> list[str]:
        """A text of each rank, on all of them."""
        if self.world == 1:
            return [own]
        texts: list[Any] = [None] * self.world
        dist.all_gather_object(texts, own)
        return texts

    def wait(self) -> None:
        if self.world > 1:
            dist.barrier()

    # Rank 0 deals work out, the others answer: over gloo, on the CPU, whatever the device of the models.

    @contextmanager
    def leading(self) -> Iterator[None]:
        """On rank 0, around all that may fail: at the end the others are told that there is no more.

        An exception in the middle of a round leaves them waiting for what never comes: they notice
        when this process ends.
        """
        try:
            yield
        finally:
            if self.world > 1 and self._answered:
                with suppress(VtransError):  # of a rank that has died after its last answer
                    self.deal([b""] * self.world)

    def deal(self, parts: Sequence[bytes] | None = None) -> bytes:
        """Give each rank its part (rank 0), or wait for one (the others); b"" says that there is no more.

        Returns this rank's own. Raises VtransError if a rank has died.
        """
        self._answered = False
        sizes = torch.tensor([len(part) for part in parts] if parts else [0] * self.world)
        self._finish(dist.broadcast(sizes, 0, async_op=True))
        width = int(sizes.max())
        if not width:
            return b""
        own = torch.empty(width, dtype=torch.uint8)
        self._finish(dist.scatter(own, [_padded(part, width) for part in parts] if parts else None, 0, async_op=True))
        return own[: int(sizes[self.rank])].numpy().tobytes()

    def answer(self, part: bytes) -> list[bytes]:
        """Hand rank 0 an answer to what it has dealt; there, returns those of all ranks.

        Raises VtransError if a rank has died.
        """
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
        self._finish(dist.all_gather(sizes, torch.tensor([len(part)]), async_op=True))
        width = max(int(size) for size in sizes)
        all_ = [torch.empty(width, dtype=torch.uint8) for _ in sizes] if self.rank == 0 else None
        self._finish(dist.gather(_padded(part, width), all_, 0, async_op=True))
        self._answered = True
        return [a[: int(size)].numpy().tobytes() for a, size in zip(all_ or (), sizes[: len(all_ or ())], strict=True)]

    def _finish(self, work: dist.Work) -> None:
        """Wait, in slices between which Python sees to its signals: gloo does not return for them."""
        while not work.is_completed():
            with suppress(RuntimeError):  # this slice is over; or it failed, which the last wait tells
                work.wait(SIGNALS)
        try:
            work.wait()
        except RuntimeError as error:
            raise self._ended(error) from None


def _padded(part: bytes, width: int) -> Tensor:
    """A tensor [width] of these bytes."""
    tensor = torch.zeros(width, dtype=torch.uint8)
    if part:
        tensor[: len(part)] = torch.frombuffer(bytearray(part), dtype=torch.uint8)
    return tensor
