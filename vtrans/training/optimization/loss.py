"""The loss: label-smoothed cross entropy (Szegedy et al. 2016; the paper, section 5.4), summed over tokens. R-Drop
(Liang et al. 2021) may be added. The projection and the loss are computed together in chunks, so that the logits of all
positions never exist at once.

Legend: B sentences, T target length, N target positions (with R-Drop, each twice), n positions of a chunk, D model
width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from vtrans.data.batches import Batch, Links
from vtrans.model.kernels import compiled_for
from vtrans.model.network import Transformer
from vtrans.model.products import (
    bfloat16_products,
    grad_input,
    in_bfloat16,
    linear,
    padded,
    transposed_product,
    use_onednn,
)

# Logits per chunk. On a CPU, 32 MiB: smaller products are slower, and larger chunks do not fit into the cache. A GPU is
# faster with large products, and has the memory.
CHUNK = {"cpu": 1 << 23}
CHUNK_ELSEWHERE = 1 << 27
# Logits per softmax on a CPU: 4 MiB, which fit into the cache.
CHUNK_LOGITS = 1 << 20


class Objective(nn.Module):
    """Computes the summed loss of a batch. This is the module that DistributedDataParallel wraps.

    With `r_drop` above 0, training reads each pair twice, with different dropout. The loss is then the mean of both,
    plus half of `r_drop` times the mean of KL(p1 || p2) and KL(p2 || p1). This is half the loss of Liang et al., which
    makes it comparable with the loss of one pass. With `guided` above 0, the loss of a batch with links includes
    `guided` times their `alignment_loss`.

    `compiled` is the compiled form of the model's method that training calls, or None. Only training uses it, so that
    it is compiled once, with dropout. The loss is not compiled, because its loop over chunks would be recompiled for
    each number of tokens.
    """

    def __init__(self, model: Transformer, smoothing: float, r_drop: float = 0.0, guided: float = 0.0) -> None:
        super().__init__()
        self.model, self.smoothing, self.r_drop, self.guided = model, smoothing, r_drop, guided
        self.compiled: Callable[..., Any] | None = None

    def compile(self) -> None:
        """Compiles the layers on the next call, which raises the compiler's errors. The model is not wrapped, so its
        weights keep their names."""
        method = self.model.hidden_and_attention if self.guided else self.model.hidden
        self.compiled = torch.compile(method, dynamic=True)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns the summed loss, with gradient, and the summed negative log-likelihood, without, in nats."""
        model, links = self.model, batch.links if self.guided else None
        inputs, targets_N, agreement = batch.inputs, batch.targets_N, 0.0
        if model.training and self.r_drop > 0:
            inputs, targets_N, agreement = twice(*inputs), targets_N.repeat_interleave(2), self.r_drop / 2
        # A batch without links needs another method than the compiled one.
        compiled = self.compiled if model.training and (links is None) == (self.guided == 0) else None
        if links is None:
            h_ND = (compiled or model.hidden)(*inputs)
        else:
            h_ND, attention_XTS = (compiled or model.hidden_and_attention)(*inputs)
        loss, nll = self.summed(h_ND, targets_N, agreement)
        if links is not None:
            attention_BTS = attention_XTS.unflatten(0, (-1, len(batch.src_BS))).mean(0)  # one pass or two
            loss = loss + self.guided * alignment_loss(attention_BTS, links)
        return loss, nll

    def summed(self, h_ND: Tensor, targets_N: Tensor, agreement: float) -> tuple[Tensor, Tensor]:
        """Returns `projected_loss` of the decoder's output."""
        weight_VD, bias_V, pad_id = self.model.projection.weight, self.model.projection.bias, self.model.pad_id
        return projected_loss(h_ND, weight_VD, targets_N, self.smoothing, pad_id, bias_V=bias_V, agreement=agreement)


