"""The parts of training between large products, in C++ (engines/compiled/training.h), several times as fast as torch on
a CPU.

torch needs a call, and mostly a pass over memory, for each of rotation, reordering by heads, product, mask and softmax.
The C++ computes one head of a sentence at a time, which stays in the cache, and one row of logits at a time. It draws
the mask of a dropout again for the gradient.

Legend: B sentences, T queries, n keys, D model width, p positions, V vocabulary.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vtrans.engines.compiled.compiler import CompilerError
from vtrans.engines.compiled.decoder import compiled_decoder
from vtrans.engines.compiled.definitions import check_definitions
from vtrans.system.console import Console


class _Sizes(ctypes.Structure):
    """AttentionSizes in training.h."""

    _fields_ = (
        ("sentences", ctypes.c_int32),
        ("heads", ctypes.c_int32),
        ("width", ctypes.c_int32),
        ("queries", ctypes.c_int32),
        ("keys", ctypes.c_int32),
        ("q_step", ctypes.c_int32),
        ("k_step", ctypes.c_int32),
        ("turned", ctypes.c_int32),
        ("masked", ctypes.c_int32),
        ("turns", ctypes.c_void_p),
        ("keep", ctypes.c_void_p),
    )


class CompiledTraining:
    """Implements `kernels.Compiled`. The threads of this process divide the sentences and rows and change no result."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def attention(
        self, q_BTD: Tensor, kv_BnD: Tensor | None, heads: int, rotary_TD: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        apply = cast(Callable[..., Tensor], _Attention.apply)
        return apply(self.library, heads, q_BTD, kv_BnD, rotary_TD, mask)

    def residual(self, x: Tensor, out: Tensor, dropped: int) -> Tensor:
        apply = cast(Callable[..., Tensor], _Residual.apply)
        return apply(self.library, x, out, dropped)

    def loss_gradient(self, logits_pV: Tensor, targets_p: Tensor, smoothing: float, pad_id: int) -> Tensor:
        sums_p2 = torch.zeros(len(logits_pV), 2, dtype=torch.float64)
        self.library.loss_gradients(
            logits_pV.dtype is torch.bfloat16,
            torch.get_num_threads(),
            logits_pV.data_ptr(),
            targets_p.contiguous().data_ptr(),
            *logits_pV.shape,
            pad_id,
            smoothing,
            sums_p2.data_ptr(),
        )
        return sums_p2.sum(0)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, library: ctypes.CDLL, heads: int, q_BTD: Tensor, *others: Tensor | None) -> Tensor:
        kv_BnD, rotary_TD, mask = (None if tensor is None else tensor.contiguous() for tensor in others)
        saved = q_BTD.contiguous(), kv_BnD, rotary_TD, mask
        ctx.save_for_backward(*saved)
        ctx.library, ctx.heads = library, heads
        out_BTD = q_BTD.new_empty(*q_BTD.shape[:2], _width(q_BTD, kv_BnD))
        library.attention_forward(*_arguments(heads, *saved), *_places(saved[0], kv_BnD), out_BTD.data_ptr())
        return out_BTD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BTD: Tensor) -> tuple[Tensor | None, ...]:
        q_BTD, kv_BnD, *_ = ctx.saved_tensors
        grad_BTD, grad_q = grad_BTD.contiguous(), torch.empty_like(q_BTD)
        grad_kv = None if kv_BnD is None else torch.empty_like(kv_BnD)
        arguments = _arguments(ctx.heads, *ctx.saved_tensors)
        places = *_places(q_BTD, kv_BnD), grad_BTD.data_ptr(), *_places(grad_q, grad_kv)
        ctx.library.attention_backward(*arguments, *places)
        return None, None, grad_q, grad_kv, None, None


class _Residual(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, library: ctypes.CDLL, x: Tensor, out: Tensor, dropped: int) -> Tensor:
        x, out = x.contiguous(), out.contiguous()
        ctx.library, ctx.dropped, ctx.dtype = library, dropped, out.dtype
        ctx.seeds = torch.empty((), dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
        return _residual(ctx, x, out, torch.empty_like(x))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad = grad.contiguous()
        return None, grad, _residual(ctx, None, grad, torch.empty_like(grad, dtype=ctx.dtype)), None


def _residual(ctx: Any, x: Tensor | None, y: Tensor, out: Tensor) -> Tensor:
    halves, first = ctx.dtype is torch.bfloat16, None if x is None else x.data_ptr()
    places = first, y.data_ptr(), out.data_ptr(), y.numel(), ctx.seeds.data_ptr()
    ctx.library.residual(halves, torch.get_num_threads(), *places, ctx.dropped)
    return out


def _arguments(
    heads: int, q_BTD: Tensor, kv_BnD: Tensor | None, rotary_TD: Tensor | None, mask: Tensor | None
) -> tuple[Any, int, int]:
    """Returns the first arguments of both functions."""
    keys_BnD = q_BTD if kv_BnD is None else kv_BnD
    (B, T, step), (_, n, k_step) = q_BTD.shape, keys_BnD.shape
    sizes = _Sizes(B, heads, _width(q_BTD, kv_BnD) // heads, T, n, step, k_step)
    if rotary_TD is not None:
        sizes.turned, sizes.turns = rotary_TD.dim() == 3, rotary_TD.data_ptr()
    if mask is not None:
        sizes.masked, sizes.keep = mask.shape[2] > 1, mask.data_ptr()
    return ctypes.byref(sizes), q_BTD.dtype is torch.bfloat16, torch.get_num_threads()


def _width(q_BTD: Tensor, kv_BnD: Tensor | None) -> int:
    return q_BTD.shape[2] // 3 if kv_BnD is None else q_BTD.shape[2]


def _places(q_BTD: Tensor, kv_BnD: Tensor | None) -> tuple[int, int, int]:
    """Returns the addresses of the first query, key and value."""
    part = _width(q_BTD, kv_BnD) * q_BTD.element_size()
    first = q_BTD.data_ptr() + part if kv_BnD is None else kv_BnD.data_ptr()
    return q_BTD.data_ptr(), first, first + part


def compiled_training(console: Console) -> CompiledTraining | None:
    """Returns the compiled code, or None, after a message, if it cannot be compiled or the Python code that defines it
    has changed."""
    try:
        check_definitions("model", "training")
        return CompiledTraining(compiled_decoder(console))
    except CompilerError as error:
        console.info(f"kernels: torch computes attention and loss. The faster compiled code cannot be used: {error}.")
        return None
