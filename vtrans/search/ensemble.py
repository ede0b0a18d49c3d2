"""Averages the probabilities of several decoders."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from vtrans.search.decoder import Best, Decoder, LogprobBlock, Logprobs
from vtrans.search.history import Ints


class Ensemble:
    """A decoder whose probabilities are the mean of several decoders' by `weights`, which sum to 1; by default they
    are equal. The caller checks that the vocabularies are equal. A state is the list of the decoders' states."""

    def __init__(self, decoders: Sequence[Decoder[Any]], weights: Sequence[float] | None = None) -> None:
        self.decoders = tuple(decoders)
        self.weights = tuple(weights) if weights is not None else (1 / len(decoders),) * len(decoders)
        assert len(self.weights) == len(self.decoders), (len(self.weights), len(self.decoders))
        assert abs(math.fsum(self.weights) - 1) < 1e-9, self.weights

    def start(self, sources: Sequence[Sequence[int]], width: int) -> list[Any]:
        return [decoder.start(sources, width) for decoder in self.decoders]

    def step(self, state: list[Any], tokens_BK: Ints, live_r: Ints, best: int | None) -> Iterator[LogprobBlock]:
        # The most probable tokens of the mean need not be those of a decoder.
        steps = [d.step(s, tokens_BK, live_r, None) for d, s in zip(self.decoders, state, strict=True)]
        return (self._mean(blocks) for blocks in zip(*steps, strict=True))

    def _mean(self, blocks: Sequence[LogprobBlock]) -> Logprobs:
        parts = []
        for block, weight in zip(blocks, self.weights, strict=True):
            assert not isinstance(block, Best)
            parts.append(block + math.log(weight))
        largest_nV = np.maximum.reduce(parts)
        largest_nV[largest_nV == -math.inf] = 0.0  # -inf - -inf is NaN
        total_nV = np.add.reduce([np.exp(part - largest_nV) for part in parts])
        with np.errstate(divide="ignore"):  # impossible tokens
            mean_nV: Logprobs = np.log(total_nV) + largest_nV
        # Clamped: rounding may leave a certain token above 0, but the search relies on sums that never rise.
        np.minimum(mean_nV, 0.0, out=mean_nV)
        return mean_nV

    def reorder(self, state: list[Any], parents_BK: Ints) -> None:
        for decoder, part in zip(self.decoders, state, strict=True):
            decoder.reorder(part, parents_BK)

    def drop(self, state: list[Any], sentences: Sequence[int]) -> None:
        for decoder, part in zip(self.decoders, state, strict=True):
            decoder.drop(part, sentences)

    def admit(self, state: list[Any], sources: Sequence[Sequence[int]], places: Sequence[int]) -> None:
        for decoder, part in zip(self.decoders, state, strict=True):
            decoder.admit(part, sources, places)

    def select(self, state: list[Any], sentences: Sequence[int]) -> None:
        for decoder, part in zip(self.decoders, state, strict=True):
            decoder.select(part, sentences)
