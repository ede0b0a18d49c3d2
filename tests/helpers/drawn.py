"""Draws the cases with which a law is checked.

Every draw depends on VTRANS_SEED, which pytest prints. Its default is a constant, so that each run of the suite checks
the same cases; `make soak` sets others. With VTRANS_SEED=all there are all cases.
"""

import os
import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import torch

USUAL = "1"  # of `make test`
SEED = os.environ.setdefault("VTRANS_SEED", USUAL)  # processes of pytest-xdist inherit it
T = TypeVar("T")
U = TypeVar("U")


def seed_of(key: int) -> int:
    """Returns `key` in a usual run, and a seed that depends on VTRANS_SEED and `key` in others."""
    if SEED in (USUAL, "all"):
        return key
    return random.Random(f"{SEED} {key}").getrandbits(63)


def seeded(key: int) -> random.Random:
    """Returns a generator with the seed of this key."""
    return random.Random(seed_of(key))


def seeded_arrays(key: int) -> np.random.Generator:
    """Returns NumPy's generator with the seed of this key."""
    return np.random.default_rng(seed_of(key))


def seeded_tensors(key: int) -> torch.Generator:
    """Returns torch's generator with the seed of this key."""
    return torch.Generator().manual_seed(seed_of(key))


def some(cases: Iterable[T], number: int = 3) -> list[T]:
    """Returns `number` of the cases, in their order."""
    every = list(cases)
    if SEED == "all" or number >= len(every):
        return every
    places = random.Random(f"{SEED} {len(every)}").sample(range(len(every)), number)
    return [every[place] for place in sorted(places)]


def each_with(cases: Iterable[T], others: Sequence[U]) -> list[tuple[T, U]]:
    """Returns each of the cases with one of the others."""
    if SEED == "all":
        return [(case, other) for case in cases for other in others]
    numbers = random.Random(SEED)
    return [(case, numbers.choice(others)) for case in cases]
