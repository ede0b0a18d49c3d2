"""What training minimises: label-smoothed cross entropy (Szegedy et al. 2016; the paper, section 5.4),
summed over tokens, together with the projection before it, so that the logits never exist all at once.

Legend: N target positions, n those of one chunk, D model width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vtrans.data.batches import Batch
from vtrans.model import Transformer
from vtrans.runtime.products import linear

# Logits that exist at once. On a CPU 32 MiB of them: smaller chunks multiply slower, larger ones leave the cache.
# A GPU wants large products, and has the memory.
CHUNK = {"cpu": 1 << 23}
CHUNK_ELSEWHERE = 1 << 27


class Objective(nn.Module):
    """The summed loss of a batch; what several ranks wrap.

    `compiled` is `model.hidden` as torch.compile makes it, or None. It is used in training alone, where dropout is, so
    that it is compiled once; and the loss is no part of it, since a loop over chunks would be compiled anew for
    each number of tokens.
    """

    def __init__(self, model: Transformer, smoothing: float) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing
        self.compiled: Callable[..., Tensor] | None = None

    def compile_states(self) -> None:
        """From now on; the first call compiles, and raises whatever the compiler does. The model is no other
        module than before, so that names in files are the same."""
        self.compiled = torch.compile(self.model.hidden, dynamic=True)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Summed loss (with gradient) and summed negative log-likelihood (without), in nats."""
        model = self.model
        hidden = self.compiled if model.training and self.compiled is not None else model.hidden
        h_ND = hidden(*batch.inputs)
        return projected_loss(h_ND, model.projection.weight, batch.targets_N, self.smoothing, model.pad_id)


def products(device: torch.device, precision: str) -> torch.autocast:
    """Inside, matrix products are in `precision`; weights, norms and loss stay in float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def projected_loss(
    h_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, smoothing: float, pad_id: int, chunk: int = 0
) -> tuple[Tensor, Tensor]:
    """Summed loss (with gradient) and summed negative log-likelihood (without) of the logits h W^T, in nats.

    The target distribution gives 1 - smoothing to the target and spreads `smoothing` evenly over the V - 1
    subwords that can be predicted, the target included, `pad_id` excluded. Divide by N for a mean a token.
    `chunk` bounds the logits that exist at once; 0: what suits the device. Under autocast the products are
    in its type, all else in float32.
    """
    apply = cast(Callable[..., tuple[Tensor, Tensor]], _ProjectedLoss.apply)
    with_gradient = torch.is_grad_enabled() and (h_ND.requires_grad or weight_VD.requires_grad)
    rows = max(1, (chunk or CHUNK.get(h_ND.device.type, CHUNK_ELSEWHERE)) // weight_VD.shape[0])
    return apply(h_ND, weight_VD, targets_N, smoothing, pad_id, rows, with_gradient)


class _ProjectedLoss(torch.autograd.Function):
    """The gradient of the logits is softmax minus the target distribution: each chunk's is made and used up
    while its logits are at hand, in their memory, and the backward pass only scales what was summed up.

    Of the target distribution only the spike at the target is ever written into a chunk. The even part is the
    same in every row: it reaches h as one constant row, and W as the sum of h.
    """

    @staticmethod
    def forward(
        ctx: Any,
        h_ND: Tensor,
        weight_VD: Tensor,
        targets_N: Tensor,
        smoothing: float,
        pad_id: int,
        rows: int,
        with_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        device, dtype = h_ND.device.type, h_ND.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        exact = torch.promote_types(h_ND.dtype, torch.float32)
        even = smoothing / (weight_VD.shape[0] - 1)
        with torch.autocast(device, enabled=False):
            x_ND, w_VD = h_ND.to(dtype), weight_VD.to(dtype)
            all_V = weight_VD.new_ones(len(weight_VD), dtype=exact)
            all_V[pad_id : pad_id + 1] = 0  # filled on the device; all_V[pad_id] would be copied there, which waits
            even_D = all_V @ weight_VD.to(exact)  # sum of the rows that can be predicted
            nll = lse = torch.zeros((), dtype=exact, device=h_ND.device)
            if with_gradient:
                grad_h, grad_weight_DV = torch.empty_like(x_ND), torch.zeros_like(weight_VD.t(), dtype=exact)
            for start in range(0, len(h_ND), rows):
                x_nD, targets_n1 = x_ND[start : start + rows], targets_N[start : start + rows, None]
                logits_nV = linear(x_nD, w_VD).to(exact)
                logits_nV[:, pad_id] = -torch.inf
                target_n1 = logits_nV.gather(1, targets_n1)
                logprobs_nV = torch.log_softmax(logits_nV, 1, out=logits_nV)
                logprob_n1 = logprobs_nV.gather(1, targets_n1)
                nll, lse = nll - logprob_n1.sum(), lse + (target_n1 - logprob_n1).sum()
                if with_gradient:
                    spike_n1 = logprob_n1.new_full(logprob_n1.shape, smoothing - 1)
                    grad_nV = logprobs_nV.exp_().scatter_add_(1, targets_n1, spike_n1).to(dtype)
                    grad_h[start : start + rows] = linear(grad_nV, w_VD.t())
                    grad_weight_DV += linear(x_nD.t(), grad_nV.t())
            sum_D = x_ND.sum(0, dtype=exact)
            loss = (1 - smoothing) * nll + smoothing * lse - even * (sum_D @ even_D)
            if with_gradient:
                grad_h -= even * even_D
                grad_weight_DV -= even * torch.outer(sum_D, all_V)
                ctx.save_for_backward(grad_h.to(h_ND.dtype), grad_weight_DV.t())
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, grad_nll: Tensor) -> tuple[Tensor | None, ...]:
        grad_h, grad_weight = ctx.saved_tensors
        return grad_h * grad_loss, grad_weight * grad_loss, None, None, None, None, None
