"""What torch finds on this machine, as JSON on stdout: `python -m vtrans.analysis.torch_facts`.

`machine.py` runs it as a process of its own, so that a torch that crashes or hangs takes nothing else with it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys

import torch

from vtrans.analysis.machine import Torch
from vtrans.config import KERNELS_VARIABLE
from vtrans.runtime.automatic import automatic_kernels, automatic_precision
from vtrans.runtime.devices import pick_device
from vtrans.runtime.kernels import LIBRARIES, Kernels
from vtrans.runtime.products import HAS_ONEDNN, has_bfloat16


def facts() -> Torch:
    """Returns what torch finds, and what `auto` stands for on this machine."""
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else ""
    build = build or (f"ROCm {torch.version.hip}" if torch.version.hip else "CPU")
    device = pick_device(None)
    wanted = os.environ.get(KERNELS_VARIABLE)
    translating = Kernels(wanted) if wanted in LIBRARIES else automatic_kernels()
    return Torch(
        version=torch.__version__,
        build=build,
        devices=[*_gpus(), "cpu"],
        device=str(device),
        threads=torch.get_num_threads(),
        instructions=torch.backends.cpu.get_cpu_capability(),
        onednn=HAS_ONEDNN,
        mkl=torch.backends.mkl.is_available(),  # type: ignore[no-untyped-call]  # of torch
        bfloat16=has_bfloat16(),
        precision=automatic_precision(device),
        training=str(automatic_kernels()) if device.type == "cpu" else "",
        translating=translating.products_text if device.type == "cpu" else "",
    )


def _gpus() -> list[str]:
    gpus = []
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(number)
            gpus.append(f"cuda:{number} ({properties.name}, {properties.total_memory / 1e9:.0f} GB)")
    return [*gpus, *(["mps"] if torch.backends.mps.is_available() else [])]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(dataclasses.asdict(facts())))
