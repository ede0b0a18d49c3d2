"""Dropout that makes its masks on a CPU in a fifth of torch's time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Dropout(nn.Module):
    """Zeroes elements with probability `rate`, rounded to a multiple of 2^-16, and scales the others to keep the mean.

    On a CPU torch draws one float per element: 5.1 ms for [4096, 256]. Here each draw of the same generator
    decides four elements with 16 bits each: 0.9 ms, and the backward pass costs the same.
    """

    __call__: Callable[..., Tensor]

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.dropped = round(rate * (1 << 16))  # of the 65,536 values of 16 bits

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.dropped:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.rate)
        return x * self.mask(x)

    def mask(self, x: Tensor) -> Tensor:
        """Returns 0 or the scale for each element, in the shape and type of `x`."""
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
        lanes = draws.view(torch.int16)[: x.numel()].view(x.shape)
        keep = torch.ge(lanes, self.dropped - (1 << 15), out=torch.empty_like(x))
        return keep.mul_((1 << 16) / ((1 << 16) - self.dropped))
