"""The processes that torchrun has started, which communicate through torch.distributed; or a single process."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from vtrans.errors import InputError, VtransError

CPU = torch.device("cpu")

# How long a rank waits for a silent one. A dead rank is noticed at once: its connections close, or torchrun ends the
# others with SIGTERM within a second, and by force after 30. Training sets a shorter time, see `limit_silence`.
PATIENT = timedelta(hours=24)  # while rank 0 waits for input
BEAT = 1.0  # seconds between two signs of life of a rank that works alone
SAME = timedelta(seconds=3)  # within which several ranks raise the same error
SIGNALS = timedelta(milliseconds=200)  # how often a waiting rank handles signals


class Ranks:
    """This process among those of one command."""

    def __init__(self) -> None:
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.local = int(os.environ.get("LOCAL_RANK", "0"))
        self._answered = True  # whether all ranks have answered the last `deal`
        self._beaten = 0.0  # when this rank last gave a sign of life

    @contextmanager
    def joined(self, device: torch.device, patience: timedelta = PATIENT) -> Iterator[None]:
        """Inside the block the ranks can exchange tensors on this device, and wait that long for each other."""
        if self.world == 1:
            yield
            return
        if device.type == "cuda":
            torch.cuda.set_device(device)  # otherwise every rank would use the first GPU for barriers
            dist.init_process_group("nccl", timeout=patience, device_id=device)
        else:
            dist.init_process_group("gloo", timeout=patience)
        try:
            yield
        except InputError as error:
            error.repeated = self._raised_by_leader(str(error))
            raise
        # This is skipped after an exception: it would wait for the other ranks, which have not failed. They notice when
        # this process ends.
        dist.destroy_process_group()

    def _raised_by_leader(self, message: str) -> bool:
        """Whether rank 0 raises this error too. All ranks read the same files, so most errors are those of all."""
        store, key = dist.distributed_c10d._get_default_store(), hashlib.sha256(message.encode()).hexdigest()
        try:
            if self.rank == 0:
                store.set(key, message)
                return False
            store.wait([key], SAME)
        except dist.DistStoreError:  # too late
            return False
        except dist.DistError:  # rank 0 has ended, and has said why
            pass
        return True

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
        except RuntimeError as error:
            if self.world == 1 or not (isinstance(error, dist.DistError) or "gloo" in str(error)):
                raise
            raise self._ended(error, f"; {advice()}") from None

    def _ended(self, error: RuntimeError, rest: str = "") -> VtransError:
        """The error for a rank that has died, with the reason that torch gives."""
        reason = re.sub(r"^\[[^]]*\] ", "", str(error)).partition(". ")[0].strip()  # without torch's source line
        what = "does not answer" if "timed out" in reason.lower() else "has died"
        return VtransError(f"one of the {self.world} processes {what} ({reason}){rest}.")

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

    def all_texts(self, own: str) -> list[str]:
        """The texts of all ranks, in order."""
        if self.world == 1:
            return [own]
        texts: list[Any] = [None] * self.world
        dist.all_gather_object(texts, own)
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

    # Rank 0 deals out work and the others answer, over gloo on the CPU, even if the models are on a GPU.

    @contextmanager
    def leading(self) -> Iterator[None]:
        """Tells the other ranks at the end of the block that there is no more work; for rank 0.

        After an exception between `deal` and `answer` it cannot tell them; they notice when this process ends.
        """
        try:
            yield
        finally:
            if self.world > 1 and self._answered:
                with suppress(VtransError):  # a rank has died after its last answer
                    self.deal([b""] * self.world)

    def deal(self, parts: Sequence[bytes] | None = None) -> bytes:
        """Gives each rank its part. Rank 0 passes all `parts`; the others wait. b"" means that there is no more.

        Returns this rank's part. Raises VtransError if a rank has died.
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
        """Sends the answer of this rank to rank 0. Returns all answers on rank 0, and nothing on the others.

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
        """Waits in short slices, so that Python can handle signals between them: gloo does not return for a signal."""
        while not work.is_completed():
            with suppress(RuntimeError):  # the slice has ended, or the work failed, which the last wait reports
                work.wait(SIGNALS)
        try:
            work.wait()
        except RuntimeError as error:
            raise self._ended(error) from None


def _padded(part: bytes, width: int) -> Tensor:
    """The bytes as a tensor [width], filled up with zeros."""
    tensor = torch.zeros(width, dtype=torch.uint8)
    if part:
        tensor[: len(part)] = torch.frombuffer(bytearray(part), dtype=torch.uint8)
    return tensor
