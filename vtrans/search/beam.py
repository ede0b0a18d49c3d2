"""Beam search.

By definition, each step ranks the 2K best extensions of a sentence's K live rows by summed log-probability. Equal sums
rank by parent row, then by the token's own log-probability, then by token id. EOS among the first K ranks finishes a
hypothesis; EOS further down is discarded; the live beam is refilled with the K best other extensions. The search of a
sentence is finished when K hypotheses are finished (`stop="count"`), when in addition no live row scores better at its
length so far than the K-th best of them (`stop="current"`, which is `early_stopping=False` of Hugging Face and equals
"count" if K is 1), or when no live row can win any more (`stop="exhaustive"`), and always at the sentence's own length
limit.

With `stop="shrink"`, which is Marian's search, the beam has K - f places after f finished hypotheses: each step ranks
that many extensions, and those without EOS are the live beam. The search is finished when no place is left. At the
length limit, the live rows are results like the finished ones.

Legend: B sentences in the batch, K rows per sentence, N = B * K rows, r live rows, m tokens kept per row, E = K * m
extensions of a sentence, V vocabulary, n rows of a block or extensions ranked (at most 2K).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtrans.config import SearchConfig
from vtrans.search.loop import (
    Block,
    Decoder,
    Hypothesis,
    Listed,
    State,
    bad_logprobs,
    length_penalty,
    logprobs_of,
    run,
    wide_type,
)

Floats = NDArray[np.float64]

# By how much rounding may lower a sum, in units of its size, and a number below all log-probabilities.
SLACK, LEAST_LOGPROB = 1e-5, -1e38
# Tokens per group of the vocabulary. `_top` first finds the groups with the largest maxima.
GROUP = 64


def beam_search(
    decoder: Decoder[State],
    sources: Sequence[Sequence[int]],
    limits: Sequence[int],
    *,
    config: SearchConfig,
    nbest: int,
    bos_id: int,
    eos_id: int,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Searches for translations of each source (token ids with EOS); yields what `search.run` yields.

    A sentence gets up to `nbest` finished hypotheses, best first; equal scores rank in the order in which they were
    found. If none finished, it gets the best live one, with `finished=False` and the score of its own length. `nbest`
    is at most `config.beam`. Raises VtransError if the decoder returns NaN.
    """
    assert 1 <= nbest <= config.beam, (nbest, config.beam)
    return run(decoder, sources, limits, config.batch_tokens, Beam(limits, config, nbest, bos_id, eos_id))


@dataclass
class _Finished:
    """A hypothesis that ended in EOS, and where it ends in the history."""

    score: float
    logprob: float
    length: int  # in tokens, EOS included
    row: int  # the live row of the previous step that it extends
    eos_logprob: float


@dataclass
class _Search:
    """The search of one sentence, on the host."""

    limit: int
    age: int = 0  # steps taken
    ended: int = 0  # hypotheses finished so far
    best: list[_Finished] = field(default_factory=list)  # the `kept` best of them, best first
    history: list[_Rows] = field(default_factory=list)  # the live beam of each step


# What a table [4, B, n] holds of a step's extensions. Token ids and rows are exact in floating point.
_SUM, _LOGPROB, _PARENT, _TOKEN = range(4)
_Extension = tuple[float, float, int, int]
_Rows = Floats | list[_Extension]  # the live beam of a sentence, [K, 4]


