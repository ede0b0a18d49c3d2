"""Dynamic beam allocation: a beam search whose translations contain given phrases.

By definition, a sentence's hypotheses are in banks, by the tokens of its phrases that they still need
(`lexical.ConstraintAutomaton`); EOS extends those that need none. In each step, the extensions of a row are its K + 1
best tokens and the tokens with which a phrase begins or continues. If the next token decides whether a phrase is a
whole word, the best token that does not continue a word is another, and if that is EOS, so is the second best. The
extensions of each bank are ranked as in beam.py. EOS among the first K of its bank finishes a hypothesis. The K best
others of each bank are live, up to the sentence's W rows: first the best of each bank, beginning with the one that
needs the fewest tokens, then the second best, and so on. The search is finished as in beam.py.

This is grid beam search (Hokamp and Liu 2017), with at least K rows for each bank as long as W has room for them. For
longer phrases, the banks divide the W rows between them, as in dynamic beam allocation (Post and Vilar 2018; Hu et al.
2019). The best hypothesis of the bank that needs the fewest tokens is always live, and so is its extension by a token
that is needed. A phrase is therefore left out only if a rule forbids it or the length limit leaves no room for it.

The phrases do not decide where a translation ends. A hypothesis with all its phrases may run to its length limit, as in
a search without phrases, if the model prefers to continue.

Legend: that of beam.py, except that there are W rows per sentence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from vtrans.search.decoder import Best, LogprobBlock, Logprobs
from vtrans.search.history import Ints, RowHistory
from vtrans.search.lexical import ConstraintAutomaton, LexicalConstraint, least_tokens
from vtrans.search.ranking import Ranked, best_tokens

# Banks that get K rows each. 4 reach the BLEU of 16 to within 0.4 with one to three reference words per line, or three
# successive ones, and take as little as two thirds of the time (600 lines of Multi30k, English to German, K 4).
MOST_BANKS = 4


def width_of(phrases: Sequence[LexicalConstraint], beam: int) -> int:
    """Returns the rows W of a sentence: K for each bank, for at most MOST_BANKS banks. Their number is rounded up to a
    power of two, so that sentences with similar phrases share a batch."""
    return int(beam * min(MOST_BANKS, 2 ** math.ceil(math.log2(least_tokens(phrases) + 1))))


class DynamicBeamAllocation:
    """Chooses the live hypotheses of a beam search by the phrases of each sentence.

    All sentences must have the same `width_of` their phrases. `continues_V` says which tokens may continue a word.
    Implements `beam.Choice`.
    """

    reads: int | None = None
    ranks: int | None = None

    def __init__(
        self, phrases: Sequence[Sequence[LexicalConstraint]], continues_V: NDArray[np.bool_], beam: int, eos_id: int
    ) -> None:
        (self.width,) = {width_of(needed, beam) for needed in phrases}
        self._beam, self._eos_id = beam, eos_id
        self._phrases, self._continues_V, self._continues = phrases, continues_V, continues_V.tolist()
        self._automata: dict[int, ConstraintAutomaton] = {}  # of the sentences in the batch

    def _automaton(self, sentence: int) -> ConstraintAutomaton:
        if sentence not in self._automata:
            self._automata[sentence] = ConstraintAutomaton(self._phrases[sentence], self._continues)
        return self._automata[sentence]

    def _state(self, history: RowHistory, b: int, k: int) -> int:
        """Returns the state of an automaton after a row."""
        return self._automaton(history.sentence(b)).state_of(tuple(map(int, history.path(b, k)[0])))

    def candidates(self, blocks: Iterable[LogprobBlock], history: RowHistory, live_r: Ints) -> tuple[Logprobs, Ints]:
        """Returns the log-probabilities and ids of the tokens by which rows may be extended, the best ones first; fewer
        for some rows than for others, and then -inf."""
        self._automata = {i: a for i, a in self._automata.items() if i in history.sentences}
        wanted: list[tuple[int, ...]] = []
        waiting: list[int] = []
        for r, row in enumerate(live_r.tolist()):
            b, k = divmod(row, history.width)
            automaton, state = self._automaton(history.sentence(b)), self._state(history, b, k)
            wanted.append(automaton.wanted[state])
            if automaton.waits[state]:
                waiting.append(r)
        extras = _Extras(wanted, waiting, self._continues_V, self._eos_id)
        values_rm, tokens_rm = best_tokens(extras.read(blocks), self._beam + 1)
        # The other tokens rank below the best ones.
        more = [
            sorted((-value, token) for token, value in row.items() if token not in tokens)
            for row, tokens in zip(extras.values, tokens_rm.tolist(), strict=True)
        ]
        m, most = values_rm.shape[1], max(map(len, more))
        values = np.pad(values_rm.astype(np.float64), ((0, 0), (0, most)), constant_values=-math.inf)
        tokens_rx = np.pad(tokens_rm, ((0, 0), (0, most)))
        for r, row_extras in enumerate(more):
            for x, (minus_value, token) in enumerate(row_extras):
                values[r, m + x], tokens_rx[r, m + x] = -minus_value, token
        return values, tokens_rx

    def choose(self, best: Ranked, history: RowHistory) -> tuple[Ranked, list[tuple[int, int]]]:
        K = self._beam
        columns_BW = np.full((len(best.sums), self.width), -1)  # of the live extensions, best first
        ends: list[tuple[int, int]] = []
        possible_B = (best.sums > -math.inf).sum(1).tolist()
        for b, possible in enumerate(possible_B):
            if not possible:
                continue
            automaton, states = self._automaton(history.sentence(b)), dict[int, int]()
            live: list[tuple[int, int, int]] = []  # rank among the live of its bank, bank, column
            others = [0] * (automaton.remaining[0] + 1)  # per bank, the extensions so far that do not finish
            ended = 0
            parents, tokens = best.parents[b, :possible].tolist(), best.tokens[b, :possible].tolist()
            for column, (parent, token) in enumerate(zip(parents, tokens, strict=True)):
                if parent not in states:
                    states[parent] = self._state(history, b, parent)
                if token == self._eos_id:
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
            kept = sorted(column for _, _, column in live[: self.width])
            columns_BW[b, : len(kept)] = kept
        live_BW = best.at(columns_BW)
        live_BW.sums[columns_BW < 0] = -math.inf
        return live_BW, ends

    def best_row(self, rows: Sequence[tuple[int, float]], history: RowHistory, b: int) -> tuple[int, float]:
        """Returns the first of a sentence's rows that need the fewest tokens."""
        automaton = self._automaton(history.sentence(b))
        return min(rows, key=lambda row: automaton.remaining[self._state(history, b, row[0])])


