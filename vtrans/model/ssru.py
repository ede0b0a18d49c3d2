"""The SSRU of Kim et al. (2019), a recurrence that can replace a decoder's self-attention.

Training computes one position after another, each for the whole batch: one operation per position in the forward pass
and one in the backward pass. Both loops are registered torch operators, because torch.compile would unroll a Python
loop and recompile it for each length.

Legend: B sentences, T positions, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from vtrans.model.products import xavier


class SSRU(nn.Module):
    """The simpler simple recurrent unit (section 3.2 of the paper).

    f_t = sigmoid(W_f x_t + b_f), c_t = f_t * c_{t-1} + (1 - f_t) * (W x_t), c_0 = 0; the output is relu(c_t). There is
    no output projection, and W has no bias, as in Marian. W and W_f are one product. The state c is in at least
    float32.
    """

    __call__: Callable[..., Tensor]

    def __init__(self, D: int) -> None:
        super().__init__()
        self.zf = xavier(D, D, parts=2, bias=False)
        self.forget_bias = nn.Parameter(torch.zeros(D))

    def forward(self, x_BTD: Tensor, states_BTD: Tensor | None = None) -> Tensor:
        """Returns the output [B, T, D]. With states, the T inputs are the next inputs of T different sequences, whose
        states are overwritten."""
        z_BTD, f_BTD = self.inputs_gates(x_BTD)
        if states_BTD is not None:
            return F.relu(torch.lerp(z_BTD, states_BTD, f_BTD, out=states_BTD)).to(x_BTD.dtype)
        return F.relu(recurrence(z_BTD, f_BTD)).to(x_BTD.dtype)

    def inputs_gates(self, x_D: Tensor) -> tuple[Tensor, Tensor]:
        """Returns W x and the forget gates, [..., D] each."""
        zf = self.zf(x_D)
        z_D, f_D = zf.to(torch.promote_types(zf.dtype, torch.float32)).chunk(2, dim=-1)
        return z_D, torch.sigmoid(f_D + self.forget_bias)


def recurrence(z_BTD: Tensor, f_BTD: Tensor) -> Tensor:
    """Returns c [B, T, D] with c_t = f_t * c_{t-1} + (1 - f_t) * z_t and c_0 = 0, where t counts from 1."""
    return cast(Callable[..., Tensor], _Recurrence.apply)(z_BTD, f_BTD)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z_BTD: Tensor, f_BTD: Tensor) -> Tensor:
        c_BTD: Tensor = torch.ops.vtrans.recurrence(z_BTD, f_BTD)
        ctx.save_for_backward(z_BTD, f_BTD, c_BTD)
        return c_BTD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BTD: Tensor) -> tuple[Tensor, Tensor]:
        z_BTD, f_BTD, c_BTD = ctx.saved_tensors
        grad_c_BTD = torch.ops.vtrans.recurrence_backward(grad_BTD, f_BTD)
        before_BTD = F.pad(c_BTD[:, :-1], (0, 0, 1, 0))
        return torch.addcmul(grad_c_BTD, grad_c_BTD, f_BTD, value=-1), grad_c_BTD * (before_BTD - z_BTD)


def _forward(z_BTD: Tensor, f_BTD: Tensor) -> Tensor:
    c_BTD = _like(z_BTD, f_BTD)
    before_BD = z_BTD.new_zeros(z_BTD.shape[0], z_BTD.shape[2])
    for z_BD, f_BD, c_BD in zip(z_BTD.unbind(1), f_BTD.unbind(1), c_BTD.unbind(1), strict=True):
        before_BD = torch.lerp(z_BD, before_BD, f_BD, out=c_BD)
    return c_BTD


def _backward(grad_BTD: Tensor, f_BTD: Tensor) -> Tensor:
    """Returns the total gradient of each c_t: the output's gradient plus f_{t+1} times the total gradient of
    c_{t+1}."""
    whole_BTD = grad_BTD.clone(memory_format=torch.contiguous_format)
    grads, gates = whole_BTD.unbind(1), f_BTD.unbind(1)
    for t in range(len(grads) - 2, -1, -1):
        grads[t].addcmul_(gates[t + 1], grads[t + 1])
    return whole_BTD


def _like(x_BTD: Tensor, f_BTD: Tensor) -> Tensor:
    return torch.empty_like(x_BTD, memory_format=torch.contiguous_format)


_LIBRARY: Any = torch.library.Library("vtrans", "DEF")  # type: ignore[no-untyped-call]
for _name, _function in (("recurrence", _forward), ("recurrence_backward", _backward)):
    _LIBRARY.define(f"{_name}(Tensor x, Tensor f) -> Tensor")
    _LIBRARY.impl(_name, _function, "CompositeExplicitAutograd")
    _LIBRARY.impl(_name, _like, "Meta")  # the result's shape, for torch.compile