class Beam:
    """The live rows of all sentences, on the host. Only the K + 1 best tokens of each row leave the device."""

    def __init__(self, limits: Sequence[int], config: SearchConfig, nbest: int, bos_id: int, eos_id: int) -> None:
        self.limits, self.config, self.nbest = limits, config, nbest
        self.bos_id, self.eos_id = bos_id, eos_id
        self.width = config.beam
        self.stop = "count" if config.stop == "current" and config.beam == 1 else config.stop
        self.kept = config.beam if self.stop == "current" else nbest
        # Greedy search ends with EOS, so a step needs only the best token of each row.
        self.greedy = config.beam == 1 and config.stop != "exhaustive"
        self.searches: list[_Search | None] = []  # None: an empty place
        self.tokens_BK = torch.empty(0, self.width, dtype=torch.int64)
        self.live_BK: Floats = np.empty((0, self.width))  # summed log-probabilities; -inf: the row is not live
        self.parents_BK: Floats = np.empty((0, self.width))
        self.itself_K = np.arange(self.width)

    def enter(self, sentences: Sequence[int], places: Sequence[int]) -> None:
        fresh: list[_Search | None] = [_Search(self.limits[i]) for i in sentences]
        live_bK = np.full((len(fresh), self.width), -math.inf)
        live_bK[:, 0] = 0.0  # all rows are BOS, so only one of them is extended
        tokens_bK = torch.full(live_bK.shape, self.bos_id)
        if m := len(places):
            for b, search in zip(places, fresh[:m], strict=True):
                self.searches[b] = search
            self.tokens_BK[list(places)], self.live_BK[list(places)] = tokens_bK[:m], live_bK[:m]
        self.searches += fresh[m:]
        self.tokens_BK = torch.cat((self.tokens_BK, tokens_bK[m:]))
        self.live_BK = np.concatenate((self.live_BK, live_bK[m:]))

    def live(self) -> Tensor:
        return torch.from_numpy(np.flatnonzero(self.live_BK > -math.inf))

    def advance(self, blocks: Iterable[Block]) -> list[int]:
        if len(self.searches) == 1:
            first, *more = blocks
            if not more and logprobs_of(first).device.type == "cpu":
                return self._advance_one(first)
            blocks = (first, *more)
        # At most K tokens and EOS of a row can be among the first K ranks or refill the beam.
        return self.extend(*best_tokens(blocks, 1 if self.greedy else self.width + 1))

    def extend(
        self, values_rm: NDArray[np.floating], tokens_rm: NDArray[np.integer], penalties_rm: Floats | None = None
    ) -> list[int]:
        """Does what `advance` does, given the best tokens of the live rows. `penalties_rm` are subtracted from their
        sums in the ranking of this step only."""
        if np.isnan(values_rm).any():
            raise bad_logprobs()
        extensions, live = self._rank(values_rm, tokens_rm, penalties_rm)
        self.live_BK, self.parents_BK = live[_SUM].copy(), live[_PARENT]
        self.tokens_BK = torch.from_numpy(live[_TOKEN].astype(np.int64))
        return self._record(extensions, live)

    def _advance_one(self, block: Block) -> list[int]:
        """Does what `advance` does, for one sentence. Lists then take a fraction of the time."""
        K, search = self.width, self.searches[0]
        assert search is not None
        totals = [total for total in self.live_BK[0].tolist() if total > -math.inf]  # those of the first rows
        ranked = best_extensions(block, totals, 1 if self.greedy else 2 * K)
        del ranked[K - search.ended if self.config.stop == "shrink" else 2 * K :]
        search.age += 1
        for extension in ranked[:K]:
            if extension[_TOKEN] == self.eos_id:
                self._finish(search, extension)
        live = [extension for extension in ranked if extension[_TOKEN] != self.eos_id][:K]
        if live:
            search.history.append(live)
        live = live + [(-math.inf, -math.inf, 0, self.bos_id)] * (K - len(live))
        sums, _, parents, tokens = zip(*live, strict=True)
        self.live_BK, self.parents_BK = np.array([sums]), np.array([parents])
        self.tokens_BK = torch.from_numpy(np.array([tokens]))
        return [0] if self._is_finished(search, sums[0]) else []

    def _rank(
        self, values_rm: NDArray[np.floating], tokens_rm: NDArray[np.integer], penalties_rm: Floats | None
    ) -> tuple[Floats, Floats]:
        """Ranks the extensions of each sentence, given the best tokens of the live rows. Returns the K best, and the K
        best that are not EOS, each [4, B, K], best first."""
        (B, K), m = self.live_BK.shape, values_rm.shape[1]
        # All extensions of rows that are not live are impossible.
        at_r = np.flatnonzero(self.live_BK > -math.inf)
        values_Nm, tokens_Nm = np.full((B * K, m), -math.inf), np.full((B * K, m), self.bos_id)
        values_Nm[at_r], tokens_Nm[at_r] = values_rm, tokens_rm
        steps_BE = values_Nm.reshape(B, K * m)
        sums_BE = steps_BE + self.live_BK.repeat(m, axis=1)
        ranks_BE = sums_BE
        if penalties_rm is not None:
            penalties_Nm = np.zeros((B * K, m))
            penalties_Nm[at_r] = penalties_rm
            ranks_BE = sums_BE - penalties_Nm.reshape(B, K * m)
        # A stable sort: of equal sums, the earlier row comes first, and within a row the better token.
        places_Bn = (-ranks_BE).argsort(axis=1, kind="stable")[:, : 2 * K]
        at_B1 = np.arange(B)[:, None]
        tokens_Bn = tokens_Nm.reshape(B, K * m)[at_B1, places_Bn]
        table = np.stack((sums_BE[at_B1, places_Bn], steps_BE[at_B1, places_Bn], places_Bn // m, tokens_Bn))
        if self.config.stop == "shrink":
            places_B1 = np.array([[0 if search is None else K - search.ended] for search in self.searches])
            table[_SUM][np.arange(table.shape[2]) >= places_B1] = -math.inf
        # Each row has one EOS at most, so the first 2K ranks hold K others, which a stable sort puts first.
        others_BK = (tokens_Bn == self.eos_id).argsort(axis=1, kind="stable")[:, :K]
        live = table[:, at_B1, others_BK]
        live[_SUM][live[_TOKEN] == self.eos_id] = -math.inf  # all that is left in greedy search
        return table[:, :, :K], live

    def _record(self, extensions: Floats, live: Floats) -> list[int]:
        """Records the ranked extensions and the new live beam of a step; returns the sentences whose search is
        finished."""
        ends_BK = (extensions[_TOKEN] == self.eos_id) & (extensions[_SUM] > -math.inf)
        some_end_B = ends_BK.any(1).tolist()
        top_B = live[_SUM].max(1).tolist()
        finished = []
        for b, search in enumerate(self.searches):
            if search is None:
                continue
            search.age += 1
            if some_end_B[b]:
                for k in np.flatnonzero(ends_BK[b]):
                    self._finish(search, extensions[:, b, k].tolist())
            if top_B[b] > -math.inf:
                search.history.append(live[:, b].T)
            if self._is_finished(search, top_B[b]):
                finished.append(b)
        return finished

    def _penalty(self, length: int) -> float:
        return length_penalty(length, self.config.alpha, self.config.length_penalty)

    def _finish(self, search: _Search, extension: Sequence[float]) -> None:
        """Inserts a finished hypothesis into the best ones, after those of equal score."""
        logprob, eos_logprob, row, _ = extension
        search.ended += 1
        new = _Finished(logprob / self._penalty(search.age), logprob, search.age, int(row), eos_logprob)
        place = bisect_right(search.best, -new.score, key=lambda other: -other.score)
        search.best.insert(place, new)
        del search.best[self.kept :]

    def _is_finished(self, search: _Search, top: float) -> bool:
        """Returns whether no further step can change the result; `top` is the largest sum of a live row."""
        if search.age == search.limit or top == -math.inf:
            return True
        if search.ended >= self.config.beam and (
            self.stop == "count"
            or (self.stop == "current" and top / self._penalty(search.age) <= search.best[-1].score)
        ):
            return True
        if len(search.best) < self.nbest:
            return False
        # Sums never rise. A live row therefore scores best where the penalty is largest: at the limit if alpha >= 0,
        # in the next step if alpha < 0. An equal score does not displace an earlier hypothesis.
        bound = top / max(self._penalty(search.age + 1), self._penalty(search.limit))
        return bound <= search.best[self.nbest - 1].score

    def parents(self) -> Tensor | None:
        if (self.parents_BK == self.itself_K).all():
            return None
        return torch.from_numpy(self.parents_BK.astype(np.int64, copy=False))

    def leave(self, b: int) -> list[Hypothesis]:
        search = self.searches[b]
        assert search is not None
        self.searches[b] = None
        self.live_BK[b] = -math.inf
        found = []
        for end in search.best[: self.nbest]:
            tokens, logprobs = _trace(search.history[: end.length - 1], end.row)
            found.append(Hypothesis(tokens, end.logprob, end.score, True, (*logprobs, end.eos_logprob)))
        if self.config.stop == "shrink" and len(search.history) == search.limit:
            live = [row for row, extension in enumerate(search.history[-1]) if extension[_SUM] > -math.inf]
            found += [self._unfinished(search, row) for row in live]
            return sorted(found, key=lambda hyp: -hyp.score)[: self.nbest]
        return found or [self._unfinished(search, self._best_row(b))]

    def _best_row(self, b: int) -> int:
        """Returns the row of the last live beam that stands for a sentence without finished hypotheses."""
        return 0

    def _unfinished(self, search: _Search, row: int) -> Hypothesis:
        """Returns the hypothesis of a row of the last live beam."""
        tokens, logprobs = _trace(search.history, row)
        logprob = float(search.history[-1][row][_SUM]) if tokens else 0.0
        return Hypothesis(tokens, logprob, logprob / self._penalty(len(tokens)) if tokens else 0.0, False, logprobs)

    def select(self, sentences: Sequence[int]) -> None:
        self.searches = [self.searches[b] for b in sentences]
        self.live_BK, self.tokens_BK = self.live_BK[list(sentences)], self.tokens_BK[list(sentences)]


def _trace(history: Sequence[_Rows], row: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Returns the tokens that lead to a row of the last live beam, and their log-probabilities."""
    tokens, logprobs = [], []
    for beam in reversed(history):
        _, logprob, parent, token = beam[row]
        tokens.append(int(token))
        logprobs.append(float(logprob))
        row = int(parent)
    return tuple(reversed(tokens)), tuple(reversed(logprobs))


# The best extensions of one sentence.


def best_extensions(block: Block, totals: Sequence[float], count: int) -> list[_Extension]:
    """Returns the extensions of a sentence's live rows as (sum, log-probability, row, token), best first, as the
    definition ranks them: at least `count`, or all that are possible. `totals` holds the rows' sums.

    `count` groups of tokens have maxima that reach a bar, so the best `count` extensions reach it, too. numpy finds
    them in a fraction of the time that `topk` takes, and equal ones need no care.
    """
    logprobs_nV = logprobs_of(block)
    values_nV, V = logprobs_nV.numpy(), logprobs_nV.shape[1]
    if count == len(totals) == 1:
        places = values_nV.argmax(1)
    else:
        bar = _bar(logprobs_nV, totals, count)
        # The slack is for rounding. The lower limit keeps out impossible tokens.
        lowest = [max(bar - total - SLACK * (1 - bar), LEAST_LOGPROB) for total in totals]
        places = np.flatnonzero(~(values_nV < np.array(lowest, dtype=values_nV.dtype)[:, None]))  # NaN is among them
    found = []
    for place, value in zip(places.tolist(), values_nV.take(places).tolist(), strict=True):
        row, column = divmod(place, V)
        found.append((totals[row] + value, value, row, column))
    if any(extension[_SUM] != extension[_SUM] for extension in found):
        raise bad_logprobs()
    found.sort(key=_rank_of)
    ids = block.ids.numpy() if isinstance(block, Listed) else range(V)
    return [(total, value, row, int(ids[column])) for total, value, row, column in found if value > -math.inf]


def _bar(logprobs_nV: Tensor, totals: Sequence[float], count: int) -> float:
    """Returns a sum that at least `count` extensions reach, or -inf if there may be fewer."""
    n, V = logprobs_nV.shape
    groups = V // GROUP
    most_ng = logprobs_nV
    if n * groups >= count:
        most_ng = logprobs_nV[:, : groups * GROUP].view(n, groups, GROUP).amax(2)
    sums_x = (most_ng.numpy() + np.array(totals)[:, None]).ravel()
    return float(np.partition(sums_x, -count)[-count]) if len(sums_x) >= count else -math.inf


def _rank_of(extension: _Extension) -> tuple[float, int, float]:
    """Returns the key by which extensions are sorted; the sort keeps the order of tokens."""
    total, logprob, row, _ = extension
    return -total, row, -logprob


# The best tokens of each row.


def best_tokens(blocks: Iterable[Block], count: int) -> tuple[NDArray[np.floating], NDArray[np.integer]]:
    """Returns the log-probabilities [r, m] and ids [r, m] of each row's m = min(count, V) best tokens. Equal
    log-probabilities rank by id."""
    found: list[tuple[NDArray[np.floating], NDArray[np.integer]]] = []
    later: list[tuple[Block, Tensor, Tensor]] = []
    for block in blocks:
        logprobs = logprobs_of(block)
        if count == 1 and logprobs.device.type == "cpu":  # argmax returns the first of equal values
            columns_n1 = logprobs.numpy().argmax(1)[:, None]
            found.append((np.take_along_axis(logprobs.numpy(), columns_n1, 1), _ids(columns_n1, block)))
            continue
        values, columns = _top(logprobs, count + 1)
        if logprobs.device.type == "cpu":  # no transfer to batch, and the block's memory is freed at once
            values_nm, columns_nm = values.numpy(), columns.numpy()
            _order_ties(logprobs, values_nm, columns_nm)
            found.append((values_nm, _ids(columns_nm, block)))
        else:
            later.append((block, values, columns))
    if later:  # one copy from the device for all blocks
        wide = wide_type(later[0][1])
        pairs = torch.cat([torch.stack((values.to(wide), columns.to(wide))) for _, values, columns in later], 1).cpu()
        row = 0
        for block, _, _ in later:
            logprobs = logprobs_of(block)
            values_nm, columns_nm = pairs[:, row : row + len(logprobs)].numpy()
            _order_ties(logprobs, values_nm, columns_nm)
            found.append((values_nm, _ids(columns_nm, block)))
            row += len(logprobs)
    values_rm, tokens_rm = (np.concatenate(part) for part in zip(*found, strict=True))
    return values_rm[:, :count], tokens_rm[:, :count]


def _ids(columns_nm: NDArray[Any], block: Block) -> NDArray[Any]:
    """Returns the token ids of these columns of a block."""
    if not isinstance(block, Listed):
        return columns_nm
    ids: NDArray[np.int64] = block.ids.cpu().numpy()
    return ids[columns_nm.astype(np.int64)]


def _top(logprobs_nV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns the `count` largest values and their tokens, or all if there are fewer; equal values come in any order.

    On a CPU, topk reads tokens one by one, and amax reads many at once. The best `count` tokens are in the `count`
    groups with the largest maxima, or in the remainder that fills no group.
    """
    n, V = logprobs_nV.shape
    if count * GROUP > V // 2 or n * V < 1 << 17:
        return logprobs_nV.topk(min(count, V), dim=1)
    groups = V // GROUP
    groups_ngt = logprobs_nV[:, : groups * GROUP].view(n, groups, GROUP)
    best_nc = groups_ngt.amax(2).topk(count, dim=1, sorted=False).indices
    candidates = groups_ngt[torch.arange(n, device=best_nc.device)[:, None], best_nc].flatten(1)
    if groups * GROUP < V:
        candidates = torch.cat((candidates, logprobs_nV[:, groups * GROUP :]), 1)
    values, places = candidates.topk(count, dim=1)
    group_of = torch.cat((best_nc, best_nc.new_full((n, 1), groups)), 1).gather(1, places // GROUP)
    return values, group_of * GROUP + places % GROUP


def _order_ties(block: Tensor, values_nm: NDArray[np.floating], tokens_nm: NDArray[np.integer]) -> None:
    """Orders equal values by id, in place. Among the tokens that equal the last one, the lowest ids are kept."""
    equal_n = ((values_nm[:, 1:] == values_nm[:, :-1]) & (values_nm[:, 1:] > -math.inf)).any(1)
    rows = np.flatnonzero(equal_n)
    if block.device.type != "cpu" and len(rows):
        values_nm[rows], tokens_nm[rows] = sort_rows(block[torch.from_numpy(rows).to(block.device)], values_nm.shape[1])
        return
    for row in rows:
        candidates = (block[row] >= float(values_nm[row, -1])).nonzero().squeeze(1)
        values, order = block[row][candidates].sort(descending=True, stable=True)
        m = values_nm.shape[1]
        values_nm[row], tokens_nm[row] = values[:m].cpu().numpy(), candidates[order[:m]].cpu().numpy()


def sort_rows(logprobs_nV: Tensor, count: int) -> NDArray[np.floating]:
    """Returns the best `count` values and ids [2, n, count], equal values by id. All rows are copied from the device
    at once, because ties are common in half precision."""
    values, order = logprobs_nV.sort(dim=1, descending=True, stable=True)
    wide = wide_type(values)
    both: NDArray[np.floating] = torch.stack((values[:, :count].to(wide), order[:, :count].to(wide))).cpu().numpy()
    return both
