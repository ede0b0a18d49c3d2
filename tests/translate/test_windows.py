"""Windows of lines: bounded, in order, and handed out promptly."""

import itertools
import threading
import time
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrans.system.errors import InputError
from vtrans.translate import stream as module
from vtrans.translate.steps.line import Line, lines_of
from vtrans.translate.stream import LINE_COST, Windows, size_of


def texts(window: Iterable[Line]) -> list[str]:
    return [line.text for line in window]


@pytest.mark.parametrize(("parts", "complete"), [(1, True), (3, True), (2, False)])
def test_windows_hold_every_line_in_order(parts: int, complete: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW_COST", 7 * (3 + LINE_COST))
    lines = [str(i) for i in range(10, 60)]
    found = [texts(window) for window in Windows(lines_of(lines), parts, complete=complete)]
    assert [line for window in found for line in window] == lines
    assert max(map(len, found)) <= 7
    assert found == [texts(window) for window in Windows(lines_of(lines), parts, complete=complete)] or not complete
    assert list(Windows(iter(()), parts)) == []


@given(st.lists(st.text(max_size=40), max_size=30), st.integers(1, 5))
def test_few_lines_are_divided_without_loss(lines: list[str], parts: int) -> None:
    found = list(Windows(lines_of(lines), parts))
    assert [line.text for window in found for line in window] == lines
    costs = [size_of(line) + LINE_COST for line in lines_of(lines)]
    assert not lines or sum(costs[: len(found[0]) - 1]) * parts < sum(costs)


def test_lines_that_have_arrived_are_handed_out_unless_all_will_arrive() -> None:
    ahead, asked = threading.Semaphore(0), threading.Semaphore(0)

    def lines() -> Iterator[str]:
        for word in ("first", "second", "third"):
            asked.release()
            assert ahead.acquire(timeout=60)
            yield word

    stream = Windows(lines_of(lines()), complete=False)
    for word in ("first", "second", "third"):
        ahead.release()
        assert texts(next(stream)) == [word]
    whole = Windows(lines_of(lines()))
    ahead.release()
    for _ in range(5):
        assert asked.acquire(timeout=60)
    threading.Timer(0.2, ahead.release, [2]).start()
    assert texts(next(whole)) == ["first", "second", "third"]


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


def test_missing_prefixes_are_reported_while_the_input_stays_open() -> None:
    with pytest.raises(InputError, match="2 prefixes"):
        list(lines_of(itertools.repeat("x"), prefixes=["a", "b"]))
