"""Averages the probabilities of several decoders."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from vtrans.search.loop import Block, Decoder, Listed, logprobs_of


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

    def step(self, state: list[Any], tokens_BK: Tensor, live_r: Tensor) -> Iterator[Block]:
        steps = [d.step(s, tokens_BK, live_r) for d, s in zip(self.decoders, state, strict=True)]
        return (self._mean(blocks) for blocks in zip(*steps, strict=True))

    def _mean(self, blocks: Sequence[Block]) -> Block:
        logprobs = [logprobs_of(block) for block in blocks]
        pairs = zip(logprobs, self.weights, strict=True)
        together = torch.stack([part.to(logprobs[0]) + math.log(weight) for part, weight in pairs])  # [decoders, n, V]
        # Clamped: rounding may leave a certain token above 0, but the search relies on sums that never rise.
        mean = torch.logsumexp(together, 0).clamp_(max=0.0)
        # All decoders list the same tokens for the same sentences.
        return Listed(mean, blocks[0].ids) if isinstance(blocks[0], Listed) else mean

    def reorder(self, state: list[Any], parents_BK: Tensor) -> None:
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
