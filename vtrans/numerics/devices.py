"""The device that a model runs on."""

from __future__ import annotations

import re

import torch

from vtrans.errors import InputError


def pick_device(name: str | None) -> torch.device:
    """The device of that name, or the best available one if `name` is None: CUDA, then Apple's MPS, then the CPU."""
    if torch.cuda.is_available():
        # cuDNN's attention plans again for each shape of a batch, which takes longer than the attention itself.
        torch.backends.cuda.enable_cudnn_sdp(False)
    if name is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    if not re.fullmatch(r"cpu|mps|cuda(:\d{1,3})?", name):
        raise InputError(f"`device` must be cpu, cuda, cuda:N or mps, got {name!r}.")
    device = torch.device(name)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InputError(f"`device` {name} cannot be used here: {reason}.") from None
    return device
