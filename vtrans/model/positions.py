"""Position encodings: one row per position, which is added to the embedding (section 3.5 of the paper) or rotates the
queries and keys of self-attention.

Legend: D model width, H heads, d = D / H head width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from vtrans.config import ModelConfig
from vtrans.model.rotary import COMPUTED, Rows, computed, sinusoidal, too_long


class Positions(nn.Module):
    """A position encoding. With `turns`, its rows are for `rotate`; otherwise they are added."""

    __call__: Callable[..., Tensor]
    turns = False

    def forward(self, length: int) -> Tensor:
        """Returns the first `length` rows [length, D]."""
        raise NotImplementedError

    def place(self, x_D: Tensor, rows_D: Tensor) -> tuple[Tensor, Tensor | None]:
        """Returns the embeddings `x_D` plus the rows; or, if the rows rotate queries and keys, both separately."""
        return (x_D, rows_D) if self.turns else (x_D + rows_D, None)


class ComputedPositions(Positions):
    """Rows that are computed, for any length (model/rotary.py)."""

    table: Tensor

    def __init__(self, kind: str, D: int, heads: int) -> None:
        """`kind` is one of COMPUTED of model/rotary.py."""
        super().__init__()
        self.turns = kind == "rotary"
        self.rows = partial(computed, kind, D=D, heads=heads)
        self.register_buffer("table", torch.empty(0, D), persistent=False)
        if not self.table.is_meta:  # computing on the meta device imports torch's compiler
            self.table = tensor_of(self.rows(256))

    def forward(self, length: int) -> Tensor:
        """Returns the first `length` rows [length, D]; the table grows to a power of two when it is too short."""
        if length > self.table.shape[0]:
            with torch.inference_mode(False):  # training may read this table later
                self.table = tensor_of(self.rows(1 << (length - 1).bit_length())).to(self.table)
        return self.table[:length]


def tensor_of(rows: Rows) -> Tensor:
    """Returns the rows as a tensor of torch's default type."""
    return torch.from_numpy(rows).to(torch.get_default_dtype())


def rotate(x_D: Tensor, rows_D: Tensor) -> Tensor:
    """Rotates each pair of neighbouring values (a, b) of `x_D` to (a cos - b sin, a sin + b cos), where (cos, sin) is
    the same pair of `rows_D`."""
    exact = torch.promote_types(rows_D.dtype, torch.float32)
    x_P2, rows_P2 = (t.to(exact).view(*t.shape[:-1], -1, 2) for t in (x_D, rows_D))
    if torch.compiler.is_compiling():  # torch.compile does not support complex numbers
        (a, b), (cos, sin) = x_P2.unbind(-1), rows_P2.unbind(-1)
        out_P2 = torch.stack((a * cos - b * sin, a * sin + b * cos), -1)
    else:
        out_P2 = torch.view_as_real(torch.view_as_complex(x_P2) * torch.view_as_complex(rows_P2))
    return out_P2.flatten(-2).to(x_D.dtype)


class PositionTable(Positions):
    """A table [max_positions, D] in the model file: learned, or fixed and initially sinusoidal ("stored"). Imported
    models keep their toolkit's table, because toolkits order the columns and choose the frequencies differently."""

    weight: Tensor

    def __init__(self, length: int, D: int, *, learned: bool) -> None:
        super().__init__()
        if learned:
            self.weight = nn.Parameter(torch.empty(length, D).normal_(std=D**-0.5))
        else:
            self.register_buffer("weight", torch.empty(length, D))
            if not self.weight.is_meta:
                self.weight = tensor_of(sinusoidal(length, D))

    def forward(self, length: int) -> Tensor:
        """Returns the first `length` rows [length, D]. Raises InputError if the table is shorter."""
        if length > self.weight.shape[0]:
            raise too_long(self.weight.shape[0], length)
        return self.weight[:length]


def make_positions(config: ModelConfig) -> ComputedPositions | PositionTable:
    """Returns the position encoding of `model.positions`, for one side."""
    D = config.d_model
    if config.positions in COMPUTED:
        return ComputedPositions(config.positions, D, config.heads)
    return PositionTable(config.max_positions, D, learned=config.positions == "learned")
