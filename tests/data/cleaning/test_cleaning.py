"""`vtrans clean` as a whole: what it drops from a text, and the folder that it writes."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_pairs
from drawn import each_with

import vtrans.data.aligner
import vtrans.data.cleaning.alignment
import vtrans.data.cleaning.clean
import vtrans.data.cleaning.rules
import vtrans.data.preparation.prepare
from vtrans.console import Console
from vtrans.data.cleaning.clean import clean
from vtrans.data.cleaning.options import CleanOptions
from vtrans.data.cleaning.rules import PACKAGES, Rules
from vtrans.data.preparation.encode import TextPair
from vtrans.errors import FileError, InputError

WORDS = [a + b + c for a in "bdgkm" for b in ("a", "ei", "o", "u") for c in ("l", "n", "rt")]
TRANSLATIONS = dict(zip(WORDS, reversed([f"{word[::-1]}e" for word in WORDS]), strict=True))


def toy_text(size: int, seed: int = 1) -> list[tuple[str, str]]:
    """Pairs of an invented language and its translation, word by word with two words swapped now and then; a few pairs
    have one word, and most have up to ten."""
    dice = random.Random(seed)
    pairs = []
    for _ in range(size):
        words = dice.choices(WORDS, k=dice.choice((1, 3, 5, 6, 7, 8, 9, 10)))
        translated = [TRANSLATIONS[word] for word in words]
        if len(words) > 2 and dice.random() < 0.5:
            translated[:2] = translated[1::-1]
        pairs.append((" ".join(words) + ".", " ".join(translated) + "."))
    return pairs


def cleaned(folder: Path, pairs: Sequence[tuple[str, str]], scorer: Any = None, **values: Any) -> dict[str, Any]:
    """Cleans pairs as the files text.en and text.de of a folder, by default without the rule language."""
    src, tgt = write_pairs(folder, "text", pairs)
    options: dict[str, Any] = {"out": folder / "clean", "without": ("language",), "force": True}
    options |= {"src": src, "tgt": tgt} | values
    return clean(CleanOptions(**options), Console(quiet=True), scorer)


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def kept(folder: Path) -> list[tuple[str, str]]:
    sides = (lines_of(folder / "clean" / f"text.{language}") for language in ("en", "de"))
    return list(zip(*sides, strict=True))


def reasons(folder: Path) -> dict[int, str]:
    """The reason for which each pair was dropped, by its place in the text."""
    rows = [line.split("\t") for line in lines_of(folder / "clean" / "dropped.tsv")]
    return {int(row[0]) - 1: row[1] for row in rows}


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


# What is dropped.


def test_pairs_that_do_not_translate_each_other_are_found_in_the_text_itself(tmp_path: Path) -> None:
    pairs, dice = toy_text(3000), random.Random(2)
    shuffled, cut = range(0, 3000, 10), range(1, 3000, 9)
    for i in shuffled:
        pairs[i] = (pairs[i][0], toy_text(1, i)[0][1])
    for i in cut:
        sides = [side[:-1].split() for side in pairs[i]]
        size = round(dice.uniform(0.3, 0.6) * len(sides[0]))
        sides[i % 2] = dice.choice((sides[i % 2][:size], sides[i % 2][-size:]))
        pairs[i] = (" ".join(sides[0]) + ".", " ".join(sides[1]) + ".")
    report = cleaned(tmp_path, pairs)
    dropped = {i for i, reason in reasons(tmp_path).items() if reason != "duplicate"}
    assert {"misaligned", "incomplete"} <= report["dropped"].keys()
    long = {i for i, (src, _) in enumerate(pairs) if len(src.split()) > 3}
    for bad, least in ((shuffled, 0.9), (cut, 0.4)):
        assert len(dropped & long & {*bad}) > least * len(long & {*bad})
    good = {*range(3000)} - {*shuffled} - {*cut}
    assert len(dropped & good) < 0.03 * len(good)


def test_cuts_that_always_have_the_same_form_are_found(tmp_path: Path) -> None:
    """The target is cut to its first half. The languages have other words that nothing translates."""
    pairs, dice, cut = [], random.Random(2), range(0, 3000, 10)
    for i in range(3000):
        words = dice.choices(WORDS, k=dice.randint(6, 16))
        translated = [TRANSLATIONS[word] for word in words if dice.random() < 0.9]
        for place in range(len(translated), 0, -1):
            if dice.random() < 0.1:
                translated.insert(place, dice.choice("ab"))
        pairs.append((" ".join(words), " ".join(translated[: len(translated) // 2] if i in cut else translated)))
    cleaned(tmp_path, pairs)
    dropped = {i for i, reason in reasons(tmp_path).items() if reason != "duplicate"}
    assert len(dropped & {*cut}) > 0.8 * len(cut)
    assert len(dropped - {*cut}) < 0.03 * 3000


def test_what_many_lines_begin_or_end_with_and_nothing_translates_is_found(tmp_path: Path) -> None:
    pairs = [(src[:-1], tgt[:-1]) for src, tgt in toy_text(2000)]
    pages = {i: ("start our | menu", "all rights kept here")[i % 2] for i in range(0, 400, 5)}
    for i, phrase in pages.items():
        sides = list(pairs[i])
        sides[i // 2 % 2] = f"{phrase} {sides[i // 2 % 2]}" if i % 4 < 2 else f"{sides[i // 2 % 2]} {phrase}"
        pairs[i] = (sides[0], sides[1])
    cleaned(tmp_path, pairs, without=("language", "misaligned"))
    dropped = {i for i, reason in reasons(tmp_path).items() if reason != "duplicate"}
    assert len(dropped & pages.keys()) > 0.9 * len(pages)


def test_short_pairs_survive(tmp_path: Path) -> None:
    """A dictionary has nothing but short pairs, and each word once."""
    words = [a + b for a in WORDS for b in WORDS[:40]]
    pairs = [(word, word[::-1]) for word in words]
    cleaned(tmp_path, pairs)
    assert kept(tmp_path) == pairs


def test_the_learned_rules_need_enough_pairs(tmp_path: Path) -> None:
    report = cleaned(tmp_path, [*toy_text(900), ("only", "half of this pair is translated")])
    assert report["dropped"].keys() <= {"duplicate"}
    assert {"misaligned", "incomplete"} <= report["unapplied"].keys()


def test_near_duplicates_are_dropped_after_the_first(tmp_path: Path) -> None:
    pairs = [("A dog.", "Ein Hund."), ("a dog", "ein Hund!"), ("A dog.", "Hund."), ("A  DOG", "ein Hund")]
    cleaned(tmp_path, pairs)
    assert reasons(tmp_path) == {1: "duplicate", 3: "duplicate"}
    assert kept(tmp_path) == [pairs[0], pairs[2]]
    cleaned(tmp_path, pairs, without=("language", "duplicate"))
    assert kept(tmp_path) == pairs


def test_two_models_judge_the_pairs(tmp_path: Path) -> None:
    """Wrong pairs have a higher cross-entropy; a pair that cannot be scored is kept."""
    pairs = [(f"word {i}", f"Wort {i + 1 if i % 20 == 0 else i}") for i in range(1500)]

    def scorer(pairs: Sequence[TextPair]) -> list[float]:
        numbers = [[int(line.split()[1]) for line in pair] for pair in pairs]
        return [float("nan") if i == 60 else i % 7 / 10 + (5 + i % 3 if i != j else 0) for i, j in numbers]

    without = ("language", "numbers", "misaligned", "incomplete")
    report = cleaned(tmp_path, pairs, scorer, without=without)
    assert reasons(tmp_path) == {i: "cross-entropy" for i in range(0, 1500, 20) if i != 60}
    assert "cross-entropy" not in report["unapplied"]
    assert "cross-entropy" in cleaned(tmp_path, pairs, without=without)["unapplied"]


def test_a_language_that_is_not_expected_is_dropped_if_the_languages_are_known(tmp_path: Path) -> None:
    french = ("Le chien court dans le grand parc.", "Les deux filles chantent sur la scène.")
    pairs = [("The dog runs through the big park.", "Der Hund läuft durch den großen Park."), french]
    cleaned(tmp_path, pairs, without=())
    assert reasons(tmp_path) == {1: "language"}
    report = cleaned(tmp_path, pairs, without=(), src_lang="fr", tgt_lang="fr")
    assert (reasons(tmp_path), report["languages"]) == ({0: "language"}, ("fr", "fr"))
    for language in ("en", "de"):
        shutil.copy(tmp_path / f"text.{language}", tmp_path / f"{language}.txt")
    report = cleaned(tmp_path, pairs, src=tmp_path / "en.txt", tgt=tmp_path / "de.txt", without=(), out=tmp_path / "b")
    assert (report["kept"], "language" in report["unapplied"]) == (2, True)
    report = cleaned(tmp_path, pairs, without=(), src_lang="xx", tgt_lang="de")
    assert "xx" in report["unapplied"]["language"]


def test_a_rule_whose_package_is_missing_is_named_and_not_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PACKAGES, "mojibake", "no_such_package")
    report = cleaned(tmp_path, [("A dog.", "Ein H\ufffdnd.")])
    assert report["kept"] == 1
    assert "no_such_package" in report["unapplied"]["mojibake"]
    assert "mojibake" not in cleaned(tmp_path, [("A dog.", "Ein Hund.")], without=("mojibake",))["unapplied"]


def test_only_the_first_pass_looks_for_mojibake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examined = Counter[str]()

    def repaired(line: str) -> str:
        examined[line] += 1
        return line.replace("Ã¤", "ä")

    monkeypatch.setitem(PACKAGES, "mojibake", "json")  # a package that there is
    monkeypatch.setattr(vtrans.data.cleaning.rules, "repaired", repaired)
    monkeypatch.setattr(vtrans.data.cleaning.rules, "_spoilt", lambda line: False)
    pairs = [("A dog runs.", "Ein Hund läuft."), ("A dog barks.", "Ein Hund klÃ¤fft.")]
    report = cleaned(tmp_path, pairs)
    assert kept(tmp_path) == [pairs[0], (pairs[1][0], "Ein Hund kläfft.")]
    assert (report["repaired"], examined["Ein Hund läuft."]) == (1, 1)


# What is written.


def test_every_pair_is_kept_or_dropped_in_order_and_as_it_was(tmp_path: Path) -> None:
    pairs = toy_text(1500)
    pairs[7:7] = [("", "x"), ("a\tb c", "a\tb c"), ("one 1", "zwei 2"), ("\u2028", "y"), ("é ”", "É “")]
    report = cleaned(tmp_path, pairs, without=("language", "mojibake"))
    dropped = {}
    for line in lines_of(tmp_path / "clean" / "dropped.tsv"):
        number, reason, src, tgt = line.split("\t")
        dropped[int(number) - 1] = (src, tgt)
        assert report["dropped"][reason] > 0
    assert list(dropped) == sorted(dropped)
    rest = iter(kept(tmp_path))
    together = [dropped[i] if i in dropped else next(rest) for i in range(len(pairs))]
    assert together == [tuple(line.replace("\t", " ").replace("\u2028", " ") for line in pair) for pair in pairs]
    assert next(rest, None) is None
    assert report["kept"] + sum(report["dropped"].values()) == report["read"] == len(pairs)


def test_the_report_has_counts_and_examples(tmp_path: Path) -> None:
    pairs = [("A dog.", "Ein Hund."), *[(f"copy {i} here", f"copy {i} here") for i in range(9)], ("", "x")]
    report = cleaned(tmp_path, pairs)
    assert json.loads(json.dumps(report)) == json.loads((tmp_path / "clean" / "clean.json").read_text(encoding="utf-8"))
    assert (report["read"], report["kept"], report["dropped"]) == (11, 1, {"empty": 1, "copy": 9})
    assert report["examples"]["empty"] == [{"line": 11, "src": "", "tgt": "x"}]
    assert [example["line"] for example in report["examples"]["copy"]] == [2, 3, 4]
    assert report["inputs"]["src"]["name"] == "text.en"


def test_equal_runs_give_equal_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the text is compressed and read in other parts."""
    pairs = toy_text(1200)
    cleaned(tmp_path, pairs)
    first = snapshot(tmp_path / "clean")
    cleaned(tmp_path, pairs, out=tmp_path / "again" / "clean")
    assert snapshot(tmp_path / "again" / "clean") == first
    monkeypatch.setattr(vtrans.data.preparation.prepare, "_BATCH_PAIRS", 100)
    monkeypatch.setattr(vtrans.data.cleaning.alignment, "_BLOCK_PAIRS", 64)
    packed = tmp_path / "text.en.gz"
    packed.write_bytes(gzip.compress((tmp_path / "text.en").read_bytes()))
    cleaned(tmp_path, pairs, src=packed, out=tmp_path / "packed")
    assert gzip.decompress((tmp_path / "packed" / "text.en.gz").read_bytes()) == first["text.en"]
    assert (tmp_path / "packed" / "dropped.tsv").read_bytes() == first["dropped.tsv"]


