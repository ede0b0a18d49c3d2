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

Two searches differ from this one only in what they choose among the ranked extensions. A search for phrases chooses in
banks (banks.py): it has another `Choice`. Diverse beam search (Vijayakumar et al. 2018, with their Hamming diversity)
chooses in groups:

- The K rows of a sentence are G groups of K / G. Each group is a beam search on its own rows with a beam of K / G.
- In each step, the groups rank one after another. A group ranks an extension by its sum minus `diversity` times the
  number of rows of earlier groups that have just chosen the same token and live on; at the length limit none does. EOS
  is never penalised, because different translations may well end in the same step.
- A group whose search is finished has no rows any more, and waits for the others. The result is the finished hypotheses
  of all groups, each once, best first; of equal scores, the earlier group's comes first.

The penalty only decides which extensions a step keeps. Sums, log-probabilities and scores stay those of the model. The
authors' code, fairseq and Hugging Face add the penalties up in the sums instead, and rank the results by them. If each
group has one row, the steps are the same. With 4 groups of 2 rows, adding up made the lists worse: their best
translations by BLEU lost 0.3, 1.3 and 1.8 points with a diversity of 0.5, 1 and 2 (200 lines of Multi30k).

Legend: B sentences in the batch, K rows per sentence (or of a group), N = B * K rows, r live rows, m tokens kept per
row, n extensions ranked (at most 2K without banks).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vtrans.config import SearchConfig
from vtrans.search.decoder import Decoder, LogprobBlock, Logprobs, State
from vtrans.search.history import Floats, Ints, RowHistory
from vtrans.search.loop import Hypothesis, SearchTask, StepBatch, length_penalty, run
from vtrans.search.ranking import Ranked, best_tokens, ranked
from vtrans.search.stopping import STOPS

# A sentence and a token as one number: the sentence times this, plus the token.
STRIDE = 1 << 32


