"""Translations contain no codes or numbers that their line lacks."""

import re
from collections import Counter

import numpy as np
import pytest
from drawn import seeded
from translators import learned

import vtrans
from vtrans.search.avoid import VocabularyBytes
from vtrans.search.digits import OnlyCodes, OnlyNumbers
from vtrans.search.rules import Step
from vtrans.text.piece_table import is_byte
from vtrans.text.vocabulary import EOS_ID, Vocabulary

BEGUN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]+\d+")
NUMBER = re.compile(r"(?<![A-Za-z0-9])[0-9]+")
JOINED = re.compile(r"(?<![A-Za-z0-9])([0-9]+)[.,:][0-9]*$")
ALLOWED = frozenset({"A12", "B7"})


@pytest.fixture(scope="module")
def vocab() -> Vocabulary:
    codes = [f"{letter}{number}" for letter in "ABCQ" for number in (1, 7, 12, 345)]
    text = [f"Raum ({a}) {b}, x{a} {a[1:]},{b[1:]}" for a in codes for b in codes]
    return learned(text)


def test_the_rule_forbids_beginnings_of_other_codes(vocab: Vocabulary) -> None:
    """By definition: a word of letters and digits must be the beginning of a code that is allowed."""
    vocab_bytes, numbers, forbidden = VocabularyBytes(vocab), seeded(3), 0
    rule = OnlyCodes(vocab_bytes, ALLOWED)
    subwords = [i for i in range(EOS_ID + 1, len(vocab)) if not is_byte(vocab.text_of(i))]
    for _ in range(60):
        said = numbers.choices(subwords, k=numbers.randrange(1, 6))
        step = Step(np.zeros((1, len(vocab))), np.array([said]))
        rule.apply(step)
        for token in subwords:
            before, text = (b"".join(vocab_bytes.bytes[i] for i in ids).decode() for ids in (said, (*said, token)))
            begun = [word for word in BEGUN.finditer(text) if word.end() > len(before)]
            wrong = any(not any(code.startswith(word[0]) for code in ALLOWED) for word in begun)
            assert (step.logprobs_nv[0, token] == -np.inf) == wrong, text
            forbidden += wrong
    assert forbidden > 100


def test_letters_of_scripts_without_spaces_belong_to_no_code() -> None:
    vocab = learned(["\u7b2c3\u7ae0", "\u7b2c4\u7ae0 3 4"])
    vocab_bytes, said = VocabularyBytes(vocab), vocab.encode("\u7b2c")
    digits = {digit: vocab.encode(f"\u7b2c{digit}")[-1] for digit in "34"}
    assert not {*digits.values()} & {*OnlyCodes(vocab_bytes, set()).forbidden(said)}
    forbidden = {*OnlyNumbers(vocab_bytes, [[("3",)]]).forbidden(said)}
    assert (digits["3"] in forbidden, digits["4"] in forbidden) == (False, True)


WAYS: list[list[tuple[str, ...]]] = [
    [("1",)],
    [("12",)],
    [("12",)],
    [("7", "345"), ("7345",)],
    [("3", "1"), ("15", "1")],
]
"""The ways to write some numbers."""


def test_the_rule_forbids_other_numbers(vocab: Vocabulary) -> None:
    """By definition: each run of digits is a given one, occurs no more often than given, and is complete unless the
    text ends in it. A mark joins only runs that follow each other in a number. Digits after a letter belong to no
    number."""
    vocab_bytes, numbers, counts = VocabularyBytes(vocab), seeded(5), Counter[tuple[bool, bool]]()
    subwords = [i for i in range(EOS_ID, len(vocab)) if not is_byte(vocab.text_of(i))]
    joined: set[tuple[str, ...]] = {runs for ways in WAYS for runs in ways if len(runs) == 2}

    def may_begin(text: str, *, ended: bool) -> bool:
        runs = [(run[0], run.end(), JOINED.search(text[: run.start()])) for run in NUMBER.finditer(text)]
        left = [run for ways in given for run in sorted({run for way in ways for run in way})]
        for run, end, mark in runs:
            is_open = end == len(text) and not ended
            fits = {other for other in left if other == run or (is_open and other.startswith(run))}
            if mark:
                fits = {other for other in fits if (mark[1], other) in joined}
            if not fits:
                return False
            if not is_open:
                left.remove(run)
        return True

    for _ in range(300):
        given = numbers.choices(WAYS, k=4)
        rule, said = OnlyNumbers(vocab_bytes, given), numbers.choices(subwords[1:], k=numbers.randrange(6))
        before = b"".join(vocab_bytes.bytes[i] for i in said).decode()
        if not may_begin(before, ended=False):
            continue
        step = Step(np.zeros((1, len(vocab))), np.array([said], dtype=np.int64))
        rule.apply(step)
        for token in subwords:
            text = before + vocab_bytes.bytes[token].decode()
            forbidden = step.logprobs_nv[0, token] == -np.inf
            assert forbidden != may_begin(text, ended=token == EOS_ID), (given, text)
            counts[forbidden, JOINED.search(before) is not None] += 1
    assert min(counts.values()) > 10
    assert len(counts) == 4


def test_codes_that_the_translation_must_contain_are_written() -> None:
    made, line = vtrans.load("en-de"), ["Please open the door."]
    assert "B7" in next(made.translate(line, constraints=[{"constraints": ["B7"]}]))
    assert next(made.translate(line, prefixes=["B7 und"])).startswith("B7 und")


@pytest.mark.parametrize("line", ["Please open room A-12.", "v1.2.3 is out", "The version 1.2 of B-52 is out."])
def test_the_shipped_model_invents_no_codes(line: str) -> None:
    (translation,) = vtrans.load("en-de").translate([line])
    assert not re.search(r"\b[A-Z]\d+\b", translation)
