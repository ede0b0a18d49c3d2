"""The threads of this process's computations, as many in compiled code as in torch."""

from __future__ import annotations

import os
import sys

from vtrans.keys import Key, check_value
from vtrans.processes.cores import usable_cores

THREADS = Key("the threads of this process", int, 1, 1024, "threads")


def set_threads(threads: int | None) -> None:
    """Sets the number of threads; None keeps it. Raises InputError for an invalid number."""
    if threads is not None:
        check_value(THREADS, "`threads`", threads)
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(threads)
        else:
            os.environ["OMP_NUM_THREADS"] = str(threads)  # torch reads it when it is imported


def threads() -> int:
    """Returns the number of threads. Unless it was set, it is $OMP_NUM_THREADS, else $MKL_NUM_THREADS, else the number
    of usable cores, as in torch."""
    if torch := sys.modules.get("torch"):
        return int(torch.get_num_threads())
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        text = os.environ.get(name, "").partition(",")[0].strip()
        if text.isdecimal() and int(text) > 0:
            return int(text)
    return usable_cores()
