"""`vtrans clean` as a whole: what it drops from a text, the folder that it writes, and its command line."""

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Run
from conftest import TRAIN_PAIRS, write_pairs
from corpora import snapshot

from vtrans.apps.cleaning.clean import clean
from vtrans.apps.cleaning.clean_options import CleanOptions
from vtrans.system.console import Console
from vtrans.system.errors import FileError, InputError

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


def cleaned(folder: Path, pairs: Sequence[tuple[str, str]], **values: Any) -> dict[str, Any]:
    """Cleans pairs as the files text.en and text.de of a folder, by default without the rule language."""
    src, tgt = write_pairs(folder, "text", pairs)
    options: dict[str, Any] = {"out": folder / "clean", "without": ("language",), "force": True}
    options |= {"src": src, "tgt": tgt} | values
    return clean(CleanOptions(**options), Console(quiet=True))


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def kept(folder: Path) -> list[tuple[str, str]]:
    sides = (lines_of(folder / "clean" / f"text.{language}") for language in ("en", "de"))
    return list(zip(*sides, strict=True))


def reasons(folder: Path) -> dict[int, str]:
    """The reason for which each pair was dropped, by its place in the text."""
    rows = [line.split("\t") for line in lines_of(folder / "clean" / "dropped.tsv")]
    return {int(row[0]) - 1: row[1] for row in rows}


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
        ({"src_lang": "english"}, "`src_lang`"),
        ({"max_ratio": 0.5}, "`max_ratio`"),
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


def test_a_text_is_cleaned_and_can_be_prepared(run_cli: Run, tmp_path: Path) -> None:
    bad = [("A dog runs.", "A dog runs."), ("", "Hund"), ("A dog runs in 2001.", "Ein Hund läuft 2010.")]
    src, tgt = write_pairs(tmp_path, "train", [*TRAIN_PAIRS, *bad])
    folder = tmp_path / "clean"
    done = run_cli("clean", "--src", src, "--tgt", tgt, "--out", folder, "--without", "language")
    assert (done.code, done.out) == (0, b"")
    assert "copy" in done.err
    words = "--src", folder / "train.en", "--tgt", folder / "train.de", "--out", tmp_path / "data"
    assert run_cli("prepare-bpe", *words).code == 0
    data = json.loads((tmp_path / "data" / "data.json").read_text())
    assert data["train"]["read"] == len(TRAIN_PAIRS)
    done = run_cli("clean", "--src", src, "--tgt", tgt, "--out", folder, "--force", "--json", "--quiet")
    assert json.loads(done.out) == json.loads((folder / "clean.json").read_text(encoding="utf-8"))
