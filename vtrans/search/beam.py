"""Beam search.

By definition, each step ranks the 2K best extensions of a sentence's K live rows by summed log-probability. Equal sums
rank by parent row, then by the token's own log-probability, then by token id. EOS among the first K ranks finishes a
hypothesis; EOS further down is discarded; the live beam is refilled with the K best other extensions. The search of a
sentence is finished when K hypotheses are finished (`stop="count"`), when in addition no live row scores better at its
length so far than the K-th best of them (`stop="current"`, which is `early_stopping=False` of Hugging Face and equals
"count" if K is 1), or when no live row can still win (`stop="exhaustive"`), and always at the sentence's own length
limit.

With `stop="shrink"`, which is Marian's search, the beam shrinks to K - f places after f finished hypotheses: each step
ranks that many extensions, and those without EOS become the live beam. The search is finished when no place is left. At
the length limit, the live rows are also results.

Two variants differ only in which of the ranked extensions they choose. Lexically constrained search chooses per bank
(banks.py). Diverse beam search (Vijayakumar et al. 2018, with their Hamming diversity) chooses per group:

- The K rows of a sentence are G groups of K / G. Each group is a beam search on its own rows with a beam of K / G.
- In each step, the groups rank one after another. A group ranks an extension by its sum minus `diversity` times the
  number of rows of earlier groups that have just chosen the same token and stay live; at the length limit none does.
  EOS is never penalised, because different translations may end in the same step.
- A group whose search is finished has no more rows and waits for the others. The result is the distinct finished
  hypotheses of all groups, best first; equal scores rank by group.

The penalty only decides which extensions a step keeps. It does not change sums, log-probabilities or scores. The
authors' code, fairseq and Hugging Face instead accumulate the penalties in the sums and rank the results by them. With
one row per group, the steps are the same. With 4 groups of 2 rows, accumulating made the lists worse: the best
translation of each list lost 0.3, 1.3 and 1.8 BLEU with a diversity of 0.5, 1 and 2 (200 lines of Multi30k).

Legend: B sentences in the batch, K rows per sentence (or of a group), N = B * K rows, r live rows, m tokens kept per
row, n extensions ranked (at most 2K without banks).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from vtrans.search.decoder import Decoder, LogprobBlock, Logprobs, State
from vtrans.search.history import Floats, Ints
from vtrans.search.loop import Hypothesis, SearchTask, StepBatch, length_penalty, run
from vtrans.search.ranking import Ranked, best_tokens, ranked

# Encodes a sentence and a token as one number: sentence * STRIDE + token.
STRIDE = 1 << 32


def beam_search(decoder: Decoder[State], task: SearchTask) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Searches for translations of each source; yields what `loop.run` yields.

    A sentence gets up to `task.nbest` finished hypotheses, best first; equal scores rank in the order in which they
    were found. If none finished, it gets the best live hypothesis, with `finished=False` and the score for its length.
    `nbest` is at most `config.beam`; with groups, it only truncates the list. Raises LogprobsError if the decoder
    returns NaN.
    """
    return run(Beam(decoder, task, task.config.beam))


@dataclass
class GroupSearch:
    """The hypotheses of one sentence, or of one of its groups."""

    rows: slice  # the rows of its beam
    ended: int = 0  # hypotheses finished so far
    finished: list[Hypothesis] = field(default_factory=list)  # the best of them, best first
    unfinished: list[Hypothesis] = field(default_factory=list)
    """Further results: the live rows with `shrink`; otherwise the best one if none finished."""
    is_over: bool = False

    def finish(self, hypothesis: Hypothesis, kept: int) -> None:
        """Adds a finished hypothesis, after any of equal score, and keeps the best ones."""
        self.ended += 1
        self.finished.insert(bisect_right(self.finished, -hypothesis.score, key=lambda other: -other.score), hypothesis)
        del self.finished[kept:]


