"""The learning rate as a function of the step, and weight decay."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from vtrans.config import SCHEDULES, TrainConfig
from vtrans.training.optimization.optimizer import learning_rate, make_optimizer
from vtrans.training.recipe import load_recipe


def test_the_papers_formula() -> None:
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
