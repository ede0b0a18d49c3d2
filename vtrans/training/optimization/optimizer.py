"""The optimizer, the learning rate schedule, and the moving average of the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from vtrans.config import TrainConfig
from vtrans.training.optimization.muon import Muon, multiplications

# The time to update one weight, mostly memory access, in multiplications of Muon. It decides which rank updates a
# parameter, so another value would change the bytes of runs.
COST_PER_WEIGHT = 120


def learning_rate(step: int, config: TrainConfig, d_model: int, seconds: float = 0.0) -> float:
    """Returns the learning rate of update `step` (from 1) after `seconds` of training.

    The rate rises linearly to its peak at step `warmup`. The peak is `config.learning_rate` or, if that is 0, scale *
    d_model^-0.5 * warmup^-0.5 (section 5.3 of the paper). It then decays by `config.schedule`: "inverse-sqrt" in
    proportion to step^-0.5, as in section 5.3; the others to `final_rate` times the peak, reached when `max_steps` or
    `max_minutes` ends training. "cosine" falls along half a cosine (Loshchilov and Hutter 2017, without restarts),
    "linear" linearly, and "wsd" linearly over the last `decay` of the training (Hu et al. 2024).
    """

    def paper(step: int) -> float:
        shape: float = min(step**-0.5, step * config.warmup**-1.5)
        if config.learning_rate > 0:
            return config.learning_rate * float(config.warmup**0.5) * shape
        return config.scale * float(d_model**-0.5) * shape

    if config.schedule == "inverse-sqrt" or step <= config.warmup:
        return paper(step)
    share = (step - config.warmup) / max(1, config.max_steps - config.warmup)
    if config.max_minutes:
        share = max(share, seconds / (60 * config.max_minutes))
    share = min(1.0, share)  # of the training so far
    if config.schedule == "cosine":
        left = (1 + math.cos(math.pi * share)) / 2
    else:
        left = min(1.0, (1 - share) / (config.decay if config.schedule == "wsd" else 1.0))
    return paper(config.warmup) * (config.final_rate + (1 - config.final_rate) * left)


def make_optimizer(
    parameters: Iterable[Tensor], config: TrainConfig, matrices: Mapping[Tensor, int] | None = None
) -> torch.optim.Optimizer:
    """Returns Adam (Kingma and Ba 2015) in one fused kernel, with decoupled weight decay (AdamW), or Muon.

    Muon updates `matrices`, whose values are the numbers of projections fused in each, and Adam the rest.
    `Module.parameters` yields a shared parameter once, so it has one state and gets one update.
    """
    if config.optimizer == "muon":
        matrices = matrices or {}
        rest = replace(config, optimizer="adam")
        return Muon(
            matrices,
            make_optimizer((p for p in parameters if p not in matrices), rest),
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            dtype=torch.bfloat16 if config.precision == "bfloat16" else torch.float32,
        )
    return torch.optim.AdamW(
        parameters,
        lr=0.0,  # set at every step from `learning_rate`
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )


def costs(parameters: Sequence[Tensor], optimizer: torch.optim.Optimizer) -> list[float]:
    """Returns the approximate cost of updating each parameter, in multiplications."""
    matrices = optimizer.matrices if isinstance(optimizer, Muon) else {}
    return [
        float(p.numel() * COST_PER_WEIGHT + (multiplications(p, matrices[p]) if p in matrices else 0))
        for p in parameters
    ]


def begin(optimizer: torch.optim.Optimizer, parameters: Iterable[Tensor]) -> None:
    """Initialises the optimizer's state before the first update, so that step 0 is saved like any other step."""
    for parameter in parameters:
        if isinstance(optimizer, Muon) and parameter in optimizer.matrices:
            optimizer.state[parameter] = {"momentum_buffer": torch.zeros_like(parameter)}
            continue
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }


class MovingAverage:
    """An exponential moving average of parameters. It starts at their values; each update keeps a share `decay` of
    it."""

    def __init__(self, parameters: Iterable[nn.Parameter], decay: float) -> None:
        self.parameters: list[Tensor] = list(parameters)
        self.decay = decay
        self.means = [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def update(self, step: int, skipped: Tensor) -> None:
        """Adds the parameters after update `step` (from 1) to the average, unless `skipped` [] is 1. Leaves out
        parameters without a gradient, which another rank updates.

        `skipped` is a tensor on the device of the parameters, so that updates do not synchronise it.
        """
        decay = min(self.decay, (1 + step) / (10 + step))  # smaller at first, to forget the untrained weights
        share = (1 - decay) * (1 - skipped)
        pairs = zip(self.means, self.parameters, strict=True)
        if updated := [(mean, p) for mean, p in pairs if p.grad is not None]:
            means, parameters = zip(*updated, strict=True)
            torch._foreach_lerp_(means, parameters, [share] * len(means))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Replaces the parameters by the average inside the block."""
        weights = [p.data for p in self.parameters]
        try:
            for parameter, mean in zip(self.parameters, self.means, strict=True):
                parameter.data = mean
            yield
        finally:
            for parameter, weight in zip(self.parameters, weights, strict=True):
                parameter.data = weight
