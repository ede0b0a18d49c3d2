"""Rules about the next token: a given prefix, a minimum length, no repeated n-grams, a penalty for repetition, and
tokens that never occur or would complete a phrase to avoid.

A rule is a function of the hypotheses' tokens so far. It changes the log-probabilities of a step before the search sees
them, so beam search and sampling follow the same rules, and know none of them.

Legend: n rows of a block, T tokens so far, V vocabulary, v columns of a block, x pairs of a row and a token, G n-gram.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vtrans.search.history import History, Ints
from vtrans.search.loop import Best, Block, logprobs_of


@dataclass(frozen=True)
class Prefix:
    """The first tokens of a translation. If `closed`, the next token begins a word or is EOS; else it may continue the
    prefix's last word."""

    tokens: tuple[int, ...] = ()
    closed: bool = False


NO_PREFIX = Prefix()
Pairs = Ints | Sequence[tuple[int, int]]
"""Rows of a block, each with a token [x, 2]."""


@dataclass(frozen=True)
class Rules:
    """The rules for all sentences; the defaults forbid nothing."""

    eos_id: int
    prefixes: Sequence[Prefix] = ()  # per sentence; none: no sentence has one
    starts_V: NDArray[np.bool_] | None = None  # whether a token may follow a closed prefix; required if there is one
    min_length: int = 0  # tokens before EOS
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    suppressed: tuple[int, ...] = ()
    completing: Callable[[int, Sequence[int]], Iterable[int]] | None = None
    """Returns the tokens that would complete a phrase which a sentence avoids, given the tokens so far."""

    def __post_init__(self) -> None:
        assert self.starts_V is not None or not any(prefix.closed for prefix in self.prefixes)

    @property
    def always(self) -> bool:
        """Whether the rules concern every step, and not only the first ones of a sentence."""
        return bool(self.no_repeat_ngram or self.suppressed or self.completing) or self.repetition_penalty != 1.0

    @cached_property
    def first_steps(self) -> int:
        """In how many steps of a sentence its prefix or the minimum length has an effect, at most."""
        return max([self.min_length, *(len(prefix.tokens) + prefix.closed for prefix in self.prefixes)])

    def most_forbidden(self, history: History) -> int | None:
        if not self._concern(history):
            return 0
        if (
            self.no_repeat_ngram
            or self.completing
            or self.repetition_penalty != 1.0
            or any(p != NO_PREFIX for p in self.prefixes)
        ):
            return None
        return len(self.suppressed) + bool(self.min_length)

    def applied(self, blocks: Iterable[Block], history: History, live_r: Ints) -> Iterable[Block]:
        """Returns the blocks of a step, whose rows are the live ones, under the rules. They are changed in place."""
        return self._each(blocks, history, live_r.tolist()) if self._concern(history) else blocks

    def _concern(self, history: History) -> bool:
        ages = (history.age(b) for b, i in enumerate(history.sentences) if i is not None)
        return self.always or min(ages) < self.first_steps

    def _each(self, blocks: Iterable[Block], history: History, rows: Sequence[int]) -> Iterator[Block]:
        done = 0
        for block in blocks:
            here = rows[done : done + len(logprobs_of(block))]
            self.apply(block, history.tokens(here), [history.sentence(row // history.width) for row in here])
            yield reordered(block) if isinstance(block, Best) else block
            done += len(here)

    def apply(self, block: Block, said_nT: Ints, sentences: Sequence[int]) -> None:
        """Changes the log-probabilities of a block in place, given each row's tokens so far, after -1 for those that it
        is younger than others, and its sentence.

        Within the prefix, only its next token is possible; it keeps its log-probability, and the other rules have no
        effect. After the prefix, the log-probability of each token in the row is multiplied by `repetition_penalty`
        (Keskar et al. 2019 divide positive logits and multiply negative ones; log-probabilities are never positive). A
        token that would repeat an n-gram of the row becomes impossible, and so do EOS before `min_length`, the
        `suppressed` tokens, and those that would complete a phrase to avoid.
        """
        ages_n = (said_nT >= 0).sum(1).tolist()
        prefixes = [self.prefixes[i] if self.prefixes else NO_PREFIX for i in sentences]
        rest = [(n, p.tokens[age:]) for n, (p, age) in enumerate(zip(prefixes, ages_n, strict=True))]
        given = [(n, tokens[0]) for n, tokens in rest if tokens]
        if given:
            given_rows, given_columns, _ = columns_of(block, given)
            kept_x = logprobs_of(block)[given_rows, given_columns]
        if self.repetition_penalty != 1.0:
            multiply(block, said(said_nT), self.repetition_penalty)
        if self.no_repeat_ngram:
            forbid(block, repeating(said_nT, self.no_repeat_ngram))
        if self.suppressed:
            forbid(block, [(n, token) for n in range(len(sentences)) for token in self.suppressed])
        if self.completing:
            rows = [(n, self.completing(i, said_nT[n].tolist())) for n, i in enumerate(sentences)]
            forbid(block, [(n, token) for n, tokens in rows for token in tokens])
        forbid(block, [(n, self.eos_id) for n, age in enumerate(ages_n) if age < self.min_length])
        opening = [n for n, p in enumerate(prefixes) if p.closed and ages_n[n] == len(p.tokens)]
        if opening and self.starts_V is not None:
            keep_only(block, opening, self.starts_V)
        if given:
            logprobs_of(block)[given_rows] = -math.inf
            logprobs_of(block)[given_rows, given_columns] = kept_x


def said(said_nT: Ints) -> Ints:
    """Returns the tokens of each row as pairs."""
    rows, columns = np.nonzero(said_nT >= 0)
    return np.stack((rows, said_nT[rows, columns]), 1)


def repeating(said_nT: Ints, n_gram: int) -> Ints:
    """Returns the tokens that would repeat an n-gram of their row, as pairs."""
    T = said_nT.shape[1]
    if n_gram > T:  # no row is that long
        return np.empty((0, 2), dtype=np.int64)
    grams_nXG = np.lib.stride_tricks.sliding_window_view(said_nT, n_gram, axis=1)
    newest_nG = said_nT[:, T - n_gram + 1 :]
    alike_nX = (grams_nXG[:, :, :-1] == newest_nG[:, None]).all(2) & (grams_nXG[:, :, 0] >= 0)
    return np.stack((np.nonzero(alike_nX)[0], grams_nXG[:, :, -1][alike_nX]), 1)


def forbid(block: Block, pairs: Pairs) -> None:
    """Makes these tokens of their rows impossible."""
    if len(pairs):
        rows, columns, listed = columns_of(block, pairs)
        logprobs_of(block)[rows[listed], columns[listed]] = -math.inf


def multiply(block: Block, pairs: Pairs, factor: float) -> None:
    """Multiplies the log-probabilities of these tokens of their rows, once if a pair occurs several times."""
    if len(pairs):
        rows, columns, listed = columns_of(block, pairs)
        logprobs_of(block)[rows[listed], columns[listed]] *= factor


def columns_of(block: Block, pairs: Pairs) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Returns the rows [x] and columns [x] of these tokens in a block, and whether it has these tokens [x]."""
    rows, tokens = np.asarray(pairs).T
    if not isinstance(block, Best):
        return rows, tokens, np.ones(len(tokens), dtype=bool)
    equal_xm = block.ids[rows] == tokens[:, None]
    return rows, equal_xm.argmax(1), equal_xm.any(1)


def reordered(block: Best) -> Best:
    """Returns a block whose log-probabilities have changed, best first again."""
    order_nv = (-block.logprobs).argsort(1, kind="stable")
    return Best(np.take_along_axis(block.logprobs, order_nv, 1), np.take_along_axis(block.ids, order_nv, 1))


def keep_only(block: Block, rows: Sequence[int], allowed_V: NDArray[np.bool_]) -> None:
    """Makes all tokens of these rows impossible but the allowed ones."""
    assert not isinstance(block, Best)
    block[rows] = np.where(allowed_V, block[rows], -math.inf)
