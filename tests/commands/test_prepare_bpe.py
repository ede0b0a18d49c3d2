"""`vtrans prepare-bpe`: documents and files of pairs as corpora."""

import csv
import gzip
import json
import re
from pathlib import Path

import pytest
from cli_runner import Run
from corpora import TRAIN, VALID, Pairs, decoded, snapshot

from vtrans.data.store import DataFolder

HEADER = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def catalogue(path: Path, pairs: Pairs) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = "".join(f'msgid "{src}"\nmsgstr "{tgt}"\n\n' for src, tgt in pairs)
    path.write_bytes((HEADER + entries).encode())


def memory(path: Path, pairs: Pairs) -> None:
    variants = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv></tu>'
    body = "".join(variants.format(*pair) for pair in pairs)
    path.write_text(f'<tmx version="1.4"><header srclang="en"/><body>{body}</body></tmx>', encoding="utf-8")


def test_each_document_or_folder_is_a_corpus(run_cli: Run, folder: Path) -> None:
    catalogue(Path("po/a.po"), TRAIN[:50])
    catalogue(Path("po/deep/b.po"), TRAIN[40:100])
    catalogue(Path("valid.po"), VALID)
    memory(Path("memory.tmx"), TRAIN[100:])
    words = "--pairs", "po", "--pairs", "memory.tmx", "--valid-pairs", "valid.po", "--vocab-size", 320
    done = run_cli("prepare-bpe", *words, "--json")
    assert done.code == 0, done.err
    data, report = DataFolder.open(folder / "data"), json.loads(done.out)
    assert decoded(data, data.train) == TRAIN
    assert decoded(data, data.valid) == VALID
    assert report["languages"] == ["en", "de"]
    assert report["train"]["corpora"] == [100, len(TRAIN) - 100]
    (po, tmx), (valid,) = report["documents"]["train"], report["documents"]["valid"]
    assert [(name, counts["taken"], counts["repeated"]) for name, counts in po.items()] == [
        ("po/a.po", 50, 0),
        ("po/deep/b.po", 50, 10),
    ]
    assert (tmx["memory.tmx"]["taken"], valid["valid.po"]["taken"]) == (len(TRAIN) - 100, len(VALID))
    before = snapshot(folder)
    again = run_cli("prepare-bpe", *words)
    assert again.code == 0
    assert "up to date" in again.err
    assert snapshot(folder) == before


def test_a_file_of_pairs_is_a_corpus_like_two_files(run_cli: Run, folder: Path) -> None:
    german, french = [*TRAIN, ('a "dog", or two', "\u201eein\u201c Hund")], [("a cat\n sleeps", "un chat, dort")] * 9
    Path("a.en-de.tsv").write_text("".join(f"{src}\t{tgt}\r\n" for src, tgt in german) + "\n", encoding="utf-8")
    with gzip.open("b.en-fr.csv.gz", "wt", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(french)
    Path("valid.en-fr.tsv").write_bytes(b"a cat \xff\tun chat\n")
    words = ["--pairs", "a.en-de.tsv", "--pairs", "b.en-fr.csv.gz", "--valid-pairs", "valid.en-fr.tsv"]
    words += ["--tag", ">>de<<", "--tag", ">>fr<<", "--on-bad-utf8", "replace", "--vocab-size", "400"]
    done = run_cli("prepare-bpe", *words, "--json")
    assert done.code == 0, done.err
    assert "valid.en-fr.tsv: 1 pairs, with 1 U+FFFD" in done.err
    data, report = DataFolder.open(folder / "data"), json.loads(done.out)
    assert decoded(data, data.train) == [*german, *[("a cat sleeps", "un chat, dort")] * 9]
    assert decoded(data, data.valid) == [("a cat \ufffd", "un chat")]
    assert (report["languages"], report["train"]["dropped"]["empty"]) == ([["en", "de"], ["en", "fr"]], 1)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--pairs bad.po", r"bad\.po: line 7"),
        ("--pairs good.po --valid-pairs bad.po", r"bad\.po: line 7"),
        ("--pairs docs", r"docs/bad\.po: line 7"),
        ("--pairs nowhere.po", r"nowhere\.po"),
        ("--pairs empty", r"empty .*\.tmx"),
        ("--pairs a.txt", r"a\.txt: .*\.tmx"),
        ("--pairs none.po", r"none\.po .*1 untranslated"),
        ("--pairs good.po --src-lang en --tgt-lang fr", r"good\.po.* fr.* de"),
        ("--pairs one.tsv", r"one\.tsv: line 2 .*tab.* 1 column;"),
        ("--pairs three.csv", r"three\.csv: line 1 .*comma.* 3 columns"),
        ("--pairs open.csv", r"open\.csv: line 2 "),
        ("--pairs blank.tsv", r"blank\.tsv "),
        ("", "--src and --tgt, or --pairs"),
    ],
)  # fmt: skip
def test_a_document_that_cannot_be_used_is_refused_and_nothing_written(
    run_cli: Run, folder: Path, words: str, named: str
) -> None:
    catalogue(Path("good.po"), TRAIN)
    catalogue(Path("none.po"), [("a dog", "")])
    for name in ("bad.po", "docs/bad.po"):
        catalogue(Path(name), [])
        Path(name).write_text(HEADER + '\nmsgid "a\nmsgstr "b"\n')
    Path("empty").mkdir()
    Path("a.txt").write_text("a")
    for name, text in (
        ("one.tsv", "a\tb\na b"),
        ("three.csv", "a,b,c"),
        ("open.csv", 'a,b\n"a,b'),
        ("blank.tsv", "\n"),
    ):
        Path(name).write_text(text)
    before = snapshot(folder)
    done = run_cli("prepare-bpe", *words.split())
    assert (done.code, done.out) == (2, b"")
    assert done.err.count("\n") == 1
    assert re.search(named, done.err), done.err
    assert snapshot(folder) == before
