"""Rules about the next token: no repeated n-grams, a penalty for repetition, suppressed tokens, a minimum length, and a
given prefix.

A rule changes the log-probabilities of a step before the search sees them, so beam search and sampling obey the same
rules without knowing any of them. A new rule is a class with the methods of Rule. `rules_of` makes the rules for all
sentences from the search settings. Rules for one sentence are in `Source.rules`, which the reader of sources and the
check of translations fill.

engines/compiled/definitions.txt has a digest of this file, because compiled code implements three of the rules. After a
change here, torch runs every model until `python -m vtrans.engines.compiled.definitions` has updated the digests. Rules
for one sentence can be in other files, which have no digest, such as avoid.py and digits.py.

Legend: n rows of a block, T tokens so far, V vocabulary, v columns of a block, x pairs of a row and a token, G n-gram.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice

import numpy as np
from numpy.typing import NDArray

from vtrans.config import SearchConfig
from vtrans.search.decoder import Best, LogprobBlock, logprobs_of
from vtrans.search.history import Ints, RowHistory
from vtrans.system.errors import InputError
from vtrans.text.vocabulary import EOS_ID, PAD_ID, Vocabulary


class Step:
    """The log-probabilities of the next token of some rows, which rules change in place.

    Once a rule has determined the next token of a row, later rules do not change that row.
    """

    def __init__(self, block: LogprobBlock, prefix_nT: Ints) -> None:
        self.logprobs_nv = logprobs_of(block)
        self.ids_nv: Ints | None = block.ids if isinstance(block, Best) else None
        self.prefix_nT = prefix_nT
        """The tokens of each row so far, left-padded with -1."""
        self.ages_n: Ints = (prefix_nT >= 0).sum(1)
        """The number of tokens of each row so far."""
        self._open_n = np.ones(len(prefix_nT), dtype=bool)  # rows that later rules may change

    def rows(self, begin: int, end: int) -> Step:
        """Returns a Step for these rows that shares this one's arrays."""
        logprobs_nv = self.logprobs_nv[begin:end]
        block = logprobs_nv if self.ids_nv is None else Best(logprobs_nv, self.ids_nv[begin:end])
        part = Step(block, self.prefix_nT[begin:end])
        part._open_n = self._open_n[begin:end]
        return part

    def forbid(self, rows_x: Ints, tokens_x: Ints) -> None:
        """Makes these tokens impossible, each in its row."""
        self.logprobs_nv[self._places(rows_x, tokens_x)] = -math.inf

    def multiply(self, rows_x: Ints, tokens_x: Ints, factor: float) -> None:
        """Multiplies the log-probabilities of these tokens, each in its row, once even if a pair occurs several
        times."""
        self.logprobs_nv[self._places(rows_x, tokens_x)] *= factor

    def keep_only(self, allowed_V: NDArray[np.bool_]) -> None:
        """Makes all other tokens impossible."""
        assert self.ids_nv is None, "a rule that may forbid any number of tokens needs all of them"
        self.logprobs_nv[:, ~allowed_V] = -math.inf

    def determine(self, token: int) -> None:
        """Makes this token the only possible one in all rows. Its log-probability stays the same."""
        allowed_V = np.zeros(self.logprobs_nv.shape[1], dtype=bool)
        allowed_V[token] = True
        self.keep_only(allowed_V)
        self._open_n[:] = False

    def begin(self, rows_x: Ints, token: int) -> None:
        """Makes this token certain in these rows."""
        assert self.ids_nv is None, "a rule that may forbid any number of tokens needs all of them"
        self.logprobs_nv[rows_x] = -math.inf
        self.logprobs_nv[rows_x, token] = 0.0
        self._open_n[rows_x] = False

    def _places(self, rows_x: Ints, tokens_x: Ints) -> tuple[Ints, Ints]:
        """Returns the rows and columns of those tokens that the block contains and that rules may still change."""
        open_x = self._open_n[rows_x]
        rows_x, tokens_x = rows_x[open_x], tokens_x[open_x]
        if self.ids_nv is None:
            return rows_x, tokens_x
        equal_xv = self.ids_nv[rows_x] == tokens_x[:, None]
        there_x = equal_xv.any(1)
        return rows_x[there_x], equal_xv.argmax(1)[there_x]

    def block(self) -> LogprobBlock:
        """Returns the changed log-probabilities; a block of best tokens is sorted again."""
        if self.ids_nv is None:
            return self.logprobs_nv
        order_nv = (-self.logprobs_nv).argsort(1, kind="stable")
        return Best(np.take_along_axis(self.logprobs_nv, order_nv, 1), np.take_along_axis(self.ids_nv, order_nv, 1))


