"""Tests of the programs that make pairs of ordinary words, numbers and codes from templates, and join short pairs."""

import math
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from recipes.formality import forms_in
from recipes.tatoeba.joined import FEWEST_WORDS, MOST_WORDS, after_adverbial, joined
from recipes.tatoeba.phrases import pairs, templates
from vtrans.text.values import compare
from vtrans.text.words import codes_for

EVERYDAY = Path(__file__).parents[2] / "recipes/everyday"
CODES = r"\b(?:A1|B2)\b"
GAP = "\0"


@pytest.fixture(scope="module")
def made() -> list[tuple[str, str]]:
    return pairs()


@pytest.fixture(scope="module")
def long(made: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return joined(made, 500)


def test_both_sides_of_each_pair_have_the_same_values(made: list[tuple[str, str]], long: list[tuple[str, str]]) -> None:
    without_codes = [(re.sub(CODES, " ", src), re.sub(CODES, " ", tgt)) for src, tgt in (*made, *long)]
    assert len(made) > 15_000
    assert [(src, tgt) for src, tgt in without_codes if compare(src, tgt)] == []


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


def test_no_template_shares_a_frame_or_a_sentence_with_the_everyday_suite() -> None:
    """A frame is a template without what fills its slots, without marks and without case."""
    rows = [
        row.split("\t")[0]
        for name in ("templates.tsv", "held-out.tsv")
        for row in (EVERYDAY / name).read_text("utf-8").splitlines()
        if row and not row.startswith("#")
    ]
    suite = {frame for row in rows if (frame := _frame(row))}
    assert len(suite) > 350
    assert _same_frame(_frame("Is <first> here, <first>?"), _frame("Is it here"))
    assert not _same_frame(_frame("Where is <first>?"), _frame("Where are <few> <things>?"))
    by_word: dict[str, list[tuple[str, ...]]] = {}
    for frame in suite:
        for word in {*frame} - {GAP}:
            by_word.setdefault(word, []).append(frame)
    frames = [(src, _frame(src)) for src, _ in templates()]
    similar = {
        (src, frame): Counter(other for word in {*frame} for other in by_word.get(word, [])) for src, frame in frames
    }
    found = [
        src
        for (src, frame), others in similar.items()
        if any(count >= 0.6 * len({*frame} - {GAP}) and _same_frame(frame, other) for other, count in others.items())
    ]
    assert found == []


def _frame(template: str) -> tuple[str, ...]:
    """Returns the lowercased words of a template, with GAP for each slot and number; empty if it has no others."""
    words = re.sub(rf"[^\w\s'{GAP}]", " ", re.sub(r"<[^>]+>|\d+", GAP, template.lower())).split()
    return tuple(words) if {*words} != {GAP} else ()


def _same_frame(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    """Returns whether one line fits both frames, a gap being up to two words, and most of the words of each are words
    of the other."""
    words = [{*frame} - {GAP} for frame in (first, second)]
    enough = 0.6 * max(map(len, words))
    if not words[0] & words[1]:
        return False

    @cache
    def shared(i: int, j: int) -> float:
        """The most equal words of the rests from i and j on; -inf if no line fits both."""
        if i == len(first) and j == len(second):
            return 0
        word, other = first[i : i + 1], second[j : j + 1]
        same = shared(i + 1, j + 1) + (word != (GAP,)) if word == other else -math.inf
        gaps = [(1, k) for k in range(3) if word == (GAP,) and j + k <= len(second)]
        gaps += [(k, 1) for k in range(3) if other == (GAP,) and i + k <= len(first)]
        return max([same, *(shared(i + a, j + b) for a, b in gaps)])

    return shared(0, 0) >= enough


def test_lines_are_long_and_have_each_code_once_and_one_form_of_address(long: list[tuple[str, str]]) -> None:
    assert len(long) == 500
    for src, tgt in long:
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
        ("I know that he came.", "Ich weiß, dass er kam.", None),  # the comma follows the verb
        ("Tom and I came.", "Tom und ich kamen.", None),
        ("He came.", "Da kam er.", None),
    ],
)
def test_after_an_adverbial_the_german_verb_comes_first(src: str, tgt: str, expected: tuple[str, str] | None) -> None:
    assert after_adverbial(src, tgt) == expected
