"""Ranks extensions: finds the best tokens of each row, then the best extensions of several rows together.

Extensions rank by summed log-probability; equal sums rank by parent row, then by the token's own log-probability, then
by token id.

Legend: B sentences in the batch, K rows that are ranked together, r live rows, n rows of a block or extensions ranked,
V vocabulary, m tokens kept per row, x candidates of a row, E = K * m extensions, g groups of columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from vtrans.search.decoder import Best, LogprobBlock, Logprobs, bad_logprobs
from vtrans.search.history import Floats, Ints

# Lower than the log-probability of any possible token.
LOWEST = -1e38
# Columns per group. The best m tokens of a row are at least as large as the m-th largest of its group maxima.
GROUPED = 64


class Ranked(NamedTuple):
    """Extensions, best first; all of them are [B, n]."""

    sums: Floats  # of log-probabilities; -inf: the extension is impossible
    logprobs: Logprobs  # of the tokens
    parents: Ints  # the extended rows
    tokens: Ints

    def at(self, columns_BK: Ints) -> Ranked:
        """Returns the extensions [B, K] in these columns."""
        at = flat(columns_BK, self.sums.shape[1])
        return Ranked(self.sums.take(at), self.logprobs.take(at), self.parents.take(at), self.tokens.take(at))

    def first(self, K: int) -> Ranked:
        """Returns the best K extensions [B, K]."""
        return Ranked(self.sums[:, :K], self.logprobs[:, :K], self.parents[:, :K], self.tokens[:, :K])

    @classmethod
    def joined(cls, parts: Sequence[Ranked]) -> Ranked:
        """Returns the extensions of all parts, side by side."""
        return cls(*map(np.hstack, zip(*parts, strict=True)))


def ranked(
    sums_BK: Floats, values_BKm: Logprobs, tokens_BKm: Ints, count: int | None, penalties_BKm: Floats | None = None
) -> Ranked:
    """Returns the best `count` extensions (None: all) of K rows with these sums. `values_BKm` and `tokens_BKm` are the
    log-probabilities and ids of each row's best tokens, best first. Penalties change only the order."""
    B, K, m = values_BKm.shape
    sums_BE = (sums_BK[:, :, None] + values_BKm).reshape(B, K * m)
    ranks_BE = sums_BE if penalties_BKm is None else sums_BE - penalties_BKm.reshape(B, K * m)
    # A stable sort: of equal sums, the earlier row comes first, and within a row the better token.
    order_Bn = (-ranks_BE).argsort(1, kind="stable")[:, :count]
    at_Bn = flat(order_Bn, K * m)
    return Ranked(sums_BE.take(at_Bn), values_BKm.take(at_Bn), order_Bn // m, tokens_BKm.take(at_Bn))


def flat(columns_nx: Ints, width: int) -> Ints:
    """Returns the indices of these columns of each row in the flattened table, whose rows have `width` columns. `take`
    reads them twice as fast as indexing by row and column."""
    n = len(columns_nx)
    return columns_nx if n == 1 else columns_nx + np.arange(0, n * width, width)[:, None]


def best_tokens(blocks: Iterable[LogprobBlock], count: int) -> tuple[Logprobs, Ints]:
    """Returns the log-probabilities [r, m] and ids [r, m] of each row's m = min(count, V) best tokens; equal
    log-probabilities rank by id. Raises LogprobsError for NaN."""
    parts = [_best_of(block, count) for block in blocks]
    if len(parts) == 1:
        return parts[0]
    values, tokens = zip(*parts, strict=True)
    return np.concatenate(values), np.concatenate(tokens)


def _best_of(block: LogprobBlock, count: int) -> tuple[Logprobs, Ints]:
    if isinstance(block, Best):
        return block.logprobs[:, :count], block.ids[:, :count]
    if count == 1:  # argmax returns the first of equal values, or NaN
        best_n1 = block.argmax(1)[:, None]
        return checked(np.take_along_axis(block, best_n1, 1)), best_n1
    values_nx, columns_nx = _candidates(block, count) if block.shape[1] > GROUPED else (block, None)
    order_nm = (-checked(values_nx)).argsort(1, kind="stable")[:, :count]
    at_nm = flat(order_nm, values_nx.shape[1])
    return values_nx.take(at_nm), order_nm if columns_nx is None else columns_nx.take(at_nm)


def _candidates(logprobs_nV: Logprobs, count: int) -> tuple[Logprobs, Ints]:
    """Returns the values and columns [n, x] of candidates that include the best `count` possible tokens of each row, in
    column order, padded with -inf. Reads all tokens twice and sorts none."""
    n, V = logprobs_nV.shape
    groups = V // GROUPED
    most_ng = logprobs_nV
    if groups >= 2 * count:
        most_ng = logprobs_nV[:, : groups * GROUPED].reshape(n, GROUPED, groups).max(1)
    bar_n1 = np.partition(most_ng, -count, axis=1)[:, -count, None] if most_ng.shape[1] >= count else LOWEST
    places = np.flatnonzero(~(logprobs_nV < np.maximum(bar_n1, LOWEST)))  # NaN is among them
    rows, columns = np.divmod(places, V)
    begins = np.searchsorted(rows, np.arange(n))
    ranks = np.arange(len(rows)) - begins[rows]
    x = max(count, int(ranks.max(initial=0)) + 1)
    values_nx, columns_nx = np.full((n, x), -math.inf, dtype=logprobs_nV.dtype), np.zeros((n, x), dtype=np.int64)
    values_nx[rows, ranks], columns_nx[rows, ranks] = logprobs_nV.take(places), columns
    return values_nx, columns_nx


def checked(values: Logprobs) -> Logprobs:
    """Returns the log-probabilities. Raises LogprobsError if one is NaN, which makes their sum NaN."""
    if math.isnan(values.sum()):
        raise bad_logprobs()
    return values
