"""The text of `make demo`: what the excerpt that comes with vtrans holds."""

from __future__ import annotations

import re
from collections.abc import Iterator

from recipes.demo.demo import SENTENCES
from recipes.experiment import excerpt

Pair = tuple[str, str]


def pairs_of(name: str) -> list[Pair]:
    return list(zip(excerpt(f"{name}.en"), excerpt(f"{name}.de"), strict=True))


def words_of(line: str) -> list[str]:
    return re.findall(r"\w+(?:['’]\w+)*", line.lower())


def but_one(line: str) -> Iterator[tuple[str, ...]]:
    """Yields the sorted words of a sentence, and them without each word in turn. Two sentences that differ in one word
    have one of these in common."""
    words = sorted(words_of(line))
    yield tuple(words)
    for i in range(len(words)):
        yield (*words[:i], *words[i + 1 :])


def test_the_excerpt_has_short_sentences_of_few_words_and_holds_its_test_sentences_out() -> None:
    train, valid, test = map(pairs_of, ("train", "valid", "test"))
    assert (len(train), len(valid), len(test)) == (54_392, 382, 1000)
    held_out = {english for english, _ in valid + test}
    assert len(held_out) == len(valid) + len(test)
    near = {words for english in held_out for words in but_one(english)}
    assert not [english for english, _ in train if not near.isdisjoint(but_one(english))]
    assert len(set(train)) == len(train)
    for number, most in enumerate((1500, 2200)):
        words = [words_of(pair[number]) for pair in train + valid + test]
        assert max(map(len, words)) <= 8
        assert len({word for line in words for word in line}) <= most


def test_the_sentences_that_the_demo_shows_are_not_in_the_excerpt() -> None:
    seen = {tuple(words_of(english)) for name in ("train", "valid", "test") for english, _ in pairs_of(name)}
    assert not [line for line in SENTENCES if tuple(words_of(line)) in seen]
    known = {word for words in seen for word in words}
    assert known.issuperset(word for line in SENTENCES for word in words_of(line))
