"""Encoding: what is dropped, and the same result in this process and in workers."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from translators import learned

import vtrans.data.preparation.encode
import vtrans.data.preparation.prepare
import vtrans.processes.workers
from vtrans.console import Console
from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.encode import Encoded, Task, TextPair, encode, hash_of, reason_to_drop
from vtrans.data.preparation.prepare import prepare
from vtrans.errors import VtransError

PAIRS: list[TextPair] = [(f"a dog sees {i} cats", f"ein Hund sieht {i} Katzen" if i % 9 else " ") for i in range(200)]
VOCABULARY = learned([line for pair in PAIRS for line in pair], 340, normalization="nfkc")
TASK = Task(
    VOCABULARY.proto,
    VOCABULARY.proto,
    len(VOCABULARY),
    max_tokens=30,
    max_ratio=6.0,
    sources=frozenset(hash_of(src) for src, _ in PAIRS[::7]),
    pairs=frozenset(hash_of(*pair) for pair in PAIRS[::14]),
)
BATCHES = [PAIRS[at : at + 10] for at in range(0, len(PAIRS), 10)]


@pytest.fixture
def always_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vtrans.data.preparation.encode, "PAIRS_PER_WORKER", 1)


def same(a: Encoded, b: Encoded) -> bool:
    sides = all(
        np.array_equal(x.ids, y.ids) and np.array_equal(x.lengths, y.lengths) and x.characters == y.characters
        for x, y in ((a.src, b.src), (a.tgt, b.tgt))
    )
    facts = [(e.read, e.kept, e.dropped, e.sources, e.pairs) for e in (a, b)]
    return sides and facts[0] == facts[1]


@pytest.mark.parametrize(
    ("src", "tgt", "reason"),
    [
        (0, 0, "empty"), (0, 5, "empty"), (5, 0, "empty"), (1, 12, None), (12, 1, None), (1, 13, "odd_ratio"),
        (4, 16, None), (17, 4, "odd_ratio"), (30, 30, None), (30, 31, "too_long"), (1, 31, "too_long"),
    ],
)  # fmt: skip
def test_pairs_are_dropped_by_length_and_ratio(src: int, tgt: int, reason: str | None) -> None:
    assert reason_to_drop(src, tgt, 30, 4.0) == reason


def test_a_worker_that_dies_ends_encoding_with_advice(always_workers: None) -> None:
    stream = encode(BATCHES, TASK, len(PAIRS), 2)
    next(stream)
    victim = multiprocessing.active_children()[0]
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    with pytest.raises(VtransError, match="`threads`"):
        list(stream)


def prepared(folder: Path, **values: Any) -> dict[str, bytes]:
    for side, name in enumerate(("train.en", "train.de")):
        (folder / name).write_text("".join(pair[side] + "\n" for pair in PAIRS), encoding="utf-8")
    base: dict[str, Any] = {"src": (folder / "train.en",), "tgt": (folder / "train.de",), "out": folder / "data"}
    prepare(PrepareOptions(**base | values), Console(quiet=True))
    return {path.name: path.read_bytes() for path in Path((base | values)["out"]).iterdir()}


def test_a_data_folder_does_not_depend_on_the_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, always_workers: None
) -> None:
    monkeypatch.setattr(vtrans.data.preparation.prepare, "_BATCH_PAIRS", 16)
    made = [prepared(tmp_path, threads=n, out=tmp_path / str(n), max_tokens=20) for n in (1, 3)]
    assert json.loads(made[0]["data.json"])["train"]["dropped"]["empty"] > 0
    assert made[0] == made[1]
