"""The learning rate as a function of the step, and one optimizer state per unique weight."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from vtrans.config import SCHEDULES, TrainConfig
from vtrans.training.optimization.optimizer import MovingAverage, learning_rate, make_optimizer
from vtrans.training.recipe import load_recipe


def test_the_papers_formula() -> None:
    config = load_recipe("paper-base").train
    for step in (1, 10, 3999, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)  # section 5.3, equation 3
        assert learning_rate(step, config, 512) == pytest.approx(expected, rel=1e-12)
    assert learning_rate(4000, config, 512) == pytest.approx(6.9877e-4, rel=1e-4)


def test_scale_multiplies_the_formula() -> None:
    base, double = TrainConfig(scale=1.0), TrainConfig(scale=2.0)
    assert learning_rate(77, double, 64) == pytest.approx(2 * learning_rate(77, base, 64))


def test_a_peak_is_reached_at_the_end_of_the_warm_up() -> None:
    config = TrainConfig(learning_rate=0.005, warmup=200)
    rates = [learning_rate(step, config, 128) for step in range(1, 1001)]
    assert max(rates) == rates[199] == pytest.approx(0.005)
    assert rates[99] == pytest.approx(0.0025)
    assert rates[799] == pytest.approx(0.0025)  # four times the steps, half the rate
    assert rates == [learning_rate(step, config, 999) for step in range(1, 1001)]


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


def test_a_schedule_follows_the_clock_if_that_is_ahead_of_the_steps() -> None:
    config = TrainConfig(schedule="linear", learning_rate=0.004, warmup=10, max_steps=1010, max_minutes=10)
    assert learning_rate(5, config, 64, 300) == pytest.approx(0.002)
    assert learning_rate(20, config, 64, 300) == pytest.approx(0.002)
    assert learning_rate(910, config, 64, 300) == pytest.approx(0.0004)
    assert learning_rate(20, config, 64, 700) == 0


def test_weight_decay_is_decoupled() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = make_optimizer([weight], TrainConfig(weight_decay=0.1))
    optimizer.param_groups[0]["lr"] = 0.5
    weight.grad = torch.zeros(3)
    optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.full((3,), 1 - 0.5 * 0.1))


def test_the_moving_average_keeps_no_autograd_graph() -> None:
    """Otherwise every update would add a node to the graph of autograd."""
    parameter = torch.nn.Parameter(torch.ones(3))
    average = MovingAverage([parameter], 0.9)
    for step in range(1, 4):
        average.update(step, torch.zeros(()))
        assert average.means[0].grad_fn is None
        assert not average.means[0].requires_grad
