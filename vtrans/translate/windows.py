"""Splits an endless input into windows of lines, bounded in lines, bytes and waiting time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator

from vtrans.lines.line import Line

WINDOW_BYTES = 1 << 20  # of text in a window
IDLE = 0.2  # seconds without input after which a window ends
PATIENCE = 1.0  # seconds after which a window ends, even if lines keep arriving


def windows(
    lines: Iterable[Line],
    size: int,
    idle: float = IDLE,
    patience: float = PATIENCE,
    most: int = WINDOW_BYTES,
) -> Iterator[list[Line]]:
    """Yields the lines in windows of at most `size` lines and `most` bytes; a longer line is a window of its own.

    A window also ends when no line has arrived for `idle` seconds, or when its first line has waited for `patience`
    seconds and no other line is there yet. A thread reads at most two windows ahead. An exception while reading is
    raised here, after the lines before it.
    """
    ahead = _ReadAhead(2 * size, 2 * most)

    def read() -> None:
        try:
            for line in lines:
                if not ahead.put(line, size_of(line)):
                    return
            ahead.put(None)
        except BaseException as error:
            ahead.put(error)

    threading.Thread(target=read, daemon=True).start()
    try:
        while window := ahead.window(size, most, idle, patience):
            yield window
    finally:
        ahead.close()


class _ReadAhead:
    """A bounded queue of lines between the thread that reads and the one that takes windows."""

    def __init__(self, lines: int, size: int) -> None:
        self._most_lines, self._most_size = lines, size
        self._items: deque[tuple[Line | BaseException | None, int]] = deque()
        self._size = 0
        self._closed = False
        self._changed = threading.Condition()

    def put(self, item: Line | BaseException | None, size: int = 0) -> bool:
        """Waits while the queue is full, then appends a line, an exception or None (the end). Returns False if the
        queue is closed."""
        with self._changed:
            while self._items and not self._closed:
                if len(self._items) < self._most_lines and self._size + size <= self._most_size:
                    break
                self._changed.wait()
            self._items.append((item, size))
            self._size += size
            self._changed.notify()
            return not self._closed

    def window(self, lines: int, size: int, idle: float, patience: float) -> list[Line]:
        """Returns the next lines, at least one, or none at the end. Raises an exception of the reading thread."""
        taken: list[Line] = []
        weight = 0
        with self._changed:
            self._changed.wait_for(lambda: self._items)
            until = time.monotonic() + patience
            while len(taken) < lines:
                left = max(0.0, min(idle, until - time.monotonic()))
                if not self._items and not self._changed.wait_for(lambda: self._items, left):
                    break
                item, more = self._items[0]
                if not isinstance(item, Line):  # stays in the queue for the next call, if there are lines before it
                    if isinstance(item, BaseException) and not taken:
                        raise item
                    break
                if taken and weight + more > size:
                    break
                taken.append(item)
                weight += more
                self._items.popleft()
                self._size -= more
                self._changed.notify()
        return taken

    def close(self) -> None:
        """Ends the reading thread at its next line."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify()


def size_of(line: Line) -> int:
    """Returns the bytes of a line with its line end."""
    text = line.text
    return len(text) + 1 if text.isascii() else len(text.encode("utf-8", "surrogatepass")) + 1
