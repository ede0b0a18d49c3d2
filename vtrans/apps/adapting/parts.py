"""Divides pairs into a training part and held-out parts."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from itertools import islice

Pairs = list[tuple[str, str]]


def divided(pairs: Iterable[tuple[str, str]], held_out: Mapping[str, tuple[float, int]], seed: int) -> dict[str, Pairs]:
    """Returns the distinct pairs with text on both sides, divided at random into `train` and the parts in `held_out`.

    `held_out` gives each part's share of the sources and its maximum number. All pairs of a source are in one part; a
    held-out source has only its first translation.
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
