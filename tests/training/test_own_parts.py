"""Training from Python, with parts that a subclass of Trainer makes in another way."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from conftest import EVERY_STEP, tiny_train
from runs import BRIEF, heard, interrupted, lines, same
from torch import Tensor

import vtrans
from vtrans.config import ModelConfig, Recipe, TrainConfig
from vtrans.data.batches import Batch, BatchLoader
from vtrans.data.epochs import Mixture
from vtrans.data.store import DataFolder
from vtrans.model.network import Transformer
from vtrans.storage.run_folder import RunFolder
from vtrans.storage.states import read_progress
from vtrans.system.errors import InputError, VtransError
from vtrans.system.own_code import class_of
from vtrans.system.ranks import Ranks
from vtrans.text.vocabulary import PAD_ID
from vtrans.training.optimization.loss import Objective

SETTINGS = (*EVERY_STEP, *BRIEF)


class Constant(vtrans.Trainer):
    """Trains with one learning rate, and counts its updates and validations."""

    steps: ClassVar[list[int]] = []
    records: ClassVar[list[Mapping[str, Any]]] = []
    stop = 0

    def learning_rate(self, step: int) -> float:
        return 1e-3

    def after_update(self) -> None:
        self.steps.append(self.progress.step)
        if self.progress.step == self.stop:
            os.kill(os.getpid(), signal.SIGTERM)

    def after_validation(self, record: Mapping[str, Any]) -> None:
        self.records.append(record)


@pytest.fixture(autouse=True)
def nothing_counted() -> None:
    Constant.steps.clear()
    Constant.records.clear()


class Doubled(Objective):
    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        loss, nll = super().forward(batch)
        return 2 * loss, nll


class Summed(Constant):
    """With another loss."""

    @classmethod
    def make_objective(cls, network: Transformer, config: TrainConfig) -> Objective:
        return Doubled(network, config.label_smoothing)


class Later(Mixture):
    """A curriculum: the first corpus only, then everything."""

    def pairs(self, epoch: int) -> Tensor | None:
        return torch.arange(self.corpora[0] // 2) if epoch == 1 else None


class Curriculum(Constant):
    @classmethod
    def make_loader(cls, data: DataFolder, recipe: Recipe, ranks: Ranks, device: torch.device) -> BatchLoader:
        loader = BatchLoader(data, recipe, ranks, device)
        loader.mixture = Later(data.corpora, (), recipe.train.seed)
        return loader


@pytest.mark.parametrize("trainer", [Constant, Summed, Curriculum])
def test_a_run_with_own_parts_resumes_to_the_same_bytes(
    tmp_path: Path, tiny_data: DataFolder, trainer: type[Constant]
) -> None:
    whole = tiny_train(tiny_data, tmp_path / "whole", *SETTINGS, trainer=trainer)
    assert Constant.steps == list(range(1, 23))
    assert Constant.records == [line for line in lines(whole) if line["kind"] == "valid"]
    assert {line["lr"] for line in lines(whole) if line["kind"] == "train"} == {1e-3}
    stopping = type(trainer.__name__, (trainer,), {"stop": 12, "__qualname__": trainer.__qualname__})
    with pytest.raises(VtransError, match="SIGTERM"):
        tiny_train(tiny_data, tmp_path / "run", *SETTINGS, trainer=stopping)
    assert "bit-exactly: trainer" in heard(tiny_data, tmp_path / "run", dry_run=True)
    same(tiny_train(tiny_data, tmp_path / "run", *SETTINGS, trainer=trainer), whole)


def test_an_own_loss_is_trained_and_the_likelihood_validated(tmp_path: Path, tiny_data: DataFolder) -> None:
    plain, doubled = (
        lines(tiny_train(tiny_data, tmp_path / kind.__name__, *SETTINGS, "train.label_smoothing=0", trainer=kind))
        for kind in (Constant, Summed)
    )
    assert plain[0]["loss"] == plain[0]["nll"] == doubled[0]["nll"] == doubled[0]["loss"] / 2
    assert doubled[-1]["nll"] == pytest.approx(plain[-1]["nll"], rel=0.1)  # Adam's updates do not depend on the scale


class Other(Transformer):
    pass


class Unnamed(vtrans.Trainer):
    """Makes a network that no model file could name."""

    @classmethod
    def make_network(cls, config: ModelConfig, src_size: int, tgt_size: int, *, joint: bool) -> Transformer:
        return Other(config, src_size, tgt_size, joint=joint, pad_id=PAD_ID)


class Descent(vtrans.Trainer):
    @classmethod
    def make_optimizer(cls, parameters: Any, config: TrainConfig, matrices: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters)


@pytest.mark.parametrize(("trainer", "name"), [(Unnamed, "Other"), (Descent, "SGD")])
def test_parts_that_no_file_can_hold_are_refused(
    tmp_path: Path, tiny_data: DataFolder, trainer: type[vtrans.Trainer], name: str
) -> None:
    with pytest.raises(InputError, match=name):
        tiny_train(tiny_data, tmp_path / "run", trainer=trainer)
    assert not RunFolder(tmp_path / "run").steps()


FOCAL = """
import vtrans

