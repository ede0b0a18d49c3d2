"""The ranking of extensions: the best tokens of each row, and of these the best ones of several rows together.

Extensions rank by summed log-probability; equal sums rank by parent row, then by the token's own log-probability, then
by token id.

Legend: B sentences in the batch, K rows that are ranked together, r live rows, n rows of a block or extensions ranked,
v columns of a block, m tokens kept per row, x candidates of a row, E = K * m extensions, g groups of columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtrans.search.history import Floats, Ints
from vtrans.search.loop import Best, Block, Listed, bad_logprobs, logprobs_of, wide_type

# A log-probability below those of all possible tokens.
LEAST = -1e38
# Columns per group. The best m tokens of a row reach the m-th largest of its groups' maxima.
GROUP = 64


class Ranked(NamedTuple):
    """Extensions, best first; all of them are [B, n]."""

    sums: Floats  # of log-probabilities; -inf: the extension is impossible
    logprobs: NDArray[np.floating]  # of the tokens
    parents: Ints  # the rows that they extend
    tokens: Ints

    def at(self, columns_BK: Ints) -> Ranked:
        """Returns the extensions [B, K] in these columns."""
        at = flat(columns_BK, self.sums.shape[1])
        return Ranked(self.sums.take(at), self.logprobs.take(at), self.parents.take(at), self.tokens.take(at))

    def first(self, K: int) -> Ranked:
        """Returns the best K extensions [B, K]."""
        return Ranked(self.sums[:, :K], self.logprobs[:, :K], self.parents[:, :K], self.tokens[:, :K])

    @classmethod
    def beside(cls, parts: Sequence[Ranked]) -> Ranked:
        """Returns the extensions of all parts, side by side."""
        return cls(
            np.hstack([part.sums for part in parts]),
            np.hstack([part.logprobs for part in parts]),
            np.hstack([part.parents for part in parts]),
            np.hstack([part.tokens for part in parts]),
        )


def ranked(
    sums_BK: Floats, values_BKm: NDArray[np.floating], tokens_BKm: Ints, count: int, penalties_BKm: Floats | None = None
) -> Ranked:
    """Returns the best `count` extensions of K rows with these sums, given the log-probabilities and ids of each row's
    best tokens, best first. Penalties count for the order only."""
    B, K, m = values_BKm.shape
    sums_BE = (sums_BK[:, :, None] + values_BKm).reshape(B, K * m)
    ranks_BE = sums_BE if penalties_BKm is None else sums_BE - penalties_BKm.reshape(B, K * m)
    # A stable sort: of equal sums, the earlier row comes first, and within a row the better token.
    order_Bn = (-ranks_BE).argsort(1, kind="stable")[:, :count]
    at_Bn = flat(order_Bn, K * m)
    return Ranked(sums_BE.take(at_Bn), values_BKm.take(at_Bn), order_Bn // m, tokens_BKm.take(at_Bn))


def flat(columns_nx: Ints, width: int) -> Ints:
    """Returns the places of columns of each row in a flattened table of this width; `take` reads them twice as fast as
    an index of rows and columns."""
    n = len(columns_nx)
    return columns_nx if n == 1 else columns_nx + np.arange(0, n * width, width)[:, None]


def best_tokens(blocks: Iterable[Block], count: int) -> tuple[NDArray[np.floating], Ints]:
    """Returns the log-probabilities [r, m] and ids [r, m] of each row's m = min(count, V) best tokens; equal
    log-probabilities rank by id. Raises LogprobsError for NaN."""
    parts: list[tuple[NDArray[np.floating], Ints]] = []
    waiting: list[tuple[Block, Tensor, Tensor]] = []
    for block in blocks:
        if isinstance(block, Best):
            parts.append((block.logprobs[:, :count], block.ids[:, :count]))
        elif logprobs_of(block).device.type == "cpu":  # the block's memory is freed at once
            parts.append(_with_ids(block, *_best_on_cpu(logprobs_of(block), count)))
        else:
            values_nm, columns_nm = logprobs_of(block).topk(min(count + 1, logprobs_of(block).shape[1]), dim=1)
            waiting.append((block, values_nm, columns_nm))
    if waiting:
        parts += from_device(waiting, count)
    if len(parts) == 1:
        return parts[0]
    values, tokens = zip(*parts, strict=True)
    return np.concatenate(values), np.concatenate(tokens)


def _with_ids(block: Block, values_nm: NDArray[np.floating], columns_nm: Ints) -> tuple[NDArray[np.floating], Ints]:
    """Returns values as they are, and the token ids of their columns in a block."""
    if isinstance(block, Listed):
        ids: Ints = block.ids.cpu().numpy()
        return values_nm, ids[columns_nm]
    return values_nm, columns_nm


def _best_on_cpu(logprobs_nv: Tensor, count: int) -> tuple[NDArray[np.floating], Ints]:
    """Returns the best `count` values of each row and their columns."""
    values_nv: NDArray[np.floating] = logprobs_nv.numpy()
    v = values_nv.shape[1]
    if count == 1:  # argmax returns the first of equal values, or NaN
        best_n1 = values_nv.argmax(1)[:, None]
        return _checked(np.take_along_axis(values_nv, best_n1, 1)), best_n1
    columns_nx: Ints | None = None
    if v > GROUP:
        values_nv, columns_nx = _candidates(logprobs_nv, count)
    order_nm = (-_checked(values_nv)).argsort(1, kind="stable")[:, :count]
    at_nm = flat(order_nm, values_nv.shape[1])
    return values_nv.take(at_nm), order_nm if columns_nx is None else columns_nx.take(at_nm)


def _candidates(logprobs_nv: Tensor, count: int) -> tuple[NDArray[np.floating], Ints]:
    """Returns the values [n, x] and columns of tokens among which are the best `count` possible ones of each row, in
    the order of columns, then -inf. torch computes the groups' maxima many at once; `topk` reads tokens one by one."""
    values_nv = logprobs_nv.numpy()
    n, v = values_nv.shape
    groups = v // GROUP
    most_ng = values_nv
    if groups >= 2 * count:
        most_ng = logprobs_nv[:, : groups * GROUP].view(n, groups, GROUP).amax(2).numpy()
    bar_n1 = np.partition(most_ng, -count, axis=1)[:, -count, None] if most_ng.shape[1] >= count else LEAST
    places = np.flatnonzero(~(values_nv < np.maximum(bar_n1, LEAST)))  # NaN is among them
    rows, columns = np.divmod(places, v)
    begins = np.searchsorted(rows, np.arange(n))
    ranks = np.arange(len(rows)) - begins[rows]
    x = max(count, int(ranks.max(initial=0)) + 1)
    values_nx, columns_nx = np.full((n, x), -math.inf, dtype=values_nv.dtype), np.zeros((n, x), dtype=np.int64)
    values_nx[rows, ranks], columns_nx[rows, ranks] = values_nv.take(places), columns
    return values_nx, columns_nx


