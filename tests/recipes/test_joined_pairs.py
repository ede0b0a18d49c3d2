"""Tests of the program that joins short pairs to long lines."""

from __future__ import annotations

import re

import pytest

from recipes.formality import forms_in
from recipes.tatoeba.joined import FEWEST_WORDS, MOST_WORDS, after_adverbial, joined
from recipes.tatoeba.phrases import pairs
from vtrans.text.values import compare

CODES = r"\b(?:A1|B2)\b"


@pytest.fixture(scope="module")
def made() -> list[tuple[str, str]]:
    return joined(pairs(), 500)


def test_both_sides_of_each_line_have_the_same_values(made: list[tuple[str, str]]) -> None:
    without_codes = [(re.sub(CODES, " ", src), re.sub(CODES, " ", tgt)) for src, tgt in made]
    assert [pair for pair in without_codes if compare(pair[0], pair[1])] == []


def test_lines_are_long_and_have_each_code_once_and_one_form_of_address(made: list[tuple[str, str]]) -> None:
    assert len(made) == 500
    for src, tgt in made:
        assert FEWEST_WORDS <= len(src.split()) <= MOST_WORDS
        assert "<" not in src + tgt
        assert len(forms_in(tgt)) < 2
        assert all(len(re.findall(rf"\b{code}\b", src)) < 2 for code in ("A1", "B2"))


@pytest.mark.parametrize(
    ("src", "tgt", "expected"),
    [
        ("He came home.", "Er kam nach Hause.", ("he came home.", "kam er nach Hause.")),
        ("I've seen it.", "Ich habe es gesehen.", ("I've seen it.", "habe ich es gesehen.")),
        ("Tom wasn't there.", "Tom war nicht da.", ("Tom wasn't there.", "war Tom nicht da.")),
        ("Mary can swim!", "Maria kann schwimmen!", ("Mary can swim!", "kann Maria schwimmen!")),
        ("I know that he came.", "Ich weiß, dass er kam.", None),  # the comma follows the verb
        ("Tom and I came.", "Tom und ich kamen.", None),
        ("He came.", "Da kam er.", None),
        ("I can.", "Ich kann.", None),
    ],
)
def test_after_an_adverbial_the_german_verb_comes_first(src: str, tgt: str, expected: tuple[str, str] | None) -> None:
    assert after_adverbial(src, tgt) == expected
