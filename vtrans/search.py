"""Beam search and ancestral sampling over a small decoder protocol; this room knows no network.

The search of a sentence, by definition. Each step ranks the 2K best extensions of the K live rows by
summed log-probability; equal sums rank by parent row, then by the token's own log-probability, then by
token id. EOS among the first K ranks finishes a hypothesis, EOS further down is dropped, and the live beam
is refilled with the best K other extensions. A sentence ends when K hypotheses have finished
(`stop="count"`) or when no live one can win any more (`stop="exhaustive"`), and always at its own limit,
never the batch's. What shares a batch with a sentence never changes its result.

Legend: B sentences in the batch, K rows of a sentence (the beam's width, or samples), V vocabulary,
b sentences that stay (b <= B), m tokens kept of a row, n extensions ranked (n <= 2K), T tokens.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtrans.config import SearchConfig
from vtrans.errors import VtransError

State = TypeVar("State")

# Waiting sentences enter a running batch once they are a quarter as many as those in it (or the last ones):
# each admission costs an encoder call and a copy of the caches.
ADMIT_SHARE = 4


class Decoder(Protocol[State]):
    """What the search asks of a model, or of several: a state for one batch, moved on a token a step."""

    def start(self, sources: Sequence[Sequence[int]], width: int) -> State:
        """Read the sources (each with its EOS) and return a state with `width` rows for each."""

    def step(self, state: State, tokens_BK: Tensor) -> Tensor:
        """Feed every row its last token [B, K] int64 and return log-probabilities [B, K, V].

        The first token of a sentence is BOS. At the first call of all the tokens lie on the CPU, then where
        the log-probabilities lay. EOS is never fed. Rows that are no longer live are fed any other token;
        what they give is ignored, but must not be NaN.
        """

    def select(self, state: State, sentences_b: Tensor, parents_bK: Tensor) -> None:
        """Keep the sentences `sentences_b` [b] (increasing indices into B; b = B means all of them);
        row k of a kept sentence goes on from what was its row `parents_bK[:, k]` [b, K]."""

    def admit(self, state: State, sources: Sequence[Sequence[int]]) -> None:
        """Append fresh sentences at the end of the batch; their first step is still to come, so the
        sentences of one state may have different ages."""


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

    def step(self, state: list[Any], tokens_BK: Tensor) -> Tensor:
        logprobs = [d.step(s, tokens_BK) for d, s in zip(self.decoders, state, strict=True)]
        shares = zip(logprobs, self.weights, strict=True)
        together = torch.stack(
            [part.to(logprobs[0]) + math.log(share) for part, share in shares]
        )  # [decoders, B, K, V]
        # Clamped: rounding may leave a sure token above 0, and the search counts on sums that never rise.
        return torch.logsumexp(together, 0).clamp_(max=0.0)

    def select(self, state: list[Any], sentences_b: Tensor, parents_bK: Tensor) -> None:
        for decoder, part in zip(self.decoders, state, strict=True):
            decoder.select(part, sentences_b, parents_bK)

    def admit(self, state: list[Any], sources: Sequence[Sequence[int]]) -> None:
        for decoder, part in zip(self.decoders, state, strict=True):
            decoder.admit(part, sources)


# The loop that beam search and sampling share.


class _Policy(Protocol):
    """What is done with the log-probabilities of a step; it holds the batch's rows, the loop the batch."""

    width: int  # K
    tokens_BK: Tensor  # the token that every row is fed next

    def enter(self, sentences: Sequence[int]) -> None:
        """Append fresh sentences (indices into the sources) at the end of the batch."""

    def advance(self, logprobs_BKV: Tensor) -> list[int]:
        """Take a step; return the indices into B of the sentences that are over."""

    def result(self, b: int) -> list[Hypothesis]:
        """The hypotheses of a sentence that is over."""

    def keep(self, stay: list[int]) -> Tensor | None:
        """Forget all but these sentences; return parents_bK, or None if every row goes on from itself."""


