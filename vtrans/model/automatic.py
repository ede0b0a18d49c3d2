"""Resolves `auto` for kernels and precision from the type of processor.

Nothing is measured when a program starts. Timing noise would decide between nearly equal kernels, and the same command
would write different bytes each time. docs/benchmarks.md compares the rules with the fastest choice.
"""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

import torch

from vtrans.model.kernels import Kernels, current, use
from vtrans.model.products import HAS_ONEDNN, has_bfloat16

X86 = ("x86_64", "AMD64")


def automatic_kernels(root: Path = Path("/")) -> Kernels:
    """Returns the kernels for this CPU, without compiled code. `root` is the folder that contains proc.

    MKL has AVX-512 kernels only for Intel's processors, where they are slightly faster than oneDNN's; elsewhere it uses
    AVX2. On other processors, torch's default is used.
    """
    mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]  # of torch
    blas = platform.machine() not in X86 or not HAS_ONEDNN or (mkl and _by_intel(root))
    return Kernels("blas" if blas else "onednn")


def use_automatic_library() -> None:
    """Sets the matrix library for a search on a CPU. Leaves this process's attention kernel for training unchanged."""
    use(replace(current(), library=automatic_kernels().library))


def automatic_precision(device: torch.device, root: Path = Path("/")) -> str:
    """Returns the precision of products in training: bfloat16 on GPUs that compute it, and on CPUs with AMX, or with
    AVX512-BF16 if they are not by Intel, whose AVX512-BF16 is slower than float32 (docs/benchmarks.md). `root` is the
    folder that contains proc."""
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = _computes_bfloat16(device) and (_has("amx_tile") or not _by_intel(root))
    return "bfloat16" if fast else "float32"


def emulates_bfloat16(device: torch.device) -> bool:
    """Returns whether `device` is an x86 processor without bfloat16 instructions. torch cannot tell for other
    processors."""
    return device.type == "cpu" and platform.machine() in X86 and not _computes_bfloat16(device)


def _computes_bfloat16(device: torch.device) -> bool:
    """Whether `device` is an x86 processor with bfloat16 instructions; on others, oneDNN emulates or lacks it."""
    return device.type == "cpu" and has_bfloat16() and (_has("avx512_bf16") or _has("amx_tile"))


def _has(instructions: str) -> bool:
    return bool(getattr(torch.cpu, f"_is_{instructions}_supported", bool)())


def _by_intel(root: Path) -> bool:
    """Whether Intel made the processor."""
    try:
        with (root / "proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            described = file.read(4096)  # the first processor is enough
    except OSError:  # not Linux
        described = platform.processor()
    return "GenuineIntel" in described
