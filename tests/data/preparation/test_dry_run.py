"""A dry run estimates what preparing takes, and writes nothing."""

import dataclasses
import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from corpora import TRAIN, made, options, snapshot, two_corpora

from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.prepare import prepare
from vtrans.system.console import Console
from vtrans.system.errors import InputError


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
        "first.en: 52 pairs", f"second.en: {len(TRAIN) - 50} pairs", "symbols <BT>", "8,000 pieces, or fewer",
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
