"""Files that a command is given: none is replaced, whatever its path, and names that are not UTF-8."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from cli_runner import Run
from conftest import TRAIN_PAIRS, write_pairs
from foreign import hugging_face_folder

from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder
from vtrans.training.average import average


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, which holds an empty folder `b\\xff` and text files `a\\xff.en` and `a\\xff.de`."""
    monkeypatch.chdir(tmp_path)
    try:
        (tmp_path / os.fsdecode(b"b\xff")).mkdir()
    except OSError:
        pytest.skip("this disk has no such names")
    write_pairs(tmp_path, os.fsdecode(b"a\xff"), TRAIN_PAIRS)
    return tmp_path


def test_a_text_file_may_have_any_name(odd: Path, tiny_run: RunFolder, run_cli: Run) -> None:
    run, src, tgt = tiny_run.path, os.fsdecode(b"a\xff.en"), os.fsdecode(b"a\xff.de")
    for words in (
        ("prepare-bpe", "--src", src, "--tgt", tgt, "--vocab-size", "320", "--json"),
        ("overlap", src, tgt, "--json"),
        ("translate", "--model", run, "--input", src, "--output", os.fsdecode(b"hyp\xff"), "--beam", "1"),
        ("logprob", src, tgt, "--model", run),
        ("score", tgt, "--hyp", os.fsdecode(b"hyp\xff"), "--json"),
        ("attend", run, "The big dog sees me today.", "--out", os.fsdecode(b"\xff.html")),
    ):
        done = run_cli(*words)
        assert done.code == 0, done.err
        if "--json" in words:
            json.loads(done.out)
    assert (odd / os.fsdecode(b"\xff.html")).exists()
    assert [pair["src"]["name"] for pair in DataFolder.open("data").report["inputs"]["train"]] == ["a\\xff.en"]


def test_a_folder_or_model_whose_name_is_not_utf8_is_refused_first(
    odd: Path, tiny_data: DataFolder, tiny_run: RunFolder, run_cli: Run
) -> None:
    run, data, name, model = tiny_run.path, tiny_data.path, os.fsdecode(b"b\xff"), os.fsdecode(b"m\xff.safetensors")
    shutil.copy(tiny_run.last, model)
    before = sorted(odd.rglob("*"))
    text = ("--src", os.fsdecode(b"a\xff.en"), "--tgt", os.fsdecode(b"a\xff.de"))
    for words in (
        ("prepare-bpe", *text, "--out", name),
        ("train", "--data", data, "--out", name),
        ("train", "--data", data, "--init-from", model),
        ("average", name),
        ("average", run, "--out", model),
        ("shortlist", run, "--data", data, "--out", model),
        ("inspect", model),
        ("attend", name, "A dog."),
        ("export", run, "--out", name),
        ("translate", "--model", model),
        ("logprob", *text[1::2], "--model", model),
    ):
        done = run_cli(*words)
        assert (done.code, done.out) == (2, b""), words
        assert "\\xff" in done.err.splitlines()[-1], words
        assert sorted(odd.rglob("*")) == before, words


ADAPT = "adapt {} --src new.en --tgt new.de --out"
# Commands, each with the path of an input that its output would replace. `{}` is the same file under another name.
OVERWRITING = [
    (f"{ADAPT} folder", "folder/model.safetensors"),
    (f"{ADAPT} folder", "folder/run/averaged.safetensors"),
    ("average {} model.safetensors --out mean.safetensors", "mean.safetensors"),
    ("import {} --keep-text new.en", "model.safetensors"),
    ("import foreign --out foreign/model.safetensors", "foreign/model.safetensors"),
    ("import foreign --keep-text {} --out new.en", "new.en"),
    ("import foreign --src-spm {} --out foreign/source.spm", "foreign/source.spm"),
    ("clean --src {} --tgt new.de --out cleaned --force", "cleaned/new.en"),
    ("collect {} --output chunks/job.json", "chunks/job.json"),
    ("collect {} --output chunks/chunk-00000000.0", "chunks/chunk-00000000.0"),
    ("translate a.txt b.txt --glossary {} --model model.safetensors --output terms", "terms/a.txt"),
    ("train --data data --init-from {} --out folder --device cpu --set train.max_steps=1", "folder/best.safetensors"),
]


@pytest.fixture
def place(tmp_path: Path, tiny_run: RunFolder, tiny_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_data.path, "data")
    hugging_face_folder(tmp_path / "foreign")
    average([tiny_run.last], Path("mean.safetensors"))
    for folder in ("folder/run", "cleaned", "chunks", "terms"):
        Path(folder).mkdir(parents=True)
    shutil.copy(tiny_run.last, "model.safetensors")
    for name in ("model", "best", "run/averaged"):
        shutil.copy(tiny_run.last, f"folder/{name}.safetensors")
    for name in ("new.en", "new.de", "cleaned/new.en", "a.txt", "b.txt", "terms/a.txt", "chunks/chunk-00000000.0"):
        Path(name).write_text("dog\tHund\n" * 600)
    Path("cleaned/clean.json").write_text('{"format": "vtrans clean"}')
    Path("chunks/job.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("name", ["itself", "link", "hard link"])
@pytest.mark.parametrize(("words", "file"), OVERWRITING, ids=[f"{words}-{file}" for words, file in OVERWRITING])
def test_no_command_replaces_what_it_was_given(words: str, file: str, name: str, place: Path, run_cli: Run) -> None:
    given, before = Path(file), Path(file).read_bytes()
    other = {"itself": given, "link": Path("link") / given.name, "hard link": Path("hard") / given.name}[name]
    if other != given and "{}" in words:
        other.parent.mkdir()
        if name == "link":
            other.symlink_to(given.resolve())
        else:
            os.link(given, other)
    files = sorted(place.rglob("*"))
    done = run_cli(*words.format("chunks" if words.startswith("collect") else other).split())
    assert done.code == 2, done.err
    assert sorted(place.rglob("*")) == files
    assert given.read_bytes() == before
    assert re.search(rf"must (not )?be .*{Path(file).parts[0]}", done.err), done.err
