"""Streams: whole lines out, and one input shared by several processes."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import TRAIN_PAIRS
from hypothesis import given
from hypothesis import strategies as st
from translators import sentences, translator

from vtrans.checkpoint import RunFolder
from vtrans.decoding.stream import shares, translate_stream
from vtrans.errors import InputError, VtransError
from vtrans.runtime.ranks import Ranks


def test_a_stream_is_flushed_a_window_at_a_time() -> None:
    class Flushed(io.BytesIO):
        seen: list[bytes]

        def flush(self) -> None:
            self.seen.append(self.getvalue())

    out = Flushed()
    out.seen = []
    translate_stream(translator(), ["a", "dog", "runs"], out, line_buffered=True)
    assert [block.count(b"\n") for block in out.seen] == [1, 2, 3]


# Progress.


@pytest.mark.parametrize("line_buffered", [False, True])
def test_progress_never_decreases_and_ends_with_the_whole_text(line_buffered: bool) -> None:
    lines = [*sentences(20), "", "Łódź"]
    told: list[tuple[float, float]] = []
    translate_stream(
        translator(),
        lines,
        io.BytesIO(),
        line_buffered=line_buffered,
        progress=lambda lines, size: told.append((lines, size)),
    )
    assert told == sorted(told)
    assert len(told) >= sum(1 for line in lines if line)  # with each sentence
    assert told[-1] == (len(lines), sum(len(line.encode()) + 1 for line in lines))


# Several processes, one input.


@given(st.lists(st.text(max_size=40), max_size=30), st.integers(1, 5))
def test_a_window_is_shared_without_loss(window: list[str], world: int) -> None:
    found = shares(window, world)
    assert len(found) == world
    assert [i for share in found for i in share] == list(range(len(window)))


def test_a_window_is_shared_by_the_cost_of_its_lines() -> None:
    assert shares(["x"] * 90, 3) == [range(30), range(30, 60), range(60, 90)]
    assert shares(["x" * 3000, *["x"] * 90], 2) == [range(1), range(1, 91)]
    assert shares([], 2) == [range(0), range(0)]


@pytest.fixture
def together(tiny_run: RunFolder) -> Iterator[Callable[..., list[subprocess.Popen[bytes]]]]:
    """Starts `vtrans translate` in several processes with a thread each, as torchrun does."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str | Path, world: int = 2, stdin: int = subprocess.PIPE) -> list[subprocess.Popen[bytes]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        command = [sys.executable, "-m", "vtrans", "translate", "--model", str(tiny_run.path), *map(str, words)]
        for rank in range(world):
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(world), "RANK": str(rank)}
            environment |= {"LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            streams = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            started.append(subprocess.Popen(command, env=environment, **streams))  # type: ignore[call-overload]
        return started

    yield start
    for process in started:
        process.kill()
        process.communicate()


def alone(tiny_run: RunFolder, *words: str | Path) -> subprocess.CompletedProcess[bytes]:
    """Returns what a single process writes."""
    command = [sys.executable, "-m", "vtrans", "translate", "--model", str(tiny_run.path), *map(str, words)]
    return subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, check=True, timeout=120
    )


@pytest.mark.parametrize("words", [("--json",), ("--sample", "--seed", "3", "--nbest", "2"), ("--prefix", "begun")])
def test_two_processes_translate_as_one_does(
    words: tuple[str, ...],
    tmp_path: Path,
    tiny_run: RunFolder,
    together: Callable[..., list[subprocess.Popen[bytes]]],
) -> None:
    source = tmp_path / "source"
    long = " ".join(["The big dog sees me today."] * 80)
    lines = [src for src, _ in TRAIN_PAIRS[:40]] + ["", " ", long, "\u2028 x"] + [src for src, _ in TRAIN_PAIRS[40:80]]
    source.write_bytes("".join(line + "\n" for line in [*lines, long]).encode())
    # Each line has another prefix, so that a mix-up is noticed.
    begun = [f"{number} " if line.strip() else "" for number, line in enumerate([*lines, long])]
    (tmp_path / "begun").write_bytes("".join(line + "\n" for line in begun).encode())
    words = tuple(str(tmp_path / word) if word == "begun" else word for word in words)
    words = (*words, "--batch-tokens", "1")  # other shapes change the last bits
    expected = alone(tiny_run, *words, "--input", source)
    first, second = together(*words, "--input", source)
    out, err = first.communicate(timeout=120)
    assert (first.returncode, second.wait(60)) == (0, 0)
    assert out == expected.stdout
    if "--prefix" in words:
        for line, start in zip(out.decode().split("\n"), [*begun, ""], strict=True):
            assert not start or line.split(" ")[0] == start.strip()
    assert second.communicate() == (b"", b"")
    said, by_one = err.decode().split("\n"), expected.stderr.decode().split("\n")
    assert said.pop(1) == "2 processes share the input"
    assert sum(line.startswith("warning: line ") for line in said) == 2
    # All messages are equal, except for the time.
    assert [line.partition(" in ")[0] for line in said] == [line.partition(" in ")[0] for line in by_one]


