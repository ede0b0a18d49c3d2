"""x W^T + b through the faster of a CPU's two matrix libraries; other devices use torch's own product.

torch multiplies float32 matrices on a CPU with MKL, which takes its AVX2 path on processors that are not Intel's.
oneDNN, which torch includes and uses for bfloat16, generates code for the machine it runs on: on a Zen 5 core
[4096, 256] x [256, 1024] runs at 230 GFLOP/s instead of 100 (116 if oneDNN is forced to AVX2), and the two products
of its gradient at 224 and 183 instead of 97 and 95. For small products the call costs more than it saves.

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

# With fewer multiplications, calling oneDNN costs more than it saves: [64, 128] x [128, 128] is a tie.
SMALL = 1 << 20


class Linear(nn.Linear):
    """torch's linear layer, computed by `linear`."""

    __call__: Callable[..., Tensor]

    def forward(self, x_NI: Tensor) -> Tensor:
        return linear(x_NI, self.weight, self.bias)


def linear(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Returns x W^T + b, [..., I] to [..., O]; equal to torch.nn.functional.linear except for rounding."""
    if not _onednn_is_faster(x_NI, weight_OI):
        return F.linear(x_NI, weight_OI, bias_O)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x_NI, weight_OI, bias_O)):
        return cast(Callable[..., Tensor], _OneDnnLinear.apply)(x_NI, weight_OI, bias_O)
    return _onednn_product(x_NI, weight_OI, bias_O)


def _onednn_is_faster(x_NI: Tensor, weight_OI: Tensor) -> bool:
    # The sizes come after `is_compiling`: torch.compile would otherwise compile once per size of a batch.
    return (
        x_NI.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and x_NI.numel() * weight_OI.shape[0] >= SMALL
        and x_NI.dtype is torch.float32
        and _HAS_ONEDNN
        and not torch.is_autocast_enabled("cpu")
    )


def _onednn_product(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Calls the operator to which torch.compile lowers a linear layer. It has no gradient of its own."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x_NI, weight_OI, bias_O, "none", [], "")
    return out


class _OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_NI, weight_OI)
        return _onednn_product(x_NI, weight_OI, bias_O)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NO: Tensor) -> tuple[Tensor | None, ...]:
        x_NI, weight_OI = ctx.saved_tensors
        want_x, want_weight, want_bias = ctx.needs_input_grad
        flat_NO = grad_NO.reshape(-1, grad_NO.shape[-1])
        grad_x = grad_weight = grad_bias = None
        if want_x:
            grad_x = _onednn_product(grad_NO, weight_OI.t())
        if want_weight:
            # Either x^T g or g^T x. oneDNN copies the left operand first, so the smaller one goes left.
            flat_NI = x_NI.reshape(-1, x_NI.shape[-1])
            if flat_NI.shape[1] <= flat_NO.shape[1]:
                grad_weight = _onednn_product(flat_NI.t(), flat_NO.t()).t()
            else:
                grad_weight = _onednn_product(flat_NO.t(), flat_NI.t())
        if want_bias:
            grad_bias = flat_NO.sum(0)
        return grad_x, grad_weight, grad_bias


def _probe() -> bool:
    """Returns whether this build of torch has oneDNN and the operator with the arguments used here."""
    x = torch.eye(2)
    try:
        return bool((_onednn_product(x, x, x[0]) == x + x[0]).all())
    except (AttributeError, RuntimeError):
        return False


_HAS_ONEDNN = _probe()


class Int8Weight:
    """A weight [O, I] in 8 bits for products on a CPU, with one scale per row of the weight and per row of x.

    Sums are of whole numbers and therefore exact, so a row's product does not depend on the rows multiplied with it.
    Rounding changes an element by at most half a step, 1/254 of the largest in its row. Without VNNI instructions, x
    has half as many steps, because the sum of two products would overflow. The product is four times as fast as in
    float32 for [128, 128] x [128, 8000], and eight times for four rows of x. Raises InputError if torch has no such
    product.
    """

    def __init__(self, weight_OI: Tensor) -> None:
        scale_O = _positive(weight_OI.abs().amax(1)) / 127
        self.scale_O, self.zero_O = scale_O, torch.zeros(len(weight_OI), dtype=torch.int64)
        self.steps = 127 if getattr(torch.cpu, "_is_vnni_supported", bool)() else 63  # of x, on each side of zero
        try:
            self.packed = torch.ops.onednn.qlinear_prepack((weight_OI / scale_O[:, None]).round().to(torch.int8), None)
            self.product(weight_OI[:1])
        except (AttributeError, RuntimeError, NotImplementedError):
            raise InputError(
                "`precision` must be float32, bfloat16 or float16, got int8: this build of torch has no 8-bit product "
                "for this processor."
            ) from None

    def product(self, x_NI: Tensor) -> Tensor:
        """Returns x W^T, [N, I] to [N, O], in float32."""
        scale_N1 = _positive(x_NI.abs().amax(1, keepdim=True)) / self.steps
        whole_NI = (x_NI / scale_N1).round_().add_(self.steps + 1).to(torch.uint8)
        out: Tensor = torch.ops.onednn.qlinear_pointwise(
            *(whole_NI, 1.0, self.steps + 1, self.packed, self.scale_O, self.zero_O, None, 1.0, 0, torch.float32),
            *("none", [], ""),
        )
        return out.mul_(scale_N1)


def _positive(x: Tensor) -> Tensor:
    """Returns `x` with smaller values raised to 1e-30, so that a division by it does not overflow."""
    return x.clamp(min=1e-30)
