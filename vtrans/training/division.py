"""How training on a CPU is divided between processes and threads."""

from __future__ import annotations

import platform
import sys
import threading

import torch

from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.keys import check_value
from vtrans.runtime.local_ranks import LocalRanks
from vtrans.runtime.memory import available_memory
from vtrans.runtime.ranks import Ranks
from vtrans.training.progress import Progress
from vtrans.translate.division import MEMORY, PROCESSES

TOKENS = 512  # of a batch, for each process


def divide(
    ranks: Ranks,
    device: torch.device,
    batch_tokens: int,
    saved: Progress | None,
    console: Console,
    *,
    processes: int | None,
    threads: int | None,
    compiled: bool,
) -> Ranks:
    """Returns the ranks that train, and gives this process their threads. Call it before the first computation.

    Where nothing forbids it, these are `most` processes of this machine with one thread each. A run that is resumed on
    a machine of the same kind keeps the numbers that it had. `processes` and `threads` are what the user asks for;
    `threads` alone means one process. Raises InputError if several processes are not possible.
    """
    if processes is not None:
        check_value(PROCESSES, "`processes`", processes)
    reason, usual = _why_one(ranks, device, compiled=compiled), torch.get_num_threads()
    # Another thread of this program may hold a lock that a fork would wait for.
    alone = reason or threading.active_count() > 1
    number = 1 if alone else most(usual, batch_tokens, available_memory())
    chosen = automatic = (number, 1) if number > 1 else (1, usual)
    if processes is not None:
        if processes > 1 and reason:
            raise InputError(f"`processes` must be 1, because {reason}, got {processes}; leave it out.")
        chosen = processes, threads or (1 if processes > 1 else usual)
    elif threads is not None:
        chosen = 1, threads
    elif saved is not None and _alike(ranks, device, saved):
        before = saved.environment.get("processes", 1), int(saved.environment["threads"])
        chosen = automatic if reason and before[0] > 1 else before
        if chosen != automatic:
            console.info(f"processes: {chosen[0]}, threads: {chosen[1]}, as in the run so far")
    torch.set_num_threads(1 if chosen[0] > 1 else chosen[1])  # before they are forked, ranks must not use several
    return LocalRanks(*chosen) if chosen[0] > 1 else ranks


def most(cores: int, batch_tokens: int, memory: float) -> int:
    """Returns the number of processes that pay: one per core, but no more than there are TOKENS in a batch, and than
    that many bytes of free memory are enough for."""
    return max(1, int(min(cores, batch_tokens // TOKENS, memory / MEMORY)))


def _why_one(ranks: Ranks, device: torch.device, *, compiled: bool) -> str:
    """Returns why this process cannot be forked to train, or an empty string."""
    reasons = {
        f"the model is on {device}": device.type != "cpu",
        f"torchrun has started {ranks.world}": ranks.world > 1,
        "this system cannot copy a process": sys.platform != "linux",
        "a copy of this process could not use the libraries of the GPU": torch.cuda.is_available(),
        "`compile` needs threads": compiled,
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def _alike(ranks: Ranks, device: torch.device, saved: Progress) -> bool:
    """Returns whether the run so far was on a machine of this kind."""
    here = {"machine": platform.machine(), "ranks": ranks.world, "device": device.type}
    return all(saved.environment.get(key) == value for key, value in here.items())
