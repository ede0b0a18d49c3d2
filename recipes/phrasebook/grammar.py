"""Draws sentence pairs (statements, questions, subordinate clauses and others) in both languages at once."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import complex as two
from . import morphology as m
from . import simple as one
from .lexicon import Lexicon, Pool, load
from .phrases import Draft, Reject, Words
from .sampler import Sampler
from .simple import Sides

MOST_WORDS = 15  # on either side


@dataclass(frozen=True)
class Pair:
    """One sentence pair with its alignment and its grammatical facts."""

    english: str
    german: str
    alignment: str  # Pharaoh format: i-j, words counted from 0
    construction: str
    lemmas: frozenset[str]  # of the German content words: "n:dog", "v:get up", "a:old", ...
    forms: frozenset[tuple[str, str]]  # (lemma, surface form) of the German nouns, verbs and adjectives
    adjective_nouns: frozenset[tuple[str, str]]
    separable: frozenset[tuple[str, str]]  # (verb, clause type)


CONSTRUCTIONS: dict[str, tuple[Callable[[Sampler], Sides], int, str]] = {
    "statement": (one.statement, 300, "."),
    "separable": (one.separable_statement, 70, "."),
    "question": (one.question, 80, "?"),
    "what": (one.what, 35, "?"),
    "who": (one.who, 20, "?"),
    "where": (one.where, 35, "?"),
    "where is": (one.where_is, 10, "?"),
    "how much": (one.how_much, 5, "?"),
    "request": (one.request, 35, "."),
    "adjective": (one.is_adjective, 100, "."),
    "profession": (one.is_noun, 30, "."),
    "place": (one.is_where, 35, "."),
    "age": (one.age, 10, "."),
    "there is": (one.there_is, 30, "."),
    "weather": (one.weather, 10, "."),
    "hour": (one.hour, 6, "."),
    "because": (two.because, 45, "."),
    "if": (two.conditional, 30, "."),
    "while": (two.meanwhile, 15, "."),
    "before": (two.before, 18, "."),
    "when": (two.when, 25, "."),
    "that": (two.that, 50, "."),
    "indirect": (two.indirect, 15, "."),
    "infinitive": (two.infinitive, 40, "."),
    "it is to": (two.it_is_to, 15, "."),
    "relative": (two.relative, 50, "."),
    "passive": (two.passive, 35, "."),
    "and": (two.coordination, 30, "."),
}


_SHARES = Pool((name, weight) for name, (_, weight, _) in CONSTRUCTIONS.items())


def _finish(draft: Draft, construction: str, sides: Sides, mark: str) -> Pair:
    english, german = sides
    english = [word for word in english if word.text]
    german = [word for word in german if word.text]
    if not (3 <= len(english) <= MOST_WORDS and 2 <= len(german) <= MOST_WORDS):
        raise Reject
    content = [lemma for word in german for lemma in word.lemmas]
    # A separable verb names its lemma twice, once per part; any other content word occurs once in a sentence.
    once = {lemma for word in german for lemma in word.lemmas if not lemma.startswith("v:")}
    if sum(not lemma.startswith(("v:", "num:")) for lemma in content) != sum(not x.startswith("num:") for x in once):
        raise Reject
    english = [
        word._replace(text=m.article(english[i + 1].text)) if word.text == "a" else word
        for i, word in enumerate(english)
    ]
    return Pair(
        _text(english, mark),
        _text(german, mark),
        _align(english, german),
        construction,
        frozenset(content),
        frozenset(
            (lemma, word.text.strip(",")) for word in german for lemma in word.lemmas if lemma[:2] in ("n:", "v:", "a:")
        ),
        frozenset(draft.adjective_nouns),
        frozenset(draft.separable),
    )


def _text(words: Words, mark: str) -> str:
    line = " ".join(word.text for word in words)
    return line[0].upper() + line[1:] + mark


def _align(english: Words, german: Words) -> str:
    links = [
        f"{i}-{j}"
        for i, word in enumerate(english)
        for j, other in enumerate(german)
        if not set(word.units).isdisjoint(other.units)
    ]
    return " ".join(links)


def draw(dice: random.Random, lexicon: Lexicon | None = None, construction: str = "") -> Pair:
    """Returns one pair. A draft that breaks a rule is discarded and another one is drawn."""
    lexicon = lexicon or load()
    while True:
        draft = Draft(dice, lexicon)
        chosen = construction or draft.draw(_SHARES)
        # Retry within the construction, so that a difficult one keeps its share.
        make, _, mark = CONSTRUCTIONS[chosen]
        for _ in range(60):
            draft = Draft(dice, lexicon)
            try:
                return _finish(draft, chosen, make(Sampler(draft)), mark)
            except Reject:
                continue


def stream(seed: int) -> Iterator[Pair]:
    """Yields pairs without end; no English sentence occurs twice."""
    dice, lexicon, seen = random.Random(seed), load(), set[str]()
    while True:
        pair = draw(dice, lexicon)
        if pair.english not in seen:
            seen.add(pair.english)
            yield pair
