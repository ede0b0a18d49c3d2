"""The threads of this process's computations, as many in compiled code as in torch."""

from __future__ import annotations

import os
import sys

from vtrans.keys import Key, check_value
from vtrans.processes.cores import usable_cores

THREADS = Key("the threads of this process", int, 1, 1024, "threads")
_before_torch: list[int] = []  # the number that was set before torch was imported


def set_threads(threads: int | None) -> None:
    """Sets the number of threads; None keeps it. Raises InputError for an invalid number."""
    if threads is not None:
        check_value(THREADS, "`threads`", threads)
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(threads)
        else:
            _before_torch[:] = [threads]


def tell_torch() -> None:
    """Imports torch and gives it the number that was set before."""
    import torch

    if _before_torch:
        torch.set_num_threads(_before_torch.pop())


def threads() -> int:
    """Returns the number of threads. Unless it was set, it is $OMP_NUM_THREADS, else $MKL_NUM_THREADS, else the number
    of usable cores, as in torch."""
    if torch := sys.modules.get("torch"):
        return int(torch.get_num_threads())
    if _before_torch:
        return _before_torch[0]
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        text = os.environ.get(name, "").partition(",")[0].strip()
        if text.isdecimal() and int(text) > 0:
            return int(text)
    return usable_cores()
