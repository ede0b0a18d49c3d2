"""Translates a stream of lines, in order.

Worker processes, which are copies of this one, may translate the windows (`workers`); this process reads and writes.
Line numbers, counts and output do not depend on the number of processes, with one exception: another batch may change
the last bits of a float32 sum, and thus the choice between two translations whose scores differ only in these bits.
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
from vtrans.system.devices import on_cpu
from vtrans.system.errors import VtransError
from vtrans.system.resources import available_memory
from vtrans.system.signals import uninterrupted
from vtrans.system.workers import Tell, WorkerPool
from vtrans.text.lines import write_line
from vtrans.translate.steps.line import Counts, Line
from vtrans.translate.translation import Form, TranslateOptions, Translation
from vtrans.translate.translator import DEFAULT_OPTIONS, Translator

LINE_COST = 32  # the fixed cost of a line, in bytes of text
WINDOW_COST = 200_000  # 2,000 lines of 68 bytes: enough for batches of similar length, few enough to wait for

T = TypeVar("T")
Make = Callable[[Sequence[Line], TranslateOptions], T]
"""Converts translated lines, for example to bytes, in the process that translated them."""
Workers = WorkerPool[Sequence[Line], tuple[T, Counts, list[str]]]
"""Copies of this process. For each window, they return its converted lines, its counts and its warnings."""


def translate_stream(
    translator: Translator,
    lines: Iterable[Line],
    stream: BinaryIO,
    options: TranslateOptions = DEFAULT_OPTIONS,
    **settings: Any,
) -> None:
    """Writes the translations of `lines` to `stream`, and flushes it after each window.

    See `translate_windows` for the settings. Ctrl-C and SIGTERM never leave a partial line.
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
    complete: bool = True,
    advance: Callable[[int], None] = lambda size: None,
    workers: Workers[T] | None = None,
) -> Generator[T, None, None]:
    """Yields the result of `make` for each window of lines, in order.

    See `Windows` for `complete`. `advance` is called with the size in bytes of each translated line, by one thread at a
    time. `workers` come from `workers_for`, called with the same translator, options and `make`.
    """
    translator.check(options)  # fail before reading
    with closing(Windows(lines, workers.number if workers else 1, complete=complete)) as windows:
        if workers:
            yield from _by_workers(translator, windows, advance, workers)
            return
        for window in windows:
            translator.translate_window(window, options, ready=lambda line: advance(size_of(line)))
            yield make(window, options)


def written(lines: Sequence[Line], options: TranslateOptions) -> bytes:
    """Returns the output bytes of translated lines. Raises VtransError if a line has lost a translation."""
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

    An alignment has its own column before the text.
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


class Windows(Iterator[Sequence[Line]]):
    """Groups lines into windows of at most about WINDOW_COST, in order; only a single line may cost much more.

    A thread reads lines ahead, up to the cost of `parts` windows, and a window takes 1 / `parts` of the lines read
    ahead. If the input is not `complete`, a window does not wait for a second line. Otherwise it waits until the
    thread has read as far as it may, so that windows do not depend on timing. An exception while reading is raised
    after the lines before it. Only one thread at a time may request a window.
    """

    def __init__(self, lines: Iterable[Line], parts: int = 1, *, complete: bool = True) -> None:
        self._parts, self._complete = parts, complete
        self._ahead: deque[tuple[Line, int]] = deque()  # lines with their costs, in bytes of text
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
        """Drops the remaining lines, and stops the thread at its next line."""
        with self._changed:
            self._ahead.clear()
            self._end = self._end or StopIteration()
            self._changed.notify_all()


def size_of(line: Line) -> int:
    """Returns the size of a line in bytes, including its line end."""
    return len(line.text.encode("utf-8", "surrogatepass")) + 1


# Copies of this process.


@dataclass(frozen=True)
class Division:
    """The processes and threads that translate on a CPU."""

    processes: int
    threads: int  # per process


def divide(
    processes: int | None, threads: int | None, device: str | None = None, *, prefer_one: bool = False
) -> Division:
    """Returns the division of translating on this device, and sets the number of threads. `prefer_one` makes one
    process the default. Raises InputError if the user's number of processes is not possible."""
    reason = why_not_forked() if on_cpu(device) else "a GPU may be used unless `device` is cpu"
    check_processes(processes, reason)
    set_threads(threads)
    alone = reason or prefer_one or threads
    number = processes or (1 if alone else default_processes(usual_threads(), available_memory()))
    if number > 1:
        set_threads(1)  # kernels are chosen for the workers' number of threads
    return Division(number, threads or usual_threads())


def workers_for(
    translator: Translator, options: TranslateOptions, division: Division, make: Make[Any] = written
) -> Workers[Any] | nullcontext[None]:
    """Returns the workers for `translate_windows`, or a null context if this process translates."""

    def answer(lines: Sequence[Line], tell: Tell) -> tuple[Any, Counts, list[str]]:
        set_threads(division.threads)
        translator.console, translator.counts = None, Counts()
        translator.translate_window(lines, options, ready=lambda line: tell(size_of(line)))
        return make(lines, options), translator.counts, [warning for line in lines for warning in line.warnings]

    advice = "try again with fewer `processes` or a smaller `batch_tokens`"
    return WorkerPool(answer, division.processes, "translating", advice) if division.processes > 1 else nullcontext()


def _by_workers(
    translator: Translator, windows: Iterator[Sequence[Line]], advance: Callable[[int], None], workers: Workers[T]
) -> Iterator[T]:
    """Yields the workers' result for each window, in order; collects their counts and warnings.

    One thread takes windows, and one thread per worker waits for a result. At most two windows per worker are in
    progress.
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
        taken.result()  # re-raises an exception of the reader
    finally:
        room.release()
        threads.shutdown(wait=False, cancel_futures=True)
