"""Position encodings: a row for each position of a sequence, which is added to the embedding (section 3.5 of the paper)
or turns the queries and keys of self-attention.

Legend: D model width, H heads, d = D / H head width.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from vtrans.config import ModelConfig
from vtrans.errors import InputError


class Positions(nn.Module):
    """The rows of a sequence's positions. With `turns`, they are for `turned`; otherwise they are added."""

    __call__: Callable[..., Tensor]
    turns = False

    def forward(self, length: int) -> Tensor:
        """Returns the first `length` rows [length, D]."""
        raise NotImplementedError

    def place(self, x_D: Tensor, rows_D: Tensor) -> tuple[Tensor, Tensor | None]:
        """Adds the rows to the embeddings `x_D`, or returns them beside these if they turn queries and keys."""
        return (x_D, rows_D) if self.turns else (x_D + rows_D, None)


class ComputedPositions(Positions):
    """Rows that are computed, for any length."""

    table: Tensor

    def __init__(self, D: int, width: int) -> None:
        """`width` divides D: a row repeats the functions of the position every `width` values."""
        super().__init__()
        self.D, self.width = D, width
        self.register_buffer("table", torch.empty(0, D), persistent=False)
        if not self.table.is_meta:  # torch imports its compiler to compute on the device meta
            self.table = self.computed(256)

    def forward(self, length: int) -> Tensor:
        """Returns the first `length` rows [length, D]; the table grows to a power of two when it is too short."""
        if length > self.table.shape[0]:
            with torch.inference_mode(False):  # training may read this table later
                self.table = self.computed(1 << (length - 1).bit_length()).to(self.table)
        return self.table[:length]

    def computed(self, length: int) -> Tensor:
        return self.rows(length, self.width).repeat(1, self.D // self.width)

    @staticmethod
    def rows(length: int, width: int) -> Tensor:
        raise NotImplementedError


class SinusoidalPositions(ComputedPositions):
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos of the same (section 3.5)."""

    @staticmethod
    def rows(length: int, width: int) -> Tensor:
        angles = _angles(length, width)
        return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).to(torch.get_default_dtype())


class MarianPositions(SinusoidalPositions):
    """Marian's: the sines, then the cosines, of p * 10000 ** (-i / (D / 2 - 1)).

    The angles are rounded to float32 as in `SinusoidalPositionEmbeddings` (src/tensors/cpu/tensor_operators.cpp).
    """

    @staticmethod
    def rows(length: int, width: int) -> Tensor:
        step = torch.tensor(math.log(10000.0)) / (width / 2 - 1)
        frequencies = (torch.arange(width // 2) * -step).double().exp().float()
        angles = (torch.arange(length)[:, None].float() * frequencies).double()
        return torch.cat((angles.sin(), angles.cos()), 1).to(torch.get_default_dtype())


class RotaryPositions(ComputedPositions):
    """Pairs cos, sin of p / 10000^(2i/d), the same for each head (Su et al. 2021, section 3.2.2).

    Queries and keys that are turned by them have products that depend on the distance of their positions.
    """

    turns = True

    @staticmethod
    def rows(length: int, width: int) -> Tensor:
        angles = _angles(length, width)
        return torch.stack([angles.cos(), angles.sin()], -1).flatten(1).to(torch.get_default_dtype())


def _angles(length: int, width: int) -> Tensor:
    p = torch.arange(length, dtype=torch.float64)[:, None]
    angles: Tensor = p / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    return angles


def turned(x_D: Tensor, rows_D: Tensor) -> Tensor:
    """Returns `x_D` with each pair of neighbouring values (a, b) turned to (a cos - b sin, a sin + b cos), where the
    pair of `rows_D` is (cos, sin)."""
    exact = torch.promote_types(rows_D.dtype, torch.float32)
    x_P2, rows_P2 = (t.to(exact).view(*t.shape[:-1], -1, 2) for t in (x_D, rows_D))
    if torch.compiler.is_compiling():  # torch.compile does not support complex numbers
        (a, b), (cos, sin) = x_P2.unbind(-1), rows_P2.unbind(-1)
        out_P2 = torch.stack((a * cos - b * sin, a * sin + b * cos), -1)
    else:
        out_P2 = torch.view_as_real(torch.view_as_complex(x_P2) * torch.view_as_complex(rows_P2))
    return out_P2.flatten(-2).to(x_D.dtype)


class PositionTable(Positions):
    """A table [max_positions, D] in the model file: learned, or "stored", which is fixed and starts as sinusoidal.
    Imported models have the tables of their programs, which differ in their order and frequencies."""

    weight: Tensor

    def __init__(self, length: int, D: int, *, learned: bool) -> None:
        super().__init__()
        if learned:
            self.weight = nn.Parameter(torch.empty(length, D).normal_(std=D**-0.5))
        else:
            self.register_buffer("weight", torch.empty(length, D))
            if not self.weight.is_meta:
                self.weight = SinusoidalPositions.rows(length, D)

    def forward(self, length: int) -> Tensor:
        """Returns the first `length` rows [length, D]. Raises InputError if the table is shorter."""
        if length > self.weight.shape[0]:
            raise InputError(
                f"a sequence must have at most model.max_positions = {self.weight.shape[0]} subwords, got {length}; "
                "use shorter lines or a model with sinusoidal or rotary positions."
            )
        return self.weight[:length]


def make_positions(config: ModelConfig) -> SinusoidalPositions | RotaryPositions | PositionTable:
    """Returns the position encoding of `model.positions`, for one side."""
    D = config.d_model
    if config.positions == "sinusoidal":
        return SinusoidalPositions(D, D)
    if config.positions == "marian":
        return MarianPositions(D, D)
    if config.positions == "rotary":
        return RotaryPositions(D, D // config.heads)
    return PositionTable(config.max_positions, D, learned=config.positions == "learned")