class Rule:
    """A constraint on the translation of a sentence."""

    @property
    def steps(self) -> float:
        """The number of initial steps of a sentence in which the rule matters; math.inf: all steps."""
        return math.inf

    @property
    def most_forbidden(self) -> int | None:
        """The maximum number of tokens that the rule forbids per row, if it does nothing else; None: no maximum."""
        return None

    def apply(self, step: Step) -> None:
        """Changes the log-probabilities of a step with methods such as `step.forbid`. `step.prefix_nT` holds the
        subwords of each row so far, left-padded with -1."""
        raise NotImplementedError("a SearchRule must define `apply`")


class SearchRule(Rule):
    """The base class of user-defined rules, which define `apply`. `vocab` is the target vocabulary."""

    steps: float = math.inf  # attributes, not properties, so that a rule may set them
    most_forbidden: int | None = None

    def __init__(self, vocab: Vocabulary) -> None:
        self.vocab = vocab


@dataclass(frozen=True)
class RepetitionPenalty(Rule):
    """Multiplies the log-probability of each token that is already in the row.

    Keskar et al. 2019 divide positive logits and multiply negative ones; log-probabilities are never positive.
    """

    factor: float

    def apply(self, step: Step) -> None:
        rows_x, places_x = np.nonzero(step.prefix_nT >= 0)
        step.multiply(rows_x, step.prefix_nT[rows_x, places_x], self.factor)


@dataclass(frozen=True)
class NoRepeatedNgram(Rule):
    """Forbids tokens, except those in `free`, that would repeat an n-gram of the row."""

    n: int
    free: tuple[int, ...] = ()

    def apply(self, step: Step) -> None:
        prefix_nT, T = step.prefix_nT, step.prefix_nT.shape[1]
        if self.n > T:  # no row is that long
            return
        grams_nXG = np.lib.stride_tricks.sliding_window_view(prefix_nT, self.n, axis=1)
        newest_nG = prefix_nT[:, T - self.n + 1 :]
        alike_nX = (grams_nXG[:, :, :-1] == newest_nG[:, None]).all(2) & (grams_nXG[:, :, 0] >= 0)
        if self.free:
            alike_nX &= ~np.isin(grams_nXG[:, :, -1], self.free)
        step.forbid(np.nonzero(alike_nX)[0], grams_nXG[:, :, -1][alike_nX])


@dataclass(frozen=True)
class Suppressed(Rule):
    """Makes these tokens impossible."""

    tokens: tuple[int, ...]

    @property
    def most_forbidden(self) -> int:
        return len(self.tokens)

    def apply(self, step: Step) -> None:
        rows_x = np.arange(len(step.ages_n)).repeat(len(self.tokens))
        step.forbid(rows_x, np.tile(np.array(self.tokens, dtype=np.int64), len(step.ages_n)))


@dataclass(frozen=True)
class MinimumLength(Rule):
    """Makes EOS impossible before `length` tokens."""

    length: int

    @property
    def steps(self) -> int:
        return self.length

    @property
    def most_forbidden(self) -> int:
        return 1

    def apply(self, step: Step) -> None:
        rows_x = np.flatnonzero(step.ages_n < self.steps)
        step.forbid(rows_x, np.full_like(rows_x, EOS_ID))


@dataclass(frozen=True)
class Begin(Rule):
    """Makes the first tokens of all sentences certain, overriding their prefixes."""

    tokens: tuple[int, ...]

    @property
    def steps(self) -> int:
        return len(self.tokens)

    def apply(self, step: Step) -> None:
        for place, token in enumerate(self.tokens):
            step.begin(np.flatnonzero(step.ages_n == place), token)


@dataclass(frozen=True)
class Prefix(Rule):
    """Determines the first tokens of one sentence. If the last word of the prefix is complete, `next_V` says which
    tokens may follow it."""

    tokens: tuple[int, ...]
    next_V: NDArray[np.bool_] | None = None

    @property
    def steps(self) -> int:
        return len(self.tokens) + (self.next_V is not None)

    def apply(self, step: Step) -> None:
        (age,) = set(step.ages_n.tolist())
        if age < len(self.tokens):
            step.determine(self.tokens[age])
        elif age == len(self.tokens) and self.next_V is not None:
            step.keep_only(self.next_V)


