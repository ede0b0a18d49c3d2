"""Names and arguments that are not UTF-8."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runner import Done
from conftest import TRAIN_PAIRS, write_pairs

from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder


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


def test_a_text_file_may_have_any_name(odd: Path, tiny_run: RunFolder, run_cli: Callable[..., Done]) -> None:
    run, src, tgt = tiny_run.path, os.fsdecode(b"a\xff.en"), os.fsdecode(b"a\xff.de")
    for words in (
        ("prepare-bpe", "--src", src, "--tgt", tgt, "--vocab-size", "320", "--json"),
        ("overlap", src, tgt, "--vocab-size", "320", "--json"),
        ("translate", "--model", run, "--input", src, "--output", os.fsdecode(b"hyp\xff"), "--beam", "1"),
        ("logprob", src, tgt, "--model", run),
        ("score", tgt, "--hyp", os.fsdecode(b"hyp\xff"), "--json"),
        ("attend", run, "The big dog sees me today.", "--out", os.fsdecode(b"\xff.svg")),
    ):
        done = run_cli(*words)
        assert done.code == 0, done.err
        if "--json" in words:
            json.loads(done.out)
    assert (odd / os.fsdecode(b"\xff.svg")).exists()
    assert [pair["src"]["name"] for pair in DataFolder.open("data").report["inputs"]["train"]] == ["a\\xff.en"]


def test_a_folder_or_model_whose_name_is_not_utf8_is_refused_first(
    odd: Path, tiny_data: DataFolder, tiny_run: RunFolder, run_cli: Callable[..., Done]
) -> None:
    run, data, name, model = tiny_run.path, tiny_data.path, os.fsdecode(b"b\xff"), os.fsdecode(b"m\xff.safetensors")
    shutil.copy(tiny_run.last, model)
    before = sorted(odd.rglob("*"))
    text = ("--src", os.fsdecode(b"a\xff.en"), "--tgt", os.fsdecode(b"a\xff.de"))
    for words in (
        ("prepare-bpe", *text, "--out", name),
        ("train", "--data", data, "--out", name),
        ("train", "--data", name),
        ("train", "--data", data, "--init-from", model),
        ("average", name),
        ("average", run, "--out", model),
        ("average", model, "--out", "new"),
        ("shortlist", run, "--data", data, "--out", model),
        ("shortlist", run, "--data", name, "--out", "new"),
        ("overlap", "--data", name),
        ("inspect", model),
        ("inspect", run, "--data", name),
        ("attend", name, "A dog."),
        ("export", name),
        ("export", run, "--out", name),
        ("translate", "--model", model),
        ("translate", "--model", name),
        ("logprob", *text[1::2], "--model", model),
    ):
        done = run_cli(*words)
        assert (done.code, done.out) == (2, b""), words
        assert "\\xff" in done.err.splitlines()[-1], words
        assert sorted(odd.rglob("*")) == before, words
