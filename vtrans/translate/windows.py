"""Splits an endless input into windows of lines, bounded in size and waiting time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby

from vtrans.lines.line import Line

LINE_COST = 32  # a line costs about as much as 32 more bytes of text
WINDOW_COST = 200_000  # 2,000 lines of 68 bytes: enough for batches of similar length, few enough to wait for
WAIT = 0.2  # seconds after which a line is handed out


class Windows(Iterator[Sequence[Line]]):
    """Lines in windows of about WINDOW_COST or less, in order; only a single line may cost much more.

    A thread reads `parts` windows ahead. Once that many are there, the input has ended, or a line has waited for WAIT
    seconds, the lines are divided into `parts` windows of about the same cost. `patient` waits for the input however
    long it takes, so that windows do not depend on time. An exception while reading is raised after the lines before
    it. One thread at a time may ask for the next window.
    """

    def __init__(self, lines: Iterable[Line], parts: int = 1, *, patient: bool = False) -> None:
        self._parts, self._patient = parts, patient
        self._ahead: list[Line] = []
        self._cost = 0  # of the lines ahead
        self._since = 0.0  # when the first of them was read
        self._windows: deque[Sequence[Line]] = deque()
        self._end: BaseException | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()

    def _read(self, lines: Iterable[Line]) -> None:
        try:
            for line in lines:
                with self._changed:
                    self._changed.wait_for(lambda: self._end or not self._full())
                    if self._end:
                        return
                    if not self._ahead:
                        self._since = time.monotonic()
                    self._ahead.append(line)
                    self._cost += cost_of(line)
                    if len(self._ahead) == 1 or self._full():
                        self._changed.notify_all()
            self._finish(StopIteration())
        except BaseException as error:
            self._finish(error)

    def _full(self) -> bool:
        return self._cost >= self._parts * WINDOW_COST

    def _finish(self, end: BaseException) -> None:
        with self._changed:
            self._end = self._end or end
            self._changed.notify_all()

    def __next__(self) -> Sequence[Line]:
        with self._changed:
            if not self._windows:
                self._changed.wait_for(lambda: self._ahead or self._end)
                patience = None if self._patient else max(0.0, self._since + WAIT - time.monotonic())
                self._changed.wait_for(lambda: self._end or self._full(), patience)
                self._windows.extend(shares(self._ahead, self._parts))
                self._ahead, self._cost = [], 0
                self._changed.notify_all()
            if not self._windows and self._end:
                raise self._end
            return self._windows.popleft()

    def close(self) -> None:
        """Drops the remaining lines, and ends the thread at its next line."""
        with self._changed:
            self._ahead, self._windows = [], deque()
        self._finish(StopIteration())


def shares(lines: Sequence[Line], parts: int) -> list[Sequence[Line]]:
    """Divides lines into consecutive shares of about the same cost, at most `parts`."""
    ends = list(accumulate(map(cost_of, lines)))

    def share_of(i: int) -> int:
        """Returns the share that contains the middle of line i."""
        return int((ends[i] - cost_of(lines[i]) / 2) * parts / ends[-1])

    return [[lines[i] for i in share] for _, share in groupby(range(len(lines)), share_of)]


def cost_of(line: Line) -> int:
    """Returns the cost of translating a line, in bytes of text."""
    return size_of(line) + LINE_COST


def size_of(line: Line) -> int:
    """Returns the bytes of a line with its line end."""
    text = line.text
    return len(text) + 1 if text.isascii() else len(text.encode("utf-8", "surrogatepass")) + 1
