"""The product x W^T + b: on a CPU by one of two matrix libraries, or in bfloat16; elsewhere by torch.

torch multiplies float32 matrices on a CPU with a BLAS library: MKL on x86 processors, which takes its AVX2 path on
processors by other makers than Intel. oneDNN, which torch includes and uses for bfloat16, generates code for the
machine it runs on. kernels.py says which of the two computes a product and its gradient.

Legend: N rows (any leading dimensions of `x`), I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from vtrans.model import kernels


class Linear(nn.Linear):
    """torch's linear layer, computed by `linear`."""

    __call__: Callable[..., Tensor]
    parts = 1  # projections of the same input that are fused along the outputs

    def forward(self, x_NI: Tensor) -> Tensor:
        return linear(x_NI, self.weight, self.bias)


def xavier(inputs: int, outputs: int, parts: int = 1, *, bias: bool = True) -> Linear:
    """Returns a linear layer of `parts` projections, fused along the output. Each part is Xavier uniform by itself,
    as it would be without the fusion. Biases start at zero."""
    layer = Linear(inputs, outputs * parts, bias)
    layer.parts = parts
    for part in layer.weight.detach().chunk(parts):
        nn.init.xavier_uniform_(part)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def linear(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Returns x W^T + b, [..., I] to [..., O]; equal to torch.nn.functional.linear except for rounding. On a CPU, the
    result is in bfloat16 inside `bfloat16_products`."""
    if _in_bfloat16 and x_NI.device.type == "cpu":
        return bfloat16_linear(x_NI, weight_OI, bias_O)
    if not use_onednn(x_NI, weight_OI):
        return F.linear(x_NI, weight_OI, bias_O)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x_NI, weight_OI, bias_O)):
        return cast(Callable[..., Tensor], _Product.apply)(x_NI, weight_OI, bias_O)
    return _onednn_product(x_NI, weight_OI, bias_O)


def use_onednn(x_NI: Tensor, weight_OI: Tensor) -> bool:
    """Returns whether oneDNN computes the product and the two products of its gradient."""
    # The sizes come after `is_compiling`: torch.compile would otherwise compile once per size of a batch.
    if (
        x_NI.device.type != "cpu"
        or torch.compiler.is_compiling()
        or x_NI.dtype is not torch.float32
        or not HAS_ONEDNN
        or torch.is_autocast_enabled("cpu")
    ):
        return False
    outputs, inputs = weight_OI.shape
    return kernels.current().use_onednn(x_NI.numel() // inputs, inputs, outputs)


def _onednn_product(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Calls the operator to which torch.compile lowers a linear layer. It has no gradient of its own."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x_NI, weight_OI, bias_O, "none", [], "")
    return out


def grad_input(grad_NO: Tensor, weight_OI: Tensor, *, onednn: bool) -> Tensor:
    """Returns g W, the gradient of the left operand of a product, [..., I]."""
    return _onednn_product(grad_NO, weight_OI.t()) if onednn else grad_NO @ weight_OI


def transposed_product(a_NI: Tensor, b_NO: Tensor, *, onednn: bool) -> Tensor:
    """Returns a^T b, [I, O], for two matrices: the gradient of a weight, or its transpose. oneDNN copies the left
    operand first, so the smaller one should be on the left."""
    return _onednn_product(a_NI.t(), b_NO.t()) if onednn else a_NI.t() @ b_NO


class _Product(torch.autograd.Function):
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
        grad_x = grad_input(grad_NO, weight_OI, onednn=True) if want_x else None
        flat_NI = x_NI.reshape(-1, x_NI.shape[-1])
        grad_w = _grad_weight(flat_NO, flat_NI) if want_weight else None
        return grad_x, grad_w, flat_NO.sum(0) if want_bias else None


def _grad_weight(grad_NO: Tensor, x_NI: Tensor) -> Tensor:
    """Returns g^T x, the gradient of the weight of a product, [O, I]."""
    if x_NI.shape[1] <= grad_NO.shape[1]:
        return transposed_product(x_NI, grad_NO, onednn=True).t()
    return transposed_product(grad_NO, x_NI, onednn=True)


def _probe() -> bool:
    """Returns whether this build of torch has oneDNN and the operator with the arguments used here."""
    x = torch.eye(2)
    try:
        return bool((_onednn_product(x, x, x[0]) == x + x[0]).all())
    except (AttributeError, RuntimeError):
        return False


HAS_ONEDNN = _probe()


# Products in bfloat16 on a CPU. oneDNN builds a kernel for every new number of rows, which takes longer than the
# product where the processor has AMX. So rows are padded to one of a few numbers. In training, the weights stay in
# float32; each is rounded in the forward pass, and its gradient uses the same copy.

_in_bfloat16 = False


@contextmanager
def bfloat16_products() -> Iterator[None]:
    """Inside the block, `linear` computes in bfloat16 on a CPU."""
    global _in_bfloat16
    before, _in_bfloat16 = _in_bfloat16, True
    try:
        yield
    finally:
        _in_bfloat16 = before


def in_bfloat16(device: torch.device) -> bool:
    """Returns whether products on this device are inside `bfloat16_products`."""
    return _in_bfloat16 and device.type == "cpu"


def has_bfloat16() -> bool:
    """Returns whether oneDNN computes products in bfloat16 on this processor, in hardware or not."""
    return HAS_ONEDNN and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def padded(rows: int) -> int:
    """Returns `rows` rounded up to one of eight sizes per power of two, at least 16: on average 6% more rows."""
    step = max(16, 1 << max(0, (rows - 1).bit_length() - 4))
    return -(-rows // step) * step


def bfloat16_linear(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Computes `linear` in bfloat16; the result is in bfloat16."""
    if torch.compiler.is_compiling():
        bias_O = None if bias_O is None else bias_O.bfloat16()
        return F.linear(x_NI.bfloat16(), weight_OI.bfloat16(), bias_O)
    return cast(Callable[..., Tensor], _Bfloat16Product.apply)(x_NI, weight_OI, bias_O)


class _Bfloat16Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        x_PI, half_OI = _padded_bfloat16(x_NI), weight_OI.bfloat16()
        ctx.save_for_backward(x_PI, half_OI)
        ctx.dtypes = x_NI.dtype, weight_OI.dtype
        out_PO = F.linear(x_PI, half_OI, None if bias_O is None else bias_O.bfloat16())
        return out_PO[: x_NI.numel() // x_NI.shape[-1]].view(*x_NI.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NO: Tensor) -> tuple[Tensor | None, ...]:
        x_PI, half_OI = ctx.saved_tensors
        (x_dtype, weight_dtype), (want_x, want_weight, want_bias) = ctx.dtypes, ctx.needs_input_grad
        grad_PO = _padded_bfloat16(grad_NO)
        grad_x = grad_weight = grad_bias = None
        if want_x:
            grad_PI = grad_PO @ half_OI
            grad_x = grad_PI[: grad_NO.numel() // grad_NO.shape[-1]].view(*grad_NO.shape[:-1], -1).to(x_dtype)
        if want_weight:
            grad_weight = (grad_PO.t() @ x_PI).to(weight_dtype)
        if want_bias:
            grad_bias = grad_PO.sum(0).to(weight_dtype)
        return grad_x, grad_weight, grad_bias


def _padded_bfloat16(x_NI: Tensor) -> Tensor:
    """Returns `x` as a matrix [P, I] in bfloat16, padded with rows of zeros."""
    flat_NI = x_NI.reshape(-1, x_NI.shape[-1])
    rows = len(flat_NI)
    if padded(rows) == rows:
        return flat_NI.bfloat16()
    x_PI = torch.empty(padded(rows), flat_NI.shape[1], dtype=torch.bfloat16)
    x_PI[:rows] = flat_NI
    x_PI[rows:] = 0
    return x_PI
