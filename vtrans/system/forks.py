"""Forks of this process, which share its memory until either writes to it. Only Linux forks a process safely."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from vtrans.system.errors import VtransError
from vtrans.system.signals import ENDING

_PAUSE_HARD = 2  # omp_pause_hard
_PR_SET_PDEATHSIG = 1


class DiedError(VtransError):
    """Another process died, so there is no result."""


@contextmanager
def forking() -> Iterator[None]:
    """Prepares this process for forks in the block. They never receive terminating signals."""
    _end_openmp_threads()
    pid, before = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    # Garbage collection writes to every object that it examines, and so would copy shared pages.
    gc.freeze()
    try:
        with warnings.catch_warnings():
            # Python warns about other threads. numpy's threads only wait for work and hold no lock.
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        if os.getpid() == pid:
            gc.unfreeze()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent(parent: int) -> None:
    """Lets Linux kill this process, a fork, when the thread that forked it ends. `parent` is that process."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def ended(pid: int) -> str:
    """Kills a fork if it still runs, and returns how it ended, such as `by SIGKILL`."""
    os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"


def _end_openmp_threads() -> None:
    """Ends the OpenMP threads that torch keeps for this thread's next computation. A fork lacks them and would wait for
    them forever; after this call, both processes start new ones."""
    if (torch := sys.modules.get("torch")) is not None:
        # The function is looked up in the libraries that torch has loaded. OpenMP before 5.0 lacks it.
        pause = getattr(ctypes.CDLL(torch._C.__file__), "omp_pause_resource_all", None)
        if pause is not None:
            pause(_PAUSE_HARD)
