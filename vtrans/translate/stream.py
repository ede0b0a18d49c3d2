"""Translates a stream of lines to a stream of lines, in order.

Several processes, copies of this one, may take turns at the windows (`workers`); this process reads and writes. Line
numbers and counts do not depend on the number of processes. Neither does the output, except that other batches may
change the last bits of a float32 sum, and so choose another of two translations whose scores are equal up to these
bits.
"""

from __future__ import annotations

import io
import json
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

from vtrans.config.threads import check_processes, default_processes, set_threads, why_not_forked
from vtrans.config.threads import threads as usual_threads
from vtrans.engines.alignments import pharaoh
from vtrans.engines.engine import Engine
from vtrans.system.errors import VtransError
from vtrans.system.process_memory import available_memory
from vtrans.system.signals import uninterrupted
from vtrans.system.workers import Tell, WorkerPool
from vtrans.text.lines import write_line
from vtrans.translate.steps.line import Counts, Line
from vtrans.translate.translation import Form, TranslateOptions, Translation
from vtrans.translate.translator import DEFAULT_OPTIONS, Translator

LINE_COST = 32  # a line costs about as much as 32 more bytes of text
WINDOW_COST = 200_000  # 2,000 lines of 68 bytes: enough for batches of similar length, few enough to wait for

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
    complete: bool = True,
    advance: Callable[[int], None] = lambda size: None,
    workers: Workers[T] | None = None,
) -> Generator[T, None, None]:
    """Yields what `make` returns for each window of lines, in order.

    `line_buffered` translates each line before the next is read. Otherwise windows are those of `Windows`, where
    `complete` is described. `advance` is called with the size of each line that is translated, by one thread at a time.
    `workers` are those of `workers_for`, with the same translator, options and `make`.
    """
    translator.check(options)  # before anything is read
    windows: Windows | Generator[Sequence[Line], None, None] = ([line] for line in lines)
    if not line_buffered:
        windows = Windows(lines, workers.number if workers else 1, complete=complete)
    with closing(windows):
        if workers:
            yield from _by_workers(translator, windows, advance, workers)
            return
        for window in windows:
            translator.translate_window(window, options, ready=lambda line: advance(size_of(line)))
            yield make(window, options)


def written(lines: Sequence[Line], options: TranslateOptions) -> bytes:
    """Returns translations as they are written. Raises VtransError if a line has lost one."""
    block = io.BytesIO()
    for line in lines:
        if len(line.translations) != options.nbest:
            raise VtransError(
                f"line {line.number} has lost a translation: it needs {options.nbest} and has {len(line.translations)}."
            )
        for text in rendered(line.text, line.translations, options.form):
            write_line(block, text)
    return block.getvalue()


def rendered(source: str, translations: Sequence[Translation], form: Form) -> Iterator[str]:
    """Yields the lines of output for one line of input: one per translation, or a single one for "json".

    An alignment is written before the text, in a column of its own.
    """
    if form == "json":
        fields = {"source": source, "translations": [t.as_dict() for t in translations]}
        yield json.dumps(fields, ensure_ascii=False)
        return
    for t in translations:
        numbers = {"text": (), "scores": (t.score,), "tsv": (t.logprob, t.score), "confidence": (t.confidence or 0.0,)}
        columns = [f"{number:.6f}" for number in numbers[form]]
        if t.alignment is not None:
            columns.append(pharaoh(t.alignment))
        yield "\t".join((*columns, t.text))


# Windows of lines.


class Windows(Iterator[Sequence[Line]]):
    """Lines in windows of about WINDOW_COST or less, in order; only a single line may cost much more.

    A thread reads lines that cost `parts` windows ahead, and a window takes one part of the lines that are ahead. If
    the input is not `complete`, these are the lines that have arrived, at least one. Otherwise the thread reads as far
    as it may before, so that windows do not depend on time. An exception while reading is raised after the lines before
    it. One thread at a time may ask for the next window.
    """

    def __init__(self, lines: Iterable[Line], parts: int = 1, *, complete: bool = True) -> None:
        self._parts, self._complete = parts, complete
        self._ahead: deque[tuple[Line, int]] = deque()  # with their costs, in bytes of text
        self._cost = 0  # of the lines ahead
        self._most = parts * WINDOW_COST
        self._end: BaseException | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()

    def _read(self, lines: Iterable[Line]) -> None:
        end: BaseException = StopIteration()
        try:
            for line in lines:
                with self._changed:
                    self._changed.wait_for(lambda: self._end or self._cost < self._most)
                    if self._end:
                        return
                    cost = size_of(line) + LINE_COST
                    self._ahead.append((line, cost))
                    self._cost += cost
                    if not self._complete or self._cost >= self._most:
                        self._changed.notify_all()
        except BaseException as error:
            end = error
        with self._changed:
            self._end = self._end or end
            self._changed.notify_all()

    def __next__(self) -> Sequence[Line]:
        with self._changed:
            self._changed.wait_for(lambda: self._end or (self._cost >= self._most if self._complete else self._ahead))
            if self._end and not self._ahead:
                raise self._end
            window: list[Line] = []
            whole = self._cost
            while self._ahead and (whole - self._cost) * self._parts < whole:
                line, cost = self._ahead.popleft()
                window.append(line)
                self._cost -= cost
            self._changed.notify_all()
            return window

    def close(self) -> None:
        """Drops the remaining lines, and ends the thread at its next line."""
        with self._changed:
            self._ahead.clear()
            self._end = self._end or StopIteration()
            self._changed.notify_all()