class _Extras:
    """Reads the log-probabilities of certain tokens from the blocks of a step: for each row the `wanted` tokens, and
    for the `waiting` rows the best token that does not continue a word."""

    def __init__(
        self, wanted: Sequence[Sequence[int]], waiting: Sequence[int], continues_V: NDArray[np.bool_], eos_id: int
    ) -> None:
        self.values: list[dict[int, float]] = []  # per row
        self._eos_id = eos_id
        self._wanted, self._waiting, self._continues_V = wanted, set(waiting), continues_V

    def read(self, blocks: Iterable[LogprobBlock]) -> Iterator[LogprobBlock]:
        """Yields the blocks after reading them."""
        for block in blocks:
            assert not isinstance(block, Best)
            begin, end = len(self.values), len(self.values) + len(block)
            for row, r in enumerate(range(begin, end)):
                wanted = list(self._wanted[r])
                self.values.append(dict(zip(wanted, block[row, wanted].tolist(), strict=True)))
            if waiting := [r - begin for r in range(begin, end) if r in self._waiting]:
                values_n2, tokens_n2 = best_tokens([np.where(self._continues_V, -math.inf, block[waiting])], 2)
                for n, tokens, values in zip(waiting, tokens_n2.tolist(), values_n2.tolist(), strict=True):
                    # A hypothesis that EOS does not extend needs another possible token.
                    kept = 2 if tokens[0] == self._eos_id else 1
                    self.values[begin + n].update(zip(tokens[:kept], values[:kept], strict=True))
            yield block
