"""Dynamic beam allocation: beam search for translations that contain given phrases.

By definition, a sentence's hypotheses are grouped into banks by the number of phrase tokens that they still need
(`lexical.ConstraintAutomaton`). Only hypotheses that need none can be extended by EOS. In each step, the candidate
extensions of a row are its K + 1 best tokens and the tokens that begin or continue a phrase. If the next token decides
whether a phrase ends a whole word, the best token that does not continue a word is also a candidate; if that token is
EOS, the second best is, too. The extensions of each bank are ranked as in beam.py. EOS among the first K of its bank
finishes a hypothesis. The K best others of each bank are live, up to the sentence's W rows: first the best of each
bank, beginning with the bank that needs the fewest tokens, then the second best, and so on. The search finishes as in
beam.py.

This is grid beam search (Hokamp and Liu 2017) as long as W has room for K rows per bank. For longer phrases, the banks
share the W rows, as in dynamic beam allocation (Post and Vilar 2018; Hu et al. 2019). The best hypothesis of the bank
that needs the fewest tokens is always live, and so is its extension by a needed token. A phrase is therefore missing
only if a rule forbids it or the length limit leaves no room for it.

The phrases do not decide where a translation ends. A hypothesis with all its phrases may run to its length limit, as in
a search without phrases, if the model prefers to continue.

Legend: as in beam.py, but with W rows per sentence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from vtrans.search.beam import Beam
from vtrans.search.decoder import Best, Decoder, LogprobBlock, Logprobs, State
from vtrans.search.history import Ints
from vtrans.search.lexical import ConstraintAutomaton, LexicalConstraint, least_tokens
from vtrans.search.loop import Hypothesis, SearchTask, run
from vtrans.search.ranking import Ranked, best_tokens

# The maximum number of banks with K rows each. With 4, BLEU is within 0.4 of 16, in as little as two thirds of the time
# (one to three reference words per line, or three successive ones; 600 lines of Multi30k, English to German, K 4).
MOST_BANKS = 4


def width_of(phrases: Sequence[LexicalConstraint], beam: int) -> int:
    """Returns W, the rows per sentence: K per bank for at most MOST_BANKS banks. The number of banks is rounded up to a
    power of two, so that sentences with similar phrases can be in the same batch."""
    return int(beam * min(MOST_BANKS, 2 ** math.ceil(math.log2(least_tokens(phrases) + 1))))


def banked_search(
    decoder: Decoder[State],
    task: SearchTask,
    phrases: Sequence[Sequence[LexicalConstraint]],
    continues_V: NDArray[np.bool_],
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Like `beam_search`, but finished hypotheses contain their sentence's phrases. `width_of` must be the same for all
    sentences. `continues_V` says which tokens may continue a word."""
    return run(DynamicBeamAllocation(decoder, task, phrases, continues_V))


