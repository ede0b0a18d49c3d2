"""The script of a subword, and the overlap of two sides per script."""

from __future__ import annotations

from vtrans.data.preparation.overlap import OVERLAP_THRESHOLDS
from vtrans.data.preparation.writing_systems import overlap_by_script


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
