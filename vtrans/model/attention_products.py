"""Scaled dot-product attention (section 3.2.1 of the paper), as a fused kernel or as batched products. Training on a
CPU computes it in compiled code (kernels.py).

Legend: B sentences, H heads, Q queries, n keys, d head width, x = B * H.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from vtrans.model.products import in_bfloat16


def dot_product_attention(
    q_BHQd: Tensor, k_BHnd: Tensor, v_BHnd: Tensor, mask: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """Returns softmax(q k^T / sqrt(d)) v, [B, H, Q, d]. `mask` broadcasts to [B, H, Q, n]: it is True where a query
    attends to a key, or a bias that is added to the scores; without it attention is causal. `dropout` is the dropout
    rate of the attention weights.

    On a CPU, it is computed in at least float32: the fused kernel's backward pass is slow in bfloat16. A bias means a
    cached search step. With so few queries, the fused kernel takes 1.3 to 1.6 times as long as batched products on one
    CPU thread, and 6 times as long on two. Everything else uses torch's fused kernel.
    """
    if in_bfloat16(q_BHQd.device):
        contiguous = torch.contiguous_format  # required by batched products
        q_BHQd, k_BHnd, v_BHnd = (t.to(torch.float32, memory_format=contiguous) for t in (q_BHQd, k_BHnd, v_BHnd))
    if mask is not None and mask.is_floating_point():
        return batched_attention(q_BHQd, k_BHnd, v_BHnd, mask, dropout)
    return F.scaled_dot_product_attention(
        q_BHQd, k_BHnd, v_BHnd, attn_mask=mask, dropout_p=dropout, is_causal=mask is None
    )


def log_weights(q_BHQd: Tensor, k_BHnd: Tensor, keep: Tensor) -> Tensor:
    """Returns the log-attention [B, H, Q, n], in at least float32. `keep` broadcasts to this shape and is True where a
    query attends to a key."""
    scores_BHQn = q_BHQd @ k_BHnd.transpose(-1, -2) / math.sqrt(q_BHQd.shape[-1])
    exact = torch.promote_types(scores_BHQn.dtype, torch.float32)
    return scores_BHQn.to(exact).masked_fill(~keep, -torch.inf).log_softmax(-1)


def batched_attention(q_BHQd: Tensor, k_BHnd: Tensor, v_BHnd: Tensor, bias: Tensor, dropout: float) -> Tensor:
    """Computes `dot_product_attention` with a bias by batched matrix products, which keep all weights for the backward
    pass."""
    B, H, Q, d = q_BHQd.shape
    n = k_BHnd.shape[2]
    q_xQd, k_xnd, v_xnd = (t.reshape(B * H, -1, d) for t in (q_BHQd, k_BHnd, v_BHnd))
    scores_xQn = torch.bmm(q_xQd, k_xnd.transpose(1, 2)).mul_(d**-0.5)
    scores_xQn.view(B, H, Q, n).add_(bias)
    weights_xQn = F.dropout(scores_xQn.softmax(-1), dropout)
    return torch.bmm(weights_xQn, v_xnd).view(B, H, Q, d)


def split_heads(x_BTD: Tensor, heads: int) -> Tensor:
    """Returns [B, T, D] as [B, H, T, d]."""
    B, T, D = x_BTD.shape
    return x_BTD.view(B, T, heads, D // heads).transpose(1, 2)


def merge_heads(x_BHTd: Tensor) -> Tensor:
    """Returns [B, H, T, d] as [B, T, D]."""
    return x_BHTd.transpose(1, 2).flatten(2)
