"""The facts that `vtrans doctor` reports: packages, processors, memory, disk, compiler, environment, torch.

This module imports no torch, which may be missing or broken. `torch.utils.collect_env` needs a working torch, takes 13
seconds, and knows neither quotas and affinity nor the extras, the free space and what `auto` stands for.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vtrans.errors import install_command
from vtrans.files import printable, reason
from vtrans.runtime.cores import cpu_quota, usable_cores, usable_processors
from vtrans.runtime.memory import available_memory

# What the packages of each extra of pyproject.toml are for, except those for the development of vtrans.
PURPOSES = {
    "clean": "rules of clean",
    "comet": "score --comet",
    "ctranslate2": "export --to ctranslate2, and comparing imports with CTranslate2",
    "documents": "translating documents",
    "huggingface": "comparing imports and exports with transformers",
    "marian": "comparing imports and exports with Marian",
    "ray": "translating on a cluster with recipes/at-scale",
    "serve": "serve",
    "tensorboard": "train.tensorboard = true",
}
DEVELOPMENT = ("dev", "docs")
# Variables that change what vtrans, torch or their libraries do.
VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CXX", "GOMP_SPINCOUNT", "HF_HOME", "KMP_BLOCKTIME", "LD_PRELOAD", "LOCAL_RANK",
    "LRU_CACHE_CAPACITY", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MASTER_ADDR", "MASTER_PORT",
    "MKL_NUM_THREADS", "NO_COLOR", "OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_WAIT_POLICY",
    "ONEDNN_MAX_CPU_ISA", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "PYTHONPATH", "RANK", "SACREBLEU_SEED", "TERM", "TMPDIR",
    "VTRANS_CACHE", "VTRANS_KERNELS", "WORLD_SIZE", "XDG_CACHE_HOME",
)  # fmt: skip
# The instruction sets that matter for matrix products, as /proc/cpuinfo names them.
INSTRUCTIONS = re.compile(r"avx2|avx512f|avx\w*(bf16|vnni|fp16)|amx_\w+|asimddp|bf16|i8mm|sve2?")
TIMEOUT = 120.0  # seconds for torch; it takes 2 on two cores with AVX-512, most of them to import it


@dataclass(frozen=True)
class Package:
    """A package that vtrans needs, the lowest version that it accepts, and the version installed (None: missing)."""

    name: str
    at_least: str
    installed: str | None

    @property
    def too_old(self) -> bool:
        """Whether the installed version is below the bound."""
        return self.installed is not None and _release(self.installed) < _release(self.at_least)

    @property
    def usable(self) -> bool:
        """Whether the package is installed in a version that vtrans accepts."""
        return self.installed is not None and not self.too_old


@dataclass(frozen=True)
class Extra:
    """A group of optional packages, and what they are for."""

    name: str
    purpose: str
    packages: Sequence[Package]

    @property
    def usable(self) -> bool:
        return all(package.usable for package in self.packages)

    @property
    def install(self) -> str:
        """The command that installs it in a checkout."""
        return install_command(self.name)


@dataclass(frozen=True)
class Folder:
    """A folder that programs write to, and its free space in bytes (None: unknown)."""

    use: str
    path: str
    writable: bool
    free: float | None


@dataclass(frozen=True)
class Torch:
    """What torch finds: the device that it would use, and the kernels and the precision that `auto` stands for."""

    version: str
    build: str
    """"CPU", or the name and version of what it was built for."""
    devices: Sequence[str]
    device: str
    threads: int
    instructions: str
    onednn: bool
    mkl: bool
    bfloat16: bool
    """Whether oneDNN computes products in bfloat16 on this processor."""
    precision: str
    training: str
    """The kernels of training; empty on a GPU."""
    translating: str


@dataclass(frozen=True)
class Machine:
    """All facts. Sizes are in bytes; None means unknown."""

    vtrans: str
    python: str
    system: str
    packages: Sequence[Package]
    extras: Sequence[Extra]
    processor: str
    architecture: str
    instructions: Sequence[str]
    processors: int
    """Logical processors of the machine."""
    usable_processors: int
    """The logical processors that the affinity and the quota of this process allow."""
    usable_cores: int
    quota: int | None
    load: float | None
    """The average number of processes that ran in the last minute."""
    memory: float | None
    """The memory that processes can still take without swapping."""
    folders: Sequence[Folder]
    compiler: str | None
    nvidia: bool
    """Whether the system has the driver of an NVIDIA GPU."""
    environment: dict[str, str]
    torch: Torch | None
    torch_error: str
    """Why torch cannot be used; empty if it can."""


def examine(version: str) -> Machine:
    """Gathers the facts of this machine for vtrans of that version. Takes a few seconds."""
    packages, extras = _packages()
    torch, torch_error = torch_facts([sys.executable, "-P", "-m", "vtrans.analysis.torch_facts"])
    processor, instructions = examine_processor()
    return Machine(
        vtrans=version,
        python=platform.python_version(),
        system=platform.platform(),
        packages=packages,
        extras=extras,
        processor=processor,
        architecture=platform.machine(),
        instructions=instructions,
        processors=os.cpu_count() or 1,
        usable_processors=usable_processors(),
        usable_cores=usable_cores(),
        quota=cpu_quota(),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        memory=memory if math.isfinite(memory := available_memory()) else None,
        folders=[
            folder_facts("working folder", Path.cwd),
            folder_facts("home", Path.home),
            folder_facts("temporary files", lambda: Path(tempfile.gettempdir())),
        ],
        compiler=compiler(os.environ.get("CXX") or "g++"),
        nvidia=Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None,
        environment={name: os.environ[name] for name in VARIABLES if name in os.environ},
        torch=torch,
        torch_error=torch_error,
    )


def torch_facts(program: Sequence[str], timeout: float = TIMEOUT) -> tuple[Torch | None, str]:
    """Returns what the program prints about torch, and an empty text; or None, and why the program failed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        done = subprocess.run(
            program, capture_output=True, text=True, errors="replace", timeout=timeout, env=environment
        )
    except subprocess.TimeoutExpired:
        return None, f"it does not answer within {timeout:g} seconds"
    except OSError as error:
        return None, reason(error)
    if done.returncode < 0:
        return None, f"its process ends with the signal {-done.returncode} ({signal.strsignal(-done.returncode)})"
    if done.returncode > 0:
        errors = [line for line in done.stderr.split("\n") if line.strip()]
        return None, errors[-1].strip().rstrip(".") if errors else f"its process ends with code {done.returncode}"
    return Torch(**json.loads(done.stdout.rpartition("\n")[2])), ""


