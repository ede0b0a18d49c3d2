"""Results on stdout: a disk that is full under them is an error, and never a shorter result."""

from __future__ import annotations

import functools
import resource
from pathlib import Path

import pytest
from cli_runner import start

ROOM = 40  # bytes that the disk has left


@pytest.mark.parametrize(("how", "unbuffered"), [([], ""), (["--json"], "1")])
def test_a_result_that_does_not_fit_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: list[str], unbuffered: str
) -> None:
    """An unbuffered write of Python writes what fits, and raises nothing."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # a limited size would cut these files too
    ref = tmp_path / "ref"
    ref.write_text("A dog runs.\n")
    with (tmp_path / "result").open("wb") as out:
        limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (ROOM, ROOM))
        process = start("score", ref, "--hyp", ref, *how, stdout=out, preexec_fn=limit)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert said.split(b"\n")[-2:] == [b"error: stdout cannot be written: File too large.", b""]
