"""The decoder protocol, through which the search uses one or several models.

Legend: B sentences in the batch, K rows per sentence, r live rows among the B * K, n rows of a block, V vocabulary, m
best tokens of a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from vtrans.search.history import Ints
from vtrans.system.errors import LogprobsError

State = TypeVar("State")
Logprobs = NDArray[np.floating]

SubwordPair = tuple[Sequence[int], Sequence[int]]
"""A source without EOS, and a target, which may end in EOS."""


class Best(NamedTuple):
    """Log-probabilities [n, m] of the best tokens `ids` [n, m] of each row, best first; equal ones are ordered by id.
    They contain no NaN."""

    logprobs: Logprobs
    ids: Ints


LogprobBlock = Logprobs | Best
"""Log-probabilities of some rows: an array covers the whole vocabulary, [n, V]."""


def logprobs_of(block: LogprobBlock) -> Logprobs:
    """Returns the log-probabilities [n, m] or [n, V] of a block."""
    return block.logprobs if isinstance(block, Best) else block


class Decoder(Protocol[State]):
    """One or several models. A state holds one batch and advances by one token per step."""

    def start(self, sources: Sequence[Sequence[int]], width: int) -> State:
        """Returns a state with `width` rows for each source. Sources end in EOS. If only one sentence starts, no other
        is admitted later: its state is only stepped and reordered."""

    def step(self, state: State, tokens_BK: Ints, live_r: Ints, best: int | None) -> Iterable[LogprobBlock]:
        """Feeds each row its last token [B, K], and returns log-probabilities of the next token, n rows at a time.

        `live_r` [r] holds the live rows, increasing indices into the flattened B * K rows. The blocks cover these rows
        in order; the search reads each block once, before the next call, and may change it. The search reads no more
        than the `best` most probable tokens of a row, so the decoder may return only these; with None, it must return
        log-probabilities of the whole vocabulary. The first token of a sentence is BOS; EOS is never fed. Rows that
        are not live are fed any other token.
        """

    def reorder(self, state: State, parents_BK: Ints) -> None:
        """Row k of each sentence continues the old row `parents_BK[:, k]` [B, K]."""

    def drop(self, state: State, sentences: Sequence[int]) -> None:
        """Ends these sentences (indices into B). They keep their places; their rows are no longer live."""

    def admit(self, state: State, sources: Sequence[Sequence[int]], places: Sequence[int]) -> None:
        """Puts new sentences into the `places` of dropped ones, and the remaining new sentences after the last place.
        The sentences of one state can therefore be at different positions."""

    def select(self, state: State, sentences: Sequence[int]) -> None:
        """Keeps only these sentences (increasing indices into B)."""


def bad_logprobs() -> LogprobsError:
    """Returns the error for NaN in log-probabilities."""
    return LogprobsError(
        "the model's log-probabilities are not numbers: its weights are damaged, or the precision is too low; try "
        "another checkpoint, or float32."
    )


class Ensemble:
    """Averages the probabilities of several decoders. The `weights` sum to 1. The caller checks that the vocabularies
    are equal. A state is the list of the decoders' states."""

    def __init__(self, decoders: Sequence[Decoder[Any]], weights: Sequence[float]) -> None:
        self.decoders, self.weights = tuple(decoders), tuple(weights)

    def start(self, sources: Sequence[Sequence[int]], width: int) -> list[Any]:
        return [decoder.start(sources, width) for decoder in self.decoders]

    def step(self, state: list[Any], tokens_BK: Ints, live_r: Ints, best: int | None) -> Iterator[LogprobBlock]:
        # The best tokens of the mean need not be among the best of any decoder.
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
        # Rounding may leave a certain token above 0, but the search relies on sums that never rise.
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
