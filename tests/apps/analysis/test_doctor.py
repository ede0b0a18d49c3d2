"""`vtrans doctor`: what it complains about, and two real runs."""

import importlib.metadata
import json
from pathlib import Path

import pytest
import torch
from cli_runner import Run

from vtrans.apps.analysis.machine_facts import packages


@pytest.mark.parametrize(
    ("installed", "bound", "wrong"),
    [
        ("2.6", "2.6.0", False),
        ("2.10", "2.6", False),
        ("2.6rc1", "2.6", False),
        ("2.5.9", "2.6", True),
        (None, "2.6", True),
    ],
)
def test_a_bad_package_is_named(
    monkeypatch: pytest.MonkeyPatch, installed: str | None, bound: str, wrong: bool
) -> None:
    def version(name: str) -> str:
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(importlib.metadata, "version", version)
    versions, problems = packages([f"torch>={bound}"])
    assert versions["torch"] == (installed or "missing")
    assert [f"torch>={bound}" in problem for problem in problems] == [True] * wrong


def test_it_reports_this_machine(run_cli: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torch.py").write_text("raise ImportError('the wrong torch')")
    monkeypatch.setenv("CXX", "no-such-compiler")
    done = run_cli("doctor", "--json")
    assert (done.code, done.err) == (0, "")
    report = json.loads(done.out)
    assert report["problems"] == []
    assert report["facts"]["torch"] == torch.__version__
    assert report["facts"]["C++ compiler"] == "none"
    assert f"{torch.get_num_threads()} threads" in report["facts"]["default device"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: ["no-such-package>=1.0"])
    done = run_cli("doctor")
    assert done.code == 1
    assert b"processors" in done.out
    assert b"no-such-package" in done.out
