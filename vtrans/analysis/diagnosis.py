"""Problems of a machine, in plain words, and the report of `vtrans doctor`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vtrans.analysis.machine import Extra, Machine
from vtrans.config import KERNELS, KERNELS_VARIABLE
from vtrans.console import Console

# With less free space or memory than this, even a small model may fail. In bytes.
LITTLE = 1e9
# A machine is busy if its processes use more than this share of its processors.
BUSY = 0.75


@dataclass(frozen=True)
class Problem:
    """Something that is wrong. `broken` means that vtrans cannot be used; otherwise it is slower, or lacks a part."""

    about: str
    """The package, variable, folder or part that it is about."""
    text: str
    broken: bool = False


def problems(machine: Machine) -> list[Problem]:
    """Returns the problems of a machine; those that break vtrans come first."""
    diagnosed = [*_of_packages(machine), *_of_torch(machine), *_of_processors(machine), *_of_environment(machine)]
    diagnosed += _of_space(machine)
    return sorted(diagnosed, key=lambda problem: not problem.broken)


def _of_packages(machine: Machine) -> Iterator[Problem]:
    if not machine.packages:
        yield Problem(
            "vtrans", "vtrans is not installed, so its dependencies are unknown; install it with `pip install .`"
        )
    for package in machine.packages:
        install = f"install it with `pip install '{package.name}>={package.at_least}'`"
        if package.installed is None:
            yield Problem(package.name, f"{package.name} is not installed; {install}", broken=True)
        elif package.too_old:
            text = f"{package.name} {package.installed} is too old, vtrans needs {package.at_least}; {install}"
            yield Problem(package.name, text, broken=True)
    for extra in machine.extras:
        for package in extra.packages:
            if package.too_old:
                yield Problem(
                    package.name,
                    f"{package.name} {package.installed} is too old, the extra {extra.name} needs "
                    f"{package.at_least}; install it with `{extra.install}` in a checkout of vtrans",
                )


def _of_torch(machine: Machine) -> Iterator[Problem]:
    torch = machine.torch
    if torch is None:
        yield Problem("torch", f"torch cannot be used: {machine.torch_error}; install it again", broken=True)
        return
    gpu = any(name.startswith("cuda") for name in torch.devices)
    if torch.build != "CPU" and not gpu:
        yield Problem(
            "torch",
            f"torch was built for {torch.build}, but finds no GPU; check the GPU's driver and CUDA_VISIBLE_DEVICES, or "
            "install a CPU build of torch, which takes less space",
        )
    if torch.build == "CPU" and machine.nvidia:
        yield Problem(
            "torch",
            "the system has a driver for an NVIDIA GPU, but torch is a CPU build; install a CUDA build of torch",
        )
    if not torch.onednn:
        yield Problem("torch", "torch was built without oneDNN, so products in bfloat16 and int8 are not used")


def _of_processors(machine: Machine) -> Iterator[Problem]:
    if machine.architecture in ("x86_64", "AMD64") and machine.instructions and "avx2" not in machine.instructions:
        yield Problem("processor", "the processor has no AVX2, so matrix products are several times slower")
    if machine.torch and machine.torch.device == "cpu" and machine.torch.threads > machine.usable_processors:
        yield Problem(
            "threads",
            f"torch uses {machine.torch.threads} threads, but this process may use only {machine.usable_processors} "
            f"processors; unset OMP_NUM_THREADS and MKL_NUM_THREADS, or set them to {machine.usable_cores}",
        )
    if machine.load is not None and machine.load > BUSY * machine.processors:
        yield Problem(
            "processor",
            f"the machine is busy: on average, {machine.load:.1f} processes ran in the last minute on "
            f"{machine.processors} processors; training and translating are slower until they end",
        )


def _of_environment(machine: Machine) -> Iterator[Problem]:
    values = machine.environment
    kernels = values.get(KERNELS_VARIABLE)
    if kernels and kernels not in KERNELS:
        allowed = ", ".join(KERNELS)
        text = f"{KERNELS_VARIABLE} must be one of {allowed}, got {kernels!r}; unset it, or no model can be loaded"
        yield Problem(KERNELS_VARIABLE, text, broken=True)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if name in values and not (values[name].split(",")[0].strip().isdecimal() and int(values[name].split(",")[0])):
            yield Problem(name, f"{name} must be a whole number of at least 1, got {values[name]!r}; it is ignored")
    if values.get("OMP_WAIT_POLICY", "").lower() == "active":
        yield Problem(
            "OMP_WAIT_POLICY",
            "OMP_WAIT_POLICY is active, so that waiting threads keep processors busy; unset it on a shared machine",
        )
    if "WORLD_SIZE" in values:
        yield Problem(
            "WORLD_SIZE",
            f"WORLD_SIZE is {values['WORLD_SIZE']}, so `vtrans train` waits for the other processes of torchrun; unset "
            "it unless torchrun has set it",
        )


def _of_space(machine: Machine) -> Iterator[Problem]:
    for folder in machine.folders:
        where = f"the {folder.use} ({folder.path})"
        if not folder.writable:
            yield Problem(folder.use, f"{where} is not writable; change its permissions, or use another folder")
        if folder.free is not None and folder.free < LITTLE:
            yield Problem(
                folder.use, f"only {_gigabytes(folder.free)} are free on the disk of {where}; delete files to make room"
            )
    if machine.memory is not None and machine.memory < LITTLE:
        yield Problem(
            "memory",
            f"only {_gigabytes(machine.memory)} of memory are available; end other programs, or use smaller models",
        )


def as_dict(machine: Machine, diagnosed: list[Problem]) -> dict[str, Any]:
    """Returns the facts and the problems as JSON values."""
    return {
        **dataclasses.asdict(machine),
        "problems": [dataclasses.asdict(problem) for problem in diagnosed],
        "usable": not any(problem.broken for problem in diagnosed),
    }


def show(machine: Machine, diagnosed: list[Problem], console: Console) -> None:
    """Prints the facts as tables, and then the problems."""
    console.info(f"vtrans {machine.vtrans}, Python {machine.python}, {machine.system}")
    console.table("packages", [(p.name, p.installed or "missing", f"at least {p.at_least}") for p in machine.packages])
    console.table("extras, to install in a checkout of vtrans", [_extra(extra) for extra in machine.extras])
    console.table("machine", _rows(machine))
    if machine.environment:
        console.table("environment variables in effect", sorted(machine.environment.items()))
    for problem in diagnosed:
        line = f"{problem.text[0].upper()}{problem.text[1:]}."
        (console.error if problem.broken else console.warn)(line)
    broken = any(problem.broken for problem in diagnosed)
    console.info("vtrans cannot be used until the errors are fixed." if broken else "vtrans can be used.")


def _extra(extra: Extra) -> tuple[str, str, str]:
    return extra.name, "installed" if extra.usable else f"missing; {extra.install}", f"for {extra.purpose}"


def _rows(machine: Machine) -> Iterator[tuple[str, str]]:
    yield "processor", f"{machine.processor}, {machine.architecture}"
    yield "instruction sets", ", ".join(machine.instructions) or "unknown"
    quota = "no quota" if machine.quota is None else f"a quota of {machine.quota}"
    usable = f"{machine.usable_processors}, {machine.usable_cores} cores, {quota}"
    yield "processors", f"{machine.processors}; this process may use {usable}"
    yield "load", "unknown" if machine.load is None else f"{machine.load:.1f} processes in the last minute"
    yield "memory available", "unknown" if machine.memory is None else _gigabytes(machine.memory)
    for folder in machine.folders:
        yield folder.use, f"{folder.path}, {'unknown' if folder.free is None else _gigabytes(folder.free)} free"
    yield "C++ compiler", machine.compiler or "none"
    if torch := machine.torch:
        libraries = [name for name, has in (("oneDNN", torch.onednn), ("MKL", torch.mkl)) if has]
        yield "torch", f"{torch.version} for {torch.build}, with {' and '.join(libraries) or 'neither oneDNN nor MKL'}"
        yield "torch's kernels", f"{torch.instructions}, bfloat16 products {'yes' if torch.bfloat16 else 'no'}"
        yield "threads", str(torch.threads)
        yield "devices", ", ".join(torch.devices)
        yield "default device", torch.device
        yield "precision auto", torch.precision
        if torch.training:
            yield "kernels for training", torch.training
            yield "kernels for translating", torch.translating


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"
