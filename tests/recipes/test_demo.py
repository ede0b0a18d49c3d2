"""The text of `make demo`: what recipes/demo/excerpt.py chooses, and what the excerpt that comes with vtrans holds."""

import pytest

from recipes.demo.demo import SENTENCES
from recipes.demo.excerpt import FREQUENT, LENGTH, TESTED, Pair, but_one, easy, unlike, words_of
from recipes.experiment import excerpt as shipped


def pairs_of(name: str) -> list[Pair]:
    return list(zip(shipped(f"{name}.en"), shipped(f"{name}.de"), strict=True))


@pytest.mark.parametrize(
    ("sentence", "is_near"),
    [
        ("I like it.", True),
        ("I like them.", True),
        ("I don't like it.", True),
        ("I like.", True),
        ("I don't like them.", False),
        ("I", False),
    ],
)
def test_sentences_are_near_if_all_words_but_one_are_the_same(sentence: str, is_near: bool) -> None:
    assert (unlike([(sentence, "")], [("I like it.", "")]) == []) == is_near
    assert (unlike([("I like it.", "")], [(sentence, "")]) == []) == is_near


def test_short_sentences_of_frequent_words_are_chosen_once_and_in_order() -> None:
    known = [{"a", "b"}, {"x"}]
    pairs = [("B a!", "X."), ("a c", "x"), ("a", "x y"), ("a " * LENGTH, "x"), ("a " * (LENGTH + 1), "x"), ("!", "x")]
    assert easy(pairs + pairs, known) == [pairs[0], pairs[3]]


def test_the_excerpt_has_short_sentences_of_few_words_and_holds_its_test_sentences_out() -> None:
    train, valid, test = map(pairs_of, ("train", "valid", "test"))
    assert len(test) == TESTED
    held_out = {english for english, _ in valid + test}
    assert len(held_out) == len(valid) + len(test)
    assert unlike(train, valid + test) == train
    assert len(set(train)) == len(train)
    for number, most in enumerate(FREQUENT):
        words = [words_of(pair[number]) for pair in train + valid + test]
        assert max(map(len, words)) <= LENGTH
        assert len({word for line in words for word in line}) <= most


def test_the_sentences_that_the_demo_shows_are_not_in_the_excerpt() -> None:
    seen = {tuple(words_of(english)) for name in ("train", "valid", "test") for english, _ in pairs_of(name)}
    assert not [line for line in SENTENCES if tuple(words_of(line)) in seen]
    known = {word for words in seen for word in words}
    assert known.issuperset(word for line in SENTENCES for word in words_of(line))
    assert tuple(sorted(words_of(SENTENCES[0]))) == next(but_one(SENTENCES[0]))
