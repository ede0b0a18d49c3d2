"""Translates a stream of lines to a stream of lines, in order.

Several processes, copies of this one, may divide each window (`workers`); this process reads and writes. Line numbers
and counts do not depend on the number of processes. Neither does the output, except that other batches may change the
last bits of a float32 sum, and so choose another of two translations whose scores are equal up to these bits.
"""

from __future__ import annotations

import io
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, BinaryIO, Generic, TypeVar

from vtrans.console import Console
from vtrans.errors import VtransError
from vtrans.lines.line import Counts, Line
from vtrans.processes.signals import uninterrupted
from vtrans.processes.threads import set_threads
from vtrans.processes.workers import Task, WorkerPool
from vtrans.text.lines import write_line
from vtrans.translate.translation import TranslateOptions, rendered
from vtrans.translate.translator import DEFAULT_OPTIONS, WINDOW, Translator
from vtrans.translate.windows import WINDOW_BYTES, size_of, windows

LINE_COST = 32  # a line costs about as much as 32 more bytes of text
AHEAD = 2  # windows under way at a time
POLL = 0.2  # seconds between two reports of progress

T = TypeVar("T")
Make = Callable[[Sequence[Line], TranslateOptions], T]
"""Makes something of translated lines, such as the bytes that are written, where they were translated."""


def translate_stream(
    translator: Translator,
    lines: Iterable[Line],
    stream: BinaryIO,
    options: TranslateOptions = DEFAULT_OPTIONS,
    *,
    line_buffered: bool = False,
    patient: bool = False,
    progress: Callable[[float, float], None] = lambda lines, size: None,
    workers: Workers[bytes] | None = None,
) -> None:
    """Writes the translations of `lines` to `stream` as whole lines, and flushes it after each window.

    `line_buffered` translates each line before the next is read. The other arguments are those of `translate_windows`.
    Ctrl-C and SIGTERM never leave part of a line.
    """
    most = 1 if line_buffered else None
    for blocks in translate_windows(
        translator, lines, options, written, most=most, patient=patient, progress=progress, workers=workers
    ):
        with uninterrupted():
            stream.write(b"".join(blocks))
            stream.flush()


def translate_windows(
    translator: Translator,
    lines: Iterable[Line],
    options: TranslateOptions,
    make: Make[T],
    *,
    most: int | None = None,
    patient: bool = False,
    progress: Callable[[float, float], None] = lambda lines, size: None,
    workers: Workers[T] | None = None,
) -> Iterator[list[T]]:
    """Yields what `make` returns for the parts of each window of lines, in order.

    A window has at most `most` lines. `patient` waits for full windows however long they take, so that batches do not
    depend on time. `progress` is called with the lines and bytes translated so far. `workers` are those of
    `workers_for`, with the same translator, options and `make`.
    """
    processes = workers.number if workers else 1
    counted = _Progress(progress)
    waiting = {"idle": threading.TIMEOUT_MAX, "patience": threading.TIMEOUT_MAX} if patient else {}
    received = windows(lines, most or WINDOW * processes, most=WINDOW_BYTES * processes, **waiting)
    if workers:
        yield from _by_workers(translator, received, counted, workers)
        return
    for window in received:
        counted.begin(window)
        translator.translate_window(window, options, done=counted.step)
        yield [make(window, options)]
        counted.end()


def written(lines: Sequence[Line], options: TranslateOptions) -> bytes:
    """Returns translations as they are written. Raises VtransError if a line is lost."""
    block = io.BytesIO()
    for line in lines:
        for text in rendered(line.text, line.translations, options.form):
            write_line(block, text)
    found, expected = block.getvalue().count(b"\n"), len(lines) * options.lines
    if found != expected:
        raise VtransError(
            f"lines {lines[0].number} to {lines[-1].number} must give {expected} lines of output, got {found}."
        )
    return block.getvalue()


class _Progress:
    """Counts sentences within a window, then whole windows."""

    def __init__(self, report: Callable[[float, float], None]) -> None:
        self._report = report
        self._lines = self._size = 0  # of earlier windows
        self._more = self._weight = 0  # of this window
        self._steps = 0

    def begin(self, window: Sequence[Line]) -> None:
        """Starts a window."""
        self._more, self._weight, self._steps = len(window), sum(map(size_of, window)), 0

    def step(self, sentences: int = 1) -> None:
        """Counts sentences of the window."""
        self._steps += sentences
        lines = min(self._more, self._steps)
        self._report(self._lines + lines, self._size + self._weight * lines / max(1, self._more))

    def end(self) -> None:
        """Counts the whole window."""
        self._lines += self._more
        self._size += self._weight
        self._report(self._lines, self._size)


# Copies of this process.


