"""vtrans on a pretended accelerator: the laws of this folder, in a process that has the device."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pretended
import pytest
import torch
from forking import ROOT, start_python

FOLDER = Path(__file__).parent


def test_the_laws_of_an_accelerator_hold() -> None:
    if reason := pretended.missing():
        pytest.skip(reason)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT}
    laws = sorted(str(path) for path in FOLDER.glob("laws_*.py"))
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=9", *laws]
    with start_python(words, environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        said = child.communicate()[0]
    assert child.returncode == 0, said


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_check_of_a_gpu_says_in_one_line_that_there_is_none(tmp_path: Path) -> None:
    words = [str(FOLDER.parent / "gpu_check.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT}
    with start_python(words, environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as child:
        said = child.communicate()[1]
    assert (child.returncode, said.count("\n")) == (2, 1), said
    assert "GPU" in said
    assert not any(tmp_path.iterdir())
