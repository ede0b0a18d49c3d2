"""`vtrans doctor`: what it complains about, by facts given as data, and two real runs."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runner import Done

import vtrans
from vtrans.analysis.diagnosis import problems, show
from vtrans.analysis.machine import (
    DEVELOPMENT,
    PURPOSES,
    Extra,
    Folder,
    Machine,
    Package,
    Torch,
    compiler,
    examine_processor,
    folder_facts,
    torch_facts,
)
from vtrans.console import Console

TORCH = Torch(
    version="2.13.0",
    build="CPU",
    devices=["cpu"],
    device="cpu",
    threads=2,
    instructions="AVX2",
    onednn=True,
    mkl=True,
    bfloat16=True,
    precision="float32",
    training="oneDNN",
    translating="oneDNN",
)
HEALTHY = Machine(
    vtrans="1.0",
    python="3.11.7",
    system="Linux",
    packages=[Package("torch", "2.6", "2.13.0+cpu"), Package("regex", "2023.12", "2024.5.15")],
    extras=[Extra("serve", "serve", [Package("starlette", "1.0", None)])],
    processor="a processor",
    architecture="x86_64",
    instructions=["avx2"],
    processors=4,
    usable_processors=2,
    usable_cores=2,
    quota=2,
    load=1.0,
    memory=8e9,
    folders=[Folder("working folder", "/work", writable=True, free=50e9)],
    compiler="g++ 12",
    nvidia=False,
    environment={"OMP_NUM_THREADS": "2", "VTRANS_KERNELS": "auto", "OMP_WAIT_POLICY": "passive"},
    torch=TORCH,
    torch_error="",
)


def torch_with(**changes: Any) -> dict[str, Any]:
    return {"torch": dataclasses.replace(TORCH, **changes)}


def folder(*, writable: bool = True, free: float | None = 50e9) -> dict[str, Any]:
    return {"folders": [Folder("home", "/home/me", writable, free)]}


def test_a_healthy_machine_has_no_problems() -> None:
    assert problems(HEALTHY) == []


@pytest.mark.parametrize(
    ("changes", "about", "broken"),
    [
        ({"packages": []}, "vtrans", False),
        ({"packages": [Package("rich", "13.7", None)]}, "rich", True),
        ({"packages": [Package("rich", "13.7", "13.6.9")]}, "rich", True),
        ({"extras": [Extra("serve", "serve", [Package("starlette", "1.0", "0.9")])]}, "starlette", False),
        ({"torch": None, "torch_error": "OSError: libgomp.so.1"}, "torch", True),
        (torch_with(build="CUDA 12.6"), "torch", False),
        (torch_with(onednn=False), "torch", False),
        ({"nvidia": True}, "torch", False),
        ({"instructions": ["avx"]}, "processor", False),
        (torch_with(threads=3), "threads", False),
        ({"load": 3.1}, "processor", False),
        ({"environment": {"VTRANS_KERNELS": "mkl"}}, "VTRANS_KERNELS", True),
        ({"environment": {"OMP_NUM_THREADS": "two"}}, "OMP_NUM_THREADS", False),
        ({"environment": {"MKL_NUM_THREADS": "0"}}, "MKL_NUM_THREADS", False),
        ({"environment": {"OMP_WAIT_POLICY": "ACTIVE"}}, "OMP_WAIT_POLICY", False),
        ({"environment": {"WORLD_SIZE": "4"}}, "WORLD_SIZE", False),
        (folder(writable=False), "home", False),
        (folder(free=5e8), "home", False),
        ({"memory": 5e8}, "memory", False),
    ],
)
def test_each_problem_is_found_alone(changes: dict[str, Any], about: str, broken: bool) -> None:
    diagnosed = problems(dataclasses.replace(HEALTHY, **changes))
    assert [(problem.about, problem.broken) for problem in diagnosed] == [(about, broken)]


@pytest.mark.parametrize(
    "changes",
    [
        {"instructions": [], "architecture": "x86_64"},  # unknown
        {"instructions": ["asimddp"], "architecture": "aarch64"},
        {"load": None, "memory": None, "quota": None, "compiler": None},
        torch_with(build="CUDA 12.6", devices=["cuda:0", "cpu"], device="cuda", threads=8),
        {"environment": {"OMP_NUM_THREADS": "2,1"}},
        folder(free=None),
    ],
)
def test_what_is_unknown_or_right_is_no_problem(changes: dict[str, Any]) -> None:
    assert problems(dataclasses.replace(HEALTHY, **changes)) == []


def test_what_breaks_vtrans_comes_first() -> None:
    diagnosed = problems(dataclasses.replace(HEALTHY, memory=0.0, torch=None, environment={"VTRANS_KERNELS": "x"}))
    assert [problem.broken for problem in diagnosed] == [True, True, False]


@pytest.mark.parametrize(
    ("installed", "bound", "too_old"),
    [
        ("2.6", "2.6.0", False),
        ("2.6.0+cu126", "2.6", False),
        ("2.10", "2.6", False),
        ("2.5.9", "2.6", True),
        ("0.4.4", "0.4.5", True),
        ("2.6rc1", "2.6", False),
        (None, "2.6", False),
    ],
)
def test_versions_are_compared_by_their_numbers(installed: str | None, bound: str, too_old: bool) -> None:
    assert Package("torch", bound, installed).too_old is too_old


@pytest.mark.parametrize(
    ("program", "named"),
    [
        ("import no_such_torch", "no_such_torch"),
        ("raise OSError('libcudart.so.12: cannot open')", "libcudart.so.12"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "signal 4"),
        ("import time; time.sleep(60)", "0.5 seconds"),
        ("import sys; sys.exit(3)", "code 3"),
    ],
)
def test_a_torch_that_fails_in_any_way_is_reported(program: str, named: str) -> None:
    found, error = torch_facts([sys.executable, "-c", program], timeout=0.5 if "sleep" in program else 60)
    assert found is None
    assert named in error
    assert "\n" not in error


def test_each_extra_of_the_package_says_what_it_is_for() -> None:
    text = (Path(vtrans.__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert set(PURPOSES) == set(tomllib.loads(text)["project"]["optional-dependencies"]) - {*DEVELOPMENT}


def test_the_processor_is_read_from_proc(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(
        "processor\t: 0\nmodel name\t: Intel(R) Xeon(R)\nflags\t\t: fpu sse2 avx2 avx512f amx_tile amx_bf16\n"
    )
    expected = ["amx_bf16", "amx_tile", "avx2", "avx512f"]
    assert examine_processor(tmp_path) == ("Intel(R) Xeon(R)", expected)
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nFeatures\t: fp asimd asimddp bf16 i8mm sve\n")
    assert examine_processor(tmp_path)[1] == ["asimddp", "bf16", "i8mm", "sve"]
    assert examine_processor(tmp_path / "proc")[1] == []


def test_folders_and_compilers_that_are_missing(tmp_path: Path) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    assert folder_facts("temporary files", lambda: tmp_path).writable
    assert not folder_facts("home", no_home).writable
    assert not folder_facts("home", lambda: tmp_path / "none").writable
    assert compiler("no-such-compiler") is None
    assert compiler("") is None


def test_the_report_shows_every_fact_and_problem() -> None:
    machine = dataclasses.replace(HEALTHY, memory=1e8)
    out = io.StringIO()
    show(machine, problems(machine), Console(stream=out))
    for shown in ("1.0", "2.13.0+cpu", "pip install '.[serve]'", "avx2", "OMP_NUM_THREADS", "g++ 12", "0.1 GB"):
        assert shown in out.getvalue()


def test_the_command_reports_this_machine(
    run_cli: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torch.py").write_text("raise ImportError('the wrong torch')")
    done = run_cli("doctor")
    assert (done.code, done.err) == (0, "")
    assert torch.__version__.encode() in done.out
    monkeypatch.setenv("VTRANS_KERNELS", "mkl")
    done = run_cli("doctor", "--json")
    report = json.loads(done.out)
    assert (done.code, report["usable"]) == (1, False)
    assert [problem["about"] for problem in report["problems"] if problem["broken"]] == ["VTRANS_KERNELS"]
    assert report["torch"]["precision"] in ("float32", "bfloat16")
    assert report["torch"]["threads"] == torch.get_num_threads()
