"""Settings of the whole process, made before torch is loaded: OpenMP, and the memory of glibc and oneDNN."""

from __future__ import annotations

import ctypes
import math
import os
import platform
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vtrans.system.errors import VtransError
from vtrans.system.resources import cpu_quota, usable_cores

if sys.platform != "win32":
    import resource
if TYPE_CHECKING:
    import torch

# Iterations of libgomp's loop around the pause instruction: 2 microseconds on Zen 5 (22 ns each), about 5 on Intel
# processors since Skylake (140 cycles each). libgomp's default of 300,000 takes milliseconds. On two Zen 5 cores that a
# second busy process uses too, training keeps 0.04 of its speed with the default, 0.48 with 1,000 and 0.59 to 0.85 with
# 100 (docs/benchmarks.md#speed-of-training).
SPINS = "100"


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


def manage_memory() -> None:
    """Makes glibc keep freed large blocks, and oneDNN keep at most 256 compiled kernels. Call it before the first
    matrix product. Environment variables that the user has set take precedence.

    By default glibc returns large blocks to the system, and their page faults cost a quarter of a training's time.
    oneDNN compiles a kernel for each shape of a product, which takes 0.5 to 2 MB and fragments the free memory. With
    the 1,024 kernels of its default cache, and as many in torch's, a training of 2 million weights grew to 3.8 GB.
    Training in bfloat16 needs about 200: with 64, `make demo` spends a third of its time on compiling them again. In
    float32, of which every update has new shapes, D 256 needs 1.5 GB with 256 kernels and 1.0 GB with 64.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256")
    os.environ.setdefault("LRU_CACHE_CAPACITY", "1")  # torch's own cache, which saves no additional time
    keep, M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = 1 << 30, -1, -3
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    for variable, parameter in (
        ("MALLOC_MMAP_THRESHOLD_", M_MMAP_THRESHOLD),
        ("MALLOC_TRIM_THRESHOLD_", M_TRIM_THRESHOLD),
    ):
        if variable not in os.environ:
            libc.mallopt(parameter, keep)


def release_memory() -> None:
    """Returns the free memory that glibc keeps to the system. Using it again costs 0.1 s per gigabyte.

    Training fragments its free memory too much for a validation's larger blocks, so both phases would keep their own.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def peak_memory(device: torch.device) -> float:
    """The peak memory of this process in bytes: GPU memory for a GPU, else main memory; NaN on Windows."""
    if device.type in ("cuda", "mps"):
        import torch

        on_cuda = device.type == "cuda"
        return float(torch.cuda.max_memory_reserved(device) if on_cuda else torch.mps.driver_allocated_memory())
    if sys.platform == "win32":
        return math.nan
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)
