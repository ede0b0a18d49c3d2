"""Splits an endless input into windows of lines, bounded in size."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from vtrans.translate.steps.line import Line

LINE_COST = 32  # a line costs about as much as 32 more bytes of text
WINDOW_COST = 200_000  # 2,000 lines of 68 bytes: enough for batches of similar length, few enough to wait for


class Windows(Iterator[Sequence[Line]]):
    """Lines in windows of about WINDOW_COST or less, in order; only a single line may cost much more.

    A thread reads lines that cost `parts` windows ahead, and a window takes one part of the lines that are ahead. If
    the input is not `complete`, these are the lines that have arrived, at least one. Otherwise the thread reads as far
    as it may before, so that windows do not depend on time. An exception while reading is raised after the lines before
    it. One thread at a time may ask for the next window.
    """

    def __init__(self, lines: Iterable[Line], parts: int = 1, *, complete: bool = True) -> None:
        self._parts, self._complete = parts, complete
        self._ahead: deque[Line] = deque()
        self._cost = 0  # of the lines ahead
        self._end: BaseException | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()

    def _read(self, lines: Iterable[Line]) -> None:
        end: BaseException = StopIteration()
        try:
            for line in lines:
                with self._changed:
                    self._changed.wait_for(lambda: self._end or not self._full())
                    if self._end:
                        return
                    self._ahead.append(line)
                    self._cost += cost_of(line)
                    if not self._complete or self._full():
                        self._changed.notify_all()
        except BaseException as error:
            end = error
        self._finish(end)

    def _full(self) -> bool:
        return self._cost >= self._parts * WINDOW_COST

    def _finish(self, end: BaseException) -> None:
        with self._changed:
            self._end = self._end or end
            self._changed.notify_all()

    def __next__(self) -> Sequence[Line]:
        with self._changed:
            self._changed.wait_for(lambda: self._end or (self._full() if self._complete else self._ahead))
            if self._end and not self._ahead:
                raise self._end
            window: list[Line] = []
            whole = self._cost
            while self._ahead and (whole - self._cost) * self._parts < whole:
                window.append(self._ahead.popleft())
                self._cost -= cost_of(window[-1])
            self._changed.notify_all()
            return window

    def close(self) -> None:
        """Drops the remaining lines, and ends the thread at its next line."""
        with self._changed:
            self._ahead.clear()
        self._finish(StopIteration())


def cost_of(line: Line) -> int:
    """Returns the cost of translating a line, in bytes of text."""
    return size_of(line) + LINE_COST


def size_of(line: Line) -> int:
    """Returns the bytes of a line with its line end."""
    return len(line.text.encode("utf-8", "surrogatepass")) + 1
