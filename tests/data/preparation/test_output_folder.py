"""Whether a data folder is up to date, what an interrupted run leaves, and dry runs, which write nothing."""

import dataclasses
import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from corpora import TRAIN, heard, made, options, refused, snapshot, two_corpora
from drawn import each_with

import vtrans.data.preparation.prepare
from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.prepare import prepare
from vtrans.data.store import DataFolder
from vtrans.system.console import Console
from vtrans.system.errors import FileError, InputError


def test_the_same_inputs_and_options_are_up_to_date(tmp_path: Path) -> None:
    opts = options(tmp_path)
    report = made(opts)
    files = {p: p.stat().st_mtime_ns for p in (tmp_path / "data").iterdir()}
    # Names of files, `threads` and `force` do not matter.
    moved = tmp_path / "moved.en"
    Path(opts.src[0]).rename(moved)
    again, said = heard(dataclasses.replace(opts, src=(moved,), threads=2, force=True))
    assert again == report
    assert "is up to date" in said
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "data").iterdir()} == files


def test_other_inputs_or_options_need_force(tmp_path: Path) -> None:
    opts = options(tmp_path)
    made(opts)
    refused(dataclasses.replace(opts, max_tokens=9), "`max_tokens` was 250 and is 9.*`out`.*`force`")
    assert opts.vocab_size is None
    refused(dataclasses.replace(opts, vocab_size=300), r"`vocab_size` was unset and is 300\)")
    refused(dataclasses.replace(opts, valid_src=(), valid_tgt=()), "the input files differ")
    other = options(tmp_path, TRAIN[:100])
    refused(other, "the input files differ")
    (tmp_path / "data" / "notes.txt").write_bytes(b"mine")
    made(dataclasses.replace(other, force=True, separate=True))
    data = DataFolder.open(tmp_path / "data")
    assert len(data.train) == 100
    assert not (tmp_path / "data" / "vocab.model").exists()  # ours, but no longer used
    assert (tmp_path / "data" / "notes.txt").read_bytes() == b"mine"


def test_a_damaged_folder_is_made_again(tmp_path: Path) -> None:
    opts = options(tmp_path)
    made(opts)
    whole = snapshot(tmp_path / "data")
    for damage in ("train.safetensors", "vocab.model"):
        path = tmp_path / "data" / damage
        path.write_bytes(path.read_bytes()[:-1] + b"!")
        _, said = heard(opts)
        assert f"is damaged ({damage})" in said
        assert snapshot(tmp_path / "data") == whole
        path.unlink()
        made(opts)
        assert snapshot(tmp_path / "data") == whole


def test_foreign_files_are_never_changed(tmp_path: Path) -> None:
    opts = options(tmp_path)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "valid.safetensors").write_bytes(b"mine")
    for force in (False, True):
        refused(dataclasses.replace(opts, force=force), r"valid\.safetensors.*`out`")
    (folder / "valid.safetensors").rename(folder / "data.json")
    refused(dataclasses.replace(opts, force=True), r"data\.json.*`out`")
    refused(dataclasses.replace(opts, out=opts.src[0]), "is a file.*`out`")


class Interrupted(BaseException):
    """Like KeyboardInterrupt, but raised by nothing else."""


STEPS = [
    "vtrans.data.preparation.learn_vocabulary.learn",
    "vtrans.data.preparation.prepare.batches_of",
    "vtrans.data.preparation.store_writer.assemble",
    "vtrans.data.preparation.prepare.publish",
    "vtrans.data.preparation.prepare.write_atomically",
    "vtrans.data.preparation.output_folder.sync_folder",
]


@pytest.mark.parametrize(("step", "old"), each_with(STEPS, [False, True]))
def test_a_stopped_run_changes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, old: bool) -> None:
    opts = options(tmp_path, force=True)
    if old:
        made(dataclasses.replace(opts, max_tokens=77))
    before = snapshot(tmp_path / "data")

    def interrupt(*_: Any, **__: Any) -> None:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(step, interrupt)
        with pytest.raises(Interrupted):
            made(opts)
    if step != STEPS[-1]:  # before that, the old folder is unchanged and the new one leaves nothing
        assert snapshot(tmp_path / "data") == before
        assert (tmp_path / "data").exists() == old
    else:
        with pytest.raises(FileError, match="data folder"):
            DataFolder.open(tmp_path / "data")
    made(opts)
    assert len(DataFolder.open(tmp_path / "data").train) == len(TRAIN)


def test_two_processes_never_write_to_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opts = options(tmp_path)
    make = vtrans.data.preparation.prepare._make

    def disturbed(*args: Any) -> dict[str, Any]:
        refused(opts, f"{tmp_path / 'data'}.*`out`")
        return make(*args)

    monkeypatch.setattr(vtrans.data.preparation.prepare, "_make", disturbed)
    made(opts)
    DataFolder.open(tmp_path / "data")


def estimated(opts: PrepareOptions) -> tuple[dict[str, Any], str]:
    """Returns the estimate and the output of a dry run, which changes no file."""
    folder, stream = Path(opts.out).parent, io.StringIO()
    before = snapshot(folder)
    estimate = prepare(opts, Console(stream=stream), dry_run=True)
    assert snapshot(folder) == before
    return estimate, stream.getvalue()


@pytest.mark.parametrize("separate", [False, True])
def test_a_dry_run_of_a_small_text_is_exact_and_writes_nothing(tmp_path: Path, separate: bool) -> None:
    opts = two_corpora(tmp_path, separate=separate, symbols=("<BT>",))
    estimate, said = estimated(opts)
    assert not (tmp_path / "data").exists()
    report = made(opts)
    assert estimate["pairs"] == report["train"]["read"] == sum(estimate["corpora"])
    assert estimate["corpora"] == [52, len(TRAIN) - 50]
    assert estimate["blank"] == 1
    assert estimate["kept"] == report["train"]["kept"] == len(TRAIN)
    assert estimate["tokens"] == report["train"]["tokens"]
    size = sum(facts["bytes"] for facts in report["files"].values())
    assert estimate["bytes"] == pytest.approx(size, rel=0.1)
    assert estimate["bytes_meanwhile"] > estimate["bytes"]
    assert 0 < estimate["seconds"] < 600
    for words in (
        "first.en: 52 pairs", f"second.en: {len(TRAIN) - 50} pairs", "8,000 pieces, or fewer",
        "one per side" if separate else "one for both sides", f"tokens: {report['train']['tokens']['src']:,} source",
        "nothing was written",
    ):  # fmt: skip
        assert words in said


def test_a_dry_run_refuses_what_preparing_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opts = options(tmp_path)
    made(opts)
    assert "is up to date" in estimated(opts)[1]
    report = (Path(opts.out) / "data.json").read_bytes()
    assert "nothing was written" in estimated(dataclasses.replace(opts, max_tokens=9))[1]  # beside another folder
    assert (Path(opts.out) / "data.json").read_bytes() == report
    with pytest.raises(InputError, match=r"`vocab_size` must be at most .* 5000"):
        estimated(dataclasses.replace(opts, vocab_size=5000, out=tmp_path / "new"))
    Path(opts.src[0]).write_bytes(b"one line\n")
    with pytest.raises(InputError, match="has 1 lines"):
        estimated(dataclasses.replace(opts, out=tmp_path / "new"))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    said = estimated(options(tmp_path, out=tmp_path / "deep" / "new"))[1]
    assert "warning: the disk" in said
