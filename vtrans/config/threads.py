"""Defaults and checks for the number of threads, equal in compiled code and torch, and of the processes that divide
work on a CPU."""

from __future__ import annotations

import os
import sys

from vtrans.config.keys import Key, check_value
from vtrans.system.errors import InputError
from vtrans.system.resources import usable_cores

THREADS = Key("the threads of this process", int, 1, 1024, "threads")


def set_threads(threads: int | None) -> None:
    """Sets the number of threads; None keeps it. Raises InputError for an invalid number."""
    if threads is not None:
        check_value(THREADS, "`threads`", threads)
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(threads)
        else:
            os.environ["OMP_NUM_THREADS"] = str(threads)  # `threads` reads it


def threads() -> int:
    """Returns the number of threads. The default is $OMP_NUM_THREADS, else $MKL_NUM_THREADS, else the number of usable
    cores, as in torch."""
    if torch := sys.modules.get("torch"):
        return int(torch.get_num_threads())
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        text = os.environ.get(name, "").partition(",")[0].strip()
        if text.isdecimal() and int(text) > 0:
            return int(text)
    return usable_cores()


PROCESSES = Key("the processes that divide the work", int, 1, 1024, "processes")
# Bytes per process. With 8,000 subwords and the default batches, translating took up to 0.9 GB (D 128) and training up
# to 1.5 GB (D 256).
MEMORY = 2e9


def check_processes(processes: int | None, reason: str) -> None:
    """Raises InputError for an invalid number of processes. `reason` says why only one process is possible; it is empty
    if several are."""
    if processes is not None:
        check_value(PROCESSES, "`processes`", processes)
        if processes > 1 and reason:
            raise InputError(f"`processes` must be 1, because {reason}, got {processes}; leave it out.")


def default_processes(most: int, memory: float) -> int:
    """Returns `most`, or fewer so that `memory` has MEMORY bytes for each process, but at least 1."""
    return max(1, int(min(most, memory / MEMORY)))


def why_not_forked() -> str:
    """Returns why this system cannot divide work between processes, or "" if it can."""
    return "" if sys.platform == "linux" else "processes cannot be forked safely on this system"
