"""Links between the words or subwords of training pairs.

Links are pairs of a source position and a target position, counted from 0.

Legend: L links, X subwords of all sentences of a side.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Side = tuple[Ints, Ints]
"""The numbers of all sentences, concatenated, and the count of numbers per sentence."""
Rows = tuple[NDArray[np.int32], Ints]
"""The same with 32-bit numbers: subword ids, or links as alternating source and target positions."""

_PHARAOH = re.compile(r"(?a:\d{1,9}-\d{1,9})")


def read_pharaoh(line: str) -> Ints:
    """Returns the links [L, 2] of a line in Pharaoh format, such as `0-0 1-2`: source word and target word.

    Raises ValueError with the first part of the line that is not a link.
    """
    parts = line.split()
    for part in parts:
        if not _PHARAOH.fullmatch(part):
            raise ValueError(part)
    numbers = [int(number) for part in parts for number in part.split("-")]
    return np.array(numbers, np.int64).reshape(-1, 2)


def between_subwords(links_L2: Ints, src: Side, tgt: Side) -> Side:
    """Returns the links between the subwords of each pair, given the links between words of all pairs.

    A side holds the word number of each subword, counted across all sentences, and the number of subwords per sentence.
    All subwords of a word have its links. The result holds, for each link, the source and target position within the
    pair, ordered by source and then target; and twice the number of links per pair.
    """
    begins, counts = [], []
    for word_L, (word_X, _) in zip(links_L2.T, (src, tgt), strict=True):
        begins.append(np.searchsorted(word_X, word_L))
        counts.append(np.searchsorted(word_X, word_L, "right") - begins[-1])
    cells = counts[0] * counts[1]
    place = np.arange(cells.sum()) - np.repeat(cells.cumsum() - cells, cells)
    width = np.repeat(counts[1], cells)
    src_at = np.repeat(begins[0], cells) + place // np.maximum(width, 1)
    tgt_at = np.repeat(begins[1], cells) + place % np.maximum(width, 1)
    src_at, tgt_at = np.divmod(np.unique(src_at * (len(tgt[0]) + 1) + tgt_at), len(tgt[0]) + 1)
    src_ends, tgt_ends = src[1].cumsum(), tgt[1].cumsum()
    pair = np.searchsorted(src_ends, src_at, "right")
    local = np.stack((src_at - (src_ends - src[1])[pair], tgt_at - (tgt_ends - tgt[1])[pair]), 1)
    return local.flatten(), 2 * np.bincount(pair, minlength=len(src_ends))


def divided(values: NDArray[np.int32], lengths: Ints) -> list[NDArray[np.int32]]:
    """Splits the numbers into rows of these lengths."""
    return np.split(values, lengths.cumsum()[:-1])
