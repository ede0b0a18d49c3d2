"""The choice of kernels on a CPU: which library computes a float32 product, and whether training uses compiled code for
attention, residual connections and the loss.

The faster library depends on the processor: on two Zen 5 cores oneDNN computes [4096, 256] x [256, 1024] at 550 GFLOP/s
and MKL at 245; on two cores of a Xeon, MKL computes [4096, 256] x [256, 8000] at 144 GFLOP/s and oneDNN at 106. So
automatic.py chooses by the processor, and `linear` (products.py) looks the choice up. Kernels round differently, so
training states record them.

`KERNELS` is the choice of this process. A process trains at most one model; models that only translate can share the
choice.

Legend: B sentences, T queries, n keys, D model width, p target positions, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

# With fewer multiplications, calling oneDNN costs more than it saves: [64, 128] x [128, 128] is a tie.
ONEDNN_PRODUCTS = 1 << 20


@dataclass(frozen=True)
class Kernels:
    """A choice of kernels.

    `library`, "onednn" or "blas", computes the products of at least ONEDNN_PRODUCTS multiplications. The BLAS library
    computes all smaller ones. `compiled`: whether training uses compiled code.
    """

    library: str = "onednn"
    compiled: bool = False

    def use_onednn(self, rows: int, inputs: int, outputs: int) -> bool:
        """Returns whether oneDNN computes a product of these sizes, and the products of its gradient."""
        return self.library == "onednn" and rows * inputs * outputs >= ONEDNN_PRODUCTS

    def __str__(self) -> str:
        small = ", BLAS for small ones" if self.library == "onednn" else ""
        library = {"onednn": "oneDNN", "blas": "BLAS"}[self.library]
        rest = "compiled code" if self.compiled else "torch"
        return f"{library} for float32 products{small}; {rest} for attention and loss"


class Compiled(Protocol):
    """Compiled code for training, which is in a higher layer of the package."""

    def attention(
        self, q_BTD: Tensor, kv_BnD: Tensor | None, heads: int, rotary_TD: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        """Returns the attention [B, T, D], with gradients. The last dimension of `kv_BnD` holds keys and values; if it
        is None, that of `q_BTD` holds queries, keys and values. `rotary_TD`, if given, rotates queries and keys; it may
        differ between sentences. `mask` is [B, 1, 1 or T, n]; without it, attention is causal."""
        ...

    def residual(self, x: Tensor, out: Tensor, dropped: int) -> Tensor:
        """Returns `x` plus `out`, of whose elements `dropped` in 65,536 are zeroed, and the others scaled."""
        ...

    def loss_gradient(self, logits_pV: Tensor, targets_p: Tensor, smoothing: float, pad_id: int) -> Tensor:
        """Computes `into_gradient` of training/optimization/loss.py, without `agreement`."""
        ...


KERNELS = Kernels()
COMPILED: Compiled | None = None


def current() -> Kernels:
    """Returns the choice of this process."""
    return KERNELS


def compiled_for(x: Tensor, dropout: float = 0.0) -> Compiled | None:
    """Returns the compiled code if it computes attention, a residual connection or the loss for `x`, or None if torch
    does. `dropout` is the dropout rate of the attention weights."""
    supported = x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16) and not dropout
    return COMPILED if KERNELS.compiled and supported and not torch.compiler.is_compiling() else None


def use(kernels: Kernels, compiled: Compiled | None = None) -> None:
    """Makes `kernels` the choice of this process. `compiled` is required if `kernels.compiled` is set."""
    global KERNELS, COMPILED
    KERNELS, COMPILED = kernels, compiled
