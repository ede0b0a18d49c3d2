"""`vtrans inspect --verify` finds damage in any file of a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from cli_runner import Done

from vtrans.analysis.checksums import checks
from vtrans.storage.run_folder import RunFolder


def flip(path: Path, place: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[place] ^= 4
    path.write_bytes(raw)


def test_every_file_of_a_run_is_checked(tiny_run: RunFolder, run_cli: Callable[..., Done]) -> None:
    found = list(checks(tiny_run.path))
    assert {Path(check.file).resolve() for check in found} == set(tiny_run.path.resolve().rglob("*.safetensors"))
    assert all(check.tensors and not check.problem for check in found)
    done = run_cli("inspect", tiny_run.path, "--verify")
    assert (done.code, done.err, done.out.count(b"\n")) == (0, "", len(found))


def test_damage_is_named(run_copy: RunFolder, run_cli: Callable[..., Done]) -> None:
    flip(run_copy.step_file(20), -1)
    flip(run_copy.state_file(30), -1)
    done = run_cli("inspect", run_copy.path, "--verify", "--json")
    assert done.code == 2
    damaged = {check["file"] for check in json.loads(done.out) if check["problem"]}
    assert damaged == {str(run_copy.step_file(20)), str(run_copy.state_file(30))}
    assert all(file in done.err for file in damaged)
    done = run_cli("inspect", run_copy.step_file(20), "--verify")
    assert (done.code, done.out) == (2, b"")
    assert str(run_copy.step_file(20)) in done.err
