"""Computed position encodings (section 3.5 of the paper), for torch and for compiled code.

Legend: D model width, d width after which a row repeats.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vtrans.system.errors import InputError

Rows = NDArray[np.float64]


def sinusoidal(length: int, d: int) -> Rows:
    """PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos of the same (section 3.5) [length, d]."""
    angles = _angles(length, d)
    return np.stack((np.sin(angles), np.cos(angles)), -1).reshape(length, -1)


def marian(length: int, d: int) -> Rows:
    """Marian's: the sines, then the cosines, of p * 10000 ** (-i / (d / 2 - 1)) [length, d].

    The angles are rounded to float32 as in `SinusoidalPositionEmbeddings` (src/tensors/cpu/tensor_operators.cpp).
    """
    step = np.float32(math.log(10000.0)) / np.float32(d / 2 - 1)
    powers = np.arange(d // 2, dtype=np.float32) * -step
    frequencies = np.exp(powers.astype(np.float64)).astype(np.float32)
    angles = (np.arange(length, dtype=np.float32)[:, None] * frequencies).astype(np.float64)
    return np.concatenate((np.sin(angles), np.cos(angles)), 1)


def rotary(length: int, d: int) -> Rows:
    """Pairs cos, sin of p / 10000^(2i/d), the same for each head (Su et al. 2021, section 3.2.2) [length, d].

    After this rotation, the product of a query and a key depends on the distance of their positions.
    """
    angles = _angles(length, d)
    return np.stack((np.cos(angles), np.sin(angles)), -1).reshape(length, -1)


def _angles(length: int, d: int) -> Rows:
    angles: Rows = np.arange(length, dtype=np.float64)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    return angles


COMPUTED: dict[str, Callable[[int, int], Rows]] = {"sinusoidal": sinusoidal, "marian": marian, "rotary": rotary}
"""The encodings, by their name in `model.positions`."""


def computed(kind: str, length: int, D: int, heads: int) -> Rows:
    """Returns the first `length` rows [length, D] of the encoding `kind`. Rotary rows are the same for each head."""
    d = D // heads if kind == "rotary" else D
    return np.tile(COMPUTED[kind](length, d), (1, D // d))


def too_long(most: int, length: int) -> InputError:
    """Returns the error for a sequence that is longer than the model's position table."""
    return InputError(
        f"a sequence must have at most model.max_positions = {most} subwords, got {length}; use shorter lines or a "
        "model with sinusoidal or rotary positions."
    )
