"""Training by several ranks: they skip the same updates, and a run that was stopped ends with equal bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from runs import SMOOTH, by_ranks, command, lines
from safetensors.torch import load_file

from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder

SPOILT_SEED = 13  # in runs with this seed, the loss of the last rank is NaN in the second update
SPOILT = ("train.max_steps=3", "train.warmup=1", "train.log_every=1", "train.accumulate=2", f"train.seed={SPOILT_SEED}")
EXACT = ("train.warmup=1", "model.dropout=0.2", "train.ema=0.9", "train.clip_norm=0.3", "train.valid_sentences=1")
STOPS = (2, 4)

SPOILING = f"""
import os
from vtrans.training.optimization.loss import Objective
from vtrans.training.updates import Updates

forward, update, last = Objective.forward, Updates.update, int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1


def spoiling(objective, batch):
    loss, nll = forward(objective, batch)
    return loss * float("nan") if spoilt else loss, nll


def watching(updates, group):
    global spoilt
    spoilt = last and updates.learner.config.seed == {SPOILT_SEED} and updates.progress.step == 1
    update(updates, group)
    spoilt = False


spoilt = False
Objective.forward, Updates.update = spoiling, watching
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, linked_data: DataFolder) -> Path:
    """A folder with the runs that three ranks have made."""
    folder = tmp_path_factory.mktemp("parallel")
    parts = (("whole", STOPS[-1]), *(("stopped", step) for step in STOPS))
    exact = [command(linked_data, folder / name, *EXACT, f"train.max_steps={steps}") for name, steps in parts]
    by_ranks(3, [*exact, command(linked_data, folder / "spoilt", *SMOOTH, *SPOILT)], SPOILING)
    return folder


@pytest.mark.slow
def test_all_ranks_skip_an_update_that_one_of_them_spoils(folder: Path) -> None:
    skipped = [line["skipped"] for line in lines(RunFolder(folder / "spoilt")) if line["kind"] == "train"]
    assert skipped == [0, 1]


@pytest.mark.slow
def test_several_ranks_resume_to_equal_bytes(folder: Path) -> None:
    whole, stopped = RunFolder(folder / "whole"), RunFolder(folder / "stopped")
    assert stopped.last.read_bytes() == whole.last.read_bytes()
    a, b = (load_file(run.state_file(STOPS[-1])) for run in (whole, stopped))
    assert all(torch.equal(a[key], b[key]) for key in a)