def size_of(line: Line) -> int:
    """Returns the bytes of a line with its line end."""
    return len(line.text.encode("utf-8", "surrogatepass")) + 1


# Copies of this process.


@dataclass(frozen=True)
class Division:
    """How translating on a CPU is divided between processes and threads."""

    processes: int
    threads: int  # of each
    asked: bool  # whether the user chose the number of processes

    def copies(self, engine: Engine) -> int:
        """Returns the number of copies of this process that translate, 0 if it translates itself. Raises InputError if
        the user wants several, but the model is not on the CPU."""
        if self.processes == 1:
            return 0
        if engine.device == "cpu":
            return self.processes
        if self.asked:
            check_processes(self.processes, f"the model is on {engine.device}")
        set_threads(self.processes * self.threads)
        return 0


def divide(processes: int | None, threads: int | None, reason: str = "", *, prefer_one: bool = False) -> Division:
    """Returns the processes that will translate on a CPU, and gives this process the threads with which they compute.

    `reason` says why only one process can translate, and is empty if several can; `prefer_one` makes one the default.
    Raises InputError if the number that the user chose is not possible.
    """
    reason = reason or why_not_forked()
    check_processes(processes, reason)
    set_threads(threads)
    alone = reason or prefer_one or threads
    number = processes or (1 if alone else default_processes(usual_threads(), available_memory()))
    if number > 1:
        set_threads(1)  # kernels are chosen for what the copies will use
    return Division(number, threads or usual_threads(), processes is not None)


def workers_for(
    translator: Translator, options: TranslateOptions, division: Division, make: Make[Any] = written
) -> Workers[Any] | nullcontext[None]:
    """Returns the copies of this process for `translate_windows`, or None if it translates itself."""

    def answer(lines: Sequence[Line], tell: Tell) -> tuple[Any, Counts, list[str]]:
        set_threads(division.threads)
        translator.console, translator.counts = None, Counts()
        translator.translate_window(lines, options, ready=lambda line: tell(size_of(line)))
        return make(lines, options), translator.counts, [warning for line in lines for warning in line.warnings]

    advice = "try again with fewer `processes` or a smaller `batch_tokens`"
    copies = division.copies(translator.engine)
    return WorkerPool(answer, copies, "translating", advice) if copies else nullcontext()


def _by_workers(
    translator: Translator, windows: Iterator[Sequence[Line]], advance: Callable[[int], None], workers: Workers[T]
) -> Iterator[T]:
    """Yields what the workers make of each window, in order; collects their counts and warnings.

    One thread takes windows, and a thread per worker waits for an answer. At most two windows per worker are taken and
    not yet yielded.
    """
    order: queue.SimpleQueue[Future[tuple[T, Counts, list[str]]] | None] = queue.SimpleQueue()
    room, turn = threading.Semaphore(2 * workers.number), threading.Lock()
    threads = ThreadPoolExecutor(workers.number + 1)

    def hear(size: int) -> None:
        with turn:
            advance(size)

    def take() -> None:
        try:
            while room.acquire() and (window := next(windows, None)):
                order.put(threads.submit(workers.call, window, hear))
        finally:
            order.put(None)

    try:
        taken = threads.submit(take)
        while future := order.get():
            began = time.monotonic()
            made, counts, warnings = future.result()
            for warning in warnings:
                if translator.console:
                    translator.console.warn(warning)
            translator.counts.add(counts)
            yield made
            translator.counts.seconds += time.monotonic() - began
            room.release()
        taken.result()  # raises what the reader has raised
    finally:
        room.release()
        threads.shutdown(wait=False, cancel_futures=True)
