"""Encoding: what is dropped, and the same result in this process and in workers."""

from pathlib import Path

import pytest
from corpora import made, options, snapshot

import vtrans.data.preparation.encode
import vtrans.data.preparation.prepare
from vtrans.data.preparation.encode import reason_to_drop

PAIRS = [(f"a dog sees {i} cats", f"ein Hund sieht {i} Katzen" if i % 9 else " ") for i in range(200)]


@pytest.mark.parametrize(
    ("src", "tgt", "reason"),
    [
        (0, 0, "empty"), (0, 5, "empty"), (5, 0, "empty"), (1, 12, None), (12, 1, None), (1, 13, "odd_ratio"),
        (4, 16, None), (17, 4, "odd_ratio"), (30, 30, None), (30, 31, "too_long"), (1, 31, "too_long"),
    ],
)  # fmt: skip
def test_pairs_are_dropped_by_length_and_ratio(src: int, tgt: int, reason: str | None) -> None:
    assert reason_to_drop(src, tgt, 30, 4.0) == reason


def test_the_number_of_workers_changes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vtrans.data.preparation.encode, "PAIRS_PER_WORKER", 1)
    monkeypatch.setattr(vtrans.data.preparation.prepare, "_BATCH_PAIRS", 16)
    for threads in (1, 3):
        report = made(options(tmp_path, PAIRS, None, threads=threads, out=tmp_path / str(threads), max_tokens=20))
        assert report["train"]["dropped"]["empty"] > 0
    assert snapshot(tmp_path / "1") == snapshot(tmp_path / "3")