def beam_search(
    decoder: Decoder[State], task: SearchTask, choice: Choice | None = None
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Searches for translations of each source; yields what `loop.run` yields.

    A sentence gets up to `task.nbest` finished hypotheses, best first; equal scores rank in the order in which they
    were found. If none finished, it gets the best live one, with `finished=False` and the score of its own length.
    `nbest` is at most `config.beam`; with groups, it only cuts the list. The `choice` is `KBest`, or banks, with which
    finished hypotheses contain the phrases of their sentence. Raises VtransError if the decoder returns NaN.
    """
    config = task.config
    assert task.nbest <= config.beam, (task.nbest, config.beam)
    policy = Beam(task, choice or KBest(config, task.eos_id))
    # Wider sentences take fewer places of a batch.
    batch_tokens = max(1, config.batch_tokens * config.beam // policy.history.width)
    return run(StepBatch(decoder, task, policy), task, batch_tokens)


class Choice(Protocol):
    """Chooses among the ranked extensions of a sentence, or of a group."""

    width: int  # W rows of a sentence
    reads: int | None  # as in `loop.Policy`
    ranks: int | None  # how many extensions are ranked in a step; None: all

    def candidates(self, blocks: Iterable[LogprobBlock], history: RowHistory, live_r: Ints) -> tuple[Logprobs, Ints]:
        """Returns the log-probabilities and ids [r, m] of the tokens that may extend each live row, best first."""

    def choose(self, best: Ranked, history: RowHistory) -> tuple[Ranked, list[tuple[int, int]]]:
        """Returns the live ones among ranked extensions, and the sentence and rank of each that finishes a
        hypothesis. Live ones that are missing have the sum -inf."""

    def best_row(self, rows: Sequence[tuple[int, float]], history: RowHistory, b: int) -> tuple[int, float]:
        """Returns the one of a sentence's rows, given with their sums, that stands for it if none has finished."""


class KBest:
    """Chooses the K best extensions without EOS."""

    def __init__(self, config: SearchConfig, eos_id: int) -> None:
        self.width, self.beam, self.eos_id = config.beam, config.beam // config.beam_groups, eos_id
        # A row's best K tokens and EOS can be among the first K ranks or refill the beam; in groups, up to as many that
        # rank lower than others only by their penalty. Greedy search ends with EOS, so it needs the best token only.
        self._most = 1 if config.beam == 1 and STOPS[config.stop].by_first else config.beam + 1
        self.reads: int | None = self._most
        self.ranks: int | None = 2 * self.beam

    def candidates(self, blocks: Iterable[LogprobBlock], history: RowHistory, live_r: Ints) -> tuple[Logprobs, Ints]:
        return best_tokens(blocks, self._most)

    def choose(self, best: Ranked, history: RowHistory) -> tuple[Ranked, list[tuple[int, int]]]:
        K = self.beam
        is_eos_Bn = best.tokens == self.eos_id
        if not np.count_nonzero(is_eos_Bn):
            return best.first(K), []
        # Each row has one EOS at most, so the first 2K ranks hold K others, which a stable sort puts first.
        live = best.at(is_eos_Bn.argsort(1, kind="stable")[:, :K])
        live.sums[live.tokens == self.eos_id] = -math.inf
        return live, [(b, n) for b, n in np.argwhere(is_eos_Bn[:, :K]).tolist() if best.sums[b, n] > -math.inf]

    def best_row(self, rows: Sequence[tuple[int, float]], history: RowHistory, b: int) -> tuple[int, float]:
        return max(rows, key=lambda row: row[1])


class _Ending(NamedTuple):
    """A hypothesis that is not extended any more."""

    score: float
    logprob: float
    path_2T: Floats  # tokens without EOS, and their log-probabilities
    eos_logprob: float | None  # None: it is unfinished

    def hypothesis(self) -> Hypothesis:
        tokens, logprobs = self.path_2T.tolist()
        if self.eos_logprob is not None:
            logprobs.append(self.eos_logprob)
        finished = self.eos_logprob is not None
        return Hypothesis(tuple(map(int, tokens)), self.logprob, self.score, finished, tuple(logprobs))


@dataclass
class _Search:
    """The search of one sentence, or of one of its groups."""

    ended: int = 0  # hypotheses finished so far
    best: list[_Ending] = field(default_factory=list)  # the best of them, best first
    over: bool = False
    left: list[tuple[int, float]] = field(default_factory=list)  # at its end, the live rows and their sums
    dead: _Ending | None = None  # the best live row before a step after which none was


class Beam:
    """The search of all sentences: live rows with their sums, and finished hypotheses. Rows g * K and up of a sentence
    are those of its group g."""

    def __init__(self, task: SearchTask, choice: Choice) -> None:
        self.limits, self.nbest, self.bos_id, self.choice = task.limits, task.nbest, task.bos_id, choice
        config = self.config = task.config
        width, self.reads = choice.width, choice.reads
        self.history = RowHistory(width, task.bos_id)
        self.beam = config.beam // config.beam_groups  # K of the definition
        rows = width // config.beam_groups
        self.groups = [slice(first, first + rows) for first in range(0, width, rows)]
        # The results of a group do not depend on `nbest`.
        self.wanted = task.nbest if len(self.groups) == 1 else self.beam
        # A group of one row ends with EOS, although the penalty may have left a row with a better sum.
        single = self.beam == 1 and len(self.groups) > 1
        self.stop = STOPS["count" if config.stop == "current" and single else config.stop](self.beam, self.wanted)
        self.searches: list[list[_Search]] = []  # per place, of each group
        self.live_BK: Floats = np.empty((0, width))  # summed log-probabilities; -inf: the row is not live
        self.parents_BK: Ints | None = None
        self.itself_K = np.arange(width)
        self.steps = 0
        self.last_B: Ints = np.empty(0, dtype=np.int64)  # the steps in which sentences reach their limits
        self.ended_B: NDArray[np.bool_] = np.empty(0, dtype=bool)  # whether a hypothesis has finished

    def enter(self, places: Sequence[int]) -> None:
        added = len(self.history.sentences) - len(self.searches)
        self.searches += [[] for _ in range(added)]
        self.live_BK = np.concatenate((self.live_BK, np.empty((added, self.history.width))))
        self.last_B = np.resize(self.last_B, len(self.searches))
        self.ended_B = np.resize(self.ended_B, len(self.searches))
        self.last_B[places] = [self.steps + self.limits[self.history.sentence(b)] for b in places]
        self.ended_B[places] = False
        self.live_BK[places] = -math.inf
        for rows in self.groups:
            self.live_BK[places, rows.start] = 0.0  # all rows are BOS, so only one of them is extended
        for b in places:
            self.searches[b] = [_Search() for _ in self.groups]

    def select(self, places: Sequence[int]) -> None:
        self.searches = [self.searches[b] for b in places]
        at = list(places)
        self.live_BK, self.last_B, self.ended_B = self.live_BK[at], self.last_B[at], self.ended_B[at]

    def live(self) -> Ints:
        return (self.live_BK > -math.inf).ravel().nonzero()[0]

    def advance(self, blocks: Iterable[LogprobBlock]) -> list[int]:
        self.steps += 1
        live_r = self.live()
        values_rm, tokens_rm = self.choice.candidates(blocks, self.history, live_r)
        (B, W), m = self.live_BK.shape, values_rm.shape[1]
        if len(values_rm) < B * W:  # the extensions of all rows that are not live are impossible
            best_rm = values_rm, tokens_rm
            values_rm, tokens_rm = np.full((B * W, m), -math.inf), np.full((B * W, m), self.bos_id)
            values_rm[live_r], tokens_rm[live_r] = best_rm
        values_BWm, tokens_BWm = values_rm.reshape(B, W, m), tokens_rm.reshape(B, W, m)
        if len(self.groups) == 1:
            chosen = self._chosen(0, values_BWm, tokens_BWm, None)
        else:
            parts: list[Ranked] = []
            for g, rows in enumerate(self.groups):
                penalties = self._penalties(tokens_BWm[:, rows], parts)
                part = self._chosen(g, values_BWm[:, rows], tokens_BWm[:, rows], penalties)
                parts.append(part._replace(parents=part.parents + rows.start))
            chosen = Ranked.joined(parts)
        self.live_BK = chosen.sums
        self.parents_BK = chosen.parents if np.count_nonzero(chosen.parents != self.itself_K) else None
        self.history.extend(self.parents_BK, chosen.tokens, chosen.logprobs)
        # No other search has ended in this step.
        rest = (self.live_BK == -math.inf).all(1).nonzero()[0].tolist()
        return [b for b in rest if self.searches[b]]

    def _chosen(
        self, g: int, values_BKm: NDArray[np.floating], tokens_BKm: Ints, penalties_BKm: Floats | None
    ) -> Ranked:
        """Ranks the extensions of a group in all sentences, and finishes hypotheses and searches. Returns the live
        extensions [B, K]; rows without one have the sum -inf and BOS."""
        live_BK = self.live_BK[:, self.groups[g]]
        best = ranked(live_BK, values_BKm, tokens_BKm, self.choice.ranks, penalties_BKm)
        self.stop.limit(best, [search[g].ended if search else 0 for search in self.searches])
        live, ends = self.choice.choose(best, self.history)
        impossible_BK = live.sums == -math.inf
        if np.count_nonzero(impossible_BK):
            live = live._replace(tokens=np.where(impossible_BK, self.bos_id, live.tokens))
        for b, n in ends:
            self._finish(b, g, float(best.sums[b, n]), int(best.parents[b, n]), float(best.logprobs[b, n]))
        top_B = live.sums[:, 0] if penalties_BKm is None else live.sums.max(1)
        # No other search can be decided.
        for b in ((top_B == -math.inf) | (self.last_B == self.steps) | self.ended_B).nonzero()[0].tolist():
            if self.searches[b] and not self.searches[b][g].over:
                self._stop_if_decided(b, g, float(top_B[b]), live.sums[b], live_BK[b])
        return live

    def _penalties(self, tokens_BKm: Ints, earlier: Sequence[Ranked]) -> Floats | None:
        """Returns what a group's extensions by these tokens lose, given what the earlier groups have chosen."""
        if not earlier:
            return None
        alive_BK = np.hstack([part.sums for part in earlier]) > -math.inf
        tokens_BK = np.hstack([part.tokens for part in earlier])
        chosen = np.sort(np.nonzero(alive_BK)[0] * STRIDE + tokens_BK[alive_BK])
        keys_BKm = np.arange(len(tokens_BKm))[:, None, None] * STRIDE + tokens_BKm
        first, last = (np.searchsorted(chosen, keys_BKm, side) for side in ("left", "right"))
        return np.asarray(self.config.diversity * (last - first), dtype=np.float64)

    def _penalty(self, length: int) -> float:
        return length_penalty(length, self.config.alpha, self.config.length_penalty)

    def _finish(self, b: int, g: int, logprob: float, row: int, eos_logprob: float) -> None:
        """Inserts the hypothesis that EOS finishes after a row of a group into the best ones, after those of equal
        score."""
        search, self.ended_B[b] = self.searches[b][g], True
        search.ended += 1
        score = logprob / self._penalty(self.history.age(b) + 1)
        place = bisect_right(search.best, -score, key=lambda other: -other.score)
        if place < self.stop.compared:
            path_2T = self.history.path(b, self.groups[g].start + row)
            search.best.insert(place, _Ending(score, logprob, path_2T, eos_logprob))
            del search.best[self.stop.compared :]

    def _stop_if_decided(self, b: int, g: int, top: float, sums_K: Floats, before_K: Floats) -> None:
        """Ends the search of a group if no further step can change its result. The arguments are the largest sum of its
        live rows, all of them, and those before this step."""
        search, limit = self.searches[b][g], self.limits[self.history.sentence(b)]
        length = self.history.age(b) + 1
        if length < limit and top > -math.inf and not self._is_decided(search, top, length, limit):
            return
        search.over = True
        first = self.groups[g].start
        if length == limit:
            search.left = [(first + k, total) for k, total in enumerate(sums_K.tolist()) if total > -math.inf]
        if top == -math.inf and not search.best:
            alive = [(first + k, total) for k, total in enumerate(before_K.tolist()) if total > -math.inf]
            search.dead = self._best_unfinished(b, alive)
        sums_K[:] = -math.inf

    def _is_decided(self, search: _Search, top: float, length: int, limit: int) -> bool:
        if search.best and self.stop.is_over(search.ended, search.best[-1].score, top / self._penalty(length)):
            return True
        if len(search.best) < self.wanted:
            return False
        # Sums never rise. A live row therefore scores best where the penalty is largest: at the limit if alpha >= 0,
        # in the next step if alpha < 0. An equal score does not displace an earlier hypothesis.
        bound = top / max(self._penalty(length + 1), self._penalty(limit))
        return bound <= search.best[self.wanted - 1].score

    def leave(self, b: int) -> list[Hypothesis]:
        searches, self.searches[b] = self.searches[b], []
        endings = [ending for search in searches for ending in search.best[: self.wanted]]
        if self.stop.keeps_unfinished:
            endings += [self._unfinished(b, *row) for search in searches for row in search.left]
        if not endings:
            rest = [search.dead or self._best_unfinished(b, search.left) for search in searches]
            endings = [max(rest, key=lambda ending: ending.score)]
        endings.sort(key=lambda ending: -ending.score)
        distinct: dict[tuple[int, ...], Hypothesis] = {}
        for ending in endings if len(searches) > 1 else endings[: self.nbest]:
            hypothesis = ending.hypothesis()
            distinct.setdefault(hypothesis.tokens, hypothesis)
        return list(distinct.values())[: self.nbest]

    def _best_unfinished(self, b: int, rows: Sequence[tuple[int, float]]) -> _Ending:
        return self._unfinished(b, *self.choice.best_row(rows, self.history, b))

    def _unfinished(self, b: int, row: int, logprob: float) -> _Ending:
        path_2T = self.history.path(b, row)
        length = path_2T.shape[1]
        return _Ending(logprob / self._penalty(length) if length else 0.0, logprob, path_2T, None)
