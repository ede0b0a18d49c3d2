"""Counts of a language pair in the training text: how they are made, stored and used."""

import dataclasses
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from corpora import TRAIN, heard, options
from model_files import make

from vtrans.data.preparation import counting
from vtrans.data.preparation.counting import Counting
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model, save_model
from vtrans.storage.pair_counts import FEWEST, FEWEST_NUMBERS, NumberMarks, PairCounts

NAMES = ["".join(letters).title() for letters in zip(*("bdfgklmnpr" * 4, "aeiou" * 8, "lmnrst" * 7), strict=False)]
LINES = [f'we saw {name} and my{name} with "{name.lower()} x" in {i},500 of 1.5 boxes.' for i, name in enumerate(NAMES)]


def counts(pairs: Sequence[tuple[str, str]]) -> PairCounts:
    counted = Counting(len(pairs))
    counted.add(pairs)
    return counted.counts()


def test_neither_order_nor_division_matters() -> None:
    pairs = [(line, line if i % 3 else "x") for i, line in enumerate(LINES)]
    shuffled, counted = random.Random(1).sample(pairs, len(pairs)), Counting(len(pairs))
    for start in range(0, len(pairs), 7):
        some = Counting(len(pairs))
        some.add(shuffled[start : start + 7])
        counted.merge(some)
    whole = counts(pairs)
    assert counted.counts() == whole
    halves = counts(pairs[::2]), counts(pairs[1::2])
    for part in ("copied", "src", "tgt"):  # no name stands in both halves
        for question, row in getattr(whole, part).items():
            tables = [getattr(half, part)[question] for half in halves]
            assert row == {answer: sum(table.get(answer, 0) for table in tables) for answer in row}


def test_a_sample_does_not_depend_on_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MOST_PAIRS", 10)
    pairs = [(line, line) for line in LINES]
    sample = counts(pairs)
    assert sample == counts(pairs[::-1])
    assert 0 < sample.copied["names"]["verbatim"] < len(pairs)


def test_a_pair_of_equal_lines_copies_everything() -> None:
    equal, others = counts([(line, line) for line in LINES]), counts([(line, line.lower()[::-1]) for line in LINES])
    for kind in ("names", "identifiers", "quoted"):
        assert equal.copied[kind] == {"verbatim": len(LINES)}
        assert equal.copies(kind)
        assert not others.copies(kind)
        assert not counts([(line, line) for line in LINES[: FEWEST - 1]]).copies(kind)


@pytest.mark.parametrize(
    ("src", "tgt", "expected"),
    [
        ("you met Anna.", "Anna!", {"names": {"verbatim": 1}}),
        ("you met Anna.", "Annas", {"names": {"changed": 1}}),
        ("you met Anna.", "见到Anna了。", {"names": {"verbatim": 1}}),  # no case, so no longer word
        ("Anna came. Otto went.", "Anna Otto", {}),  # at the beginning of sentences
        ("The anna of Anna.", "Anna", {}),  # a word
        ("Show Anna", "Anna", {}),  # a heading
        ("I met Anna, Anna, Anna, Anna.", "Anna", {}),  # frequent
        ("use fileName or max_size", "fileName, max_sizes", {"identifiers": {"verbatim": 1, "changed": 1}}),
        ("press “save as” “Do it!”", "„save as“", {"quoted": {"verbatim": 1}}),
        ("რა არის თბილისი.", "თბილისი", {}),
    ],
)
def test_text_that_may_be_copied(src: str, tgt: str, expected: dict[str, dict[str, int]]) -> None:
    assert counts([(src, tgt)]).copied == expected


@pytest.mark.parametrize(
    ("text", "question", "expected"),
    [
        ("1,234,567; 12,500; 12,34,567; 1,234.5", "group", {",": 4}),
        ("1.234 2.30 10.5.2003 1/2.5 x1.5 v 1.2.3", "decimal", {}),
        ("0.25, 3.7, 12.75", "decimal", {".": 3}),
        ("Python 3.7 or 3.8", "decimal", {".": 1}),
        ("14\u202f000, 1\u202f234,5", "group", {"\u202f": 2}),
        ("٣٫٥", "decimal", {"٫": 1}),
        ("١٩٥٤، 12", "digits", {"٠": 1, "0": 1}),
        ("3,500 or 3500 in 1900", "thousands", {"grouped": 1, "plain": 1}),
        ("“a”他说“c” „b“ «\u00a0c\u00a0» don't", "quotes", {"“”": 2, "„“": 1, "«\u00a0\u00a0»": 1}),
        ("Privacy and Security Settings", "headings", {"titles": 1}),
        ("Privacy and security settings", "headings", {"others": 1}),
        ("设置 隐私和安全设置 隐私和安全设置", "headings", {}),
    ],
)
def test_forms_of_a_side(text: str, question: str, expected: dict[str, int]) -> None:
    both = counts([(text, text)])
    assert both.src.get(question, {}) == both.tgt.get(question, {}) == expected


def test_only_frequent_forms_are_conclusive() -> None:
    def pair(**side: dict[str, int]) -> PairCounts:
        return PairCounts({}, {}, side)

    few = {"decimal": {",": FEWEST_NUMBERS - 1}, "group": {".": 6, "\u00a0": 5}}
    assert pair(**few).marks("tgt") == NumberMarks(None, None, None, None)
    assert (pair(**few).quotes("tgt"), pair(**few).titles("tgt")) == (None, None)
    enough = {"decimal": {",": 8, ".": 2}, "group": {".": 10}, "thousands": {"plain": 10}, "digits": {"0": 50}}
    older = pair(**enough, quotes={"«\u00a0\u00a0»": 20, '""': 10}, headings={"titles": 40})
    assert older.marks("tgt") == NumberMarks(",", ".", 2, "0")
    assert older.quotes("tgt") == ("«\u00a0", "\u00a0»")
    assert older.titles("tgt")
    newer = pair(group={"'": 10}, decimal={".": 5}).over(older)
    assert newer.marks("tgt") == NumberMarks(",", "'", 2, "0")


def test_data_and_models_keep_the_counts(tmp_path: Path) -> None:
    report, text = heard(options(tmp_path, [*TRAIN, *((line, line) for line in LINES)]))
    data = DataFolder.open(tmp_path / "data")
    assert data.pair is not None
    assert data.pair.copies("names")
    assert "names" in text
    assert PairCounts.of(json.loads(json.dumps(report["pair"], sort_keys=True))) == data.pair
    save_model(tmp_path / "m.safetensors", dataclasses.replace(make(data, "none"), pair=data.pair))
    assert load_model(tmp_path / "m.safetensors").pair == data.pair
    wrong: list[Any] = [None, [], {"copied": 1, "src": {}, "tgt": {}}, report["pair"] | {"src": {"group": {",": ""}}}]
    assert not any(map(PairCounts.of, wrong))
