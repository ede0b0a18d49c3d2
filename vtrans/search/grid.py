"""Beam search for translations that contain given phrases.

By definition, a sentence's hypotheses are in banks, by the tokens of its phrases that they still need
(`lexical.Automaton`); EOS extends those that need none. In each step, the extensions of a row are its K + 1 best tokens
and the tokens with which a phrase begins or continues. If the next token decides whether a phrase is a whole word, the
best token that does not continue a word is another. The extensions of each bank are ranked as in beam.py. EOS among the
first K of its bank finishes a hypothesis. The K best others of each bank are live, up to the sentence's W rows: first
the best of each bank, beginning with the one that needs the fewest tokens, then the second best, and so on. The search
is finished as in beam.py.

This is grid beam search (Hokamp and Liu 2017), with at least K rows for each bank as long as W has room for them. For
longer phrases, the banks divide the W rows between them, as in dynamic beam allocation (Post and Vilar 2018; Hu et al.
2019). The best hypothesis of the bank that needs the fewest tokens is always live, and so is its extension by a token
that is needed. A phrase is therefore left out only if a rule forbids it or the length limit leaves no room for it.

Legend: that of beam.py, except that there are W rows per sentence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from vtrans.config import SearchConfig
from vtrans.search.beam import Beam, Floats, best_tokens
from vtrans.search.lexical import Automaton, Phrase, least_tokens
from vtrans.search.loop import Block, Decoder, Hypothesis, Listed, State, bad_logprobs, columns_of, logprobs_of, run

Extension = tuple[float, int, float, int]
"""Negative sum, parent row, negative log-probability and token: sorted, the best one is first."""

# Banks that get K rows each. 4 reach the BLEU of 16 to within 0.4 with one to three reference words per line, or three
# successive ones, and take as little as two thirds of the time (600 lines of Multi30k, English to German, K 4).
MOST_BANKS = 4


def width_of(phrases: Sequence[Phrase], beam: int) -> int:
    """Returns the rows W of a sentence: K for each bank, for at most MOST_BANKS banks. Their number is rounded up to a
    power of two, so that sentences with similar phrases share a batch."""
    return int(beam * min(MOST_BANKS, 2 ** math.ceil(math.log2(least_tokens(phrases) + 1))))


def grid_search(
    decoder: Decoder[State],
    sources: Sequence[Sequence[int]],
    limits: Sequence[int],
    phrases: Sequence[Sequence[Phrase]],
    *,
    continues_V: Tensor,
    config: SearchConfig,
    nbest: int,
    bos_id: int,
    eos_id: int,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Searches for translations that contain the phrases of each source; yields what `search.run` yields.

    All sources must have the same `width_of` their phrases. A sentence gets up to `nbest` finished hypotheses, which
    contain its phrases. If none finished, it gets the best live one of those that need the fewest tokens, with
    `finished=False`. `continues_V` says which tokens may continue a word.
    """
    (width,) = {width_of(own, config.beam) for own in phrases}
    continues = continues_V.tolist()
    automata = [Automaton(own, continues) for own in phrases]
    policy = GridBeam(limits, automata, continues_V, width, config, nbest, bos_id, eos_id)
    # Wider sentences take fewer places of a batch.
    return run(decoder, sources, limits, max(1, config.batch_tokens * config.beam // width), policy)


class GridBeam(Beam):
    """The live rows of all sentences and the state of each one's automaton."""

    def __init__(
        self,
        limits: Sequence[int],
        automata: Sequence[Automaton],
        continues_V: Tensor,
        width: int,
        config: SearchConfig,
        nbest: int,
        bos_id: int,
        eos_id: int,
    ) -> None:
        super().__init__(limits, config, nbest, bos_id, eos_id)
        self.width, self.stop = width, config.stop
        self.kept = config.beam if config.stop == "current" else nbest
        self.tokens_BK, self.live_BK = torch.empty(0, width, dtype=torch.int64), np.empty((0, width))
        self.parents_BK, self.itself_K = np.empty((0, width)), np.arange(width)
        self._automata, self._continues_V = automata, continues_V
        self._own: list[int] = []  # the sentence in each place
        self._states: list[list[int]] = []  # of each place's live rows

    def enter(self, sentences: Sequence[int], places: Sequence[int]) -> None:
        added = len(sentences) - len(places)
        taken = [*places, *range(len(self.searches), len(self.searches) + added)]
        super().enter(sentences, places)
        self._own += [0] * added
        self._states += [[]] * added
        for b, i in zip(taken, sentences, strict=True):
            self._own[b], self._states[b] = i, [0]

    def advance(self, blocks: Iterable[Block]) -> list[int]:
        B, W = self.live_BK.shape
        rows = [(b, k) for b in range(B) for k in np.flatnonzero(self.live_BK[b] > -math.inf).tolist()]
        wanted: list[tuple[int, ...]] = []
        waiting: list[int] = []
        for r, (b, k) in enumerate(rows):
            own, state = self._automata[self._own[b]], self._states[b][k]
            wanted.append(own.wanted[state])
            if own.waits[state]:
                waiting.append(r)
        extras = _Extras(wanted, waiting, self._continues_V)
        values_rm, tokens_rm = best_tokens(extras.read(blocks), self.config.beam + 1)
        if np.isnan(values_rm).any():
            raise bad_logprobs()
        rest = zip(rows, values_rm.tolist(), tokens_rm.tolist(), extras.found, strict=True)
        ends, live = _impossible(B, self.config.beam, self.bos_id), _impossible(B, W, self.bos_id)
        for b, part in groupby(rest, key=lambda row: row[0][0]):
            sums, extensions = self.live_BK[b].tolist(), []
            for (_, k), values, tokens, more in part:
                steps = dict(zip(tokens, values, strict=True)) | more
                extensions += [(-sums[k] - v, k, -v, token) for token, v in steps.items() if v > -math.inf]
            for table, ranked in zip((ends, live), self._ranked(b, sorted(extensions)), strict=True):
                if ranked:
                    minus_sums, parents, minus_steps, tokens = zip(*ranked, strict=True)
                    table[:, b, : len(ranked)] = (np.negative(minus_sums), np.negative(minus_steps), parents, tokens)
        sums_BK, _, self.parents_BK, tokens_BK = live
        self.live_BK, self.tokens_BK = sums_BK.copy(), torch.from_numpy(tokens_BK.astype(np.int64))
        return self._record(ends, live)

    def _ranked(self, b: int, extensions: list[Extension]) -> tuple[list[Extension], list[Extension]]:
        """Returns the extensions that finish a hypothesis, and the live ones, both with the largest sum first, as
        `extensions` are."""
        own, states, K = self._automata[self._own[b]], self._states[b], self.config.beam
        ends: list[Extension] = []
        live: list[tuple[int, int, Extension, int]] = []  # rank among the live of its bank, bank, extension, state
        others = [0] * (own.remaining[0] + 1)  # per bank, the extensions so far that do not finish
        ended = 0
        for extension in extensions:
            _, parent, _, token = extension
            state = states[parent]
            if token == self.eos_id:
                if own.remaining[state] == 0:
                    if others[0] + ended < K:
                        ends.append(extension)
                    ended += 1
                continue
            after = own.after(state, token)
            if after is None:
                continue
            bank = own.remaining[after]
            if others[bank] < K:
                live.append((others[bank], bank, extension, after))
            others[bank] += 1
        live.sort()
        kept = sorted(row[2:] for row in live[: self.width])
        if kept:
            self._states[b] = [state for _, state in kept]
        return ends, [extension for extension, _ in kept]

    def _best_row(self, b: int) -> int:
        own = self._automata[self._own[b]]
        return min(range(len(self._states[b])), key=lambda k: own.remaining[self._states[b][k]])

    def select(self, sentences: Sequence[int]) -> None:
        super().select(sentences)
        self._own = [self._own[b] for b in sentences]
        self._states = [self._states[b] for b in sentences]


def _impossible(B: int, n: int, token: int) -> Floats:
    """Returns a table of extensions [4, B, n] as in beam.py, none of them possible."""
    sums_Bn, tokens_Bn = np.full((B, n), -math.inf), np.full((B, n), token)
    return np.stack((sums_Bn, np.zeros((B, n)), np.zeros((B, n)), tokens_Bn))


class _Extras:
    """Reads the log-probabilities of certain tokens from the blocks of a step: for each row the `wanted` tokens, and
    for the `waiting` rows the best token that does not continue a word."""

    def __init__(self, wanted: Sequence[Sequence[int]], waiting: Sequence[int], continues_V: Tensor) -> None:
        self.found: list[dict[int, float]] = []  # per row
        self._wanted, self._waiting, self._continues_V = wanted, set(waiting), continues_V

    def read(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yields the blocks after reading them."""
        for block in blocks:
            begin, logprobs_nV = len(self.found), logprobs_of(block)
            end = begin + len(logprobs_nV)
            self.found += [{} for _ in range(begin, end)]
            pairs = [(r - begin, token) for r in range(begin, end) for token in self._wanted[r]]
            if pairs:
                self._read_pairs(block, pairs, begin)
            if waiting := [r - begin for r in range(begin, end) if r in self._waiting]:
                continues_V = self._continues_V.to(logprobs_nV.device)
                ids = block.ids if isinstance(block, Listed) else None
                best = logprobs_nV[waiting].masked_fill(continues_V if ids is None else continues_V[ids], -math.inf)
                values_n, columns_n = best.max(1)
                tokens_n = columns_n if ids is None else ids[columns_n]
                for n, token, value in zip(waiting, tokens_n.tolist(), values_n.tolist(), strict=True):
                    self.found[begin + n][token] = value
            yield block

    def _read_pairs(self, block: Block, pairs: Sequence[tuple[int, int]], begin: int) -> None:
        rows, columns, listed = columns_of(block, pairs)
        values = logprobs_of(block)[rows, columns].where(listed, -math.inf)
        for (n, token), value in zip(pairs, values.tolist(), strict=True):
            self.found[begin + n][token] = value
