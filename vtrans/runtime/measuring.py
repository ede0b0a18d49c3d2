"""Measures which kernels are the fastest for a model on this CPU, in a few milliseconds per class of shapes.

Legend: N rows, I inputs, O outputs, B sentences, H heads, n keys and queries, d head width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor

from vtrans.runtime.attention import batched_attention, fused_attention
from vtrans.runtime.kernels import BEAM, FEW, Kernels, Product, Use, fastest
from vtrans.runtime.products import HAS_ONEDNN, grad_input, grad_weight, packed, product

# The rows that stand for many are at least LEAST and at most LARGEST, and within these bounds as many as make that many
# multiplications: libraries reach their full speed with fewer rows than a batch of training has.
LEAST, LARGEST, MULTIPLICATIONS = 64, 1024, 1 << 24
# Keys that stand for a class of attention, and the positions of a batch.
LENGTHS = (16, 64)
POSITIONS = 1024


def measured_products(weights: Iterable[Tensor], *, training: bool) -> dict[Product, Use]:
    """Returns which products with these weights [O, I] oneDNN should compute. Weights of the same shape are measured
    once. With `training`, products with many rows are measured more carefully, with those of their gradients; otherwise
    products with few rows are measured too, for which decoding packs the weight if oneDNN computes them."""
    found: dict[Product, Use] = {}
    if not HAS_ONEDNN:
        return found
    with torch.no_grad():
        for weight_OI in weights:
            outputs, inputs = weight_OI.shape
            multiplications = MULTIPLICATIONS * 4 if training else MULTIPLICATIONS
            many = min(LARGEST, max(LEAST, multiplications // weight_OI.numel()))
            for rows in (many,) if training else (BEAM, many):
                if (inputs, outputs, rows > FEW) not in found:
                    found[inputs, outputs, rows > FEW] = _measured(weight_OI, rows, training=training)
    return found


def _measured(weight_OI: Tensor, rows: int, *, training: bool) -> Use:
    outputs, inputs = weight_OI.shape
    default = Kernels().use_onednn(rows, inputs, outputs)[0]
    x_NI, grad_NO = torch.ones(rows, inputs), torch.ones(rows, outputs)
    packed_OI = weight_OI if rows > FEW else packed(weight_OI)

    def forward(*, onednn: bool) -> Tensor:
        return product(x_NI, packed_OI if onednn else weight_OI, onednn=onednn)

    def choose(compute: Callable[..., Tensor], *operands: Tensor) -> bool:
        ways = default, not default
        return ways[fastest([partial(compute, *operands, onednn=way) for way in ways], 5 if training else 3)]

    first = choose(forward)
    if not training:
        return first, default, default
    return first, choose(grad_input, grad_NO, weight_OI), choose(grad_weight, grad_NO, x_NI)


def measured_attention(heads: int, D: int) -> frozenset[int]:
    """Returns the classes of attention, as indices into KEYS, that batched products compute faster in training. It
    takes about 30 ms for a model of width D = 256."""
    return frozenset(number for number, n in enumerate(LENGTHS) if _bmm_is_faster(n, heads, D))


def _bmm_is_faster(n: int, heads: int, D: int) -> bool:
    B, d = POSITIONS // n, D // heads
    keep = torch.ones(B, 1, 1, n, dtype=torch.bool)
    qkv_BnD, grad_BHnd = torch.ones(B, n, 3 * D, requires_grad=True), torch.ones(B, heads, n, d)

    def step(compute: Callable[..., Tensor]) -> None:
        q, k, v = (t.view(B, n, heads, d).transpose(1, 2) for t in qkv_BnD.chunk(3, -1))
        torch.autograd.grad(compute(q, k, v, keep, 0.0), qkv_BnD, grad_BHnd)

    return fastest([partial(step, fused_attention), partial(step, batched_attention)], 5) == 1
