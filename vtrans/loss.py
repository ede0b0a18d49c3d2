"""Label-smoothed cross entropy (Szegedy et al. 2016; the paper, section 5.4), summed over tokens.

Legend: N target positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def smoothed_loss(logits_NV: Tensor, targets_N: Tensor, smoothing: float, pad_id: int) -> tuple[Tensor, Tensor]:
    """Summed loss (with gradient) and summed negative log-likelihood (without), in nats.

    The target distribution gives 1 - smoothing to the target and spreads `smoothing` evenly over
    the V - 1 subwords that can be predicted, the target included, padding excluded; `pad_id`'s
    logits are -inf. Divide by N for a mean a token.
    """
    apply = cast(Callable[..., tuple[Tensor, Tensor]], _SmoothedLoss.apply)
    return apply(logits_NV, targets_N, smoothing, pad_id)


class _SmoothedLoss(torch.autograd.Function):
    """The gradient is softmax minus the target distribution, written into one [N, V] buffer;
    F.cross_entropy with log-softmax and its backward holds three such buffers."""

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, targets_N: Tensor, smoothing: float, pad_id: int) -> tuple[Tensor, Tensor]:
        logits_NV = logits_NV.float() if logits_NV.dtype in (torch.bfloat16, torch.float16) else logits_NV
        lse_N = logits_NV.logsumexp(1)
        nll_N = lse_N - logits_NV.gather(1, targets_N[:, None])[:, 0]
        predictable = logits_NV.shape[1] - 1
        sum_N = logits_NV[:, :pad_id].sum(1) + logits_NV[:, pad_id + 1 :].sum(1)
        loss_N = (1 - smoothing) * nll_N + smoothing * (lse_N - sum_N / predictable)
        ctx.save_for_backward(logits_NV, targets_N, lse_N)
        ctx.smoothing, ctx.pad_id = smoothing, pad_id
        nll = nll_N.sum()
        ctx.mark_non_differentiable(nll)
        return loss_N.sum(), nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, grad_nll: Tensor) -> tuple[Tensor | None, ...]:
        logits_NV, targets_N, lse_N = ctx.saved_tensors
        grad_NV = (logits_NV - lse_N[:, None]).exp_()
        grad_NV -= ctx.smoothing / (logits_NV.shape[1] - 1)
        grad_NV[:, ctx.pad_id] = 0
        grad_NV.scatter_add_(1, targets_N[:, None], lse_N.new_full((len(targets_N), 1), ctx.smoothing - 1))
        return grad_NV.mul_(grad_loss), None, None, None