def rules_of(config: SearchConfig, vocab: Vocabulary) -> list[Rule]:
    """Returns the rules that the search settings impose on all sentences. Raises InputError like `suppressed_ids` and
    `begin_ids`."""
    rules: list[Rule] = []
    if begin := begin_ids(config, vocab):
        rules.append(Begin(begin))
    if config.repetition_penalty != 1.0:
        rules.append(RepetitionPenalty(config.repetition_penalty))
    if config.no_repeat_ngram:
        rules.append(NoRepeatedNgram(config.no_repeat_ngram))
    if suppressed := suppressed_ids(config, vocab):
        rules.append(Suppressed(suppressed))
    if config.min_length:
        rules.append(MinimumLength(config.min_length))
    return rules


def suppressed_ids(config: SearchConfig, vocab: Vocabulary) -> tuple[int, ...]:
    """Returns the ids of the subwords that `config.suppress` names. Raises InputError for a subword that is not in the
    vocabulary, and for EOS, without which no translation would end."""
    return tuple(sorted(set(_ids(config.suppress, "suppress", vocab))))


def begin_ids(config: SearchConfig, vocab: Vocabulary) -> tuple[int, ...]:
    """Returns the ids of the subwords that `config.begin` names. Raises InputError like `suppressed_ids`."""
    return tuple(_ids(config.begin, "begin", vocab))


def with_certain(begin: tuple[int, ...], tokens: Sequence[int], logprobs: Sequence[float]) -> tuple[float, ...]:
    """Returns a target's log-probabilities, with 0 for the tokens of `begin` if the target begins with them, as in the
    search. `logprobs` is empty for a target that the model did not score."""
    begun = min(len(begin), len(logprobs)) if tuple(tokens[: len(begin)]) == begin else 0
    return (*[0.0] * begun, *logprobs[begun:])


def _ids(pieces: Sequence[str], name: str, vocab: Vocabulary) -> list[int]:
    ids = []
    for piece in pieces:
        id = vocab.id_of(piece)
        if id is None or id in (PAD_ID, EOS_ID):
            raise InputError(f"`{name}` must name subwords of the target vocabulary except </s>, got {piece!r}.")
        ids.append(id)
    return ids


@dataclass(frozen=True)
class RuleSet:
    """The rules of a search: `common` rules for all sentences, and those of single sentences, which are applied
    first."""

    common: Sequence[Rule] = ()
    by_sentence: Mapping[int, Sequence[Rule]] = field(default_factory=dict)

    def now(self, history: RowHistory) -> RuleSet:
        """Returns the rules that matter in the next step."""
        if not self.common and not self.by_sentence:
            return self
        ages = {i: history.age(b) for b, i in enumerate(history.sentences) if i is not None}
        youngest = min(ages.values())
        left = {i: [rule for rule in self.by_sentence.get(i, ()) if age < rule.steps] for i, age in ages.items()}
        return RuleSet(
            [rule for rule in self.common if youngest < rule.steps], {i: rules for i, rules in left.items() if rules}
        )

    @property
    def most_forbidden(self) -> int | None:
        """The maximum number of tokens that the rules forbid per row, if they do nothing else; None: no maximum."""
        most = 0
        for rules in ([], *self.by_sentence.values()):
            counts = [rule.most_forbidden for rule in (*self.common, *rules)]
            known = [count for count in counts if count is not None]
            if len(known) < len(counts):
                return None
            most = max(most, sum(known))
        return most

    def applied(self, blocks: Iterable[LogprobBlock], history: RowHistory, live_r: Ints) -> Iterator[LogprobBlock]:
        """Yields the blocks of the live rows after applying all rules."""
        rows = iter(live_r.tolist())
        for block in blocks:
            if not self.common and not self.by_sentence:
                yield block
                continue
            here = list(islice(rows, len(logprobs_of(block))))
            step, begin = Step(block, history.tokens(here)), 0
            for b, of_sentence in groupby(here, lambda row: row // history.width):
                end = begin + len(list(of_sentence))
                for rule in self.by_sentence.get(history.sentence(b), ()):
                    rule.apply(step.rows(begin, end))
                begin = end
            for rule in self.common:
                rule.apply(step)
            yield step.block()


NO_RULES = RuleSet()