class Focal(vtrans.LogprobLoss):
    def losses(self, logprobs_NV, targets_N):
        logprobs_N = logprobs_NV.gather(1, targets_N[:, None])[:, 0]
        return -((1 - logprobs_N.exp()) ** 2) * logprobs_N
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with code of the user's, in the current folder."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text(FOCAL)
    return file


def test_a_recipe_names_an_own_loss(tmp_path: Path, tiny_data: DataFolder, mine: Path) -> None:
    focal = (*SETTINGS, "train.objective=mine.py:Focal")
    whole = tiny_train(tiny_data, tmp_path / "whole", *focal)
    assert all(line["loss"] < line["nll"] for line in lines(whole) if line["kind"] == "train")
    interrupted(tiny_data, tmp_path / "run", 9, *focal)
    assert "bit-exactly" not in heard(tiny_data, tmp_path / "run")
    same(RunFolder(tmp_path / "run"), whole)
    mine.write_text(f"{FOCAL}\n\n")
    assert "bit-exactly: code {'mine.py:Focal'" in heard(tiny_data, tmp_path / "run", dry_run=True)
    with pytest.raises(InputError, match="objective"):
        tiny_train(tiny_data, tmp_path / "run", "train.objective=cross-entropy")


def test_an_ordinary_run_records_no_code(tmp_path: Path, tiny_data: DataFolder) -> None:
    run = tiny_train(tiny_data, tmp_path / "run", *SETTINGS)
    progress = read_progress(run.state_file(22))
    assert not {"code", "trainer"} & progress["environment"].keys()


@pytest.mark.parametrize("objective", ["mine.py", "other.py:Focal", "mine.py:Missing", "mine.py:vtrans"])
def test_code_that_is_not_there_is_refused(tmp_path: Path, tiny_data: DataFolder, mine: Path, objective: str) -> None:
    with pytest.raises(InputError, match=rf"{mine.name}|other\.py") as caught:
        tiny_train(tiny_data, tmp_path / "run", f"train.objective={objective}")
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(("code", "name"), [("class Focal(Missing): ...", "NameError"), ("exit(3)", "SystemExit: 3")])
def test_code_that_fails_is_named(tmp_path: Path, tiny_data: DataFolder, mine: Path, code: str, name: str) -> None:
    mine.write_text(code)
    with pytest.raises(InputError, match=name):
        tiny_train(tiny_data, tmp_path / "run", "train.objective=mine.py:Focal")


def test_the_code_that_runs_is_that_of_the_digest(mine: Path) -> None:
    """Python takes bytecode for that of a file with the same time and size."""
    powers = []
    for power in (2, 3):
        mine.write_text(f"{FOCAL}    power = {power}\n")
        os.utime(mine, (1, 1))
        powers.append(vars(class_of(TrainConfig(objective="mine.py:Focal"), "objective", Objective))["power"])
    assert powers == [2, 3]
    assert not (mine.parent / "__pycache__").exists()