def test_an_open_pipe_is_answered_by_two_processes(
    together: Callable[..., list[subprocess.Popen[bytes]]],
) -> None:
    first, second = together("--quiet")
    assert first.stdin is not None
    assert first.stdout is not None
    for count in (1, 3):
        first.stdin.write(b"The big dog sees me today.\n" * count)
        first.stdin.flush()
        assert all(first.stdout.readline().endswith(b"\n") for _ in range(count))
    out, err = first.communicate(timeout=60)
    assert (first.returncode, out, second.wait(60)) == (0, b"", 0)
    assert all(line.startswith("warning") for line in err.decode().split("\n")[:-1])


def test_a_process_that_dies_ends_the_others(
    tmp_path: Path, together: Callable[..., list[subprocess.Popen[bytes]]]
) -> None:
    target = tmp_path / "out"
    first, second = together("--output", target)
    assert first.stdin is not None
    assert first.stderr is not None
    assert b"model: " in first.stderr.readline()
    first.stdin.write(b"The big dog sees me today.\n" * 3)
    first.stdin.flush()
    second.kill()
    second.wait()
    first.stdin.write(b"The big dog sees me today.\n" * 3)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 1
    assert err.decode().split("\n")[-2].startswith("error: one of the 2 processes ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_processes(
    number: int, tmp_path: Path, together: Callable[..., list[subprocess.Popen[bytes]]]
) -> None:
    processes = together("--output", tmp_path / "out")
    assert processes[0].stderr is not None
    processes[0].stderr.readline()
    for process in processes:
        process.send_signal(number)
    _, err = processes[0].communicate(timeout=60)
    # The other may learn from the first that there is nothing more to do before its own signal arrives.
    assert (processes[0].wait(60), processes[1].wait(60)) in ((1, 1), (1, 0))
    end = "interrupted" if number == signal.SIGINT else "SIGTERM"
    assert re.fullmatch(f"error: .*{end}.*", err.decode().split("\n")[-2])
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_another_process_is_printed_once(
    tiny_run: RunFolder, together: Callable[..., list[subprocess.Popen[bytes]]]
) -> None:
    first, second = together("--device", "cuda:77")
    _, err = first.communicate(timeout=60)
    assert first.returncode == 2
    assert err.decode().startswith("error: --device cuda:77 ")
    assert second.communicate(timeout=60) == (b"", b"")


class Fellows(Ranks):
    """Rank 0 of several; the answers of the others are given."""

    def __init__(self, answers: list[dict[str, Any]]) -> None:
        super().__init__()
        self.world, self.answers, self.dealt = 1 + len(answers), answers, list[list[bytes]]()

    def deal(self, parts: Sequence[bytes] | None = None) -> bytes:
        assert parts is not None
        self.dealt.append(list(parts))
        return parts[0]

    def answer(self, part: bytes) -> list[bytes]:
        return [part, *(json.dumps(answer).encode() for answer in self.answers)]


def test_an_error_in_another_process_is_raised_before_a_line_is_read() -> None:
    def lines() -> Iterator[str]:
        yield pytest.fail("a line was read")

    for as_input, kind in ((True, InputError), (False, VtransError)):
        ranks = Fellows([{"error": "its model is damaged.", "input": as_input, "warnings": ["careful"]}])
        out = io.BytesIO()
        with pytest.raises(kind, match=r"^process 1 of 2: its model is damaged\.$"):
            translate_stream(translator(), lines(), out, ranks=ranks)
        assert out.getvalue() == b""


# Memory and signals.


def test_a_signal_in_the_middle_of_a_write_waits_for_its_end() -> None:
    class Slow(io.BytesIO):
        def write(self, block: Any) -> int:
            half = len(block) // 2
            super().write(block[:half])
            signal.raise_signal(signal.SIGINT)
            return half + super().write(block[half:])

    out = Slow()
    usual = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        translate_stream(translator(), ["a", "dog"], out, line_buffered=True)
    assert out.getvalue().count(b"\n") == 1
    assert out.getvalue().endswith(b"\n")
    assert signal.getsignal(signal.SIGINT) is usual


def test_a_second_signal_does_not_wait() -> None:
    class Stuck(io.BytesIO):
        def write(self, block: Any) -> int:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("went on")

    with pytest.raises(KeyboardInterrupt):
        translate_stream(translator(), ["a"], Stuck())


@pytest.mark.slow
def test_memory_stays_flat_over_many_lines() -> None:
    soak = Path(__file__).parents[1] / "bench" / "soak.py"
    done = subprocess.run(
        [sys.executable, str(soak), "--lines", "60000"], capture_output=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout.decode()
    assert b"60,000 of 60,000 lines" in done.stdout
