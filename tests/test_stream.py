"""Streams: windows of lines, whole lines out, one input shared by several processes."""

from __future__ import annotations

import io
import itertools
import threading
import time
from collections.abc import Iterator

import pytest
from test_translate import translator

from vtrans.errors import InputError
from vtrans.stream import translate_stream, windows

# Windows.


def test_windows_hold_every_line_in_order() -> None:
    lines = [str(i) for i in range(50)]
    found = list(windows(iter(lines), 7))
    assert [line for window in found for line in window] == lines
    assert max(map(len, found)) <= 7
    assert list(windows([], 7)) == []


def test_windows_read_ahead_no_more_than_two() -> None:
    read = itertools.count()
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        for number in read:
            taken = number + 1
            yield str(number)

    stream = windows(endless(), 10)
    for windows_handed_out in range(1, 4):
        assert len(next(stream)) <= 10
        time.sleep(0.1)  # for a reader that knows no bound to run away
        assert taken <= 10 * windows_handed_out + 20 + 1
    stream.close()  # type: ignore[attr-defined]  # a generator


def test_an_abandoned_stream_is_not_read_on() -> None:
    before = set(threading.enumerate())
    stream = windows(map(str, itertools.count()), 3)
    next(stream)
    (reader,) = set(threading.enumerate()) - before
    stream.close()  # type: ignore[attr-defined]  # a generator
    reader.join(30)
    assert not reader.is_alive()


def test_an_idle_stream_gets_its_answers() -> None:
    answered = threading.Event()

    def patient() -> Iterator[str]:
        yield "one"
        assert answered.wait(60)
        yield "two"

    stream = windows(patient(), 100)
    assert next(stream) == ["one"]
    answered.set()
    assert list(stream) == [["two"]]


def test_a_trickling_stream_gets_its_answers_too() -> None:
    def trickle() -> Iterator[str]:
        for number in range(2000):
            time.sleep(0.005)
            yield str(number)

    stream = windows(trickle(), 2000, idle=30, patience=0.1)
    assert 0 < len(next(stream)) < 2000
    stream.close()  # type: ignore[attr-defined]  # a generator


def test_an_error_of_reading_comes_after_the_lines_before_it() -> None:
    def broken() -> Iterator[str]:
        yield from "ab"
        raise InputError("line 3 is not UTF-8")

    stream = windows(broken(), 100, idle=30)
    assert next(stream) == ["a", "b"]
    with pytest.raises(InputError, match="line 3"):
        next(stream)


def test_a_stream_is_flushed_a_window_at_a_time() -> None:
    class Flushed(io.BytesIO):
        seen: list[bytes]

        def flush(self) -> None:
            self.seen.append(self.getvalue())

    out = Flushed()
    out.seen = []
    translate_stream(translator(), ["a", "dog", "runs"], out, line_buffered=True)
    assert [block.count(b"\n") for block in out.seen] == [1, 2, 3]
