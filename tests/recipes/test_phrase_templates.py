"""Tests of the program that makes pairs of ordinary words, numbers and codes from templates."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from recipes.tatoeba.phrases import NAMES, pairs, templates
from vtrans.text.values import compare
from vtrans.text.words import codes_for
from vtrans.wording.protect import EVERYDAY as PROTECTION

EVERYDAY = Path(__file__).parents[2] / "recipes/everyday"
CODES = r"\b(?:A1|B2)\b"

SHAPES = {
    "x": "A1",
    "y": "B2",
    "word": "[a-z-]+",
    "clock": r"(?:a )?[a-z-]+ (?:past|to) [a-z]+|[a-z]+ o'clock",
    "hours": r"(?:from|between) [^ ]+(?: [^ ]+)? (?:to|and) [^ ]+(?: [^ ]+)?",
    "date": r"[^ ]+ [^ ]+|the [^ ]+ of [^ ]+",
    "day": r"[^ ]+(?: [^ ]+)*",
    "weekday": "[a-z]+day",
    "first": "|".join(NAMES["first"]),
    "name": f"(?:{'|'.join(NAMES['first'])}) (?:{'|'.join(NAMES['last'])})",
}
"""What matches all that can fill a slot, where this is not one word or two."""


@pytest.fixture(scope="module")
def made() -> list[tuple[str, str]]:
    return pairs()


def test_both_sides_of_each_pair_have_the_same_values(made: list[tuple[str, str]]) -> None:
    without_codes = [(re.sub(CODES, " ", src), re.sub(CODES, " ", tgt)) for src, tgt in made]
    different = [(src, tgt) for src, tgt in without_codes if compare(src, tgt)]
    assert len(made) > 15_000
    assert different == []


def test_no_slot_is_left_and_codes_are_those_of_protected_text(made: list[tuple[str, str]]) -> None:
    codes = codes_for("")
    first, second = next(codes), next(codes)
    for src, tgt in made:
        assert "<" not in src + tgt
        assert min(len(src), len(tgt)) > 1
        for code in (first, second):
            assert len(re.findall(rf"\b{code}\b", src)) == len(re.findall(rf"\b{code}\b", tgt))


def test_an_ordinal_at_the_end_of_a_sentence_has_one_full_stop(made: list[tuple[str, str]]) -> None:
    assert [pair for pair in made if re.search(r"(?<!\.)\.\.(?!\.)", pair[0] + "\n" + pair[1])] == []


def test_no_line_of_the_everyday_suite_is_learned() -> None:
    """No template can make a line of the suite, whatever fills its slots."""
    patterns = [re.sub(r"<(\w+)>", _slot, re.sub(r"[^\w\s<>]", r"\\\g<0>", src)) for src, _ in templates()]
    some_of_them = [re.compile("|".join(patterns[k::50]), re.I) for k in range(50)]
    lines = [
        json.loads(row)["source"]
        for name in ("lines.jsonl", "held-out.jsonl")
        for row in (EVERYDAY / name).read_text("utf-8").splitlines()
    ]
    assert len(lines) == 1000
    seen = [PROTECTION.masked(line).masked for line in lines]
    assert [line for line in seen if any(pattern.fullmatch(line) for pattern in some_of_them)] == []


def _slot(slot: re.Match[str]) -> str:
    """Returns an expression that matches all that can fill a slot."""
    return f"(?:{SHAPES.get(slot[1], '[^ ]+(?: [^ ]+)?')})"
