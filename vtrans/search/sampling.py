"""Ancestral sampling: each row draws its next token from the model's distribution.

Legend: B sentences in the batch, K samples per sentence, r live rows, n rows of a block, V vocabulary.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from vtrans.search.decoder import Best, Decoder, LogprobBlock, State, bad_logprobs
from vtrans.search.history import Floats, Ints
from vtrans.search.loop import Hypothesis, SearchTask, StepBatch, run
from vtrans.search.options import Sampling
from vtrans.search.ranking import LOWEST


def sample(
    decoder: Decoder[State], task: SearchTask, sampling: Sampling, seeds: Sequence[int]
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Samples `task.nbest` translations of each source; yields what `loop.run` yields.

    Log-probabilities are divided by `temperature`. Three filters follow: tokens with a probability of at least
    `epsilon`, or the most probable token if there are none (Hewitt et al. 2022); of these, the `top_k` most probable
    (0: all); of these, the fewest most probable whose mass reaches `top_p` (1: all). In each step, row k of a sentence
    draws one number from a generator seeded with (the sentence's seed, k), and takes the token at that point of the
    cumulative distribution in vocabulary order. A sample therefore depends neither on its batch nor on `nbest`. `seeds`
    holds one seed per source; `sampling.seed` is unused. `logprob` is the model's own, before temperature and filters;
    `score` is its mean per token. A sample has `finished=False` if it reaches its limit without EOS, or if the rules
    leave no possible token. Raises LogprobsError if the decoder returns NaN.
    """
    assert len(seeds) == len(task.sources), (len(seeds), len(task.sources))
    return run(_Sampler(decoder, task, sampling, seeds))


class _Sampler(StepBatch):
    """The samples of a batch. A complete sample is fed BOS until all samples of its sentence are complete."""

    def __init__(self, decoder: Decoder[State], task: SearchTask, sampling: Sampling, seeds: Sequence[int]) -> None:
        # With many samples, few sentences fill a batch: it has no more rows than in a search.
        super().__init__(decoder, task, task.nbest)
        self.sampling, self.seeds = sampling, seeds
        self.generators: dict[int, list[random.Random]] = {}  # by sentence, one per row
        self.samples: dict[int, dict[int, Hypothesis]] = {}  # by sentence, then by row; complete samples only

    def enter(self, sentences: Sequence[int]) -> None:
        super().enter(sentences)
        for i in sentences:
            # Python promises that a text seed gives the same numbers in every version.
            self.generators[i] = [random.Random(f"{self.seeds[i]} {k}") for k in range(self.history.width)]
            self.samples[i] = {}

    def extend(self, blocks: Iterable[LogprobBlock], live_r: Ints) -> None:
        history = self.history
        rows = [divmod(row, history.width) for row in live_r.tolist()]
        places = (self.generators[history.sentence(b)][k].random() for b, k in rows)
        drawn = [self._draw(block, places) for block in blocks]
        tokens_r, logprobs_r = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
        ends_r, stuck_r = tokens_r == self.task.eos_id, logprobs_r == -math.inf
        tokens_N, logprobs_N = np.full(history.sums_BK.size, self.task.bos_id), np.zeros(history.sums_BK.size)
        tokens_N[live_r], logprobs_N[live_r] = np.where(ends_r | stuck_r, self.task.bos_id, tokens_r), logprobs_r
        history.extend(None, tokens_N.reshape(-1, history.width), logprobs_N.reshape(-1, history.width))
        for (b, k), end, stuck in zip(rows, ends_r.tolist(), stuck_r.tolist(), strict=True):
            i = history.sentence(b)
            if end or stuck or history.age(b) == self.task.limits[i]:
                history.sums_BK[b, k] = -math.inf
                self.samples[i][k] = _hypothesis(history.path(b, k), end=end, stuck=stuck)

    def _draw(self, block: LogprobBlock, places: Iterator[float]) -> tuple[Ints, Floats]:
        """Draws one token for each row of a block; returns the tokens and their log-probabilities [n]."""
        assert not isinstance(block, Best)
        logprobs_nV = block.astype(np.float64)
        if np.isnan(logprobs_nV.max()):
            raise bad_logprobs()
        places_n = np.fromiter(islice(places, len(block)), dtype=np.float64)
        tokens_n = tokens_at(distribution(logprobs_nV, self.sampling), places_n)
        return tokens_n, logprobs_nV[np.arange(len(block)), tokens_n]

    def leave(self, b: int) -> list[Hypothesis]:
        i = self.history.sentence(b)
        del self.generators[i]
        return [hypothesis for _, hypothesis in sorted(self.samples.pop(i).items())]


def _hypothesis(path_2T: Floats, *, end: bool, stuck: bool) -> Hypothesis:
    """Returns a complete sample. Its last token is EOS (`end`), impossible (`stuck`), or at the length limit."""
    tokens, logprobs = path_2T.tolist()
    tokens = tokens[:-1] if end or stuck else tokens
    logprobs = logprobs[:-1] if stuck else logprobs
    logprob = math.fsum(logprobs)
    score = logprob / max(1, len(logprobs))
    return Hypothesis(tuple(map(int, tokens)), logprob, score, end and not stuck, tuple(logprobs))


def distribution(logprobs_nV: Floats, sampling: Sampling) -> Floats:
    """Returns probabilities [n, V] after temperature and filters; they need not sum to 1."""
    # Subtract the largest before dividing, so that a small temperature overflows to -inf only for other tokens.
    largest_n1 = np.maximum(logprobs_nV.max(1, keepdims=True), LOWEST)  # a row may have no possible token
    with np.errstate(over="ignore"):
        probs_nV: Floats = np.exp((logprobs_nV - largest_n1) / sampling.temperature)
    if sampling.epsilon:
        lowest_n1 = np.minimum(sampling.epsilon * probs_nV.sum(1, keepdims=True), probs_nV.max(1, keepdims=True))
        probs_nV[probs_nV < lowest_n1] = 0
    V = probs_nV.shape[1]
    kept = sampling.top_k if 0 < sampling.top_k < V else V
    if kept == V and sampling.top_p == 1:
        return probs_nV
    best_nm = np.sort(probs_nV, 1)[:, ::-1][:, :kept]
    count_n1 = np.full((len(probs_nV), 1), kept)
    if sampling.top_p < 1:
        mass_nm = best_nm.cumsum(1)
        count_n1 = (mass_nm - best_nm < sampling.top_p * mass_nm[:, -1:]).sum(1, keepdims=True)
    least_n1 = np.take_along_axis(best_nm, np.maximum(count_n1 - 1, 0), 1)
    above_nV, equal_nV = probs_nV > least_n1, probs_nV == least_n1
    first_nV = equal_nV & (equal_nV.cumsum(1) <= count_n1 - above_nV.sum(1, keepdims=True))
    return np.where(above_nV | first_nV, probs_nV, 0)


def tokens_at(probs_nV: Floats, places_n: Floats) -> Ints:
    """Returns the token [n] at each row's place, a number in [0, 1), in the row's cumulative distribution."""
    mass_nV = probs_nV.cumsum(1)
    total_n = mass_nV[:, -1]
    # A place never rounds up to the total.
    at_n = np.minimum(places_n * total_n, np.nextafter(total_n, 0.0))
    tokens_n: Ints = (mass_nV <= at_n[:, None]).argmin(1)
    return tokens_n
