"""x W^T + b through whichever of the CPU's matrix libraries is faster; on other devices it is torch's own.

torch multiplies float32 matrices on a CPU with MKL, which takes its AVX2 path on processors that are not
Intel's. oneDNN, which torch brings too and uses for bfloat16, generates code for the machine at hand: on a
Zen 5 core [4096, 256] x [256, 1024] runs at 230 GFLOP/s against 100 (forced to AVX2: 116), and the two
products of its gradient at 224 and 183 against 97 and 95. On small products its call costs more than it saves.

Legend: N rows (any leading dimensions of `x`), I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from vtrans.errors import InputError

# Multiplications below which a call of oneDNN costs more than it saves: [64, 128] x [128, 128] is a tie.
SMALL = 1 << 20


class Linear(nn.Linear):
    """torch's linear layer, multiplied by `linear`."""

    def forward(self, x_NI: Tensor) -> Tensor:
        return linear(x_NI, self.weight, self.bias)


def linear(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """x W^T + b, [..., I] to [..., O], as torch.nn.functional.linear gives it but for the last bits."""
    if not _onednn_is_faster(x_NI, weight_OI):
        return F.linear(x_NI, weight_OI, bias_O)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x_NI, weight_OI, bias_O)):
        return cast(Callable[..., Tensor], _Linear.apply)(x_NI, weight_OI, bias_O)
    return _product(x_NI, weight_OI, bias_O)


def _onednn_is_faster(x_NI: Tensor, weight_OI: Tensor) -> bool:
    # What torch.compile would guard on comes last: the sizes, which change from batch to batch.
    return (
        x_NI.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and x_NI.numel() * weight_OI.shape[0] >= SMALL
        and x_NI.dtype is torch.float32
        and _HAS_ONEDNN
        and not torch.is_autocast_enabled("cpu")
    )


def _product(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """The operator to which torch.compile lowers a linear layer; it has no gradient of its own."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x_NI, weight_OI, bias_O, "none", [], "")
    return out


class Int8Weight:
    """A weight [O, I] in 8 bits, to multiply with on a CPU; each of its rows has a scale, and so has each row of x.

    The sums are of whole numbers, and exact: a row's product does not depend on what else is multiplied with it.
    An element is off by half a step at most, 1/254 of the largest of its row (without VNNI instructions x has half
    the steps, as the sums of two products would overflow). Four times as fast as float32 for [128, 128] x
    [128, 8000], eight with four rows of x. Raises InputError where torch has no such product.
    """

    def __init__(self, weight_OI: Tensor) -> None:
        scale_O = _positive(weight_OI.abs().amax(1)) / 127
        self.scale_O, self.zero_O = scale_O, torch.zeros(len(weight_OI), dtype=torch.int64)
        self.steps = 127 if _has_vnni() else 63  # of x, to each side of zero
        try:
            self.packed = torch.ops.onednn.qlinear_prepack((weight_OI / scale_O[:, None]).round().to(torch.int8), None)
            self.product(weight_OI[:1])
        except (AttributeError, RuntimeError, NotImplementedError):
            raise InputError(
                "this build of torch has no product of 8 bits on this processor; leave out --precision int8."
            ) from None

    def product(self, x_NI: Tensor) -> Tensor:
        """x W^T, [N, I] to [N, O], in float32."""
        scale_N1 = _positive(x_NI.abs().amax(1, keepdim=True)) / self.steps
        whole_NI = (x_NI / scale_N1).round_().add_(self.steps + 1).to(torch.uint8)
        out: Tensor = torch.ops.onednn.qlinear_pointwise(
            *(whole_NI, 1.0, self.steps + 1, self.packed, self.scale_O, self.zero_O, None, 1.0, 0, torch.float32),
            *("none", [], ""),
        )
        return out.mul_(scale_N1)


def _positive(x: Tensor) -> Tensor:
    """`x`, where it is 0 (or so small that dividing by it overflows) a small number instead."""
    return x.clamp(min=1e-30)


def _has_vnni() -> bool:
    return bool(getattr(torch.cpu, "_is_vnni_supported", bool)())


def _probe() -> bool:
    """Whether this build of torch has oneDNN and the operator in the form that is called here."""
    x = torch.eye(2)
    try:
        return bool((_product(x, x, x[0]) == x + x[0]).all())
    except (AttributeError, RuntimeError):
        return False


_HAS_ONEDNN = _probe()


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_NI, weight_OI)
        return _product(x_NI, weight_OI, bias_O)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NO: Tensor) -> tuple[Tensor | None, ...]:
        x_NI, weight_OI = ctx.saved_tensors
        want_x, want_weight, want_bias = ctx.needs_input_grad
        flat_NO = grad_NO.reshape(-1, grad_NO.shape[-1])
        grad_x = grad_weight = grad_bias = None
        if want_x:
            grad_x = _product(grad_NO, weight_OI.t())
        if want_weight:
            # x^T g or g^T x: the left operand is copied first, the right one read as it lies, so the smaller is left.
            flat_NI = x_NI.reshape(-1, x_NI.shape[-1])
            if flat_NI.shape[1] <= flat_NO.shape[1]:
                grad_weight = _product(flat_NI.t(), flat_NO.t()).t()
            else:
                grad_weight = _product(flat_NO.t(), flat_NI.t())
        if want_bias:
            grad_bias = flat_NO.sum(0)
        return grad_x, grad_weight, grad_bias
