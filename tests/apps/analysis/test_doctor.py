"""`vtrans doctor`: two real runs."""

import importlib.metadata
import json
from pathlib import Path

import pytest
import torch
from cli_runner import Run


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
