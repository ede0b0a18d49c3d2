"""`vtrans prepare-bpe`: documents as corpora."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runner import Done
from corpora import TRAIN, VALID, Pairs, decoded, snapshot

from vtrans.data.store import DataFolder

Run = Callable[..., Done]

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
    before = snapshot(folder)
    done = run_cli("prepare-bpe", *words.split())
    assert (done.code, done.out) == (2, b"")
    assert done.err.count("\n") == 1
    assert re.search(named, done.err), done.err
    assert snapshot(folder) == before
