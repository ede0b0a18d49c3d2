"""The facts and problems that `vtrans doctor` reports. torch may be missing or crash, so a separate process prints its
facts: `python -m vtrans.apps.analysis.machine_facts`."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from vtrans.system.resources import available_memory, usable_cores, usable_processors

TORCH = (sys.executable, "-P", "-m", "vtrans.apps.analysis.machine_facts")
# Variables that change what vtrans, torch or their libraries do.
VARIABLES = re.compile("CUDA|CXX|KMP|LD_PRELOAD|MALLOC|MKL|OMP|ONEDNN|PYTHONPATH|RANK|TMPDIR|VTRANS|WORLD_SIZE")


def examine(requirements: Sequence[str], torch: Sequence[str] = TORCH) -> tuple[dict[str, str], list[str]]:
    """Returns the facts of this machine, and why vtrans cannot be used. The command `torch` prints torch's facts."""
    facts, problems = packages(requirements)
    facts |= {
        "Python": f"{platform.python_version()}, {platform.platform()}",
        "processors": f"{os.cpu_count()}; this process may use {usable_processors()} on {usable_cores()} cores",
        "memory available": f"{available_memory() / 1e9:,.1f} GB",
        "temporary files": f"{shutil.disk_usage(tempfile.gettempdir()).free / 1e9:,.1f} GB free",
        "C++ compiler": shutil.which((os.environ.get("CXX") or "g++").split()[0]) or "none",
        **{name: value for name, value in sorted(os.environ.items()) if VARIABLES.match(name)},
    }
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(torch, capture_output=True, text=True, errors="replace", timeout=120, env=environment)
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2] or f"its process ends with code {done.returncode}"
        return facts, [*problems, f"torch cannot be used ({why}); install it again."]
    return facts | json.loads(done.stdout.rpartition("\n")[2]), problems


def packages(requirements: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Returns the versions of packages, and the problems with them. Packages of extras may be missing."""
    versions, problems = {}, []
    for requirement in requirements:
        parts = re.match(r"([\w.-]+)(?:\[.*\])?>=([\w.]+)(?:; extra == .([\w-]+))?", requirement)
        if parts and parts[3] not in ("dev", "docs"):
            name, bound, extra = parts.groups()
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                versions[name] = f"missing, for the extra {extra}" if extra else "missing"
            if not versions[name].startswith("missing,") and _numbers(versions[name]) < _numbers(bound):
                wrong = f"{name} must have at least version {bound}, but is {versions[name]}"
                problems.append(f"{wrong}; install it with `pip install '{name}>={bound}'`.")
    return versions, problems


def _numbers(version: str) -> list[int]:
    """Returns the first four numbers of a version, such as 2, 6, 0 and 0 of 2.6+cpu."""
    return [*map(int, re.findall(r"\d+", version.partition("+")[0])), 0, 0, 0, 0][:4]


def torch_facts() -> dict[str, str]:
    """Returns the devices that torch finds, and the meaning of `auto` on this machine."""
    import torch

    from vtrans.model.automatic import automatic_kernels, automatic_precision
    from vtrans.system.devices import pick_device

    device, gpus = pick_device(None), map(torch.cuda.get_device_name, range(torch.cuda.device_count()))
    return {
        "default device": f"{device}; {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}",
        "GPUs": ", ".join(gpus) or "none",
        "auto": f"precision {automatic_precision(device)}; {automatic_kernels()}",
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(torch_facts()))
