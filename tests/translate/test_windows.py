"""Windows of lines: bounded, in order, and without long waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrans.lines.line import Line, lines_of
from vtrans.translate import windows as module
from vtrans.translate.windows import Windows, cost_of, shares


def texts(window: Iterable[Line]) -> list[str]:
    return [line.text for line in window]


@pytest.mark.parametrize(("parts", "patient"), [(1, True), (3, True), (2, False)])
def test_windows_hold_every_line_in_order(parts: int, patient: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW_COST", 7 * cost_of(Line(1, "12")))
    lines = [str(i) for i in range(10, 60)]
    found = [texts(window) for window in Windows(lines_of(lines), parts, patient=patient)]
    assert [line for window in found for line in window] == lines
    assert max(map(len, found)) <= 7
    assert found == [texts(window) for window in Windows(lines_of(lines), parts, patient=patient)] or not patient
    assert list(Windows(iter(()), parts)) == []


@given(st.lists(st.text(max_size=40), max_size=30), st.integers(1, 5))
def test_lines_are_shared_without_loss(lines: list[str], parts: int) -> None:
    divided = shares(list(lines_of(lines)), parts)
    assert len(divided) <= parts
    assert [line.text for share in divided for line in share] == lines


def test_a_slow_input_ends_a_window_and_a_patient_reader_waits_for_it() -> None:
    def trickle(number: int) -> Iterator[str]:
        for i in range(number):
            time.sleep(0.005)
            yield str(i)

    stream = Windows(lines_of(trickle(2000)))
    assert 0 < len(next(stream)) < 2000
    stream.close()
    assert len(next(Windows(lines_of(trickle(100)), patient=True))) == 100


def test_a_line_that_has_waited_is_handed_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT", 3.0)
    arrived, end = threading.Event(), threading.Event()

    def lines() -> Iterator[str]:
        yield "first"
        arrived.set()
        end.wait(60)

    stream = Windows(lines_of(lines()))
    assert arrived.wait(60)
    time.sleep(3)
    began = time.monotonic()
    assert texts(next(stream)) == ["first"]
    assert time.monotonic() - began < 2
    end.set()


def test_long_lines_bound_how_far_the_thread_reads_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW_COST", 250)
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "x" * 100

    stream = Windows(lines_of(endless()))
    for handed_out in range(1, 4):
        assert texts(next(stream)) == ["x" * 100] * 2
        time.sleep(0.1)  # time for an unbounded reader to run away
        assert taken <= 2 * handed_out + 2 + 1
    stream.close()
