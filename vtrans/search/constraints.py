"""Constraints on translations: a given prefix, a minimum length, no repeated n-grams, a penalty for repetition, and
subwords that never occur.

`Constrained` wraps a decoder and changes the log-probabilities that it returns, so the search itself has no
constraints.

Legend: B sentences in the batch, K rows per sentence, n rows of a block, T tokens so far, V vocabulary, X positions, G
n-gram.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from vtrans.search.loop import Block, Decoder, Listed, logprobs_of


@dataclass(frozen=True)
class Prefix:
    """The first tokens of a translation. If `closed`, the next token begins a word or is EOS; else it may continue the
    prefix's last word."""

    tokens: tuple[int, ...] = ()
    closed: bool = False


NO_PREFIXES = repeat(Prefix())


@dataclass(frozen=True)
class Rules:
    """The constraints on all sentences; the defaults constrain nothing."""

    eos_id: int
    starts_V: Tensor | None = None  # whether a token may follow a closed prefix; required if there is one
    min_length: int = 0  # tokens before EOS
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    suppressed: tuple[int, ...] = ()

    @property
    def need_history(self) -> bool:
        """Whether a rule depends on the tokens so far."""
        return self.no_repeat_ngram > 0 or self.repetition_penalty != 1.0


def constrain(
    logprobs_nV: Tensor, said_nT: Tensor, ages: Sequence[int], prefixes: Sequence[Prefix], rules: Rules
) -> None:
    """Applies the constraints to a block of log-probabilities, in place.

    `said_nT` holds each row's tokens so far, as many as its age, then -1. Within the prefix, only its next token is
    possible; it keeps its log-probability, and the other constraints have no effect. After the prefix, the
    log-probability of each token in the row is multiplied by `repetition_penalty` (Keskar et al. 2019 divide positive
    logits and multiply negative ones; log-probabilities are never positive). A token that would repeat an n-gram of
    the row becomes impossible, and so do EOS before `min_length` and the `suppressed` tokens.
    """
    V = logprobs_nV.shape[1]
    forced = [
        (row, p.tokens[age]) for row, (age, p) in enumerate(zip(ages, prefixes, strict=True)) if age < len(p.tokens)
    ]
    at = torch.tensor(forced, device=logprobs_nV.device).T if forced else None
    kept = logprobs_nV[at[0], at[1]] if at is not None else None
    if rules.repetition_penalty != 1.0:
        logprobs_nV.copy_(
            torch.where(_marked(said_nT, said_nT >= 0, V), logprobs_nV * rules.repetition_penalty, logprobs_nV)
        )
    if rules.no_repeat_ngram:
        logprobs_nV.masked_fill_(_repeating(said_nT, ages, rules.no_repeat_ngram, V), -math.inf)
    if rules.suppressed:
        logprobs_nV.index_fill_(1, torch.tensor(rules.suppressed, device=logprobs_nV.device), -math.inf)
    young = [row for row, age in enumerate(ages) if age < rules.min_length]
    if young:
        logprobs_nV[young, rules.eos_id] = -math.inf
    opening = [
        row for row, (age, p) in enumerate(zip(ages, prefixes, strict=True)) if p.closed and age == len(p.tokens)
    ]
    if opening:
        assert rules.starts_V is not None
        logprobs_nV[opening] = logprobs_nV[opening].masked_fill(~rules.starts_V.to(logprobs_nV.device), -math.inf)
    if at is not None and kept is not None:
        logprobs_nV[at[0]] = -math.inf
        logprobs_nV[at[0], at[1]] = kept


def constrain_listed(
    block: Listed, said_nT: Tensor, ages: Sequence[int], prefixes: Sequence[Prefix], rules: Rules
) -> None:
    """Applies the constraints to a block that lists all tokens of its rows and of their prefixes, in place."""
    column = {id_: c for c, id_ in enumerate(block.ids.tolist())}
    said_nT = torch.searchsorted(block.ids, said_nT.contiguous()).where(said_nT >= 0, -1)
    starts_v = None if rules.starts_V is None else rules.starts_V[block.ids.to(rules.starts_V.device)]
    own = {p: Prefix(tuple(column[token] for token in p.tokens), p.closed) for p in set(prefixes)}
    suppressed = tuple(column[token] for token in rules.suppressed if token in column)
    here = replace(rules, eos_id=column[rules.eos_id], starts_V=starts_v, suppressed=suppressed)
    constrain(block.logprobs, said_nT, ages, [own[p] for p in prefixes], here)


def _marked(tokens_nX: Tensor, which_nX: Tensor, V: int) -> Tensor:
    """Returns True [n, V] at each row's tokens for which `which_nX` is True."""
    marks = torch.zeros(len(tokens_nX), V + 1, dtype=torch.bool, device=tokens_nX.device)
    return marks.scatter_(1, tokens_nX.where(which_nX, V), True)[:, :V]


