"""Rotary positions: the turned pairs, what attention makes of them, and models that cannot have them."""

import dataclasses
import math

import pytest
import torch
from networks import SEQUENCE, SMALL, V, make, padded, sequences
from torch import Tensor

from vtrans.model.network import Transformer
from vtrans.model.positions import ComputedPositions, rotate
from vtrans.system.errors import InputError

ROTARY = dataclasses.replace(SMALL, positions="rotary", norm="pre")


def rotated(x_d: Tensor, position: int) -> Tensor:
    """Equation 15 of Su et al. (2021), with a matrix for each pair of values."""
    out = x_d.clone()
    for i in range(len(x_d) // 2):
        angle = position / 10000 ** (2 * i / len(x_d))
        matrix = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        out[2 * i : 2 * i + 2] = matrix.to(x_d) @ x_d[2 * i : 2 * i + 2]
    return out


def test_each_head_is_turned_by_the_angles_of_its_position() -> None:
    x_TD = torch.randn(300, 12)
    found = rotate(x_TD, ComputedPositions("rotary", 12, 2)(300))  # more positions than the table has at first
    for at in (0, 1, 7, 299):
        heads = torch.cat([rotated(head_d, at) for head_d in x_TD[at].view(2, 6)])
        torch.testing.assert_close(found[at], heads, atol=1e-4, rtol=0)


def test_compiled_training_turns_by_the_same_formula() -> None:
    x_BTD, rows_TD = torch.randn(2, 7, 8, requires_grad=True), ComputedPositions("rotary", 8, 2)(7)
    (gradient,) = torch.autograd.grad(rotate(x_BTD, rows_TD).square().sum(), x_BTD)
    compiled = torch.compile(rotate, backend="aot_eager", fullgraph=True)(x_BTD, rows_TD)
    torch.testing.assert_close(compiled, rotate(x_BTD, rows_TD))
    torch.testing.assert_close(torch.autograd.grad(compiled.square().sum(), x_BTD)[0], gradient)


def test_the_sequence_of_a_decoder_only_model_has_no_gap_after_a_short_source() -> None:
    model = make(dataclasses.replace(SEQUENCE, positions="rotary"))
    short, long = sequences(3, 9)
    tgt = torch.tensor([[2, 7, 8]])
    alone = model(*padded([short]), tgt)
    beside = model(*padded([short, long]), tgt.expand(2, 3))
    torch.testing.assert_close(beside[:1], alone)


def test_heads_of_an_odd_width_cannot_be_turned() -> None:
    with pytest.raises(InputError, match=r"model\.d_model / model\.heads must be even"):
        Transformer(dataclasses.replace(ROTARY, d_model=12), V, V, joint=True, pad_id=0)
