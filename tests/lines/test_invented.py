"""Codes that a line does not have are not written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from drawn import seeded
from translators import learned

import vtrans
from vtrans.config import SearchConfig
from vtrans.engines.engine import Source
from vtrans.lines.invented import ForbidInvented, OnlyCodes, OnlyNumbers
from vtrans.lines.line import Line, Piece
from vtrans.lines.stages import Stages
from vtrans.search.loop import Hypothesis
from vtrans.search.rules import Step
from vtrans.text.piece_table import is_byte
from vtrans.text.vocabulary import EOS_ID, Vocabulary
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.translator import Translator
from vtrans.wording.avoid import Spelling
from vtrans.wording.protect import Masked

BEGUN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]+\d+")
NUMBER = re.compile(r"(?<![A-Za-z0-9])[0-9]+")
JOINED = re.compile(r"(?<![A-Za-z0-9])([0-9]+)[.,:][0-9]*$")
ALLOWED = frozenset({"A12", "B7"})


@pytest.fixture(scope="module")
def vocab() -> Vocabulary:
    codes = [f"{letter}{number}" for letter in "ABCQ" for number in (1, 7, 12, 345)]
    text = [f"Raum ({a}) {b}, x{a} {a[1:]},{b[1:]}" for a in codes for b in codes]
    return learned(text)


def test_the_rule_forbids_what_begins_another_code(vocab: Vocabulary) -> None:
    """By definition: a word of letters and digits must be the beginning of a code that is allowed."""
    spelling, numbers, forbidden = Spelling(vocab), seeded(3), 0
    rule = OnlyCodes(spelling, ALLOWED)
    subwords = [i for i in range(EOS_ID + 1, len(vocab)) if not is_byte(vocab.text_of(i))]
    for _ in range(60):
        said = numbers.choices(subwords, k=numbers.randrange(1, 6))
        step = Step(np.zeros((1, len(vocab))), np.array([said]))
        rule.apply(step)
        for token in subwords:
            before, text = (b"".join(spelling.bytes[i] for i in ids).decode() for ids in (said, (*said, token)))
            begun = [word for word in BEGUN.finditer(text) if word.end() > len(before)]
            wrong = any(not any(code.startswith(word[0]) for code in ALLOWED) for word in begun)
            assert (step.logprobs_nv[0, token] == -np.inf) == wrong, text
            forbidden += wrong
    assert forbidden > 100


WAYS: list[list[tuple[str, ...]]] = [
    [("1",)],
    [("12",)],
    [("12",)],
    [("7", "345"), ("7345",)],
    [("3", "1"), ("15", "1")],
]
"""The ways to write some numbers."""


def test_the_rule_forbids_other_numbers(vocab: Vocabulary) -> None:
    """By definition: each run of digits is one of those given, no more often than it is given, and whole unless the
    text ends in it. A mark joins only runs that follow each other. Digits after a letter belong to no number."""
    spelling, numbers, counts = Spelling(vocab), seeded(5), Counter[tuple[bool, bool]]()
    subwords = [i for i in range(EOS_ID, len(vocab)) if not is_byte(vocab.text_of(i))]
    joined: set[tuple[str, ...]] = {runs for ways in WAYS for runs in ways if len(runs) == 2}

    def may_begin(text: str, *, ended: bool) -> bool:
        runs = [(run[0], JOINED.search(text[: run.start()])) for run in NUMBER.finditer(text)]
        left = [run for ways in given for run in sorted({run for way in ways for run in way})]
        for k, (run, mark) in enumerate(runs):
            is_open = k == len(runs) - 1 and text.endswith(run) and not ended
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
        rule, said = OnlyNumbers(spelling, given), numbers.choices(subwords[1:], k=numbers.randrange(6))
        before = b"".join(spelling.bytes[i] for i in said).decode()
        if not may_begin(before, ended=False):
            continue
        step = Step(np.zeros((1, len(vocab))), np.array([said], dtype=np.int64))
        rule.apply(step)
        for token in subwords:
            text = before + spelling.bytes[token].decode()
            forbidden = step.logprobs_nv[0, token] == -np.inf
            assert forbidden != may_begin(text, ended=token == EOS_ID), (given, text)
            counts[forbidden, JOINED.search(before) is not None] += 1
    assert min(counts.values()) > 100
    assert len(counts) == 4


def test_only_lines_with_invented_codes_are_searched_again(vocab: Vocabulary) -> None:
    texts = {"Raum": "Raum", "Raum A12": "Raum A12", "room A-12": "Raum A1", "a place": "ein Pl4", "B7": "B7 Pl4"}
    searched: list[list[str]] = []

    def search(pieces: Sequence[Piece], config: SearchConfig) -> Iterator[Piece]:
        searched.append([piece.line.text for piece in pieces])
        for piece in pieces:
            text = "Raum" if piece.source.rules else texts[piece.line.text]
            piece.hypotheses = [Hypothesis(tuple(vocab.encode(text)), -1.0, -1.0, True, ())]
            yield piece

    pieces = [Piece(Line(i, text), Source([EOS_ID], 9, f"{i}/0")) for i, text in enumerate(texts, 1)]
    pieces[-1].line.seen = Masked([("B7", "Ana"), (" Raum", " Raum")], {"B7": "Ana"})
    found = list(ForbidInvented(vocab, lambda: Spelling(vocab)).around(search)(pieces, SearchConfig()))
    assert searched == [[*texts], ["room A-12", "B7"]]  # without codes, "Pl4" may be right
    assert [vocab.decode(piece.hypotheses[0].tokens) for piece in found] == [
        "Raum",
        "Raum A12",
        "ein Pl4",
        "Raum",
        "Raum",
    ]


def test_codes_that_the_translation_must_contain_are_written() -> None:
    made, line = vtrans.load("en-de"), ["Please open the door."]
    assert "B7" in next(made.translate(line, constraints=[{"constraints": ["B7"]}]))
    assert next(made.translate(line, prefixes=["B7 und"])).startswith("B7 und")


@pytest.mark.parametrize("line", ["Please open room A-12.", "v1.2.3 is out", "The version 1.2 of B-52 is out."])
def test_the_shipped_model_invents_no_codes(line: str) -> None:
    (translation,) = vtrans.load("en-de").translate([line])
    assert not re.search(r"\b[A-Z]\d+\b", translation)


def test_all_lines_pass_the_stage() -> None:
    made = vtrans.load("en-de")
    assert isinstance(made, Translator)
    stages = Stages(made.engine, made.search, retry=True).of(TranslateOptions(raw=True))
    assert [type(stage) for stage in stages].count(ForbidInvented) == 1
