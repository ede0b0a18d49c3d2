"""No command replaces a file that it was given, whatever the path of the file is."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runner import Done
from foreign import hugging_face_folder

from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder
from vtrans.training.average import average

ADAPT = "adapt {} --src new.en --tgt new.de --out"
# Commands, each with the path of an input that its output would replace. `{}` is the same file under another name.
OVERWRITING = [
    (f"{ADAPT} folder", "folder/model.safetensors"),
    (f"{ADAPT} folder", "folder/halfway.safetensors"),
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
    ("train --data data --init-from {} --out folder --device cpu --set train.max_steps=1", "folder/last.safetensors"),
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
    for name in ("model", "halfway", "best", "last", "run/averaged"):
        shutil.copy(tiny_run.last, f"folder/{name}.safetensors")
    for name in ("new.en", "new.de", "cleaned/new.en", "a.txt", "b.txt", "terms/a.txt", "chunks/chunk-00000000.0"):
        Path(name).write_text("dog\tHund\n" * 600)
    Path("cleaned/clean.json").write_text('{"format": "vtrans clean"}')
    Path("chunks/job.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("name", ["itself", "link", "hard link"])
@pytest.mark.parametrize(("words", "file"), OVERWRITING, ids=[f"{words}-{file}" for words, file in OVERWRITING])
def test_no_command_replaces_what_it_was_given(
    words: str, file: str, name: str, place: Path, run_cli: Callable[..., Done]
) -> None:
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
