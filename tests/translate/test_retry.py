"""Searching a line again: the definition of loops, the result that is kept, and that nothing else changes."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from drawn import SEED, USUAL, seeded
from hypothesis import given
from hypothesis import strategies as st
from translators import SMALL, VARIANTS, same, sentences, translator, vocabulary

from vtrans.config import RETRY_NGRAM, ModelConfig
from vtrans.text.vocabulary import EOS_ID
from vtrans.translate.steps.search import LOOP_NGRAM, LOOP_TIMES, SOURCE_STRETCH, loops, times_in_a_row
from vtrans.translate.translation import Translation

LINES = [line for line in sentences(40, seed=5) if times_in_a_row(line, SOURCE_STRETCH) < LOOP_TIMES / 2]
# Random models would write digits, and so codes that are not in the source.
PIECES = map(vocabulary().piece, range(len(vocabulary())))
SEARCH: dict[str, Any] = {"suppress": [piece for piece in PIECES if re.fullmatch(r"<0x3\d>|[^<]*\d.*", piece)]}


@given(st.lists(st.integers(0, 1), max_size=24), st.integers(1, 5))
def test_times_in_a_row_equal_enumeration(items: list[int], longest: int) -> None:
    expected = 1
    for n in range(1, longest + 1):
        for i in range(len(items) - n + 1):
            times = 1
            while items[i : i + n] * (times + 1) == items[i : i + n * (times + 1)]:
                times += 1
            expected = max(expected, times)
    assert times_in_a_row(items, longest) == expected
    assert times_in_a_row("".join(map(str, items)), longest) == expected


@pytest.mark.parametrize(
    ("target", "source", "looping"),
    [
        ("Zwei " * LOOP_TIMES, "Two dogs play.", True),
        ("Zwei " * (LOOP_TIMES - 1), "Two dogs play.", False),
        ("a b c d " * LOOP_TIMES, "Two dogs play.", True),
        ("a b c d e " * LOOP_TIMES, "Two dogs play.", False),  # the n-gram is too long
        ("x y " + "Zwei " * 9 + "z", "", True),
        ("ha " * 20, "he " * 20, False),
        ("ha " * 20, "he " * 10, False),
        ("ha " * 21, "he " * 10, True),
        (". " * 30 + "5", "Index " + "." * 30 + " 5", False),  # independent of the subwords of the source
        ("0 " * 12, "0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0", False),
        ("", "", False),
    ],
)
def test_loops(target: str, source: str, looping: bool) -> None:
    words = target.split()
    assert loops([sorted(set(words)).index(word) for word in words], lambda: source) == looping


Rank = tuple[bool, bool]


def rank(best: Translation, line: str, forced: int = 0) -> Rank:
    """Returns whether a translation is finished, and whether it does not loop; larger is better."""
    assert not any(3 * character in line for character in line), "what the source repeats would matter"
    own = [token for token in best.tokens if token != EOS_ID][forced:]
    looping = any(
        own[i : i + n] * LOOP_TIMES == own[i : i + n * LOOP_TIMES]
        for n in range(1, LOOP_NGRAM + 1)
        for i in range(len(own) - n + 1)
    )
    return best.finished, not looping


def by_definition(
    lines: Sequence[str], n: int, config: ModelConfig = SMALL, prefixes: Sequence[str] | None = None
) -> tuple[list[list[Translation]], list[tuple[Rank, Rank, bool]]]:
    """Returns the n-best lists to keep, from two translators that search once, and the ranks of both results of each
    line that is searched again. Lines are raw, as the check of numbers would search those with digits once more."""
    forced = [len(vocabulary().encode(prefix)) for prefix in prefixes or [""] * len(lines)]
    once, again = (
        list(
            translator(config, retry=False, no_repeat_ngram=rule, **SEARCH).nbest(lines, n, prefixes=prefixes, raw=True)
        )
        for rule in (0, RETRY_NGRAM)
    )
    kept, ranks = [], []
    for line, begun, first, second in zip(lines, forced, once, again, strict=True):
        both = rank(first[0], line, begun), rank(second[0], line, begun)
        if line and both[0] != (True, True):
            fewest = [(sum(good), found[0].score) for good, found in zip(both, (first, second), strict=True)]
            kept_second = fewest[1] > fewest[0]
            ranks.append((both[0], both[1], kept_second))
            kept.append(second if kept_second else first)
        else:
            kept.append(first)
    return kept, ranks


@pytest.mark.parametrize(("name", "n"), [("decoder-only, causal, learned positions", 1), ("pre-norm, tgt-softmax", 3)])
def test_a_line_is_searched_again_by_definition(name: str, n: int) -> None:
    expected, ranks = by_definition(LINES, n, VARIANTS[name])
    assert 0 < len(ranks) < len(LINES)
    outcomes = {kept_second for _, _, kept_second in ranks}
    assert outcomes == {True, False} or SEED != USUAL  # the models of another draw may keep only the second
    order = seeded(1).sample(range(len(LINES)), len(LINES))
    made = translator(VARIANTS[name], batch_tokens=50, **SEARCH)
    translations = dict(zip(order, made.nbest([LINES[i] for i in order], n, raw=True), strict=True))
    assert same([translations[i] for i in range(len(LINES))], expected)
    assert made.counts.retried == len(ranks)
    kept = [(first, second)[kept_second] for first, second, kept_second in ranks]
    assert made.counts.unfinished == sum(not finished for finished, _ in kept)
    assert made.counts.looping == kept.count((True, False))


def test_prefixes_hold_for_both_searches_and_are_no_loop() -> None:
    lines = [line for line in LINES if line]
    prefixes = [("ein " * 6, "", "the park")[i % 3] for i in range(len(lines))]
    expected, ranks = by_definition(lines, 2, prefixes=prefixes)
    made = translator(**SEARCH)
    assert same(list(made.nbest(lines, 2, prefixes=prefixes, raw=True)), expected)
    assert made.counts.retried == len(ranks) > 0
    assert all(best[0].text.startswith(begun.strip()) for best, begun in zip(expected, prefixes, strict=True))
    loop = tuple(vocabulary().encode("ein " * 6))
    assert any(best[0].tokens[: len(loop)] == loop and best[0].finished for best in expected)


def test_alignments_belong_to_the_kept_result() -> None:
    lines = [line for line in LINES if line]
    translations = list(translator().nbest(lines, alignments=True))
    assert [best[0].text for best in translations] == list(translator().translate(lines))
    for best in translations:
        assert best[0].alignment is not None
        assert all(j < len(best[0].text.split()) for _, j in best[0].alignment)
