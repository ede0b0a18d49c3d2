"""Position encodings: the rows that are added to the embeddings of a sequence (section 3.5 of the paper).

Legend: D model width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vtrans.config import ModelConfig
from vtrans.errors import InputError


class SinusoidalPositions(nn.Module):
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos of the same (section 3.5), for any length."""

    __call__: Callable[..., Tensor]
    table: Tensor

    def __init__(self, D: int) -> None:
        super().__init__()
        self.register_buffer("table", self.rows(256, D), persistent=False)

    def forward(self, length: int) -> Tensor:
        """Returns the first `length` rows [length, D]; the table grows to a power of two when it is too short."""
        if length > self.table.shape[0]:
            with torch.inference_mode(False):  # training may read this table later
                self.table = self.rows(1 << (length - 1).bit_length(), self.table.shape[1]).to(self.table)
        return self.table[:length]

    @staticmethod
    def rows(length: int, D: int) -> Tensor:
        p = torch.arange(length, dtype=torch.float64)[:, None]
        angle = p / 10000 ** (torch.arange(0, D, 2, dtype=torch.float64) / D)
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).to(torch.get_default_dtype())


class PositionTable(nn.Module):
    """A table [max_positions, D] in the model file: learned, or "stored", which is fixed and starts as sinusoidal.
    Imported models have the tables of their programs, which differ in their order and frequencies."""

    __call__: Callable[..., Tensor]
    weight: Tensor

    def __init__(self, length: int, D: int, *, learned: bool) -> None:
        super().__init__()
        if learned:
            self.weight = nn.Parameter(torch.empty(length, D).normal_(std=D**-0.5))
        else:
            self.register_buffer("weight", SinusoidalPositions.rows(length, D))

    def forward(self, length: int) -> Tensor:
        """Returns the first `length` rows [length, D]. Raises InputError if the table is shorter."""
        if length > self.weight.shape[0]:
            raise InputError(
                f"a sequence must have at most model.max_positions = {self.weight.shape[0]} subwords, got {length}; "
                "use shorter lines or a model with sinusoidal positions."
            )
        return self.weight[:length]


Positions = SinusoidalPositions | PositionTable


def make_positions(config: ModelConfig) -> Positions:
    """Returns the position encoding of `model.positions`, for one side."""
    if config.positions == "sinusoidal":
        return SinusoidalPositions(config.d_model)
    return PositionTable(config.max_positions, config.d_model, learned=config.positions == "learned")
