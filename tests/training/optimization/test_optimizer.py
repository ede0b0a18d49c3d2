"""The learning rate as a function of the step, weight decay, and Muon."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from drawn import seeded_tensors
from torch import nn

from vtrans.config import TrainConfig
from vtrans.config.train import SCHEDULES
from vtrans.training.optimization.optimizer import begin, learning_rate, make_optimizer
from vtrans.training.recipe import load_recipe


def test_the_learning_rate_follows_the_papers_formula() -> None:
    config = load_recipe("paper-base").train
    for step in (1, 10, 3999, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)  # section 5.3, equation 3
        assert learning_rate(step, config, 512) == pytest.approx(expected, rel=1e-12)
    assert learning_rate(4000, config, 512) == pytest.approx(6.9877e-4, rel=1e-4)


@pytest.mark.parametrize("schedule", SCHEDULES[1:])
@pytest.mark.parametrize("peak", [0.004, 0.0])
def test_a_schedule_falls_from_the_peak_to_the_final_rate(schedule: str, peak: float) -> None:
    config = TrainConfig(schedule=schedule, learning_rate=peak, warmup=10, max_steps=110, final_rate=0.1, decay=0.25)
    paper = replace(config, schedule="inverse-sqrt")
    rates = [learning_rate(step, config, 64) for step in range(1, 121)]
    assert rates[:10] == [learning_rate(step, paper, 64) for step in range(1, 11)]
    assert max(rates) == rates[9]
    assert all(later <= earlier for earlier, later in pairwise(rates[9:]))
    assert rates[109:] == [pytest.approx(0.1 * rates[9])] * 11  # a run whose max_steps was lowered may be there
    # With 20, 50 and 85 of 100 updates after the warm-up; below: the share of the way from the peak that is left.
    left = {"cosine": (0.904508, 0.5, 0.054497), "linear": (0.8, 0.5, 0.15), "wsd": (1.0, 1.0, 0.6)}[schedule]
    for step, share in zip((30, 60, 95), left, strict=True):
        assert rates[step - 1] == pytest.approx((0.1 + 0.9 * share) * rates[9], rel=1e-5)


def test_weight_decay_is_decoupled() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = make_optimizer([weight], TrainConfig(weight_decay=0.1))
    optimizer.param_groups[0]["lr"] = 0.5
    weight.grad = torch.zeros(3)
    optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.full((3,), 1 - 0.5 * 0.1))


MUON = TrainConfig(optimizer="muon", precision="float32")


def weight(*size: int, seed: int = 0) -> nn.Parameter:
    return nn.Parameter(torch.randn(*size, generator=seeded_tensors(seed)))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this version of torch has no Muon to compare with")
def test_updates_equal_torch() -> None:
    config = TrainConfig(optimizer="muon", precision="bfloat16", weight_decay=0.1)  # torch's products are in bfloat16
    ours, theirs = (nn.Parameter(weight(8, 6).detach().clone()) for _ in range(2))
    optimizer = make_optimizer([ours, other := weight(2)], config, {ours: 1})
    begin(optimizer, [ours, other])
    reference = torch.optim.Muon([theirs], 0.1, 0.1, config.momentum, adjust_lr_fn="match_rms_adamw")
    for settings in optimizer.param_groups:
        settings["lr"] = 0.1
    for seed in range(3):
        ours.grad, theirs.grad = weight(8, 6, seed=seed).detach(), weight(8, 6, seed=seed).detach()
        optimizer.step()
        reference.step()  # type: ignore[no-untyped-call]  # torch's own
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-3)


def test_an_update_without_a_finite_gradient_changes_nothing() -> None:
    matrix, vector = weight(4, 4), weight(4)
    optimizer = make_optimizer([matrix, vector], MUON, {matrix: 1})
    begin(optimizer, [matrix, vector])
    optimizer.found_inf = torch.ones(())  # type: ignore[attr-defined]
    before = [matrix.detach().clone(), vector.detach().clone()]
    for settings in optimizer.param_groups:
        settings["lr"] = 0.1
    matrix.grad, vector.grad = torch.full((4, 4), torch.inf), torch.full((4,), torch.nan)
    optimizer.step()
    assert torch.equal(matrix, before[0])
    assert torch.equal(vector, before[1])
    assert not optimizer.state[matrix]["momentum_buffer"].any()
