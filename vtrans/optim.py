"""Adam (Kingma and Ba 2015), and the learning rate as a pure function of the step."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

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
