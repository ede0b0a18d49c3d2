"""The overlap of two sides and their scripts: a case by hand, and the figures of prepare-bpe."""

import json
from pathlib import Path

from cli_runner import Run
from conftest import TRAIN_PAIRS, make_data

from vtrans.data.preparation.overlap import OVERLAP_DEFINITION, overlap_report
from vtrans.data.store import DataFolder


def test_overlap_by_script_on_a_small_example() -> None:
    src = {"▁a": 10, "b": 4, "c": 6, "1": 7, ".": 5}
    tgt = {"▁a": 5, "b": 9, "д": 8, ".": 2}
    rows = [row for row in overlap_report(src, tgt)["scripts"] if row["threshold"] == 5]
    assert [tuple(row.values()) for row in rows] == [
        ("Latin", 5, 2, 2, 1, 3, 1 / 3, 20, 14, 0.5, 5 / 14, 15 / 34),
        ("Cyrillic", 5, 0, 1, 0, 1, 0.0, 0, 8, 0.0, 0.0, 0.0),
        ("digits", 5, 1, 0, 0, 1, 0.0, 7, 0, 0.0, 0.0, 0.0),
        ("punctuation and symbols", 5, 1, 0, 0, 1, 0.0, 5, 2, 0.0, 0.0, 0.0),
    ]
    assert overlap_report({}, {})["scripts"] == []


def test_the_figures_equal_those_of_prepare_bpe(tmp_path: Path, run_cli: Run) -> None:
    data = make_data(tmp_path, vocab_size=None)
    assert data.report["train"]["kept"] == len(TRAIN_PAIRS), "nothing was dropped"
    done = run_cli("overlap", tmp_path / "train.en", tmp_path / "train.de", "--json", "--quiet")
    assert (done.code, done.err) == (0, "")
    report = json.loads(done.out)
    assert [report[key] for key in ("rows", "scripts")] == [data.report["overlap"][key] for key in ("rows", "scripts")]
    assert {side: facts["tokens"] for side, facts in report["sides"].items()} == data.report["train"]["tokens"]
    lengths = [sum(map(len, side)) for side in zip(*TRAIN_PAIRS, strict=True)]
    assert [facts["characters"] for facts in report["sides"].values()] == lengths


def test_the_command_prints_tables(tiny_data: DataFolder, run_cli: Run) -> None:
    src, tgt = (tiny_data.path.parent / f"train.{language}" for language in ("en", "de"))
    done = run_cli("overlap", src, tgt)
    assert done.code == 0
    assert "336" in done.err, "the number of lines to learn from"
    out = done.out.decode()
    assert "Latin" in out
    assert OVERLAP_DEFINITION in out
    assert "\x1b" not in out
