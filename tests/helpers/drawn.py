"""Draws the cases with which a law is checked, so that a suite checks a few of many, and other ones each time.

The draw depends on VTRANS_SEED, which pytest prints; with VTRANS_SEED=all there are all cases.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

SEED = "VTRANS_SEED"
T = TypeVar("T")
U = TypeVar("U")


def some(cases: Iterable[T], number: int = 3) -> list[T]:
    """Returns `number` of the cases, in their order."""
    every = list(cases)
    if os.environ[SEED] == "all" or number >= len(every):
        return every
    places = random.Random(f"{os.environ[SEED]} {len(every)}").sample(range(len(every)), number)
    return [every[place] for place in sorted(places)]


def each_with(cases: Iterable[T], others: Sequence[U]) -> list[tuple[T, U]]:
    """Returns each of the cases with one of the others."""
    if os.environ[SEED] == "all":
        return [(case, other) for case in cases for other in others]
    numbers = random.Random(os.environ[SEED])
    return [(case, numbers.choice(others)) for case in cases]
