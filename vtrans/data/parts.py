"""Divides pairs into parts: those to train on, and those that are held out."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from itertools import islice

Pairs = list[tuple[str, str]]


def divided(pairs: Iterable[tuple[str, str]], held_out: Mapping[str, tuple[float, int]], seed: int) -> dict[str, Pairs]:
    """Returns the different pairs with text on both sides, divided at random into `train` and the parts `held_out`.

    `held_out` has the share of the sources that each part gets, and the most. Pairs of one source are in one part, and
    a source is held out with its first translation only.
    """
    grouped: dict[str, Pairs] = {}
    for pair in dict.fromkeys(pairs):
        if all(side.strip() for side in pair):
            grouped.setdefault(pair[0], []).append(pair)
    groups = list(grouped.values())
    random.Random(seed).shuffle(groups)
    left, parts = iter(groups), dict[str, Pairs]()
    for part, (share, most) in held_out.items():
        parts[part] = [group[0] for group in islice(left, min(int(share * len(groups)), most))]
    return {"train": [pair for group in left for pair in group], **parts}