class Beam(StepBatch):
    """Beam search over a batch. Group g of a sentence has the rows g * K to (g + 1) * K - 1."""

    def __init__(self, decoder: Decoder[State], task: SearchTask, width: int) -> None:
        config = self.config = task.config
        assert task.nbest <= config.beam, (task.nbest, config.beam)
        rows = width // config.beam_groups
        super().__init__(decoder, task, width, step=rows)
        self.groups = [slice(first, first + rows) for first in range(0, width, rows)]
        self.beam = config.beam // config.beam_groups  # K of the definition
        # A group of one row ends at EOS, even if the penalty excluded a row with a better sum.
        single = self.beam == 1 and len(self.groups) > 1
        self.stop = "count" if config.stop == "current" and single else config.stop
        # The results of a group do not depend on `nbest`.
        self.wanted = task.nbest if len(self.groups) == 1 else self.beam
        self.kept = self.beam if self.stop == "current" else self.wanted  # finished hypotheses
        # Only a row's best K tokens and EOS can rank among the first K or refill the beam. Groups need the best
        # `config.beam` tokens, since a penalty can lower the rank of tokens. Greedy search needs only the best token:
        # it ends at EOS.
        self.reads = 1 if config.beam == 1 and self.stop != "exhaustive" else config.beam + 1
        self.ranks: int | None = 2 * self.beam  # extensions ranked per step; None: all
        self.searches: dict[int, list[GroupSearch]] = {}  # by sentence, one per group
        self.itself_K = np.arange(width)

    def enter(self, sentences: Sequence[int]) -> None:
        super().enter(sentences)
        self.searches |= {i: [GroupSearch(rows) for rows in self.groups] for i in sentences}

    def extend(self, blocks: Iterable[LogprobBlock], live_r: Ints) -> Ints | None:
        values_rm, tokens_rm = self.candidates(blocks, live_r)
        (B, W), m = self.history.sums_BK.shape, values_rm.shape[1]
        if len(values_rm) < B * W:  # rows that are not live have no possible extension
            best_rm = values_rm, tokens_rm
            values_rm, tokens_rm = np.full((B * W, m), -math.inf), np.full((B * W, m), self.task.bos_id)
            values_rm[live_r], tokens_rm[live_r] = best_rm
        values_BWm, tokens_BWm = values_rm.reshape(B, W, m), tokens_rm.reshape(B, W, m)
        parts: list[Ranked] = []
        for g, rows in enumerate(self.groups):
            penalties = self._penalties(tokens_BWm[:, rows], parts)
            sums_BK = self.history.sums_BK[:, rows]
            best = ranked(sums_BK, values_BWm[:, rows], tokens_BWm[:, rows], self.ranks, penalties)
            if g > 0:
                best = best._replace(parents=best.parents + rows.start)
            parts.append(self._live(best, [None if i is None else self.searches[i][g] for i in self.sentences]))
        live = parts[0] if len(parts) == 1 else Ranked.joined(parts)
        parents_BK = live.parents if np.count_nonzero(live.parents != self.itself_K) else None
        self.history.extend(parents_BK, live.tokens, live.logprobs)
        self.history.sums_BK = live.sums
        return parents_BK

    def candidates(self, blocks: Iterable[LogprobBlock], live_r: Ints) -> tuple[Logprobs, Ints]:
        """Returns the log-probabilities and ids [r, m] of the tokens that may extend each live row, best first."""
        assert self.reads is not None
        return best_tokens(blocks, self.reads)

    def _penalties(self, tokens_BKm: Ints, earlier: Sequence[Ranked]) -> Floats | None:
        """Returns the diversity penalties [B, K, m] of a group's candidate tokens, given the extensions that earlier
        groups chose."""
        if not earlier:
            return None
        alive_BK = np.hstack([part.sums for part in earlier]) > -math.inf
        tokens_BK = np.hstack([part.tokens for part in earlier])
        chosen = np.sort(np.nonzero(alive_BK)[0] * STRIDE + tokens_BK[alive_BK])
        keys_BKm = np.arange(len(tokens_BKm))[:, None, None] * STRIDE + tokens_BKm
        first, last = (np.searchsorted(chosen, keys_BKm, side) for side in ("left", "right"))
        return np.asarray(self.config.diversity * (last - first), dtype=np.float64)

    def _live(self, best: Ranked, searches: Sequence[GroupSearch | None]) -> Ranked:
        """Finishes hypotheses and searches, given the ranked extensions of each sentence or of a group of each. Returns
        the live extensions [B, K]; rows without one have the sum -inf and BOS."""
        if self.stop == "shrink":
            places_B1 = np.array([self.beam - search.ended if search else 0 for search in searches])[:, None]
            best.sums[np.arange(best.sums.shape[1]) >= places_B1] = -math.inf
        live, ends = self.choose(best)
        impossible_BK = live.sums == -math.inf
        if np.count_nonzero(impossible_BK):
            live = live._replace(tokens=np.where(impossible_BK, self.task.bos_id, live.tokens))
        for b, n in ends:
            search = searches[b]
            assert search is not None
            search.finish(self._extended(b, best, n), self.kept)
        for b, (search, top) in enumerate(zip(searches, live.sums.max(1).tolist(), strict=True)):
            if search and not search.is_over and self._is_decided(b, search, top):
                search.is_over = True
                search.unfinished = self._unfinished(b, search, live, top)
                live.sums[b] = -math.inf  # so the loop removes the sentence
        return live

    def choose(self, best: Ranked) -> tuple[Ranked, list[tuple[int, int]]]:
        """Returns the K live extensions per sentence, and (sentence, rank) of each extension that finishes a
        hypothesis. Missing live extensions have the sum -inf."""
        K = self.beam
        is_eos_Bn = best.tokens == self.task.eos_id
        if not np.count_nonzero(is_eos_Bn):
            return best.first(K), []
        # Each row has at most one EOS, so the first 2K ranks hold K other tokens, which a stable sort puts first.
        live = best.at(is_eos_Bn.argsort(1, kind="stable")[:, :K])
        live.sums[live.tokens == self.task.eos_id] = -math.inf
        return live, [(b, n) for b, n in np.argwhere(is_eos_Bn[:, :K]).tolist() if best.sums[b, n] > -math.inf]

    def _is_decided(self, b: int, search: GroupSearch, top: float) -> bool:
        """Returns whether no later step can change the result. `top` is the largest sum of the live rows after this
        step."""
        # The history gets this step's token only after the choice.
        length, limit = self.history.age(b) + 1, self.task.limits[self.history.sentence(b)]
        if top == -math.inf or length == limit:
            return True
        if not search.finished:
            return False
        full = search.ended >= self.beam
        if full and self.stop == "count":
            return True
        if full and self.stop == "current" and top / self._penalty(length) <= search.finished[-1].score:
            return True
        if len(search.finished) < self.wanted:
            return False
        # Sums never rise. A live row therefore scores best where the penalty is largest: at the limit if alpha >= 0,
        # in the next step if alpha < 0. An equal score does not displace an earlier hypothesis.
        bound = top / max(self._penalty(length + 1), self._penalty(limit))
        return bound <= search.finished[self.wanted - 1].score

    def _unfinished(self, b: int, search: GroupSearch, live: Ranked, top: float) -> list[Hypothesis]:
        """Returns the unfinished hypotheses among the results of a search that is over. `top` is the largest sum of its
        live extensions."""
        i = self.history.sentence(b)
        shrunk = self.stop == "shrink" and top > -math.inf and self.history.age(b) + 1 == self.task.limits[i]
        if search.finished and not shrunk:
            return []
        rows = [self._extended(b, live, k) for k, total in enumerate(live.sums[b].tolist()) if total > -math.inf]
        if not rows:  # no extension is possible
            before = enumerate(self.history.sums_BK[b, search.rows].tolist(), search.rows.start)
            rows = [self._hypothesis(b, k, total) for k, total in before if total > -math.inf]
        return rows if shrunk else [self.best_unfinished(i, rows)]

    def best_unfinished(self, i: int, hypotheses: Sequence[Hypothesis]) -> Hypothesis:
        """Returns the unfinished hypothesis that is the result of sentence `i` if none has finished."""
        return max(hypotheses, key=lambda hypothesis: hypothesis.logprob)

    def _extended(self, b: int, extensions: Ranked, n: int) -> Hypothesis:
        """Returns the hypothesis that the extension at rank n completes."""
        logprob, token_logprob = float(extensions.sums[b, n]), float(extensions.logprobs[b, n])
        token, row = int(extensions.tokens[b, n]), int(extensions.parents[b, n])
        return self._hypothesis(b, row, logprob, [token], [token_logprob])

    def _hypothesis(
        self, b: int, row: int, logprob: float, more: Sequence[int] = (), more_logprobs: Sequence[float] = ()
    ) -> Hypothesis:
        """Returns the hypothesis of a row extended by `more` tokens; EOS among them finishes it."""
        tokens, logprobs = self.history.path(b, row).tolist()
        logprobs += more_logprobs
        finished = self.task.eos_id in more
        score = logprob / self._penalty(len(logprobs)) if logprobs else 0.0
        return Hypothesis((*map(int, tokens), *(() if finished else more)), logprob, score, finished, tuple(logprobs))

    def _penalty(self, length: int) -> float:
        return length_penalty(length, self.config.alpha, self.config.length_penalty)

    def leave(self, b: int) -> list[Hypothesis]:
        groups = self.searches.pop(self.history.sentence(b))
        finished = [hypothesis for search in groups for hypothesis in search.finished[: self.wanted]]
        unfinished = [hypothesis for search in groups for hypothesis in search.unfinished]
        if self.stop == "shrink":
            finished += unfinished
        elif not finished:
            finished = [max(unfinished, key=lambda hypothesis: hypothesis.score)]
        finished.sort(key=lambda hypothesis: -hypothesis.score)
        distinct: dict[tuple[int, ...], Hypothesis] = {}
        for hypothesis in finished if len(groups) > 1 else finished[: self.task.nbest]:
            distinct.setdefault(hypothesis.tokens, hypothesis)
        return list(distinct.values())[: self.task.nbest]
