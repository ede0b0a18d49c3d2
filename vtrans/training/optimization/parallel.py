"""How several processes train one model: what each of them holds, and how their gradients are summed.

Each rank computes the loss of its part of a batch. With `DataParallel`, every rank holds the whole model; with
`SharedMemory`, all ranks use one copy in shared memory. Both give the same gradient and the same files. The rest of
training sees `objective`, whose loss each rank computes, and `parameters`, of which this rank updates those that have a
gradient after `gradient_norm`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vtrans.data.batches import collate
from vtrans.processes.local_ranks import share_memory
from vtrans.processes.ranks import Ranks
from vtrans.text.vocabulary import EOS_ID
from vtrans.training.optimization.loss import Objective
from vtrans.training.optimization.optimizer import MovingAverage, costs


class DataParallel:
    """Each rank holds the whole model, its gradient and the optimizer's state (DistributedDataParallel, Li et al.
    2020). Gradients are summed in buckets while the backward pass still computes others."""

    def __init__(self, objective: Objective, ranks: Ranks, device: torch.device) -> None:
        self.ranks, self.device = ranks, device
        self._whole = objective.to(device)
        self.parameters: dict[str, nn.Parameter] = dict(objective.model.named_parameters())

    def share(self, optimizer: torch.optim.Optimizer, average: MovingAverage | None) -> None:
        """Moves what the ranks share to shared memory: nothing. Call it before they are forked."""

    @property
    def divisor(self) -> int:
        """The number by which the sum of the gradients of the ranks is divided."""
        return self.ranks.world

    @cached_property
    def objective(self) -> nn.Module:
        """The module whose losses have the gradient of the mean over the ranks. Made at its first use, because
        compiling runs a backward pass of this rank alone."""
        if self.ranks.world == 1:
            return self._whole
        # The only buffers are position tables, which may have grown on some ranks only. Newer versions of torch have
        # another name for the option, and warn about the old one.
        known = inspect.signature(DistributedDataParallel).parameters
        buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        settings: dict[str, Any] = {buffers: False}
        devices = [self.device.index] if self.device.type == "cuda" else None
        wrapped = DistributedDataParallel(self._whole, device_ids=devices, **settings)
        # After its first backward pass, DDP divides the gradients into buckets again, in the order in which they were
        # ready. Where a number lies in a bucket decides the order in which three or more ranks add it up. This pass
        # makes sure that all updates use the same buckets; otherwise a resumed run would not end with equal bytes.
        ids = torch.full((1,), EOS_ID)
        # Compiled layers would be compiled again for a single sentence.
        compiled, self._whole.compiled = self._whole.compiled, None
        wrapped(collate([ids], [ids]).to(self.device))[0].backward()
        self._whole.compiled = compiled
        self._whole.zero_grad(set_to_none=True)
        return wrapped

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        """For the forward and backward pass of one batch of an update. The ranks sum their gradients in the last."""
        together = last or self.ranks.world == 1
        return nullcontext() if together else self.objective.no_sync()  # type: ignore[operator]  # DDP

    def gradient_norm(self) -> Tensor:
        """Gives `parameters` the gradient of all ranks. Returns its norm, []."""
        return torch.nn.utils.get_total_norm([p.grad for p in self.parameters.values() if p.grad is not None])

    def wait_for_updates(self) -> None:
        """Waits until every rank has updated its parameters, if the ranks share them."""


class SharedMemory(DataParallel):
    """The ranks are processes of one machine, which share the weights, the optimizer's state and the moving average.
    One rank per parameter adds up the gradients of all ranks and makes the update."""

    divisor = 1

    def share(self, optimizer: torch.optim.Optimizer, average: MovingAverage | None) -> None:
        """Moves the weights, the states and the gradients that the ranks exchange to shared memory, and divides the
        parameters among the ranks. Raises VtransError if there is too little memory."""
        weights, ranks = list(self.parameters.values()), range(self.ranks.world)
        owned = divided(costs(weights, optimizer), len(ranks))
        self._owned = [[weights[i] for i in numbers] for numbers in owned]
        # By the rank that has computed them and the rank that adds them up.
        self._gradients = [
            [
                [torch.empty_like(p) for p in weights] if giver != taker else []
                for taker, weights in enumerate(self._owned)
            ]
            for giver in ranks
        ]
        states = [list(state.values()) for state in optimizer.state.values()]
        sent = [tensors for row in self._gradients for tensors in row]
        share_memory([weights, *states, average.means if average else [], *sent])

    @property
    def objective(self) -> nn.Module:
        return self._whole

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def gradient_norm(self) -> Tensor:
        rank = self.ranks.rank
        for taker, weights in enumerate(self._owned):
            if taker != rank and weights:
                torch._foreach_copy_(self._gradients[rank][taker], [_gradient(p) for p in weights])
                for weight in weights:
                    weight.grad = None
        self.ranks.wait()
        sums = [_gradient(p) for p in self._owned[rank]]
        for giver in self._gradients:
            if giver[rank]:
                torch._foreach_add_(sums, giver[rank])
        square = float(torch.nn.utils.get_total_norm(sums)) ** 2
        return torch.tensor(math.sqrt(self.ranks.summed([square], self.device)[0]))

    def wait_for_updates(self) -> None:
        self.ranks.wait()


def _gradient(weight: Tensor) -> Tensor:
    """Returns the gradient of a weight; zeros if this rank's part of the batch has none."""
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    return weight.grad


def divided(costs: Sequence[float], parts: int) -> list[list[int]]:
    """Divides costs into parts of about equal sums. Returns the indices of the costs in each part."""
    sums, numbers = [0.0] * parts, [list[int]() for _ in range(parts)]
    for i in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        least = sums.index(min(sums))
        numbers[least].append(i)
        sums[least] += costs[i]
    return [sorted(part) for part in numbers]


def make_parallel(objective: Objective, ranks: Ranks, device: torch.device) -> DataParallel:
    """Returns the way in which these ranks train one model."""
    return (SharedMemory if ranks.processes > 1 else DataParallel)(objective, ranks, device)
