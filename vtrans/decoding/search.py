"""Beam search and ancestral sampling over a small decoder protocol; this room knows no network.

The search of a sentence, by definition. Each step ranks the 2K best extensions of the K live rows by
summed log-probability; equal sums rank by parent row, then by the token's own log-probability, then by
token id. EOS among the first K ranks finishes a hypothesis, EOS further down is dropped, and the live beam
is refilled with the best K other extensions. A sentence ends when K hypotheses have finished
(`stop="count"`) or when no live one can win any more (`stop="exhaustive"`), and always at its own limit,
never the batch's. What shares a batch with a sentence never changes its result.

Legend: B sentences in the batch, K rows of a sentence (the beam's width, or samples), N = B * K rows, r live ones
of them, V vocabulary, b sentences that stay (b <= B), m tokens kept of a row, n rows of a block or extensions
ranked (n <= 2K), T tokens.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtrans.config import SearchConfig
from vtrans.errors import VtransError

State = TypeVar("State")

# The places of sentences that are over are given away once the sentences that wait would take an eighth of the
# batch (or the last of them would), as each admission costs an encoder call; when none waits, a quarter of
# the batch has to be empty before the rest is moved together.
ADMIT_SHARE, EMPTY_SHARE = 8, 4
# Temperatures below this are raised to it. Only the likeliest tokens are drawn at either, and its reciprocal is
# finite in float32, by which CUDA multiplies in place of dividing.
SMALLEST_TEMPERATURE = 1e-30
# Tokens in a block of the vocabulary whose largest log-probability is found first.
BLOCK = 64


class Listed(NamedTuple):
    """Log-probabilities [n, v] of some tokens only, those of the increasing ids [v]; the rest is impossible."""

    logprobs: Tensor
    ids: Tensor


Block = Tensor | Listed  # a tensor is of the whole vocabulary, [n, V]


class Decoder(Protocol[State]):
    """What the search asks of a model, or of several: a state for one batch, moved on a token a step."""

    def start(self, sources: Sequence[Sequence[int]], width: int) -> State:
        """Read the sources (each with its EOS) and return a state with `width` rows for each."""

    def step(self, state: State, tokens_BK: Tensor, live_r: Tensor) -> Iterable[Block]:
        """Feed every row its last token [B, K] int64 and give the log-probabilities of the live rows, n rows at
        a time, in the order of `live_r` [r]: their places, increasing, among the flattened rows B * K. They are
        read once, one after the other, before the next call. Of what is listed there are K + 2 tokens at least,
        if the vocabulary is as large.

        The first token of a sentence is BOS. Both tensors lie on the CPU. EOS is never fed. Rows that are not
        live are fed any other token.
        """

    def reorder(self, state: State, parents_BK: Tensor) -> None:
        """Row k of each sentence goes on from what was its row `parents_BK[:, k]` [B, K]; it lies on the CPU."""

    def drop(self, state: State, sentences: Sequence[int]) -> None:
        """These sentences (indices into B) are over. Their places stay, their rows count as no longer live."""

    def admit(self, state: State, sources: Sequence[Sequence[int]], places: Sequence[int]) -> None:
        """Put fresh sentences into the `places` of dropped ones, and those for which there is no place behind
        the batch; their first step is still to come, so the sentences of one state differ in age."""

    def select(self, state: State, sentences: Sequence[int]) -> None:
        """Keep these sentences only (increasing indices into B)."""


@dataclass(frozen=True)
class Hypothesis:
    """A translation as token ids, without BOS and EOS."""

    tokens: tuple[int, ...]
    logprob: float  # natural logarithm, the sum over tokens, EOS included where there is one
    score: float  # logprob over the length penalty
    finished: bool  # ended in EOS, not at the limit
    token_logprobs: tuple[float, ...]  # of each token, and of EOS where there is one


def length_penalty(length: int, alpha: float, kind: str) -> float:
    """What a log-probability is divided by; `length` counts EOS.

    "gnmt" is ((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14). "length" is length ** alpha, by
    which fairseq, Marian and CTranslate2 divide.
    """
    return float(((5 + length) / 6 if kind == "gnmt" else length) ** alpha)


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
    """Search each source (token ids with EOS) for translations of at most its `limits` tokens, EOS counted.

    Yields (index into `sources`, up to `nbest` hypotheses, best first) as sentences finish, in no fixed
    order. Only hypotheses that ended in EOS count, so there may be fewer than `nbest`; if none ended, the
    best live one alone is returned, with `finished=False` and the score of its own length. Of equal scores
    the one found first comes first. `nbest` is at most `config.beam`. Sources are taken in the order given:
    sort them longest first. Raises VtransError if the decoder returns NaN.
    """
    assert 1 <= nbest <= config.beam, (nbest, config.beam)
    policy = _Beam(limits, config, nbest, bos_id, eos_id)
    return _run(decoder, sources, limits, config.batch_tokens, policy)


def sample(
    decoder: Decoder[State],
    sources: Sequence[Sequence[int]],
    limits: Sequence[int],
    *,
    seeds: Sequence[int],
    n: int,
    top_k: int,
    top_p: float,
    temperature: float,
    batch_tokens: int,
    bos_id: int,
    eos_id: int,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Draw `n` translations of each source; yields (index into `sources`, its samples in order).

    Log-probabilities are divided by `temperature` (above 0), then only the `top_k` most probable tokens are
    kept (0: all), then the fewest most probable ones whose mass reaches `top_p` (1: all). Row k of a sentence
    draws one number a step from a generator of (its seed, k) and takes the token at that place of the
    cumulative distribution in vocabulary order, so a sample depends neither on the batch nor on `n`.
    `logprob` is the model's own, before temperature and filters; `score` is its mean a token. A sample that
    reaches its limit without EOS has `finished=False`.
    """
    assert n >= 1, n
    assert temperature > 0, temperature
    assert top_k >= 0, top_k
    assert 0 < top_p <= 1, top_p
    assert len(seeds) == len(sources), (len(seeds), len(sources))
    policy = _Sampler(limits, seeds, n, top_k, top_p, temperature, bos_id, eos_id)
    return _run(decoder, sources, limits, batch_tokens, policy)


class Ensemble:
    """Several decoders as one: the mean of their probabilities by `weights`, which sum to 1; equal ones
    where none are given.

    Their vocabularies must be equal; the caller checks that.
    """

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
        shares = zip(logprobs, self.weights, strict=True)
        together = torch.stack([part.to(logprobs[0]) + math.log(share) for part, share in shares])  # [decoders, n, V]
        # Clamped: rounding may leave a sure token above 0, and the search counts on sums that never rise.
        mean = torch.logsumexp(together, 0).clamp_(max=0.0)
        # All list the same tokens, as they list them for the same sentences.
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


# The loop that beam search and sampling share.


class _Policy(Protocol):
    """What is done with the log-probabilities of a step; it holds the batch's rows, the loop the batch."""

    width: int  # K
    tokens_BK: Tensor  # the token that every row is fed next

    def live(self) -> Tensor:
        """The places [r], increasing, of the rows (among all B * K) that go on."""

    def enter(self, sentences: Sequence[int], places: Sequence[int]) -> None:
        """Fresh sentences (indices into the sources) take these places, as `Decoder.admit` does it."""

    def advance(self, blocks: Iterable[Block]) -> list[int]:
        """Take a step, given its log-probabilities [n, V] of n live rows at a time; return the sentences
        (indices into B) that are over."""

    def parents(self) -> Tensor | None:
        """The rows parents_BK that the rows go on from; None if every row goes on from itself."""

    def leave(self, b: int) -> list[Hypothesis]:
        """The hypotheses of a sentence that is over; its place is empty from now on."""

    def select(self, sentences: Sequence[int]) -> None:
        """Keep these sentences only."""


def _run(
    decoder: Decoder[State],
    sources: Sequence[Sequence[int]],
    limits: Sequence[int],
    batch_tokens: int,
    policy: _Policy,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Continuous batching: the place of a sentence that is over goes to one that waits, without waiting for
    the others of its batch, and no decoder is asked to go beyond a sentence's limit."""
    assert len(sources) == len(limits), (len(sources), len(limits))
    assert min(limits, default=1) >= 1, "a limit leaves no room for EOS"
    assert all(sources), "a source is empty; it ends in EOS at least"
    lengths = [len(source) for source in sources]
    batch: list[int | None] = []  # indices into sources; None: an empty place
    waiting = 0  # the first source that has not entered yet
    state: State | None = None
    while True:
        live = [b for b, i in enumerate(batch) if i is not None]
        fresh = _fresh(lengths, [i for i in batch if i is not None], waiting, batch_tokens)
        empty = len(batch) - len(live)
        if not live:
            state, batch = None, []
            policy.select([])
        elif empty > len(fresh) and (fresh or EMPTY_SHARE * empty >= len(batch)):
            # Also when fresh sentences leave a place empty: no place is empty for longer than any has lived.
            decoder.select(state, live)  # type: ignore[arg-type]  # a live batch has a state
            policy.select(live)
            batch = [batch[b] for b in live]
        if fresh:
            entering = [sources[i] for i in fresh]
            places = [b for b, i in enumerate(batch) if i is None]
            if state is None:
                state = decoder.start(entering, policy.width)
            else:
                decoder.admit(state, entering, places)
            policy.enter(fresh, places)
            batch += [None] * (len(fresh) - len(places))
            for b, i in zip([b for b, i in enumerate(batch) if i is None], fresh, strict=True):
                batch[b] = i
            waiting = fresh.stop
        if state is None:
            return
        over = policy.advance(decoder.step(state, policy.tokens_BK, policy.live()))
        for b in over:
            number = batch[b]
            assert number is not None
            batch[b] = None
            yield number, policy.leave(b)
        if any(i is not None for i in batch):
            parents_BK = policy.parents()
            if parents_BK is not None:
                decoder.reorder(state, parents_BK)
            if over:
                decoder.drop(state, over)


def _fresh(lengths: Sequence[int], batch: Sequence[int], waiting: int, batch_tokens: int) -> range:
    """The sentences that enter now: as many as fit into `batch_tokens` padded source tokens beside those
    in the batch, at least one if that is empty, none while they are too few to pay for an encoder call."""
    stop = waiting
    longest = max((lengths[i] for i in batch), default=0)
    while stop < len(lengths):
        longest = max(longest, lengths[stop])
        size = len(batch) + stop - waiting + 1
        if size > 1 and size * longest > batch_tokens:
            break
        stop += 1
    if stop < len(lengths) and ADMIT_SHARE * (stop - waiting) < len(batch):
        stop = waiting
    return range(waiting, stop)


def _wide(logprobs: Tensor) -> torch.dtype:
    """The type in which log-probabilities are summed: float64, except on Apple's MPS, which has none."""
    return torch.float32 if logprobs.device.type == "mps" else torch.float64


def _refuse() -> NoReturn:
    raise VtransError(
        "the model's log-probabilities are not numbers, or leave no token possible; its weights are damaged "
        "or its precision is too small for it: try another checkpoint, or float32."
    )


# Beam search.


@dataclass
class _Finished:
    """A hypothesis that ended in EOS: where it hangs in the history."""

    score: float
    logprob: float
    length: int  # tokens, EOS counted
    row: int  # of its parent among the live rows of the step before
    eos_logprob: float


@dataclass
class _Search:
    """The state of one sentence, on the host."""

    limit: int
    age: int = 0  # steps taken
    ended: int = 0  # hypotheses finished so far
    best: list[_Finished] = field(default_factory=list)  # the nbest of them, best first
    history: list[NDArray[np.float64]] = field(default_factory=list)  # a live beam [4, K] a step


# Rows of the tables [4, B, n] in which a step's extensions go to the host in one piece.
_SUM, _LOGPROB, _PARENT, _TOKEN = range(4)


class _Beam:
    """The rows of a beam search, on the host: of a step only the K + 2 best tokens of each row come there."""

    def __init__(self, limits: Sequence[int], config: SearchConfig, nbest: int, bos_id: int, eos_id: int) -> None:
        self.limits, self.config, self.nbest = limits, config, nbest
        self.bos_id, self.eos_id = bos_id, eos_id
        self.width = config.beam
        self.searches: list[_Search | None] = []  # None: an empty place
        self.tokens_BK = torch.empty(0, self.width, dtype=torch.int64)
        self.live_BK: NDArray[np.float64] = np.empty((0, self.width))  # summed log-probabilities; -inf: no row
        self.parents_BK: NDArray[np.float64] = np.empty((0, self.width))

    def enter(self, sentences: Sequence[int], places: Sequence[int]) -> None:
        added = len(sentences) - len(places)
        taken = [*places, *range(len(self.searches), len(self.searches) + added)]
        self.searches += [None] * added
        for b, i in zip(taken, sentences, strict=True):
            self.searches[b] = _Search(self.limits[i])
        self.tokens_BK = torch.cat((self.tokens_BK, self.tokens_BK.new_empty(added, self.width)))
        self.live_BK = np.concatenate((self.live_BK, np.empty((added, self.width))))
        self.tokens_BK[taken] = self.bos_id
        self.live_BK[taken] = -math.inf
        self.live_BK[taken, 0] = 0.0  # all rows are BOS and equal, so one of them is extended

    def live(self) -> Tensor:
        return torch.from_numpy(np.flatnonzero(self.live_BK > -math.inf))

    def advance(self, blocks: Iterable[Block]) -> list[int]:
        # Of a row no more than its K best tokens and EOS can be among the first K ranks or refill the beam.
        values_rm, tokens_rm = _best_tokens(blocks, self.width + 1)
        if np.isnan(values_rm).any():
            _refuse()
        # Rows that are not live take part with nothing that is possible.
        at_r, shape = np.flatnonzero(self.live_BK > -math.inf), (self.live_BK.size, values_rm.shape[1])
        values_Nm, tokens_Nm = np.full(shape, -math.inf), np.full(shape, self.bos_id)
        values_Nm[at_r], tokens_Nm[at_r] = values_rm, tokens_rm
        extensions, live = self._rank(values_Nm, tokens_Nm)
        self.live_BK, self.parents_BK = live[_SUM].copy(), live[_PARENT]
        self.tokens_BK = torch.from_numpy(live[_TOKEN].astype(np.int64))
        return self._record(extensions, live)

    def _rank(
        self, values_Nm: NDArray[np.float64], tokens_Nm: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The K best extensions and the K best that are not EOS, each [4, B, K], best first."""
        (B, K), m = self.live_BK.shape, values_Nm.shape[1]
        steps_BE = values_Nm.reshape(B, K * m)
        sums_BE = steps_BE + self.live_BK.repeat(m, axis=1)
        # Stable: of equal sums the one of the earlier row comes first, and in a row the better token.
        places_Bn = (-sums_BE).argsort(axis=1, kind="stable")[:, : 2 * K]
        at_B1 = np.arange(B)[:, None]
        tokens_Bn = tokens_Nm.reshape(B, K * m)[at_B1, places_Bn]
        # Token ids and rows are whole numbers, exact in floating point.
        table = np.stack((sums_BE[at_B1, places_Bn], steps_BE[at_B1, places_Bn], places_Bn // m, tokens_Bn))
        # A stable sort puts the K best others first: K rows have K EOS at most, and V is above 1.
        others_BK = (tokens_Bn == self.eos_id).argsort(axis=1, kind="stable")[:, :K]
        return table[:, :, :K], table[:, at_B1, others_BK]

    def _record(self, extensions: NDArray[np.float64], live: NDArray[np.float64]) -> list[int]:
        """Enter a step, extensions and new live beam [4, B, K] each, into the searches; who is over?"""
        ends_BK = (extensions[_TOKEN] == self.eos_id) & (extensions[_SUM] > -math.inf)
        some_end_B = ends_BK.any(1).tolist()
        top_B = live[_SUM, :, 0].tolist()
        over = []
        for b, search in enumerate(self.searches):
            if search is None:
                continue
            search.age += 1
            if some_end_B[b]:
                for k in np.flatnonzero(ends_BK[b]):
                    self._finish(search, extensions[:, b, k].tolist())
            if top_B[b] > -math.inf:
                search.history.append(live[:, b])
            if self._is_over(search, top_B[b]):
                over.append(b)
        return over

    def _penalty(self, length: int) -> float:
        return length_penalty(length, self.config.alpha, self.config.length_penalty)

    def _finish(self, search: _Search, extension: list[float]) -> None:
        logprob, eos_logprob, row, _ = extension
        search.ended += 1
        new = _Finished(logprob / self._penalty(search.age), logprob, search.age, int(row), eos_logprob)
        place = bisect_right(search.best, -new.score, key=lambda other: -other.score)
        search.best.insert(place, new)
        del search.best[self.nbest :]

    def _is_over(self, search: _Search, top: float) -> bool:
        """Whether nothing that is still to come counts; `top` is the largest sum of a live row."""
        if search.age == search.limit or top == -math.inf:
            return True
        if self.config.stop == "count" and search.ended >= self.width:
            return True
        if len(search.best) < self.nbest:
            return False
        # A sum only falls, so with alpha >= 0 a live row does best by ending at the limit, where the penalty
        # is largest, and with alpha < 0 by ending at once. Equal is not enough to displace what was first.
        bound = top / max(self._penalty(search.age + 1), self._penalty(search.limit))
        return bound <= search.best[-1].score

    def parents(self) -> Tensor | None:
        if (self.parents_BK == np.arange(self.width)).all():
            return None
        return torch.from_numpy(self.parents_BK.astype(np.int64))

    def leave(self, b: int) -> list[Hypothesis]:
        search = self.searches[b]
        assert search is not None
        self.searches[b] = None
        self.live_BK[b] = -math.inf
        found = []
        for end in search.best:
            tokens, logprobs = _trace(search.history[: end.length - 1], end.row)
            found.append(Hypothesis(tokens, end.logprob, end.score, True, (*logprobs, end.eos_logprob)))
        if not found:
            tokens, logprobs = _trace(search.history, 0)
            logprob = float(search.history[-1][_SUM, 0]) if tokens else 0.0
            score = logprob / self._penalty(len(tokens)) if tokens else 0.0
            found.append(Hypothesis(tokens, logprob, score, False, logprobs))
        return found

    def select(self, sentences: Sequence[int]) -> None:
        self.searches = [self.searches[b] for b in sentences]
        self.live_BK, self.tokens_BK = self.live_BK[list(sentences)], self.tokens_BK[list(sentences)]


def _best_tokens(blocks: Iterable[Block], count: int) -> tuple[NDArray[np.floating], NDArray[np.integer]]:
    """The `count` best tokens of every row (or all, if there are fewer), equal ones by their ids: their
    log-probabilities [r, m] and ids [r, m]."""
    found: list[tuple[NDArray[np.floating], NDArray[np.integer]]] = []
    later: list[tuple[Block, Tensor, Tensor]] = []
    for block in blocks:
        logprobs = logprobs_of(block)
        values, columns = _top(logprobs, count + 1)
        if logprobs.device.type == "cpu":  # where looking costs nothing, and the block is let go at once
            values_nm, columns_nm = values.numpy(), columns.numpy()
            _order_ties(logprobs, values_nm, columns_nm)
            found.append((values_nm, _named(columns_nm, block)))
        else:
            later.append((block, values, columns))
    if later:  # one read for all of them
        wide = _wide(later[0][1])
        pairs = torch.cat([torch.stack((values.to(wide), columns.to(wide))) for _, values, columns in later], 1).cpu()
        row = 0
        for block, _, _ in later:
            logprobs = logprobs_of(block)
            values_nm, columns_nm = pairs[:, row : row + len(logprobs)].numpy()
            _order_ties(logprobs, values_nm, columns_nm)
            found.append((values_nm, _named(columns_nm, block)))
            row += len(logprobs)
    values_rm, tokens_rm = (np.concatenate(part) for part in zip(*found, strict=True))
    return values_rm[:, :count], tokens_rm[:, :count]


def logprobs_of(block: Block) -> Tensor:
    """The log-probabilities [n, v] of a block."""
    return block.logprobs if isinstance(block, Listed) else block


def _named(columns_nm: NDArray[Any], block: Block) -> NDArray[Any]:
    """The tokens that stand in these columns of a block; in one of the whole vocabulary each stands in its own."""
    if not isinstance(block, Listed):
        return columns_nm
    ids: NDArray[np.int64] = block.ids.cpu().numpy()
    return ids[columns_nm.astype(np.int64)]


def _order_ties(block: Tensor, values_nm: NDArray[np.floating], tokens_nm: NDArray[np.integer]) -> None:
    """Puts the lower ids first among equal values, in place, and the lowest of all that equal the last one."""
    equal_n = ((values_nm[:, 1:] == values_nm[:, :-1]) & (values_nm[:, 1:] > -math.inf)).any(1)
    rows = np.flatnonzero(equal_n)
    if block.device.type != "cpu" and len(rows):
        values_nm[rows], tokens_nm[rows] = _sorted(block[torch.from_numpy(rows).to(block.device)], values_nm.shape[1])
        return
    for row in rows:
        candidates = (block[row] >= float(values_nm[row, -1])).nonzero().squeeze(1)
        values, order = block[row][candidates].sort(descending=True, stable=True)
        m = values_nm.shape[1]
        values_nm[row], tokens_nm[row] = values[:m].cpu().numpy(), candidates[order[:m]].cpu().numpy()


def _sorted(logprobs_nV: Tensor, count: int) -> NDArray[np.floating]:
    """The best `count` values and tokens [2, n, count], equal ones by their ids: in one read, for devices that have to
    be waited for, where ties are common in half precision."""
    values, order = logprobs_nV.sort(dim=1, descending=True, stable=True)
    wide = _wide(values)
    both: NDArray[np.floating] = torch.stack((values[:, :count].to(wide), order[:, :count].to(wide))).cpu().numpy()
    return both


def _top(logprobs_nV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """As logprobs.topk(count), or all if there are fewer; the order of equal values is anybody's.

    On a CPU topk looks at every token by itself, amax at many at once: the best `count` stand in those `count`
    blocks of the vocabulary whose best are the best, or in the rest that fills no block.
    """
    n, V = logprobs_nV.shape
    if count * BLOCK > V // 2 or n * V < 1 << 17:
        return logprobs_nV.topk(min(count, V), dim=1)
    blocks = V // BLOCK
    blocks_nbt = logprobs_nV[:, : blocks * BLOCK].view(n, blocks, BLOCK)
    best_nc = blocks_nbt.amax(2).topk(count, dim=1, sorted=False).indices
    candidates = blocks_nbt[torch.arange(n, device=best_nc.device)[:, None], best_nc].flatten(1)
    if blocks * BLOCK < V:
        candidates = torch.cat((candidates, logprobs_nV[:, blocks * BLOCK :]), 1)
    values, places = candidates.topk(count, dim=1)
    block_of = torch.cat((best_nc, best_nc.new_full((n, 1), blocks)), 1).gather(1, places // BLOCK)
    return values, block_of * BLOCK + places % BLOCK


def _trace(history: Sequence[NDArray[np.float64]], row: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The tokens, and their log-probabilities, that lead to a row of the last live beam."""
    tokens, logprobs = [], []
    for beam in reversed(history):
        tokens.append(int(beam[_TOKEN, row]))
        logprobs.append(float(beam[_LOGPROB, row]))
        row = int(beam[_PARENT, row])
    return tuple(reversed(tokens)), tuple(reversed(logprobs))


# Sampling.


@dataclass
class _Draw:
    """One sample while it grows."""

    generator: random.Random
    limit: int
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)  # of the tokens, and of EOS
    finished: bool = False

    @property
    def over(self) -> bool:
        return self.finished or len(self.tokens) == self.limit


class _Sampler:
    """The rows of ancestral sampling; a row that is over waits, fed BOS, for the others of its sentence."""

    def __init__(
        self,
        limits: Sequence[int],
        seeds: Sequence[int],
        n: int,
        top_k: int,
        top_p: float,
        temperature: float,
        bos_id: int,
        eos_id: int,
    ) -> None:
        self.limits, self.seeds, self.width = limits, seeds, n
        self.top_k, self.top_p = top_k, top_p
        self.temperature = max(temperature, SMALLEST_TEMPERATURE)
        self.bos_id, self.eos_id = bos_id, eos_id
        self.draws: list[list[_Draw]] = []  # empty: an empty place
        self.tokens_BK = torch.empty(0, n, dtype=torch.int64)

    def enter(self, sentences: Sequence[int], places: Sequence[int]) -> None:
        added = len(sentences) - len(places)
        taken = [*places, *range(len(self.draws), len(self.draws) + added)]
        self.draws += [[] for _ in range(added)]
        for b, i in zip(taken, sentences, strict=True):
            # Python promises that a text seed gives the same numbers in every version.
            generators = [random.Random(f"{self.seeds[i]} {k}") for k in range(self.width)]
            self.draws[b] = [_Draw(generator, self.limits[i]) for generator in generators]
        self.tokens_BK = torch.cat((self.tokens_BK, self.tokens_BK.new_empty(added, self.width)))
        self.tokens_BK[taken] = self.bos_id

    def live(self) -> Tensor:
        K = self.width
        rows = [b * K + k for b, draws in enumerate(self.draws) for k, draw in enumerate(draws) if not draw.over]
        return torch.tensor(rows)

    def advance(self, blocks: Iterable[Block]) -> list[int]:
        growing = [draw for draws in self.draws for draw in draws if not draw.over]
        places = (draw.generator.random() for draw in growing)
        drawn = torch.cat([self._draw(block, list(islice(places, len(logprobs_of(block))))) for block in blocks], 1)
        tokens_r, logprobs_r = drawn.cpu().double().numpy()  # the one read of a step
        for draw, token, logprob in zip(growing, tokens_r, logprobs_r, strict=True):
            if not logprob > -math.inf:
                _refuse()
            draw.logprobs.append(float(logprob))
            if token == self.eos_id:
                draw.finished = True
            else:
                draw.tokens.append(int(token))
        next_tokens = [
            [self.bos_id if draw.over else draw.tokens[-1] for draw in draws] or [self.bos_id] * self.width
            for draws in self.draws
        ]
        self.tokens_BK = torch.tensor(next_tokens)
        return [b for b, draws in enumerate(self.draws) if draws and all(draw.over for draw in draws)]

    def _draw(self, block: Block, places: Sequence[float]) -> Tensor:
        """The tokens of n rows and their log-probabilities [2, n]."""
        logprobs_nV = logprobs_of(block)
        wide_nV = logprobs_nV.to(_wide(logprobs_nV))
        places_n = torch.tensor(places, dtype=wide_nV.dtype).to(wide_nV.device)
        columns_n = _at(self._distribution(wide_nV), places_n)
        tokens_n = block.ids[columns_n] if isinstance(block, Listed) else columns_n
        return torch.stack((tokens_n.to(wide_nV.dtype), wide_nV.gather(1, columns_n.unsqueeze(1)).squeeze(1)))

    def _distribution(self, logprobs_nV: Tensor) -> Tensor:
        """Probabilities [n, V] after temperature and filters; what is left need not sum to 1."""
        # Subtract the largest before dividing: a small temperature then overflows to -inf for the others only.
        gaps_nV = logprobs_nV - logprobs_nV.amax(1, keepdim=True)
        probs_nV = torch.softmax(gaps_nV / self.temperature, 1)
        V = probs_nV.shape[1]
        if not 0 < self.top_k < V and self.top_p == 1:
            return probs_nV
        sorted_nV, order_nV = probs_nV.sort(dim=1, descending=True, stable=True)
        if 0 < self.top_k < V:
            sorted_nV[:, self.top_k :] = 0
        if self.top_p < 1:
            mass_nV = sorted_nV.cumsum(1)
            before_nV = mass_nV - sorted_nV
            sorted_nV = sorted_nV.where(before_nV < self.top_p * mass_nV[:, -1:], 0)
        return torch.zeros_like(probs_nV).scatter(1, order_nV, sorted_nV)

    def parents(self) -> Tensor | None:
        return None

    def leave(self, b: int) -> list[Hypothesis]:
        found = []
        draws, self.draws[b] = self.draws[b], []
        for draw in draws:
            logprob = math.fsum(draw.logprobs)
            score = logprob / len(draw.logprobs)
            found.append(Hypothesis(tuple(draw.tokens), logprob, score, draw.finished, tuple(draw.logprobs)))
        return found

    def select(self, sentences: Sequence[int]) -> None:
        self.draws = [self.draws[b] for b in sentences]
        self.tokens_BK = self.tokens_BK[list(sentences)]


def _at(probs_nV: Tensor, places_n: Tensor) -> Tensor:
    """The tokens [n] at the places (in [0, 1)) of the cumulative distributions, in vocabulary order."""
    mass_nV = probs_nV.cumsum(1)
    total_n1 = mass_nV[:, -1:]
    below_n1 = torch.nextafter(total_n1, torch.zeros_like(total_n1))  # a place never rounds up to the total
    tokens_n1 = torch.searchsorted(mass_nV, torch.minimum(places_n.unsqueeze(1) * total_n1, below_n1), right=True)
    return tokens_n1.squeeze(1).clamp(max=probs_nV.shape[1] - 1)