def _repeating(said_nT: Tensor, ages: Sequence[int], n_gram: int, V: int) -> Tensor:
    """Returns True [n, V] at the tokens that would repeat an n-gram of the row."""
    n, T = said_nT.shape
    if n_gram > T:  # no row is that long
        return torch.zeros(n, V, dtype=torch.bool, device=said_nT.device)
    ages_n1 = torch.tensor(ages, device=said_nT.device)[:, None]
    newest_nG = ages_n1 + torch.arange(1 - n_gram, 0, device=said_nT.device)  # places of the newest n - 1 tokens
    newest_nG = said_nT.gather(1, newest_nG.clamp(min=0))
    grams_nXG = said_nT.unfold(1, n_gram, 1)
    alike_nX = (grams_nXG[:, :, :-1] == newest_nG[:, None]).all(2) & (grams_nXG[:, :, -1] >= 0)
    return _marked(grams_nXG[:, :, -1], alike_nX, V)


@dataclass
class ConstrainedState:
    inner: Any
    said_BKT: Tensor  # the tokens of each row, then -1
    prefixes: list[Prefix]  # per sentence
    ages: list[int]  # tokens so far; -1 before BOS is fed


class Constrained:
    """A decoder under constraints. `prefixes` yields one prefix per sentence, in the order in which the
    search starts sentences, which is that of its sources."""

    def __init__(self, decoder: Decoder[Any], rules: Rules, prefixes: Iterable[Prefix] = NO_PREFIXES) -> None:
        self.decoder, self.rules = decoder, rules
        self._prefixes = iter(prefixes)

    def start(self, sources: Sequence[Sequence[int]], width: int) -> ConstrainedState:
        prefixes = [next(self._prefixes) for _ in sources]
        said_BKT = torch.full((len(sources), width, 16), -1)
        return ConstrainedState(self.decoder.start(sources, width), said_BKT, prefixes, [-1] * len(sources))

    def step(self, state: ConstrainedState, tokens_BK: Tensor, live_r: Tensor) -> Iterator[Block]:
        state.ages = [age + 1 for age in state.ages]
        if not self.rules.need_history:
            return self._constrained(state, self.decoder.step(state.inner, tokens_BK, live_r), live_r)
        B, K, T = state.said_BKT.shape
        said_BKT = state.said_BKT.to(tokens_BK.device)
        if max(state.ages) > T:
            said_BKT = torch.cat((said_BKT, torch.full_like(said_BKT, -1)), 2)
        ages_B = torch.tensor(state.ages, device=tokens_BK.device)
        # BOS is fed first, but it does not belong to the translation; -1 is written in its place.
        here_BK1 = (ages_B - 1).clamp(min=0)[:, None, None].expand(B, K, 1)
        newest_BK1 = tokens_BK[:, :, None].where(ages_B[:, None, None] > 0, -1)
        state.said_BKT = said_BKT.scatter(2, here_BK1, newest_BK1)
        return self._constrained(state, self.decoder.step(state.inner, tokens_BK, live_r), live_r)

    def _constrained(self, state: ConstrainedState, blocks: Iterable[Block], live_r: Tensor) -> Iterator[Block]:
        K = state.said_BKT.shape[1]
        longest = max(state.ages)
        done = 0
        for block in blocks:
            logprobs = logprobs_of(block)
            at_n = live_r[done : done + len(logprobs)]
            rows: list[int] = at_n.tolist()
            said_nT = state.said_BKT.flatten(0, 1)[at_n.to(state.said_BKT.device), :longest].to(logprobs.device)
            ages, prefixes = [state.ages[r // K] for r in rows], [state.prefixes[r // K] for r in rows]
            if isinstance(block, Listed):
                constrain_listed(block, said_nT, ages, prefixes, self.rules)
            else:
                constrain(block, said_nT, ages, prefixes, self.rules)
            yield block
            done += len(rows)

    def reorder(self, state: ConstrainedState, parents_BK: Tensor) -> None:
        self.decoder.reorder(state.inner, parents_BK)
        if not self.rules.need_history:
            return
        at_BKT = parents_BK.to(state.said_BKT.device)[:, :, None].expand_as(state.said_BKT)
        state.said_BKT = state.said_BKT.gather(1, at_BKT)

    def drop(self, state: ConstrainedState, sentences: Sequence[int]) -> None:
        self.decoder.drop(state.inner, sentences)
        for b in sentences:
            state.ages[b] = 0  # the table has as many columns as the largest age

    def admit(self, state: ConstrainedState, sources: Sequence[Sequence[int]], places: Sequence[int]) -> None:
        self.decoder.admit(state.inner, sources, places)
        added = len(sources) - len(places)
        B = len(state.ages)
        state.said_BKT = torch.cat((state.said_BKT, state.said_BKT.new_empty(added, *state.said_BKT.shape[1:])))
        state.ages += [-1] * added
        state.prefixes += [Prefix()] * added
        for b in (*places, *range(B, B + added)):
            state.said_BKT[b] = -1
            state.ages[b], state.prefixes[b] = -1, next(self._prefixes)

    def select(self, state: ConstrainedState, sentences: Sequence[int]) -> None:
        self.decoder.select(state.inner, sentences)
        state.said_BKT = state.said_BKT[list(sentences)]
        state.ages = [state.ages[b] for b in sentences]
        state.prefixes = [state.prefixes[b] for b in sentences]
