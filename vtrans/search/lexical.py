"""Phrases that a translation must contain, as an automaton that the search steps through.

A phrase has one or more variants, each a sequence of tokens; any one of them satisfies the phrase. An occurrence is a
contiguous variant; if the variant is `whole`, its last word must end there. Occurrences of one phrase do not overlap;
occurrences of different phrases may.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """One form of a phrase, as tokens. If `whole`, the next token must not continue the last word."""

    tokens: tuple[int, ...]
    whole: bool = False


@dataclass(frozen=True)
class LexicalConstraint:
    """A phrase that a translation must contain at least (or `exactly`) `times` times. With `exactly`, no variant is
    `whole`."""

    variants: tuple[Variant, ...]
    times: int = 1
    exactly: bool = False

    def __post_init__(self) -> None:
        assert self.variants
        assert all(variant.tokens for variant in self.variants)
        assert self.times >= 1
        assert not (self.exactly and any(variant.whole for variant in self.variants))


def least_tokens(phrases: Sequence[LexicalConstraint]) -> int:
    """Returns the minimum number of tokens that contain all phrases without overlap."""
    return sum(phrase.times * min(len(variant.tokens) for variant in phrase.variants) for phrase in phrases)


def phrase_tokens(phrases: Sequence[LexicalConstraint]) -> Iterator[int]:
    """Yields all tokens of the phrases."""
    for phrase in phrases:
        for variant in phrase.variants:
            yield from variant.tokens


@dataclass(frozen=True)
class _Place:
    """The progress of a hypothesis: the number of complete occurrences of each phrase, and the variants that its last
    tokens begin, as (phrase, variant, number of tokens). A complete `whole` variant waits for the next token."""

    counts: tuple[int, ...]
    begun: frozenset[tuple[int, int, int]] = frozenset()


class ConstraintAutomaton:
    """Tracks which tokens may follow a hypothesis and how many tokens the phrases still need.

    States are numbers, created when a hypothesis first reaches them; 0 is the state of the empty hypothesis.
    `continues` says for each token whether it may continue a word.
    """

    def __init__(self, phrases: Sequence[LexicalConstraint], continues: Sequence[bool]) -> None:
        self.phrases, self._continues = phrases, continues
        variants = [variant for phrase in phrases for variant in phrase.variants]
        self._letters = {token for variant in variants for token in variant.tokens}
        # Whether ending a word before the next phrase may take an additional token.
        self._separate = int(any(continues[variant.tokens[0]] for variant in variants))
        self._costs = [min(map(self._cost, phrase.variants)) for phrase in phrases]
        self._places: list[_Place] = []
        self._numbers: dict[_Place, int] = {}
        self._next: list[dict[tuple[int, bool], int | None]] = []  # per state
        self.remaining: list[int] = []
        """Per state, the number of tokens still needed; 0 allows EOS."""
        self.wanted: list[tuple[int, ...]] = []
        """Per state, the tokens that begin or continue a phrase."""
        self.waits: list[bool] = []
        """Per state, whether the next token decides if a phrase ends a whole word."""
        self._number_of(_Place((0,) * len(phrases)))
        self._states: dict[tuple[int, ...], int] = {(): 0}

    def state_of(self, tokens: tuple[int, ...]) -> int:
        """Returns the state after a hypothesis, in one step if the hypothesis without its last token is known. All
        tokens must be possible."""
        if tokens not in self._states:
            after = self.after(self.state_of(tokens[:-1]), tokens[-1])
            assert after is not None
            self._states[tokens] = after
        return self._states[tokens]

    def after(self, state: int, token: int) -> int | None:
        """Returns the state after one more token; None if the token makes a phrase occur too often."""
        continues = self._continues[token]
        key = (token if token in self._letters else -1, continues)
        known = self._next[state]
        if key not in known:
            known[key] = self._step(self._places[state], key[0], continues)
        return known[key]

    def _step(self, place: _Place, token: int, continues: bool) -> int | None:
        ended = {c for c, f, n in place.begun if n == len(self.phrases[c].variants[f].tokens) and not continues}
        counts = [min(count + (c in ended), self.phrases[c].times) for c, count in enumerate(place.counts)]
        begun = [(c, f, n) for c, f, n in place.begun if c not in ended and n < len(self.phrases[c].variants[f].tokens)]
        begun += [(c, f, 0) for c, phrase in enumerate(self.phrases) for f in range(len(phrase.variants))]
        begun = [(c, f, n + 1) for c, f, n in begun if self.phrases[c].variants[f].tokens[n] == token]
        complete = {(c, f) for c, f, n in begun if n == len(self.phrases[c].variants[f].tokens)}
        if any(self.phrases[c].exactly and counts[c] == self.phrases[c].times for c, _ in complete):
            return None
        done = {c for c, f in complete if not self.phrases[c].variants[f].whole}
        counts = [min(count + (c in done), self.phrases[c].times) for c, count in enumerate(counts)]
        open_ = [self.phrases[c].exactly or count < self.phrases[c].times for c, count in enumerate(counts)]
        return self._number_of(
            _Place(tuple(counts), frozenset((c, f, n) for c, f, n in begun if c not in done and open_[c]))
        )

    def _number_of(self, place: _Place) -> int:
        if place in self._numbers:
            return self._numbers[place]
        number = self._numbers[place] = len(self._places)
        variants = [phrase.variants for phrase in self.phrases]
        waiting = {c for c, f, n in place.begun if n == len(variants[c][f].tokens)}
        needed = [p.times - place.counts[c] - (c in waiting) for c, p in enumerate(self.phrases)]
        going = [(c, f, n) for c, f, n in place.begun if needed[c] > 0 and c not in waiting]
        wanted = {variants[c][f].tokens[n] for c, f, n in going}
        wanted |= {variant.tokens[0] for c, need in enumerate(needed) if need > 0 for variant in variants[c]}
        self._places.append(place)
        self._next.append({})
        self.remaining.append(self._least(needed, waiting, going))
        self.wanted.append(tuple(sorted(wanted)))
        self.waits.append(bool(waiting))
        return number

    def _least(self, needed: Sequence[int], waiting: set[int], going: Sequence[tuple[int, int, int]]) -> int:
        """Returns the number of tokens that complete all phrases, if the next token completes those that wait for it
        and the others follow one after another. At least one of the wanted tokens, or of those that end a word, always
        lowers this number."""
        afresh = sum(max(0, need) * cost for need, cost in zip(needed, self._costs, strict=True))
        if not afresh:
            return 0
        counts = [afresh + (self._separate if waiting else 0)]
        # Only one of the phrases that have begun counts, because its next token may break off the others.
        for c, f, n in going:
            variant = self.phrases[c].variants[f]
            lost = sum(self._costs[w] for w in waiting) if self._continues[variant.tokens[n]] else 0
            counts.append(afresh - self._costs[c] + self._cost(variant) - n + lost)
        return min(counts)

    def _cost(self, variant: Variant) -> int:
        """Returns the number of tokens of a variant, including one that ends its last word if necessary."""
        return len(variant.tokens) + self._separate * variant.whole
