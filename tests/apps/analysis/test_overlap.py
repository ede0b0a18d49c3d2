"""The overlap of two sides and their scripts: cases by hand, the figures of prepare-bpe, and other alphabets."""

import json
from pathlib import Path

import pytest
from cli_runner import Run
from conftest import TRAIN_PAIRS, make_data

from vtrans.apps.analysis.overlap import Overlap, Side, Vocabularies, learn_joint, overlap_of_data, overlap_of_files
from vtrans.data.preparation.overlap import OVERLAP_DEFINITION, OVERLAP_THRESHOLDS
from vtrans.data.preparation.writing_systems import overlap_by_script
from vtrans.data.store import DataFolder
from vtrans.system.console import Console

QUIET = Console(quiet=True)


def files(folder: Path) -> tuple[Path, Path]:
    return folder / "train.en", folder / "train.de"


def test_overlap_by_script_on_a_small_example() -> None:
    src = {"▁a": 10, "b": 4, "c": 6, "1": 7, ".": 5}
    tgt = {"▁a": 5, "b": 9, "д": 8, ".": 2}
    assert [tuple(row.values()) for row in overlap_by_script(src, tgt, [5])] == [
        ("Latin", 5, 2, 2, 1, 3, 1 / 3, 20, 14, 0.5, 5 / 14),
        ("Cyrillic", 5, 0, 1, 0, 1, 0.0, 0, 8, 0.0, 0.0),
        ("digits", 5, 1, 0, 0, 1, 0.0, 7, 0, 0.0, 0.0),
        ("punctuation and symbols", 5, 1, 0, 0, 1, 0.0, 5, 2, 0.0, 0.0),
    ]
    assert overlap_by_script({}, {}, OVERLAP_THRESHOLDS) == []


@pytest.mark.parametrize("separate", [False, True])
def test_the_figures_equal_those_of_prepare_bpe(tmp_path: Path, separate: bool) -> None:
    data = make_data(tmp_path, separate=separate)
    assert data.report["train"]["kept"] == len(TRAIN_PAIRS), "nothing was dropped"
    expected = [data.report["overlap"][key] for key in ("rows", "scripts")]
    text = files(tmp_path)
    same = [overlap_of_data(data), overlap_of_files(*text, Vocabularies.of_data(data), QUIET)]
    if not separate:
        same += [
            overlap_of_files(*text, learn_joint(*text, QUIET, 320), QUIET),
            overlap_of_files(*text, Vocabularies.of_file(data.path / "vocab.model"), QUIET),
        ]
    for found in same:
        report = found.as_dict()
        assert [report["rows"], report["scripts"]] == expected
        assert [side.tokens for side in (found.src, found.tgt)] == list(data.report["train"]["tokens"].values())
    lengths = [sum(map(len, side)) for side in zip(*TRAIN_PAIRS, strict=True)]
    assert [same[1].src.characters, same[1].tgt.characters] == lengths


def test_the_most_shared_pieces_are_frequent_on_both_sides() -> None:
    counts = ({".": 10, "a": 80, "b": 10}, {".": 100, "a": 10, "c": 890})
    src, tgt = (Side("", 1, 1, sum(side.values()), side) for side in counts)
    assert Overlap("", src, tgt).most_shared(5) == [".", "a"], (
        "10% on both sides comes before 80% on one and 1% on the other"
    )
    assert Overlap("", src, tgt).most_shared(1) == ["."]


def test_the_command_prints_tables_or_json(
    tmp_path: Path, tiny_data: DataFolder, run_cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    src, tgt = files(tiny_data.path.parent)
    done = run_cli("overlap", src, tgt, "--vocab-size", "320")
    assert done.code == 0
    assert "168" in done.err, "the number of lines to learn from"
    out = done.out.decode()
    assert "Latin" in out
    assert OVERLAP_DEFINITION in out
    assert "\x1b" not in out
    done = run_cli("overlap", "--data", tiny_data.path, "--json", "--quiet")
    (tmp_path / "data").symlink_to(tiny_data.path)
    monkeypatch.chdir(tmp_path)
    assert json.loads(run_cli("overlap", "--json", "--quiet").out)["rows"] == json.loads(done.out)["rows"]
    assert (done.code, done.err) == (0, "")
    report = json.loads(done.out)
    assert report["rows"] == tiny_data.report["overlap"]["rows"]
    assert report["sides"]["src"]["lines"] == len(TRAIN_PAIRS)
    assert "320" in report["vocabulary"]
