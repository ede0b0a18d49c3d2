"""An open stream of lines in, their translations out: windows that neither wait for ever nor grow."""

from __future__ import annotations

import io
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import BinaryIO

from vtrans.config import Sampling
from vtrans.errors import VtransError
from vtrans.text import write_line
from vtrans.translate import WINDOW, Form, Translator, rendered, with_prefixes

IDLE = 0.2  # seconds without input after which an open pipe gets its answers
PATIENCE = 1.0  # seconds after which it gets them even if its lines keep trickling in


def translate_stream(
    translator: Translator,
    lines: Iterable[str],
    stream: BinaryIO,
    *,
    nbest: int = 1,
    sampling: Sampling | None = None,
    form: Form = "text",
    alignments: bool = False,
    prefixes: Iterable[str] | None = None,
    line_buffered: bool = False,
    done: Callable[[], None] = lambda: None,
) -> None:
    """Writes the translations of `lines` to `stream`, whole lines, flushed a window at a time.

    `form` is that of `rendered`, `alignments` and `prefixes` are those of `nbest`. A line in gives `nbest`
    lines out, or one of JSON. `line_buffered` answers each line before the next is read; `done` is called
    as each sentence has been translated. At the end the translator's console is told of blank lines, and
    warned of lines that were not but whose translation is.
    """
    first = 1
    for window, begun in with_prefixes(windows(lines, 1 if line_buffered else WINDOW), prefixes):
        block = io.BytesIO()
        found = translator.translate_window(window, nbest, sampling, first, done, alignments=alignments, prefixes=begun)
        for i, translations in enumerate(found):
            for out in rendered(window[i], translations, form):
                write_line(block, out)
        written, expected = block.getvalue().count(b"\n"), len(window) * (1 if form == "json" else nbest)
        if written != expected:
            raise VtransError(f"lines {first} to {first + len(window) - 1} gave {written} lines, not {expected}.")
        stream.write(block.getvalue())
        stream.flush()
        first += len(window)
    translator.say_what_is_blank()


def logprob_stream(
    translator: Translator,
    sources: Iterable[str],
    targets: Iterable[str],
    stream: BinaryIO,
    *,
    as_json: bool = False,
    done: Callable[[], None] = lambda: None,
) -> float:
    """Writes, for each pair, the log-probability of the target, a tab and its score, or a line of JSON as
    that of a translation. Returns the sum of the log-probabilities of what was scored."""
    unanswered: deque[str] = deque()  # no more than a window

    def remembered() -> Iterator[str]:
        for line in sources:
            unanswered.append(line)
            yield line

    total = 0.0
    for t in translator.logprob(remembered(), targets, done):
        source = unanswered.popleft()
        write_line(stream, rendered(source, [t], "json")[0] if as_json else f"{t.logprob:.6f}\t{t.score:.6f}")
        total += math.fsum(t.token_logprobs)
    stream.flush()
    return total


def windows(
    lines: Iterable[str], size: int = WINDOW, idle: float = IDLE, patience: float = PATIENCE
) -> Iterator[list[str]]:
    """Lines in windows of `size`, or fewer when none has come for `idle` seconds, or when the first
    of them has waited for `patience` seconds and no other is there.

    A thread reads ahead, at most two windows. What reading raises is raised here, after the lines
    before it have been handed out.
    """
    waiting: queue.Queue[str | BaseException | None] = queue.Queue(maxsize=2 * size)
    abandoned = threading.Event()

    def read() -> None:
        try:
            for line in lines:
                waiting.put(line)
                if abandoned.is_set():
                    return
            waiting.put(None)
        except BaseException as error:
            waiting.put(error)

    threading.Thread(target=read, daemon=True).start()
    try:
        item = waiting.get()
        while True:
            window: list[str] = []
            until = time.monotonic() + patience
            while isinstance(item, str):
                window.append(item)
                if len(window) == size:
                    break
                try:
                    item = waiting.get(timeout=max(0.0, min(idle, until - time.monotonic())))
                except queue.Empty:
                    break
            if window:
                yield window
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            item = waiting.get()
    finally:
        abandoned.set()
        with suppress(queue.Empty):  # room for the line that the thread may be holding
            while True:
                waiting.get_nowait()