class DynamicBeamAllocation(Beam):
    """Beam search that chooses the live hypotheses by the phrase tokens that they still need."""

    def __init__(
        self,
        decoder: Decoder[State],
        task: SearchTask,
        phrases: Sequence[Sequence[LexicalConstraint]],
        continues_V: NDArray[np.bool_],
    ) -> None:
        (width,) = {width_of(needed, task.config.beam) for needed in phrases}
        super().__init__(decoder, task, width)
        self.reads = self.ranks = None
        self._phrases, self._continues_V, self._continues = phrases, continues_V, continues_V.tolist()
        self._automata: dict[int, ConstraintAutomaton] = {}  # of the sentences in the batch

    def enter(self, sentences: Sequence[int]) -> None:
        super().enter(sentences)
        self._automata |= {i: ConstraintAutomaton(self._phrases[i], self._continues) for i in sentences}

    def leave(self, b: int) -> list[Hypothesis]:
        del self._automata[self.history.sentence(b)]
        return super().leave(b)

    def _state(self, b: int, k: int) -> tuple[ConstraintAutomaton, int]:
        """Returns the automaton of a sentence and its state after a row."""
        automaton = self._automata[self.history.sentence(b)]
        return automaton, automaton.state_of(tuple(map(int, self.history.path(b, k)[0])))

    def candidates(self, blocks: Iterable[LogprobBlock], live_r: Ints) -> tuple[Logprobs, Ints]:
        """Like `Beam.candidates`; rows with fewer candidates are padded with -inf."""
        rows, found = iter(live_r.tolist()), list[tuple[list[float], list[int]]]()
        for block in blocks:
            assert not isinstance(block, Best)
            found += self._candidates(block, list(islice(rows, len(block))))
        m = max(len(values) for values, _ in found)
        values_rm, tokens_rm = np.full((len(found), m), -math.inf), np.zeros((len(found), m), dtype=np.int64)
        for r, (values, tokens) in enumerate(found):
            values_rm[r, : len(values)], tokens_rm[r, : len(values)] = values, tokens
        return values_rm, tokens_rm

    def _candidates(self, block_nV: Logprobs, rows: Sequence[int]) -> Iterator[tuple[list[float], list[int]]]:
        """Yields the log-probabilities and ids of each row's best tokens and of others that phrases need, best
        first."""
        best_nm = best_tokens([block_nV], self.beam + 1)
        for n, (row, values, tokens) in enumerate(zip(rows, *(each.tolist() for each in best_nm), strict=True)):
            automaton, state = self._state(*divmod(row, self.history.width))
            extras = {token: float(block_nV[n, token]) for token in automaton.wanted[state]}
            if automaton.waits[state]:
                others_1V = np.where(self._continues_V, -math.inf, block_nV[[n]])
                (logprobs,), (others,) = (each.tolist() for each in best_tokens([others_1V], 2))
                # A hypothesis that EOS cannot extend needs another possible token.
                kept = 2 if others[0] == self.task.eos_id else 1
                extras |= zip(others[:kept], logprobs[:kept], strict=True)
            # The other tokens rank below the best ones.
            more = sorted((-value, token) for token, value in extras.items() if token not in tokens)
            yield [*values, *(-minus_value for minus_value, _ in more)], [*tokens, *(token for _, token in more)]

    def choose(self, best: Ranked) -> tuple[Ranked, list[tuple[int, int]]]:
        K = self.beam
        columns_BW = np.full((len(best.sums), self.history.width), -1)  # of the live extensions, best first
        ends: list[tuple[int, int]] = []
        possible_B = (best.sums > -math.inf).sum(1).tolist()
        for b, possible in enumerate(possible_B):
            if not possible:
                continue
            automaton, states = self._automata[self.history.sentence(b)], dict[int, int]()
            live: list[tuple[int, int, int]] = []  # rank within its bank, bank, column
            others = [0] * (automaton.remaining[0] + 1)  # per bank, the number of extensions without EOS so far
            ended = 0
            parents, tokens = best.parents[b, :possible].tolist(), best.tokens[b, :possible].tolist()
            for column, (parent, token) in enumerate(zip(parents, tokens, strict=True)):
                if parent not in states:
                    _, states[parent] = self._state(b, parent)
                if token == self.task.eos_id:
                    if automaton.remaining[states[parent]] == 0:
                        if others[0] + ended < K:
                            ends.append((b, column))
                        ended += 1
                    continue
                after = automaton.after(states[parent], token)
                if after is None:
                    continue
                bank = automaton.remaining[after]
                if others[bank] < K:
                    live.append((others[bank], bank, column))
                others[bank] += 1
            live.sort()
            kept = sorted(column for _, _, column in live[: self.history.width])
            columns_BW[b, : len(kept)] = kept
        live_BW = best.at(columns_BW)
        live_BW.sums[columns_BW < 0] = -math.inf
        return live_BW, ends

    def best_unfinished(self, i: int, hypotheses: Sequence[Hypothesis]) -> Hypothesis:
        """Returns the first hypothesis among those that need the fewest tokens."""
        automaton = self._automata[i]
        return min(hypotheses, key=lambda hypothesis: automaton.remaining[automaton.state_of(hypothesis.tokens)])
