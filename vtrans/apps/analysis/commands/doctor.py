"""`vtrans doctor`: the installation and the machine.

torch may be missing or crash, so a separate process prints its facts: `python -m vtrans.apps.analysis.commands.doctor`.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata

import typer

import vtrans
from vtrans.commands.lines import print_json, result_console
from vtrans.commands.shared_options import Json
from vtrans.system.resources import available_memory, usable_cores, usable_processors

# Variables that change what vtrans, torch or their libraries do.
VARIABLES = re.compile("CUDA|CXX|KMP|LD_PRELOAD|MALLOC|MKL|OMP|ONEDNN|PYTHONPATH|RANK|TMPDIR|VTRANS|WORLD_SIZE")

MISSING = "missing"


def doctor(as_json: Json = False) -> None:
    """Report on the installation and this machine. The exit code is 1 if vtrans cannot be used."""
    facts, problems = {**versions(), **machine_facts()}, list[str]()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-P", "-m", "vtrans.apps.analysis.commands.doctor"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120, env=environment)
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2] or f"its process ends with code {done.returncode}"
        problems.append(f"torch cannot be used ({why}); install it again.")
    else:
        facts |= json.loads(done.stdout.rpartition("\n")[2])
    problems += [f"the package {name} is missing; install it." for name, version in facts.items() if version == MISSING]
    if as_json:
        print_json({"vtrans": vtrans.__version__, "facts": facts, "problems": problems})
    else:
        result_console().table(f"vtrans {vtrans.__version__}", facts.items())
        for problem in problems:
            result_console().error(problem)
    if problems:
        raise typer.Exit(1)


def versions() -> dict[str, str]:
    """Returns the versions of the packages that vtrans needs. Packages of extras may be missing."""
    found = {}
    for requirement in metadata.requires("vtrans-nmt") or ():
        bound, _, extra = requirement.partition("; extra == ")
        name, extra = re.split("[^\\w.-]", bound)[0], extra.strip("'\"")
        if extra not in ("dev", "docs"):
            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                found[name] = f"{MISSING}, for the extra {extra}" if extra else MISSING
    return found


def machine_facts() -> dict[str, str]:
    """Returns what does not need torch: Python, processors, memory, disk, compiler and environment variables."""
    return {
        "Python": f"{platform.python_version()}, {platform.platform()}",
        "processors": f"{os.cpu_count()}; this process may use {usable_processors()} on {usable_cores()} cores",
        "memory available": f"{available_memory() / 1e9:,.1f} GB",
        "temporary files": f"{shutil.disk_usage(tempfile.gettempdir()).free / 1e9:,.1f} GB free",
        "C++ compiler": shutil.which((os.environ.get("CXX") or "g++").split()[0]) or "none",
        **{name: value for name, value in sorted(os.environ.items()) if VARIABLES.match(name)},
    }


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
