"""Fuzzy matches: the index finds what comparing with every text finds."""

from __future__ import annotations

import random

import pytest
from rapidfuzz.distance import Levenshtein

from vtrans.data.matches import LEAST, SimilarTexts, codes_of

WORDS = ("the", "the", "the", "a", "dog", "cat", "runs", "in", "park", "Łódź", "5", "犬")


def near(number: int, similarity: float) -> object:
    return (number, pytest.approx(similarity))


def texts(count: int, seed: int) -> list[str]:
    numbers = random.Random(seed)
    return [" ".join(numbers.choices(WORDS, k=numbers.randrange(1, 9))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(3))
def test_the_index_finds_the_best_text_there_is(seed: int) -> None:
    known = texts(150, seed)
    similar = SimilarTexts(known[:100])
    for text in known[100:]:
        similar.add(text)
    assert len(similar) == 150
    for text in texts(150, seed + 100):
        scores = [Levenshtein.normalized_similarity(text.split(), other.split()) for other in known]
        best = max(scores)
        found = similar.best(text)
        if best < LEAST:
            assert found is None
        else:
            assert found == near(scores.index(best), best)


def test_case_punctuation_and_white_space_do_not_matter() -> None:
    assert SimilarTexts(["A dog, a cat!"]).best("a DOG\ta cat") == (0, 1.0)


@pytest.mark.parametrize("text", ["", " ", "!?", "unheard of words"])
def test_other_texts_have_no_match(text: str) -> None:
    assert SimilarTexts(["a dog", "", "..."]).best(text) is None


def test_words_of_scripts_without_spaces_are_characters() -> None:
    assert SimilarTexts(["犬が公園を走る"]).best("猫が公園を走る") == near(0, 6 / 7)


def test_texts_that_are_not_allowed_are_left_out() -> None:
    similar = SimilarTexts(["a b c d e", "a b c d x", "a b c y x"])
    assert similar.best("a b c d e", lambda number: number != 0) == near(1, 0.8)
    assert similar.best("a b c d e", lambda number: number > 1) == near(2, 0.6)
    assert similar.best("a b c d e", lambda number: number > 2) is None


def test_codes_are_letters_with_numbers() -> None:
    assert codes_of("Put A1 and A12B2 into a3.") == {"A1", "A12", "B2"}
