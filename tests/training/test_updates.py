"""Updates: gradients, sums, skipped updates, and the moving average of the weights."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import pytest
import torch
from conftest import tiny_train
from runs import lines, rank_batch, set_up_run
from safetensors.torch import load_file

import vtrans
from vtrans.data.batches import Batch
from vtrans.data.store import DataFolder
from vtrans.system.errors import VtransError
from vtrans.training.optimization.learner import Learner
from vtrans.training.optimization.optimizer import learning_rate
from vtrans.training.trainer import NON_FINITE_LIMIT, Trainer


def double_trainer(data: DataFolder, run: Path, *overrides: str) -> Trainer:
    """Updates in float64 by plain gradient descent, which exposes the gradient."""
    trainer = Trainer(set_up_run(data, run, "model.dropout=0.0", *overrides))
    trainer.learner.model.double()
    trainer.learner.optimizer = torch.optim.SGD(trainer.learner.model.parameters(), lr=1.0, fused=True)
    return trainer


def test_each_update_has_its_own_dropout_masks(tmp_path: Path, tiny_data: DataFolder) -> None:
    trainer = double_trainer(tiny_data, tmp_path / "run", "train.seed=3")
    seeds = []
    for _ in range(3):
        trainer.update([rank_batch(tiny_data, [0, 1])])
        seeds.append(torch.initial_seed())
    assert len(set(seeds)) == 3


class Drawing(Learner):
    """Draws a random number when it makes the objective of the ranks, as DistributedDataParallel's extra pass does."""

    @cached_property
    def objective_of_ranks(self) -> torch.nn.Module:
        torch.rand(1)
        return self.objective


def test_making_the_objective_of_the_ranks_changes_no_dropout(tmp_path: Path, tiny_data: DataFolder) -> None:
    weights = []
    for kind in (Learner, Drawing):
        trainer = Trainer(set_up_run(tiny_data, tmp_path / "run", "model.dropout=0.5"))
        trainer.learner.__class__ = kind
        trainer.update([rank_batch(tiny_data, [0, 1])])
        weights.append(trainer.learner.model.src_embedding.weight)
    assert torch.equal(*weights)


def test_accumulated_batches_give_the_update_of_one_large_batch(tmp_path: Path, tiny_data: DataFolder) -> None:
    parts = [[0, 1, 2], [50, 3], [9, 100, 101, 102, 33, 77], [8]]
    after = []
    for group in (parts, [[i for part in parts for i in part]], [[i] for part in parts for i in part]):
        trainer = double_trainer(tiny_data, tmp_path / "run", "train.clip_norm=0.7")
        config, settings = trainer.learner.config, trainer.learner.optimizer.param_groups[0]
        for step, batches in enumerate((group, [[4, 5]]), 1):
            trainer.update([rank_batch(tiny_data, numbers) for numbers in batches])
            assert settings["lr"] == learning_rate(step, config, 32)
            assert trainer.progress.step == step
        trainer.read()
        after.append((trainer.learner.model.state_dict(), trainer.progress.window))
    start = double_trainer(tiny_data, tmp_path / "run").learner.model.state_dict()
    for weights, window in after[1:]:
        for name, value in weights.items():
            torch.testing.assert_close(value, after[0][0][name], rtol=0, atol=1e-12)
        for key in ("loss", "nll"):
            assert window[key] == pytest.approx(after[0][1][key], rel=1e-12)
        for key in ("src_tokens", "tgt_tokens", "real"):
            assert window[key] == after[0][1][key]
    assert not torch.equal(start["src_embedding.weight"], after[0][0]["src_embedding.weight"])
    assert not (tmp_path / "run").exists()


class Diverging(torch.nn.Module):
    """An objective whose loss is NaN on request."""

    def __init__(self, objective: torch.nn.Module, diverges: Callable[[], bool]) -> None:
        super().__init__()
        self.objective, self.diverges = objective, diverges

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        loss, nll = self.objective(batch)
        return loss * torch.nan if self.diverges() else loss, nll


def test_updates_without_a_finite_gradient_are_skipped_and_end_the_run(tmp_path: Path, tiny_data: DataFolder) -> None:
    bad = True
    trainer = Trainer(set_up_run(tiny_data, tmp_path / "run", "train.clip_norm=1.0"))
    learner, progress = trainer.learner, trainer.progress
    learner.objective_of_ranks = Diverging(learner.objective, lambda: bad)
    group = [rank_batch(tiny_data, [0, 1])]
    before = {name: value.clone() for name, value in learner.model.state_dict().items()}
    for _ in range(NON_FINITE_LIMIT - 1):
        trainer.update(group)
    assert progress.skipped == 0  # not known before it is read
    trainer.read()
    assert progress.step == NON_FINITE_LIMIT - 1
    assert all(torch.equal(value, before[name]) for name, value in learner.model.state_dict().items())
    assert progress.skipped == progress.skipped_in_row == NON_FINITE_LIMIT - 1
    assert set(progress.window) == {"seconds", "skipped"}
    assert progress.window["skipped"] == NON_FINITE_LIMIT - 1
    assert all(float(state["step"]) == 0 for state in learner.optimizer.state.values())
    bad = False
    trainer.update(group)
    trainer.read()
    assert progress.skipped_in_row == 0
    assert not torch.equal(learner.model.src_embedding.weight, before["src_embedding.weight"])
    progress.skipped_in_row = NON_FINITE_LIMIT - 1
    bad = True
    trainer.update(group)
    with pytest.raises(VtransError, match=r"`init_from`.*step-00000000\.safetensors"):
        trainer.read()


def test_the_saved_model_is_the_moving_average(tmp_path: Path, tiny_data: DataFolder) -> None:
    each = ("train.max_steps=6", "train.checkpoint_every=1", "train.keep_last=9", "train.valid_sentences=1")
    plain = tiny_train(tiny_data, tmp_path / "plain", *each)
    run = tiny_train(tiny_data, tmp_path / "run", *each, "train.ema=0.4")
    start = set_up_run(tiny_data, tmp_path / "start").learner.model
    expected = {name: p.detach().float() for name, p in start.named_parameters()}
    weights = [expected, *(load_file(plain.step_file(step)) for step in range(1, 7))]
    for step in range(1, 7):
        decay = min(0.4, (1 + step) / (10 + step))
        expected = {name: decay * mean + (1 - decay) * weights[step][name] for name, mean in expected.items()}
        saved = load_file(run.step_file(step))
        for name, mean in expected.items():
            torch.testing.assert_close(saved[name], mean, rtol=0, atol=1e-6)
        assert not torch.equal(saved["src_embedding.weight"], weights[step]["src_embedding.weight"])
    # The state holds the trained weights, which the average does not influence.
    state = load_file(run.state_file(6))
    assert all(torch.equal(state[f"{name}:weight"], weights[6][name]) for name in expected)
    # Validation used the average.
    saved_nll, plain_nll = ([line["nll"] for line in lines(r) if line["kind"] == "valid"] for r in (run, plain))
    assert saved_nll != plain_nll
    translator = vtrans.load(run.last, beam=1)
    assert len(list(translator.translate(["The big dog sees me now."]))) == 1