def twice(src_BS: Tensor, keep_BS: Tensor, tgt_BT: Tensor, real_N: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the arguments of `Transformer.hidden` for two passes in one batch. Rows 2i and 2i + 1 of its result are
    the two passes at one position."""
    real_N2 = torch.stack((real_N, real_N + tgt_BT.numel()), 1)
    return src_BS.repeat(2, 1), keep_BS.repeat(2, 1), tgt_BT.repeat(2, 1), real_N2.flatten()


def alignment_loss(attention_BTS: Tensor, links: Links) -> Tensor:
    """Returns the cross entropy, in nats, between the links of each target position, with equal shares, and its
    attention, summed over positions with links (Garg et al. 2019, section 4.2). `attention_BTS` is log-attention."""
    return -(attention_BTS.flatten().index_select(0, links.at_L) * links.share_L).sum()


def autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    """Inside the block, matrix products use `precision`; weights, norms and the loss stay in float32."""
    if device.type == "cpu" and precision == "bfloat16":
        return bfloat16_products()
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def projected_loss(
    h_ND: Tensor,
    weight_VD: Tensor,
    targets_N: Tensor,
    smoothing: float,
    pad_id: int,
    *,
    bias_V: Tensor | None = None,
    agreement: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Returns the summed loss, with gradient, and the summed negative log-likelihood, without, of the logits h W^T + b,
    in nats.

    The target distribution gives 1 - smoothing to the target and spreads `smoothing` evenly over the V - 1 subwords
    that can be predicted: all, with the target, but without `pad_id`. Divide by N for a mean per token. Under autocast,
    products use its type; the rest is computed in float32.

    With `agreement` above 0, rows 2i and 2i + 1 of `h_ND` are two passes over one position. Both sums are then means
    over the two passes, and the loss includes `agreement` times the mean of their two divergences.
    """
    apply = cast(Callable[..., tuple[Tensor, Tensor]], _ProjectedLoss.apply)
    with_gradient = torch.is_grad_enabled() and (h_ND.requires_grad or weight_VD.requires_grad)
    rows = max(1, CHUNK.get(h_ND.device.type, CHUNK_ELSEWHERE) // weight_VD.shape[0])
    if agreement > 0:
        rows = max(2, rows - rows % 2)  # both passes of a position are in one chunk
    return apply(h_ND, weight_VD, bias_V, targets_N, smoothing, pad_id, rows, with_gradient, agreement)


class _ProjectedLoss(torch.autograd.Function):
    """Computes loss and gradient chunk by chunk.

    The gradient of the logits is softmax minus the target distribution. The forward pass computes it in place of a
    chunk's logits and accumulates the gradients of h and W; the backward pass only scales them. The target distribution
    is a spike at the target plus an even part. Only the spike is written into a chunk: the even part is the same in
    every row, so it adds a constant row to the gradient of h, the sum of h to the gradient of W, and a constant to the
    gradient of the bias. With `agreement`, everything is computed for the sum of the two passes, and halved at the end.
    """

    @staticmethod
    def forward(
        ctx: Any,
        h_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        smoothing: float,
        pad_id: int,
        rows: int,
        with_gradient: bool,
        agreement: float,
    ) -> tuple[Tensor, Tensor]:
        device, dtype, size = h_ND.device.type, h_ND.dtype, len(h_ND)
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        if in_bfloat16(h_ND.device):
            dtype, rows = torch.bfloat16, 1 << (rows.bit_length() - 1)
            size += padded(size % rows) - size % rows
        # Rows of a softmax; both passes of a position are in one block.
        block = max(2, CHUNK_LOGITS // weight_VD.shape[0] // 2 * 2) if device == "cpu" else rows
        exact = torch.promote_types(h_ND.dtype, torch.float32)
        even = smoothing / (weight_VD.shape[0] - 1)
        with torch.autocast(device, enabled=False):
            w_VD, b_V = weight_VD.to(dtype), None if bias_V is None else bias_V.to(dtype)
            # P rows: the rows of h, padded with zeros in bfloat16 on a CPU.
            x_PD = F.pad(h_ND.to(dtype), (0, 0, 0, size - len(h_ND)))
            all_V = weight_VD.new_ones(len(weight_VD), dtype=exact)
            all_V[pad_id : pad_id + 1] = 0  # unlike `all_V[pad_id] = 0`, this does not synchronise a GPU
            even_D = all_V @ weight_VD.to(exact)  # sum of the rows that can be predicted
            sums_3 = torch.zeros(3, dtype=exact, device=h_ND.device)
            if with_gradient:
                grad_x, grad_weight_DV = torch.empty_like(x_PD), torch.zeros_like(weight_VD.t(), dtype=exact)
                grad_bias_V = None if bias_V is None else torch.zeros_like(bias_V, dtype=exact)
            for start in range(0, len(h_ND), rows):
                x_pD, targets_n1 = x_PD[start : start + rows], targets_N[start : start + rows, None]
                onednn = use_onednn(x_pD, w_VD)
                logits_pV = linear(x_pD, w_VD, b_V)
                if agreement == 0 and (compiled := compiled_for(logits_pV)):
                    real_nV, targets_n = logits_pV[: len(targets_n1)], targets_n1[:, 0]
                    sums_3[:2] += compiled.loss_gradient(real_nV, targets_n, smoothing, pad_id)
                else:
                    sums_3 += in_blocks(logits_pV, targets_n1, block, exact, smoothing, pad_id, agreement)
                if with_gradient:
                    logits_pV[len(targets_n1) :] = 0
                    grad_x[start : start + rows] = grad_input(logits_pV, w_VD, onednn=onednn)
                    grad_weight_DV += transposed_product(x_pD, logits_pV, onednn=onednn)
                    if grad_bias_V is not None:
                        grad_bias_V += logits_pV.sum(0, dtype=exact)
            nll, lse, divergence = sums_3
            sum_D = x_PD.sum(0, dtype=exact)
            loss = (1 - smoothing) * nll + smoothing * lse - even * (sum_D @ even_D) + agreement * divergence
            if bias_V is not None:
                loss = loss - even * len(h_ND) * (all_V @ bias_V.to(exact))
            if with_gradient:
                grad_x -= even * even_D
                grad_weight_DV.addr_(sum_D, all_V, alpha=-even)
                if grad_bias_V is not None:
                    grad_bias_V -= even * len(h_ND) * all_V
                ctx.save_for_backward(grad_x[: len(h_ND)].to(h_ND.dtype), grad_weight_DV.t(), grad_bias_V)
        ctx.share = 0.5 if agreement > 0 else 1.0
        if agreement > 0:
            loss, nll = loss * ctx.share, nll * ctx.share
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, grad_nll: Tensor) -> tuple[Tensor | None, ...]:
        grad_h, grad_weight, grad_bias = ctx.saved_tensors
        grad_loss = grad_loss * ctx.share
        grad_bias = None if grad_bias is None else grad_bias * grad_loss
        return grad_h * grad_loss, grad_weight * grad_loss, grad_bias, None, None, None, None, None, None


def in_blocks(logits_pV: Tensor, targets_n1: Tensor, size: int, exact: torch.dtype, *rest: Any) -> Tensor:
    """Applies `into_gradient` to the first n rows, `size` rows at a time, in the type `exact`. Returns the sums [3]."""
    sums_3 = torch.zeros(3, dtype=exact, device=logits_pV.device)
    for rows_nV, of_n1 in zip(
        torch.split(logits_pV[: len(targets_n1)], size), torch.split(targets_n1, size), strict=True
    ):
        exact_nV = rows_nV.to(exact)
        sums_3 += into_gradient(exact_nV, of_n1, *rest)
        if exact_nV is not rows_nV:
            rows_nV.copy_(exact_nV)
    return sums_3


def into_gradient(logits_nV: Tensor, targets_n1: Tensor, smoothing: float, pad_id: int, agreement: float) -> Tensor:
    """Replaces logits by the gradient of their loss, without the even part. Returns the sums [3] of the targets'
    negative log-likelihoods, of the log-sum-exps, and of the divergences between pairs of rows (0 unless `agreement` is
    above 0)."""
    logits_nV[:, pad_id] = -torch.inf
    target_n1, top_n1 = logits_nV.gather(1, targets_n1), logits_nV.amax(1, keepdim=True)
    kept_nV = logits_nV.clone() if agreement > 0 else None
    p_nV = torch.softmax(logits_nV, 1, out=logits_nV)
    best_n1 = p_nV.amax(1, keepdim=True).log()  # the log-probability of the largest logit
    divergence = best_n1.new_zeros(())
    p_nV.scatter_add_(1, targets_n1, best_n1.new_full(best_n1.shape, smoothing - 1))
    if kept_nV is not None:
        divergence, differing_nV = divergences(kept_nV.sub_(top_n1).add_(best_n1), pad_id)
        p_nV.add_(differing_nV, alpha=agreement)
    return torch.stack(((top_n1 - target_n1 - best_n1).sum(), (top_n1 - best_n1).sum(), divergence))


def divergences(logprobs_nV: Tensor, pad_id: int) -> tuple[Tensor, Tensor]:
    """Returns the sum [] of KL(p1 || p2) + KL(p2 || p1) over pairs of rows, and its gradient [n, V] with respect to the
    logits. The log-probability of `pad_id` is -inf in every row."""
    first_mV, second_mV = logprobs_nV.view(-1, 2, logprobs_nV.shape[1]).unbind(1)
    differ_mV = first_mV - second_mV
    differ_mV[:, pad_id] = 0
    p_m2V = logprobs_nV.exp().view(-1, 2, logprobs_nV.shape[1])
    signed_m2V = torch.stack((differ_mV, -differ_mV), 1)
    kl_m21 = (p_m2V * signed_m2V).sum(-1, keepdim=True)
    return kl_m21.sum(), (p_m2V * (signed_m2V - kl_m21) + p_m2V - p_m2V.flip(1)).flatten(0, 1)
