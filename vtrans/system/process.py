"""Settings of the whole process, made before torch is loaded: memory and OpenMP."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping

from vtrans.system.cores import cpu_quota, usable_cores
from vtrans.system.errors import VtransError
from vtrans.system.process_memory import manage_memory

# Iterations of libgomp's loop around the pause instruction: 2 microseconds on Zen 5 (22 ns each), about 5 on Intel
# processors since Skylake (140 cycles each). libgomp's default of 300,000 takes milliseconds. On two Zen 5 cores that a
# second busy process uses too, training keeps 0.04 of its speed with the default, 0.48 with 1,000 and 0.59 to 0.85 with
# 100 (docs/benchmarks.md#speed-of-training).
SPINS = "100"
_PAUSE_HARD = 2  # omp_pause_hard


def configure_process() -> None:
    """Configures memory and OpenMP for this process and its children. Call it before torch is imported, as the commands
    do. Environment variables that the user has set take precedence.

    `manage_memory` describes the memory settings. OpenMP's threads spin only briefly before they sleep, so that
    competing processes slow this one down in proportion only. A CPU quota limits the number of threads: torch respects
    affinity, but not quotas. Raises VtransError if torch is already loaded, because it would ignore the settings.
    """
    missing = {name: value for name, value in _openmp(os.environ).items() if name not in os.environ}
    if missing and "torch" in sys.modules:
        raise VtransError(
            f"configure_process() must be called before torch is imported, which reads {', '.join(missing)} from the "
            "environment only then; move the call to the start of the program."
        )
    os.environ.update(missing)
    manage_memory()


def end_openmp_threads() -> None:
    """Ends the OpenMP threads that torch keeps for this thread's next computation. A fork lacks them and would wait for
    them forever; after this call, both processes start new ones."""
    if (torch := sys.modules.get("torch")) is not None:
        # The function is looked up in the libraries that torch has loaded. OpenMP before 5.0 lacks it.
        pause = getattr(ctypes.CDLL(torch._C.__file__), "omp_pause_resource_all", None)
        if pause is not None:
            pause(_PAUSE_HARD)


def _openmp(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables to add to this environment for the OpenMP libraries."""
    settings = {}
    if "OMP_WAIT_POLICY" not in environment:  # every library reads it, but the next two take precedence
        settings = {"GOMP_SPINCOUNT": SPINS, "KMP_BLOCKTIME": "1"}  # iterations; milliseconds
    # Without a quota below the number of cores, torch chooses as many threads as the affinity allows cores. It also
    # reads MKL_NUM_THREADS.
    if (quota := cpu_quota()) == usable_cores() and "MKL_NUM_THREADS" not in environment:
        settings["OMP_NUM_THREADS"] = str(quota)
    return settings
