"""Encoding in processes: the same bytes, bounded memory, a clean end whatever happens."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vtrans.data.encode
import vtrans.data.prepare
import vtrans.runtime.workers
from vtrans.config import PrepareOptions
from vtrans.console import Console
from vtrans.data.encode import Encoded, Encoder, Pair, Task, encode, hash_of, reason_to_drop
from vtrans.data.learn_vocabulary import learn
from vtrans.data.prepare import prepare
from vtrans.errors import InputError, VtransError

PAIRS: list[Pair] = [(f"a dog sees {i} cats", f"ein Hund sieht {i} Katzen" if i % 9 else " ") for i in range(200)]
VOCABULARY = learn([line for pair in PAIRS for line in pair], size=340, kind="bpe", coverage=1.0, normalization="nfkc")
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
def in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little text there is."""
    monkeypatch.setattr(vtrans.data.encode, "PAIRS_PER_WORKER", 1)


def same(a: Encoded, b: Encoded) -> bool:
    sides = all(
        np.array_equal(x.ids, y.ids) and np.array_equal(x.lengths, y.lengths) and x.characters == y.characters
        for x, y in ((a.src, b.src), (a.tgt, b.tgt))
    )
    facts = [(e.read, e.kept, e.dropped, e.sources, e.pairs) for e in (a, b)]
    return sides and facts[0] == facts[1]


@pytest.mark.parametrize("threads", [2, 3])
def test_processes_give_what_one_gives_in_order(threads: int, in_processes: None) -> None:
    alone = [Encoder(TASK)(batch) for batch in BATCHES]
    assert sum(e.dropped["empty"] for e in alone) == len(range(0, 200, 9))
    assert any(e.sources for e in alone)
    assert any(e.pairs for e in alone)
    together = list(encode(BATCHES, TASK, len(PAIRS), threads))
    assert len(together) == len(alone)
    assert all(same(a, b) for a, b in zip(alone, together, strict=True))
    assert not multiprocessing.active_children()
    assert list(encode([], TASK, 10**9, threads)) == []


def test_a_short_text_is_encoded_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vtrans.runtime.workers, "ProcessPoolExecutor", None)
    total = 2 * vtrans.data.encode.PAIRS_PER_WORKER
    assert len(list(encode(BATCHES, TASK, total - 1, 4))) == len(BATCHES)
    assert len(list(encode(BATCHES, TASK, 10**9, 1))) == len(BATCHES)
    with pytest.raises(TypeError):
        list(encode(BATCHES, TASK, total, 4))


def test_what_is_under_way_is_bounded_by_the_processes(in_processes: None) -> None:
    taken = 0

    def batches() -> Iterator[Sequence[Pair]]:
        nonlocal taken
        for batch in BATCHES:
            taken += 1
            yield batch

    stream = encode(batches(), TASK, len(PAIRS), 2)
    for given, _ in enumerate(stream, 1):
        assert taken <= given + 2
    assert given == len(BATCHES)


def test_an_error_in_the_text_ends_the_processes(in_processes: None) -> None:
    def batches() -> Iterator[Sequence[Pair]]:
        yield from BATCHES[:3]
        raise InputError("line 31 is bad.")

    with pytest.raises(InputError, match=r"^line 31 is bad\.$"):
        list(encode(batches(), TASK, len(PAIRS), 2))
    assert not multiprocessing.active_children()


def test_closing_ends_the_processes(in_processes: None) -> None:
    stream = encode(BATCHES, TASK, len(PAIRS), 2)
    next(stream)
    assert len(multiprocessing.active_children()) == 2
    stream.close()
    assert not multiprocessing.active_children()


def test_a_process_that_dies_gives_one_sentence(in_processes: None) -> None:
    stream = encode(BATCHES, TASK, len(PAIRS), 2)
    next(stream)
    victim = multiprocessing.active_children()[0]
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    with pytest.raises(VtransError, match="`threads`") as e:
        list(stream)
    assert e.value.exit_code == 1
    assert not multiprocessing.active_children()


def test_a_process_that_dies_at_once_gives_one_sentence(in_processes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vtrans.runtime.workers, "_start_worker", os.abort)
    heavy = dataclasses.replace(TASK, src_proto=TASK.src_proto * 50)  # more than a pipe holds
    with pytest.raises(VtransError, match="encoding text"):
        list(encode(BATCHES, heavy, len(PAIRS), 2))
    assert not multiprocessing.active_children()


def test_an_error_in_a_process_comes_out_as_itself(in_processes: None) -> None:
    odd: Any = [[("a dog", 7)]]
    with pytest.raises(TypeError):
        list(encode(odd, TASK, len(PAIRS), 2))
    assert not multiprocessing.active_children()


def prepared(folder: Path, **values: Any) -> dict[str, bytes]:
    for side, name in enumerate(("train.en", "train.de")):
        (folder / name).write_text("".join(pair[side] + "\n" for pair in PAIRS), encoding="utf-8")
    base: dict[str, Any] = {"src": (folder / "train.en",), "tgt": (folder / "train.de",), "out": folder / "data"}
    prepare(PrepareOptions(**base | values), Console(quiet=True))
    return {path.name: path.read_bytes() for path in Path((base | values)["out"]).iterdir()}


def test_the_folder_is_the_same_whatever_the_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_processes: None
) -> None:
    monkeypatch.setattr(vtrans.data.prepare, "_BATCH_PAIRS", 16)
    made = [prepared(tmp_path, threads=n, out=tmp_path / str(n), max_tokens=20) for n in (1, 2, 3)]
    assert json.loads(made[0]["data.json"])["train"]["dropped"]["empty"] > 0
    assert made[0] == made[1] == made[2]


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Ctrl-C is another thing on Windows")
def test_ctrl_c_ends_all_of_it_in_silence(tmp_path: Path) -> None:
    """As a terminal does it: SIGINT to the whole group of processes, while they encode. The script has no guard
    against being run again in each of them, and needs none."""
    (tmp_path / "slow.py").write_text(
        textwrap.dedent("""
            import sys
            import vtrans.data.encode
            from tests.data.test_encode import BATCHES, TASK
            from vtrans.data.encode import encode

            def forever():
                while True:
                    yield from BATCHES

            vtrans.data.encode.PAIRS_PER_WORKER = 1
            try:
                for number, _ in enumerate(encode(forever(), TASK, 10**6, 2)):
                    if number == 3:
                        print("under way", flush=True)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        """)
    )
    root = Path(vtrans.data.encode.__file__).parents[2]
    running = subprocess.Popen(
        [sys.executable, str(tmp_path / "slow.py")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(root)},
    )  # fmt: skip
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "under way\n"
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
    assert (out, err, running.returncode) == ("interrupted\n", "", 0)
    for _ in range(100):  # nobody of the group is left
        try:
            os.killpg(running.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("a process outlived its parent")


@pytest.mark.parametrize(
    ("src", "tgt", "reason"),
    [
        (0, 0, "empty"), (0, 5, "empty"), (5, 0, "empty"), (1, 12, None), (12, 1, None), (1, 13, "odd_ratio"),
        (4, 16, None), (17, 4, "odd_ratio"), (30, 30, None), (30, 31, "too_long"), (1, 31, "too_long"),
    ],
)  # fmt: skip
def test_pairs_are_dropped_by_length_and_ratio(src: int, tgt: int, reason: str | None) -> None:
    assert reason_to_drop(src, tgt, 30, 4.0) == reason


def test_a_task_says_how_wide_ids_are() -> None:
    assert [dataclasses.replace(TASK, pieces=n).wide for n in (1 << 16, (1 << 16) + 1)] == [False, True]
