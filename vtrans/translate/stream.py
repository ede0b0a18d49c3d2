"""Translates a stream of lines to a stream of lines, in order.

Several processes, copies of this one, may take turns at the windows (`workers`); this process reads and writes. Line
numbers and counts do not depend on the number of processes. Neither does the output, except that other batches may
change the last bits of a float32 sum, and so choose another of two translations whose scores are equal up to these
bits.
"""

from __future__ import annotations

import io
import math
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from itertools import tee
from typing import Any, BinaryIO, TypeVar

from vtrans.console import Console
from vtrans.errors import VtransError
from vtrans.lines.line import Counts, Line
from vtrans.processes.signals import uninterrupted
from vtrans.processes.threads import set_threads
from vtrans.processes.workers import WorkerPool
from vtrans.text.lines import write_line
from vtrans.translate.translation import TranslateOptions, rendered
from vtrans.translate.translator import DEFAULT_OPTIONS, Translator
from vtrans.translate.windows import Windows, size_of

POLL = 0.2  # seconds between two reports of progress

T = TypeVar("T")
Make = Callable[[Sequence[Line], TranslateOptions], T]
"""Makes something of translated lines, such as the bytes that are written, where they were translated."""
Workers = WorkerPool[Sequence[Line], tuple[T, Counts, list[str]]]
"""Copies of this process. For a window, they return what is made of it, its counts and its warnings."""


def translate_stream(
    translator: Translator,
    lines: Iterable[Line],
    stream: BinaryIO,
    options: TranslateOptions = DEFAULT_OPTIONS,
    **settings: Any,
) -> None:
    """Writes the translations of `lines` to `stream` as whole lines, and flushes it after each window.

    The settings are those of `translate_windows`. Ctrl-C and SIGTERM never leave part of a line.
    """
    with closing(translate_windows(translator, lines, options, written, **settings)) as blocks:
        for block in blocks:
            with uninterrupted():
                stream.write(block)
                stream.flush()


def translate_windows(
    translator: Translator,
    lines: Iterable[Line],
    options: TranslateOptions,
    make: Make[T],
    *,
    line_buffered: bool = False,
    patient: bool = False,
    progress: Callable[[float, float], None] = lambda lines, size: None,
    workers: Workers[T] | None = None,
) -> Generator[T, None, None]:
    """Yields what `make` returns for each window of lines, in order.

    `line_buffered` translates each line before the next is read. `patient` waits for full windows however long they
    take, so that batches do not depend on time. `progress` is called with the lines and bytes translated so far.
    `workers` are those of `workers_for`, with the same translator, options and `make`.
    """
    translator.check(options)  # before anything is read
    windows: Windows | Generator[Sequence[Line], None, None] = ([line] for line in lines)
    if not line_buffered:
        windows = Windows(lines, workers.number if workers else 1, patient=patient)
    done = _Progress(progress)
    with closing(windows):
        if workers:
            yield from _by_workers(translator, windows, done, workers)
            return
        for window in windows:
            translator.translate_window(window, options, ready=lambda line: done.report(size_of(line)))
            yield make(window, options)


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
    """Counts translated lines and their bytes, in several threads."""

    def __init__(self, progress: Callable[[float, float], None]) -> None:
        self._progress, self._lock = progress, threading.Lock()
        self._lines = self._size = 0

    def add(self, *sizes: int) -> None:
        with self._lock:
            self._lines += len(sizes)
            self._size += sum(sizes)

    def report(self, *sizes: int) -> None:
        """Adds lines of these sizes, and reports the sum."""
        self.add(*sizes)
        self._progress(self._lines, self._size)


# Copies of this process.


def workers_for(
    translator: Translator,
    options: TranslateOptions,
    processes: int,
    threads: int = 1,
    make: Make[Any] = written,
) -> Workers[Any]:
    """Returns that many copies of this process, each with `threads` threads, for `translate_windows`."""

    def answer(lines: Sequence[Line], done: Callable[[int], None]) -> tuple[Any, Counts, list[str]]:
        set_threads(threads)
        translator.console, translator.counts = _Recorder(), Counts()
        translator.translate_window(lines, options, ready=lambda line: done(size_of(line)))
        return make(lines, options), translator.counts, translator.console.warnings

    advice = "try again with fewer `processes` or a smaller `batch_tokens`"
    return WorkerPool(answer, processes, "translating", advice)


class _Recorder(Console):
    """The console of a copy, whose warnings go to the process that was started."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def _by_workers(
    translator: Translator,
    windows: Iterator[Sequence[Line]],
    done: _Progress,
    workers: Workers[T],
) -> Iterator[T]:
    """Yields what the workers make of each window, in order; collects their counts and warnings.

    A thread per worker takes the next window when its worker is free. At most two windows per worker are taken and
    not yet yielded.
    """
    order: queue.SimpleQueue[Future[tuple[float, T, Counts, list[str]] | None]] = queue.SimpleQueue()
    room, turn = threading.Semaphore(2 * workers.number), threading.Lock()

    def work() -> None:
        answer: Future[tuple[float, T, Counts, list[str]] | None]
        window: Sequence[Line] | None = []
        while window is not None:
            answer = Future()
            try:
                with turn:
                    room.acquire()
                    order.put(answer)
                    window = next(windows, None)
                began = time.monotonic()
                answer.set_result((began, *workers.call(window, done.add)) if window else None)
            except BaseException as error:
                answer.set_exception(error)
                return

    for _ in range(workers.number):
        threading.Thread(target=work, daemon=True).start()
    until = 0.0  # when the last window was done
    try:
        while True:
            answer = order.get()
            while not wait([answer], POLL).done:
                done.report()
            if (result := answer.result()) is None:
                return
            began, made, counts, warnings = result
            for warning in warnings:
                if translator.console:
                    translator.console.warn(warning)
            translator.counts.add(counts)
            now = time.monotonic()
            translator.counts.seconds += now - max(began, until)
            until = now
            done.report()
            yield made
            room.release()
    finally:
        room.release(workers.number)  # the threads end, once the windows are closed


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
    asked, sources = tee(sources)  # one is at most a window behind
    total = 0.0
    for t, source in zip(translator.logprob(asked, targets, done, to=to), sources, strict=False):
        write_line(stream, rendered(source, [t], "json")[0] if as_json else f"{t.logprob:.6f}\t{t.score:.6f}")
        total += math.fsum(t.token_logprobs)
    stream.flush()
    return total