def _checked(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Returns the log-probabilities. Raises LogprobsError if there is NaN among them, which makes their sum NaN."""
    if math.isnan(values.sum()):
        raise bad_logprobs()
    return values


def from_device(waiting: list[tuple[Block, Tensor, Tensor]], count: int) -> list[tuple[NDArray[np.floating], Ints]]:
    """Returns the best tokens of blocks on another device, given their best `count` + 1, of which equal ones are in any
    order. One copy from the device serves all blocks."""
    wide = wide_type(waiting[0][1])
    pairs = torch.cat([torch.stack((values.to(wide), columns.to(wide))) for _, values, columns in waiting], 1).cpu()
    parts, row = [], 0
    for block, values_nx, _ in waiting:
        values, columns = pairs[:, row : row + len(values_nx)].numpy()
        row += len(values_nx)
        _checked(values)
        ties = np.flatnonzero(((values[:, 1:] == values[:, :-1]) & (values[:, 1:] > -math.inf)).any(1))
        if len(ties):
            logprobs = logprobs_of(block)
            tied = logprobs[torch.from_numpy(ties).to(logprobs.device)]
            values[ties], columns[ties] = sorted_rows(tied, values.shape[1])
        parts.append(_with_ids(block, values[:, :count], columns[:, :count].astype(np.int64)))
    return parts


def sorted_rows(logprobs_nv: Tensor, count: int) -> NDArray[Any]:
    """Returns the best `count` values and columns [2, n, count], equal values by column. All rows are copied from the
    device at once, because ties are common in half precision."""
    values, order = logprobs_nv.sort(dim=1, descending=True, stable=True)
    wide = wide_type(values)
    both: NDArray[Any] = torch.stack((values[:, :count].to(wide), order[:, :count].to(wide))).cpu().numpy()
    return both
