"""The device that a model runs on. Importing this module imports no torch."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from vtrans.system.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Files of GPU drivers: NVIDIA, AMD, and Windows in WSL.
_DRIVERS = ("dev/nvidiactl", "dev/kfd", "dev/dxg")


def on_cpu(name: str | None, root: Path = Path("/")) -> bool:
    """Returns whether the device `name` is certainly the CPU. The default device is, if torch is not installed or the
    system has no GPU driver. `root` is where /dev is. Raises InputError for an invalid name."""
    if name is not None:
        check_device(name)
        return name == "cpu"
    if find_spec("torch") is None:
        return True
    if sys.platform == "darwin":
        return platform.machine() != "arm64"
    if sys.platform == "win32":
        return not (Path(os.environ.get("SYSTEMROOT", "C:/Windows")) / "System32/nvcuda.dll").exists()
    return not any((root / driver).exists() for driver in _DRIVERS)


def check_device(name: str) -> None:
    """Raises InputError for an invalid device name."""
    if not re.fullmatch(r"cpu|mps|cuda(:\d{1,3})?", name):
        raise InputError(f"`device` must be cpu, cuda, cuda:N or mps, got {name!r}.")


def is_gpu(device: torch.device) -> bool:
    """Returns whether the device has separate memory, to which torch copies asynchronously."""
    return device.type not in ("cpu", "mps")


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """Copies a tensor from main memory to a device, without waiting for pending GPU work. The caller may modify `x`
    afterwards, unless it is in page-locked memory."""
    return x.to(device, non_blocking=is_gpu(device))


def pick_device(name: str | None) -> torch.device:
    """Returns the device `name`, or the best available one for None: CUDA, then Apple's MPS, then the CPU. Raises
    InputError for an invalid name."""
    if name is not None:
        check_device(name)
    import torch

    if torch.cuda.is_available():
        # cuDNN's attention makes a plan for each new batch shape, which takes longer than the attention itself.
        torch.backends.cuda.enable_cudnn_sdp(False)
    if name is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    device = torch.device(name)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InputError(f"`device` {name} cannot be used here: {reason}.") from None
    return device
