"""Muon (Jordan et al. 2024): gradient descent with orthogonalised steps.

The momentum of a matrix is replaced by the nearest matrix with orthonormal rows or columns, so that a step changes all
directions by the same amount. AdamW updates embeddings, norms and biases, which have no such directions.

Legend: O outputs, I inputs of a matrix, M matrices of one shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import torch
from torch import Tensor

STEPS = 5  # of the Newton-Schulz iteration
COEFFICIENTS = 3.4445, -4.7750, 2.0315  # of its polynomial, by Jordan et al.
RMS = 0.2  # of a step's elements at learning rate 1, which is usual for Adam (Liu et al. 2025)


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum for `matrices`, AdamW (`adam`) for the other parameters. Both share a learning rate,
    because Muon's steps are scaled to Adam's usual size (Liu et al. 2025, "Muon is Scalable for LLM Training").

    The values of `matrices` are the numbers of projections fused along the outputs of each weight, such as queries,
    keys and values; each projection is orthogonalised separately. Steps are computed in `dtype`. `found_inf` [] is 1 if
    the update must be skipped, as in torch's fused AdamW.
    """

    def __init__(
        self,
        matrices: Mapping[Tensor, int],
        adam: torch.optim.Optimizer,
        *,
        momentum: float,
        weight_decay: float,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(list(matrices), {"lr": 0.0, "momentum": momentum, "weight_decay": weight_decay})
        self.matrices, self.adam, self.dtype = matrices, adam, dtype
        # Callers that set the learning rate, clear gradients or save the state see one optimizer.
        self.param_groups += adam.param_groups
        adam.state = self.state
        self.found_inf: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Makes one update of the parameters that have a gradient. `state` holds the "momentum_buffer" of each
        matrix."""
        self.adam.found_inf = self.found_inf  # type: ignore[attr-defined]
        self.adam.step()
        settings, weights = self.param_groups[0], [weight for weight in self.matrices if weight.grad is not None]
        if not weights:
            return
        used = 1.0 if self.found_inf is None else 1 - self.found_inf  # a tensor: updates do not synchronise the device
        # The gradients of a skipped update may not be finite, and 0 times infinity is not 0.
        gradients = [torch.nan_to_num(cast(Tensor, weight.grad), 0.0, 0.0, 0.0) for weight in weights]
        means = [self.state[weight]["momentum_buffer"] for weight in weights]
        share = torch.as_tensor((1 - settings["momentum"]) * used)
        torch._foreach_lerp_(means, gradients, [share] * len(means))
        directions = torch._foreach_lerp(gradients, means, settings["momentum"])
        rate = torch.as_tensor(settings["lr"] * used)
        for parts, directions_MOI in self._stacked(weights, directions):
            size = RMS * max(directions_MOI.shape[1:]) ** 0.5
            steps_MOI = orthogonal(directions_MOI, self.dtype).to(parts[0].dtype) * (rate * size)
            torch._foreach_mul_(parts, 1 - rate * settings["weight_decay"])
            torch._foreach_sub_(parts, steps_MOI.unbind())

    def _stacked(self, weights: list[Tensor], directions: Iterable[Tensor]) -> list[tuple[list[Tensor], Tensor]]:
        """Returns, for each shape, the matrices as views of the weights, and their directions [M, O, I]."""
        shapes: dict[torch.Size, tuple[list[Tensor], list[Tensor]]] = {}
        for weight, direction in zip(weights, directions, strict=True):
            fused = self.matrices[weight]
            for part, towards in zip(weight.detach().chunk(fused), direction.chunk(fused), strict=True):
                parts, steps = shapes.setdefault(part.shape, ([], []))
                parts.append(part)
                steps.append(towards)
        return [(parts, torch.stack(steps)) for parts, steps in shapes.values()]


def multiplications(weight: Tensor, fused: int) -> int:
    """Returns the number of multiplications in one step for a weight that fuses `fused` projections."""
    O, I = weight.shape[0] // fused, weight.shape[1]  # noqa: E741
    small, large = min(O, I), max(O, I)
    return fused * STEPS * small * small * (2 * large + small)


def orthogonal(x_MOI: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns matrices [M, O, I] with the singular vectors of `x_MOI` and singular values between 0.6 and 1.3, except
    tiny ones. Products are computed in `dtype`."""
    tall = x_MOI.shape[1] > x_MOI.shape[2]
    x = (x_MOI.mT if tall else x_MOI).to(dtype)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):  # a x + b x x^T x + c x x^T x x^T x
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