def _packages() -> tuple[list[Package], list[Extra]]:
    """The packages that the metadata of vtrans names: those it needs, and its extras except DEVELOPMENT. There are none
    if vtrans runs from a folder and is not installed."""
    needed: dict[str, list[Package]] = {"": [], **{name: [] for name in PURPOSES}}
    with suppress(importlib.metadata.PackageNotFoundError):
        for requirement in importlib.metadata.requires("vtrans") or ():
            match = re.fullmatch(
                r"""([\w.-]+)(?:\[[\w,-]+\])?>=([\w.]+)(?:; extra == ['"]([\w-]+)['"])?""", requirement
            )
            if match and match[3] not in DEVELOPMENT:
                package = Package(match[1], match[2], _installed(match[1]))
                needed.setdefault(match[3] or "", []).append(package)
    return needed[""], [
        Extra(name, PURPOSES.get(name, ""), packages) for name, packages in needed.items() if name and packages
    ]


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _release(version: str) -> tuple[int, ...]:
    """The numbers at the start of a version, without zeros at the end: (2, 6) of 2.6.0+cpu."""
    numbers = [int(number) for number in re.match(r"[\d.]*", version)[0].split(".") if number]  # type: ignore[index]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def examine_processor(root: Path = Path("/")) -> tuple[str, list[str]]:
    """The name of the processor and its instruction sets. Only Linux lists them; torch knows some elsewhere."""
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or "unknown", []
    name = re.search(r"^model name\s*: (.*)", text, re.M)
    flags = re.search(r"^(?:flags|Features)\s*: (.*)", text, re.M)
    sets = sorted({flag for flag in (flags[1].split() if flags else ()) if INSTRUCTIONS.fullmatch(flag)})
    return name[1].strip() if name else platform.processor() or "unknown", sets


def folder_facts(use: str, find: Callable[[], Path]) -> Folder:
    """The facts of the folder that `find` returns. It is not writable if `find` raises OSError or RuntimeError, as the
    functions of the standard library do for a folder that does not exist."""
    try:
        path = find()
        writable = os.access(path, os.W_OK | os.X_OK)
        return Folder(use, printable(path), writable, float(shutil.disk_usage(path).free))
    except (OSError, RuntimeError):
        return Folder(use, "missing", False, None)


def compiler(name: str) -> str | None:
    """The first line that the C++ compiler of that name prints about its version; None if it cannot be run."""
    try:
        done = subprocess.run([*name.split(), "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return done.stdout.partition("\n")[0] or None
