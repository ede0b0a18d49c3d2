"""Adam (Kingma and Ba 2015), the learning rate as a pure function of the step, the moving average of weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vtrans.config import TrainConfig


def learning_rate(step: int, config: TrainConfig, d_model: int) -> float:
    """The rate of update `step` (from 1): linear warm-up, then the inverse square root.

    With `learning_rate` set it is the peak, at step `warmup`. Otherwise it is the formula of
    section 5.3, scale * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5).
    """
    shape: float = min(step**-0.5, step * config.warmup**-1.5)
    if config.learning_rate > 0:
        return config.learning_rate * float(config.warmup**0.5) * shape
    return config.scale * float(d_model**-0.5) * shape


def make_optimizer(parameters: Iterable[nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """Adam in one fused kernel; with `weight_decay` the decoupled form (AdamW). A shared
    parameter comes once from `Module.parameters`, and so has one state and one update."""
    return torch.optim.AdamW(
        parameters,
        lr=0.0,  # set at every step from `learning_rate`
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )


def begin(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter]) -> None:
    """Gives Adam the state that it has before its first update, so that step 0 can be saved like any other."""
    for parameter in parameters:
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }


class MovingAverage:
    """The exponential moving average of parameters, of which an update leaves `decay`; at first they are its own."""

    def __init__(self, parameters: Iterable[nn.Parameter], decay: float) -> None:
        self.parameters: list[Tensor] = list(parameters)
        self.decay = decay
        self.means = [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def restart(self) -> None:
        """From the parameters as they are."""
        torch._foreach_copy_(self.means, self.parameters)

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Takes in the parameters after update `step` (from 1)."""
        decay = min(self.decay, (1 + step) / (10 + step))  # the first weights are soon forgotten
        torch._foreach_lerp_(self.means, self.parameters, 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the parameters and the average have changed places."""
        weights = [p.data for p in self.parameters]
        try:
            for parameter, mean in zip(self.parameters, self.means, strict=True):
                parameter.data = mean
            yield
        finally:
            for parameter, weight in zip(self.parameters, weights, strict=True):
                parameter.data = weight
