"""vtrans on a pretended accelerator: the laws of this folder, in a process that has the device."""

import os
import subprocess
import sys
from pathlib import Path

import pretended
import pytest
import torch
from forking import ROOT, start_python
from runs import BRIEF, SMOOTH, ranks_of, run_trainer, set_up_run
from safetensors.torch import load_file

from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder
from vtrans.training.trainer import Trainer

FOLDER = Path(__file__).parent
RANK = """
import sys
from datetime import timedelta
from pathlib import Path

data, run, first, second, *overrides = sys.argv[1:]
sys.path[:0] = first, second
import pretended
import torch
pretended.register()
from runs import run_trainer, set_up_run
from vtrans.data.store import DataFolder
from vtrans.system.ranks import Ranks
from vtrans.training.trainer import Trainer

device = torch.device(pretended.NAME)
with Ranks().joined(device, timedelta(minutes=5)):
    run_trainer(Trainer(set_up_run(DataFolder.open(Path(data)), Path(run), *overrides, device=device)))
"""

needs_device = pytest.mark.skipif(pretended.missing() is not None, reason=str(pretended.missing()))


@needs_device
def test_the_laws_of_an_accelerator_hold() -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT}
    laws = sorted(str(path) for path in FOLDER.glob("laws_*.py"))
    # The fork has imported the server's packages, one of which is a plugin of pytest.
    quietly = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=9", *quietly, *laws]
    with start_python(words, environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        said = child.communicate()[0]
    assert child.returncode == 0, said


@needs_device
def test_two_processes_with_devices_train_as_one_without(tmp_path: Path, tiny_data: DataFolder) -> None:
    overrides = (*SMOOTH, *BRIEF, "train.max_steps=2", "train.checkpoint_every=2", "train.warmup=2")
    ready = set_up_run(tiny_data, tmp_path / "one", *overrides)
    run_trainer(Trainer(ready))
    places = map(str, (tiny_data.path, tmp_path / "two", FOLDER.parent, FOLDER.parent / "helpers"))
    words = [sys.executable, "-c", RANK, *places, *overrides]
    with ranks_of(2, words) as ranks:
        said = [rank.communicate(timeout=300)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    two = load_file(RunFolder(tmp_path / "two").last)
    for name, weight in load_file(ready.job.run.last).items():
        torch.testing.assert_close(two[name], weight, rtol=0, atol=1e-5, msg=name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_check_of_a_gpu_says_in_one_line_that_there_is_none(tmp_path: Path) -> None:
    words = [str(FOLDER.parent / "gpu_check.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT}
    with start_python(words, environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as child:
        said = child.communicate()[1]
    assert (child.returncode, said.count("\n")) == (2, 1), said
    assert "GPU" in said
    assert not any(tmp_path.iterdir())
