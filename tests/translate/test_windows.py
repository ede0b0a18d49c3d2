"""Windows of lines: bounded, in order, and without long waiting."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from vtrans.lines.line import lines_of
from vtrans.translate import windows as module


def windows(texts: Iterable[str], size: int, **limits: Any) -> Iterator[list[str]]:
    """Yields the texts of the lines in each window."""
    for window in module.windows(lines_of(texts), size, **limits):
        yield [line.text for line in window]


def test_windows_hold_every_line_in_order() -> None:
    lines = [str(i) for i in range(50)]
    found = list(windows(iter(lines), 7))
    assert [line for window in found for line in window] == lines
    assert max(map(len, found)) <= 7
    assert list(windows([], 7)) == []


def test_reading_stops_when_the_windows_are_closed() -> None:
    before = set(threading.enumerate())
    stream = windows(map(str, itertools.count()), 3)
    next(stream)
    (reader,) = set(threading.enumerate()) - before
    stream.close()  # type: ignore[attr-defined]  # a generator
    reader.join(30)
    assert not reader.is_alive()


def test_a_slow_input_ends_a_window() -> None:
    def trickle() -> Iterator[str]:
        for number in range(2000):
            time.sleep(0.005)
            yield str(number)

    stream = windows(trickle(), 2000, idle=30, patience=0.1)
    assert 0 < len(next(stream)) < 2000
    stream.close()  # type: ignore[attr-defined]  # a generator


def test_long_lines_bound_how_far_the_thread_reads_ahead() -> None:
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "x" * 100

    stream = windows(endless(), 1000, most=250)
    for handed_out in range(1, 4):
        assert next(stream) == ["x" * 100] * 2
        time.sleep(0.1)  # time for an unbounded reader to run away
        assert taken <= 2 * handed_out + 4 + 1
    stream.close()  # type: ignore[attr-defined]  # a generator