@dataclass(frozen=True)
class _Answer(Generic[T]):
    """What a worker sends back for some lines."""

    made: T
    counts: Counts
    warnings: list[str]


Workers = WorkerPool[Sequence[Line], _Answer[T]]


def workers_for(
    translator: Translator,
    options: TranslateOptions,
    processes: int,
    threads: int = 1,
    make: Make[Any] = written,
) -> Workers[Any]:
    """Returns that many copies of this process, each with `threads` threads, for `translate_windows`."""
    recorder = _Recorder()

    def answer(lines: Sequence[Line], done: Callable[[], None]) -> _Answer[Any]:
        if translator.console is not recorder:
            set_threads(threads)
            translator.console = recorder
        translator.counts = Counts()
        translator.translate_window(lines, options, done=done)
        return _Answer(make(lines, options), translator.counts, recorder.taken())

    advice = "try again with fewer `processes` or a smaller `batch_tokens`"
    return WorkerPool(answer, processes, "translating", advice)


class _Recorder(Console):
    """The console of a copy, which sends its warnings to the process that was started."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self._warnings: list[str] = []

    def warn(self, text: str) -> None:
        self._warnings.append(text)

    def taken(self) -> list[str]:
        """Returns the warnings since the last call."""
        taken, self._warnings = self._warnings, []
        return taken


def _by_workers(
    translator: Translator, windows: Iterator[list[Line]], counted: _Progress, workers: Workers[T]
) -> Iterator[list[T]]:
    """Yields what the workers make of each window; collects their counts and warnings."""
    until = 0.0  # when the last window was done
    for window, began, tasks in _submitted(windows, workers):
        counted.begin(window)
        steps, parts, counts = 0, [], translator.counts
        for task in tasks:
            while not wait([task], POLL).done:
                more = sum(other.steps for other in tasks) - steps
                counted.step(more)
                steps += more
            answer = task.result()
            for warning in answer.warnings:
                if translator.console:
                    translator.console.warn(warning)
            counts.add(answer.counts)
            parts.append(answer.made)
        now = time.monotonic()
        counts.seconds += now - max(began, until)
        until = now
        yield parts
        counted.end()


def _submitted(
    windows: Iterator[list[Line]], workers: Workers[T]
) -> Iterator[tuple[list[Line], float, list[Task[_Answer[T]]]]]:
    """Yields each window, the time at which it was submitted, and its tasks.

    A thread reads and submits windows ahead, so that a worker that is done with its share of a window starts on the
    next one, and so that translations are written while the input waits.
    """
    ahead: queue.SimpleQueue[Any] = queue.SimpleQueue()
    free, stopped = threading.Semaphore(AHEAD), threading.Event()

    def submit() -> None:
        try:
            for window in windows:
                free.acquire()
                if stopped.is_set():
                    return
                tasks = [workers.submit(share) for share in shares(window, workers.number) if share]
                ahead.put((window, time.monotonic(), tasks))
            ahead.put(None)
        except BaseException as error:
            ahead.put(error)

    threading.Thread(target=submit, daemon=True).start()
    try:
        while (submitted := ahead.get()) is not None:
            if isinstance(submitted, BaseException):
                raise submitted
            yield submitted
            free.release()
    finally:
        stopped.set()
        free.release()


def shares(window: Sequence[Line], processes: int) -> list[Sequence[Line]]:
    """Returns consecutive shares of a window that cost about the same; some are empty if there are few lines."""
    costs = [size_of(line) + LINE_COST for line in window]
    total, cuts, cost = sum(costs), [0], 0
    for i, cost_of_line in enumerate(costs):
        # A line belongs to the process whose part of the total cost contains its middle.
        while cost + cost_of_line / 2 >= len(cuts) * total / processes:
            cuts.append(i)
        cost += cost_of_line
    cuts += [len(window)] * (processes + 1 - len(cuts))
    return [window[start:stop] for start, stop in pairwise(cuts)]


# Given translations.


def logprob_stream(
    translator: Translator,
    sources: Iterable[str],
    targets: Iterable[str],
    stream: BinaryIO,
    *,
    as_json: bool = False,
    done: Callable[[], None] = lambda: None,
    to: str | None = None,
) -> float:
    """Writes the log-probability and score of each pair, or a line of JSON as for a translation.

    Returns the sum of the log-probabilities of all subwords that the model scored.
    """
    unanswered: deque[str] = deque()  # at most a window

    def remembered() -> Iterator[str]:
        for line in sources:
            unanswered.append(line)
            yield line

    total = 0.0
    for t in translator.logprob(remembered(), targets, done, to=to):
        source = unanswered.popleft()
        write_line(stream, rendered(source, [t], "json")[0] if as_json else f"{t.logprob:.6f}\t{t.score:.6f}")
        total += math.fsum(t.token_logprobs)
    stream.flush()
    return total