def _run(
    decoder: Decoder[State],
    sources: Sequence[Sequence[int]],
    limits: Sequence[int],
    batch_tokens: int,
    policy: _Policy,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Continuous batching: sentences leave the batch at the step in which they end (the rows are regrouped
    then anyway, and so no decoder is asked to go beyond a sentence's limit), and others enter in their place.
    """
    assert len(sources) == len(limits), (len(sources), len(limits))
    assert min(limits, default=1) >= 1, "a limit leaves no room for EOS"
    assert all(sources), "a source is empty; it ends in EOS at least"
    lengths = [len(source) for source in sources]
    batch: list[int] = []  # indices into sources
    waiting = 0  # the first source that has not entered yet
    state: State | None = None
    while batch or waiting < len(sources):
        fresh = _fresh(lengths, batch, waiting, batch_tokens)
        if fresh:
            entering = [sources[i] for i in fresh]
            if state is None:
                state = decoder.start(entering, policy.width)
            else:
                decoder.admit(state, entering)
            policy.enter(fresh)
            batch.extend(fresh)
            waiting = fresh.stop
        assert state is not None
        logprobs_BKV = decoder.step(state, policy.tokens_BK)
        over = policy.advance(logprobs_BKV)
        for b in over:
            yield batch[b], policy.result(b)
        gone = set(over)
        stay = [b for b in range(len(batch)) if b not in gone]
        parents_bK = policy.keep(stay)
        if not stay:
            state = None
        elif gone or parents_bK is not None:
            if parents_bK is None:
                parents_bK = torch.arange(policy.width, device=logprobs_BKV.device).expand(len(stay), -1)
            decoder.select(state, torch.tensor(stay, device=logprobs_BKV.device), parents_bK)
        batch = [batch[b] for b in stay]


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
    """The rows of a beam search. The live beam stays on the device; one table a step comes to the host."""

    def __init__(self, limits: Sequence[int], config: SearchConfig, nbest: int, bos_id: int, eos_id: int) -> None:
        self.limits, self.config, self.nbest = limits, config, nbest
        self.bos_id, self.eos_id = bos_id, eos_id
        self.width = config.beam
        self.searches: list[_Search] = []
        self.tokens_BK = torch.empty(0, self.width, dtype=torch.int64)
        self.live_BK = torch.empty(0, self.width, dtype=torch.float64)  # summed log-probabilities; -inf: no row
        self.parents_BK = torch.empty(0, self.width, dtype=torch.int64)
        self.moved = False  # whether the step made any row go on from another one

    def enter(self, sentences: Sequence[int]) -> None:
        self.searches += [_Search(self.limits[i]) for i in sentences]
        tokens_fK = self.tokens_BK.new_full((len(sentences), self.width), self.bos_id)
        live_fK = self.live_BK.new_full((len(sentences), self.width), -math.inf)
        live_fK[:, 0] = 0.0  # all rows are BOS and equal, so one of them is extended
        self.tokens_BK = torch.cat((self.tokens_BK, tokens_fK))
        self.live_BK = torch.cat((self.live_BK, live_fK))

    def advance(self, logprobs_BKV: Tensor) -> list[int]:
        self.live_BK = self.live_BK.to(logprobs_BKV.device, _wide(logprobs_BKV))
        # Of a row no more than its K best tokens and EOS can be among the first K ranks or refill the beam.
        values_BKm, tokens_BKm, tied_BK = _top_tokens(logprobs_BKV, self.width + 1)
        tied_BK &= self.live_BK > -math.inf
        extensions, live = self._rank(values_BKm, tokens_BKm)
        tied = tied_BK.any().to(live).expand(4, len(live[0]), 1)
        table = torch.cat((extensions, live, tied), 2).cpu()  # the one read of a step
        if table[0, 0, -1]:
            _order_ties(logprobs_BKV, values_BKm, tokens_BKm, tied_BK)
            extensions, live = self._rank(values_BKm, tokens_BKm)
            table = torch.cat((extensions, live, tied), 2).cpu()
        self.live_BK = live[_SUM]
        self.parents_BK = live[_PARENT].long()
        self.tokens_BK = live[_TOKEN].long()
        host: NDArray[np.float64] = table.double().numpy()
        K = self.width
        return self._record(host[:, :, :K], host[:, :, K : 2 * K])

    def _rank(self, values_BKm: Tensor, tokens_BKm: Tensor) -> tuple[Tensor, Tensor]:
        """The K best extensions and the K best that are not EOS, each [4, B, K], best first."""
        B, K, m = values_BKm.shape
        steps_BKm = values_BKm.to(self.live_BK.dtype)
        sums_BE = (self.live_BK.unsqueeze(2) + steps_BKm).view(B, K * m)
        # Stable: of equal sums the one of the earlier row comes first, and in a row the better token.
        sums_Bn, places_Bn = sums_BE.sort(dim=1, descending=True, stable=True)
        sums_Bn, places_Bn = sums_Bn[:, : 2 * K], places_Bn[:, : 2 * K]
        tokens_Bn = tokens_BKm.view(B, K * m).gather(1, places_Bn)
        table = torch.stack(
            (
                sums_Bn,
                steps_BKm.view(B, K * m).gather(1, places_Bn),
                (places_Bn // m).to(sums_Bn.dtype),
                tokens_Bn.to(sums_Bn.dtype),  # whole numbers, exact in floating point
            )
        )
        # A stable sort puts the K best others first: K rows have K EOS at most, and V is above 1.
        others_BK = (tokens_Bn == self.eos_id).to(torch.uint8).sort(dim=1, stable=True).indices[:, :K]
        live = table.gather(2, others_BK.expand(4, B, K))
        return table[:, :, :K], live

    def _record(self, extensions: NDArray[np.float64], live: NDArray[np.float64]) -> list[int]:
        """Enter a step, extensions and new live beam [4, B, K] each, into the searches; who is over?"""
        if np.isnan(extensions[_SUM]).any():
            _refuse()
        self.moved = bool((live[_PARENT] != np.arange(self.width)).any())
        ends_BK = (extensions[_TOKEN] == self.eos_id) & (extensions[_SUM] > -math.inf)
        some_end_B = ends_BK.any(1).tolist()
        top_B = live[_SUM, :, 0].tolist()
        over = []
        for b, search in enumerate(self.searches):
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

    def result(self, b: int) -> list[Hypothesis]:
        search = self.searches[b]
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

    def keep(self, stay: list[int]) -> Tensor | None:
        if len(stay) < len(self.searches):
            stay_b = torch.tensor(stay, dtype=torch.int64, device=self.live_BK.device)
            self.searches = [self.searches[b] for b in stay]
            self.live_BK, self.tokens_BK = self.live_BK[stay_b], self.tokens_BK[stay_b]
            self.parents_BK = self.parents_BK[stay_b]
        return self.parents_BK if self.moved else None


def _top_tokens(logprobs_BKV: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` best tokens of every row: values [B, K, m], tokens [B, K, m], and whether equal values
    may stand in the wrong order, or a wrong one at the end, [B, K]: torch.topk promises none."""
    if logprobs_BKV.shape[2] <= count:
        values_BKm, tokens_BKm = logprobs_BKV.sort(dim=2, descending=True, stable=True)
        return values_BKm, tokens_BKm, torch.zeros_like(values_BKm[:, :, 0], dtype=torch.bool)
    values, tokens = logprobs_BKV.topk(count + 1, dim=2)
    tied_BK = ((values[:, :, 1:] == values[:, :, :-1]) & (values[:, :, 1:] > -math.inf)).any(2)
    return values[:, :, :count].contiguous(), tokens[:, :, :count].contiguous(), tied_BK


def _order_ties(logprobs_BKV: Tensor, values_BKm: Tensor, tokens_BKm: Tensor, tied_BK: Tensor) -> None:
    """Put the lower ids first among equal values of the tied rows, in place. It sorts whole rows, but only
    those that need it."""
    m = values_BKm.shape[2]
    values, tokens = logprobs_BKV[tied_BK].sort(dim=1, descending=True, stable=True)
    values_BKm[tied_BK], tokens_BKm[tied_BK] = values[:, :m], tokens[:, :m]


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
        self.top_k, self.top_p, self.temperature = top_k, top_p, temperature
        self.bos_id, self.eos_id = bos_id, eos_id
        self.draws: list[list[_Draw]] = []
        self.tokens_BK = torch.empty(0, n, dtype=torch.int64)

    def enter(self, sentences: Sequence[int]) -> None:
        for i in sentences:
            # Python promises that a text seed gives the same numbers in every version.
            generators = [random.Random(f"{self.seeds[i]} {k}") for k in range(self.width)]
            self.draws.append([_Draw(generator, self.limits[i]) for generator in generators])
        tokens_fK = self.tokens_BK.new_full((len(sentences), self.width), self.bos_id)
        self.tokens_BK = torch.cat((self.tokens_BK, tokens_fK))

    def advance(self, logprobs_BKV: Tensor) -> list[int]:
        wide = logprobs_BKV.to(_wide(logprobs_BKV))
        places = [[0.5 if draw.over else draw.generator.random() for draw in draws] for draws in self.draws]
        places_BK = torch.tensor(places, dtype=wide.dtype).to(wide.device)
        tokens_BK = _at(self._distribution(wide), places_BK)
        chosen_BK = wide.gather(2, tokens_BK.unsqueeze(2)).squeeze(2)
        table = torch.stack((tokens_BK.to(wide.dtype), chosen_BK)).cpu()  # the one read of a step
        tokens, logprobs = table.double().numpy()
        next_tokens = []
        for b, draws in enumerate(self.draws):
            for k, draw in enumerate(draws):
                if draw.over:
                    continue
                if not logprobs[b, k] > -math.inf:
                    _refuse()
                draw.logprobs.append(float(logprobs[b, k]))
                if tokens[b, k] == self.eos_id:
                    draw.finished = True
                else:
                    draw.tokens.append(int(tokens[b, k]))
            next_tokens.append([self.bos_id if draw.over else draw.tokens[-1] for draw in draws])
        self.tokens_BK = torch.tensor(next_tokens).to(wide.device)
        return [b for b, draws in enumerate(self.draws) if all(draw.over for draw in draws)]

    def _distribution(self, logprobs_BKV: Tensor) -> Tensor:
        """Probabilities [B, K, V] after temperature and filters; what is left need not sum to 1."""
        probs_BKV = torch.softmax(logprobs_BKV / self.temperature, 2)
        V = probs_BKV.shape[2]
        if not 0 < self.top_k < V and self.top_p == 1:
            return probs_BKV
        sorted_BKV, order_BKV = probs_BKV.sort(dim=2, descending=True, stable=True)
        if 0 < self.top_k < V:
            sorted_BKV[:, :, self.top_k :] = 0
        if self.top_p < 1:
            mass_BKV = sorted_BKV.cumsum(2)
            before_BKV = mass_BKV - sorted_BKV
            sorted_BKV = sorted_BKV.where(before_BKV < self.top_p * mass_BKV[:, :, -1:], 0)
        return torch.zeros_like(probs_BKV).scatter(2, order_BKV, sorted_BKV)

    def result(self, b: int) -> list[Hypothesis]:
        found = []
        for draw in self.draws[b]:
            logprob = math.fsum(draw.logprobs)
            score = logprob / len(draw.logprobs)
            found.append(Hypothesis(tuple(draw.tokens), logprob, score, draw.finished, tuple(draw.logprobs)))
        return found

    def keep(self, stay: list[int]) -> Tensor | None:
        if len(stay) < len(self.draws):
            self.draws = [self.draws[b] for b in stay]
            self.tokens_BK = self.tokens_BK[stay]
        return None


def _at(probs_BKV: Tensor, places_BK: Tensor) -> Tensor:
    """The tokens [B, K] at the places (in [0, 1)) of the cumulative distributions, in vocabulary order."""
    mass_BKV = probs_BKV.cumsum(2)
    total_BK1 = mass_BKV[:, :, -1:]
    below = torch.nextafter(total_BK1, torch.zeros_like(total_BK1))  # a place never rounds up to the total
    tokens_BK1 = torch.searchsorted(mass_BKV, torch.minimum(places_BK.unsqueeze(2) * total_BK1, below), right=True)
    return tokens_BK1.squeeze(2).clamp(max=probs_BKV.shape[2] - 1)