# The folder.


def test_an_earlier_result_is_replaced_only_with_force_and_foreign_files_never(tmp_path: Path) -> None:
    pairs = [("A dog.", "Ein Hund.")]
    cleaned(tmp_path, pairs, force=False)
    before = snapshot(tmp_path / "clean")
    with pytest.raises(InputError, match=r"`out`.*`force`"):
        cleaned(tmp_path, [("A cat.", "Ein Kater.")], force=False)
    assert snapshot(tmp_path / "clean") == before
    cleaned(tmp_path, [("A cat.", "Ein Kater.")])
    assert kept(tmp_path) == [("A cat.", "Ein Kater.")]
    for name, content in (("notes.txt", b"mine"), ("text.en", b"mine"), ("clean.json", b'{"mine": 1}')):
        folder = tmp_path / f"foreign-{name}"
        folder.mkdir()
        (folder / name).write_bytes(content)
        with pytest.raises(FileError, match=rf"{name}.*`out`"):
            cleaned(tmp_path, pairs, out=folder)
        assert snapshot(folder) == {name: content}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"out": "text.en"}, "is a file.*`out`"),
        ({"out": "."}, "`out` must be another folder"),
        ({"without": ("lenght",)}, "'lenght'.*length"),
        ({"without": ("empty",)}, "'empty'"),
        ({"src_lang": "english"}, "`src_lang`"),
        ({"max_ratio": 0.5}, "`max_ratio`"),
        ({"max_words": 0}, "`max_words`"),
        ({"tgt": "text.en"}, "names of `src` and `tgt`"),
        ({"tgt": "missing.de"}, "missing.de"),
        ({"tgt": "long.de"}, "2 lines.*3"),
        ({"tgt": "binary.de"}, "NUL"),
        ({"tgt": "latin.de"}, "not UTF-8.*`on_bad_utf8`"),
        ({"tgt": "blank.de"}, "empty side"),
        ({"tgt": "wrong.de"}, r"every pair.*copy 2.*`without`"),
    ],
)
def test_bad_inputs_are_refused_and_nothing_is_written(tmp_path: Path, values: dict[str, Any], named: str) -> None:
    pairs = [("A dog.", "Ein Hund."), ("A cat.", "Ein Kater.")]
    contents = {
        "long.de": b"x\ny\nz\n",
        "binary.de": b"x\0\ny\n",
        "latin.de": b"x\n\xe4\n",
        "blank.de": b" \n\n",
        "wrong.de": b"A dog.\nA cat.\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    write_pairs(tmp_path, "text", pairs)
    before = sorted(tmp_path.iterdir())
    paths = {name: tmp_path / value for name, value in values.items() if name in ("src", "tgt", "out")}
    with pytest.raises(InputError, match=f"(?s){named}"):
        cleaned(tmp_path, pairs, **values | paths)
    assert sorted(tmp_path.iterdir()) == before


class Interrupted(BaseException):
    """Like KeyboardInterrupt, but raised by nothing else."""


@pytest.mark.parametrize(
    ("step", "old"), each_with(["clean.Rules", "clean.unsound", "clean.writing", "clean.publish"], [False, True])
)
def test_an_interrupted_run_leaves_the_folder_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, old: bool
) -> None:
    pairs = toy_text(1100)
    if old:
        cleaned(tmp_path, pairs[:20])
    before = snapshot(tmp_path / "clean")

    def interrupt(*_: Any) -> None:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(f"vtrans.data.cleaning.{step}", interrupt)
        with pytest.raises(Interrupted):
            cleaned(tmp_path, pairs)
    assert snapshot(tmp_path / "clean") == before
    assert (tmp_path / "clean").exists() == old


def test_a_text_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = toy_text(20)

    def publish(*_: Any) -> None:
        raise AssertionError("published")

    def changed(*args: Any) -> Any:
        (tmp_path / "text.en").write_bytes(b"other\n" * 20)
        return Rules(*args)

    monkeypatch.setattr(vtrans.data.cleaning.clean, "Rules", changed)
    monkeypatch.setattr(vtrans.data.cleaning.clean, "publish", publish)
    with pytest.raises(InputError, match="changed"):
        cleaned(tmp_path, pairs)
    assert not (tmp_path / "clean").exists()


def test_a_regression_separates_what_differs_and_leaves_what_does_not() -> None:
    rng = np.random.default_rng(1)
    good, bad = rng.normal(0, 1, (3000, 2)), rng.normal(4, 1, (3000, 2))
    doubts_of = vtrans.data.cleaning.alignment.doubts_of
    mixed = np.concatenate([good[:2000], bad[:1000]])
    doubtful = doubts_of(mixed, bad[1000:])(mixed)
    assert doubtful[:2000].mean() < 0.02 < 0.98 < doubtful[2000:].mean()
    assert doubts_of(good[:2000], bad)(good[2000:]).mean() < 0.01
    assert not doubts_of(good, bad[:0])(good).any()
