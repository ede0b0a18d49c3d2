"""Translates a stream of lines to a stream of lines, in order.

Several processes, copies of this one, may divide each window (`workers`); this process reads and writes. Line numbers
and counts do not depend on the number of processes. Neither does the output, except that other batches may change the
last bits of a float32 sum, and so choose another of two translations whose scores are equal up to these bits.
"""

from __future__ import annotations

import dataclasses
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
from typing import Any, BinaryIO

import torch

from vtrans.console import Console
from vtrans.errors import VtransError
from vtrans.processes.signals import uninterrupted
from vtrans.processes.workers import Copies, Task
from vtrans.text.lines import write_line
from vtrans.translate.asked import Constraints, beside
from vtrans.translate.translation import Counts, TranslateOptions, rendered
from vtrans.translate.translator import DEFAULT_OPTIONS, WINDOW, Translator
from vtrans.translate.windows import WINDOW_BYTES, size_of, windows

LINE_COST = 32  # a line costs about as much as 32 more bytes of text
AHEAD = 2  # windows under way at a time
POLL = 0.2  # seconds between two reports of progress


def translate_stream(
    translator: Translator,
    lines: Iterable[str],
    stream: BinaryIO,
    options: TranslateOptions = DEFAULT_OPTIONS,
    *,
    prefixes: Iterable[str] | None = None,
    constraints: Iterable[Constraints] | None = None,
    first: int = 1,
    line_buffered: bool = False,
    patient: bool = False,
    progress: Callable[[float, float], None] = lambda lines, size: None,
    workers: Workers | None = None,
) -> None:
    """Writes the translations of `lines` to `stream` as whole lines, and flushes it after each window.

    `prefixes` and `constraints` are those of `Translator.nbest`. `first` is the number of the first line.
    `line_buffered` translates each line before the next is read; `patient` waits for full windows however long they
    take, so that batches do not depend on time. `progress` is called with the lines and bytes translated so far.
    `workers` are those of `workers_for`, with the same translator and options. Ctrl-C and SIGTERM never leave part of
    a line.
    """
    processes = workers.number if workers else 1
    counted = _Progress(progress)
    waiting = {"idle": threading.TIMEOUT_MAX, "patience": threading.TIMEOUT_MAX} if patient else {}
    received = windows(lines, 1 if line_buffered else WINDOW * processes, most=WINDOW_BYTES * processes, **waiting)
    requests = _requests(beside(received, prefixes, constraints), first)
    if workers:
        translated = _by_workers(translator, requests, counted, workers)
    else:
        translated = (_here(translator, request, options, counted) for request in requests)
    for block in translated:
        with uninterrupted():
            stream.write(block)
            stream.flush()
        counted.end()


def _requests(
    windows: Iterable[tuple[list[str], list[str] | None, list[Constraints] | None]], first: int
) -> Iterator[_Request]:
    for window, prefixes, constraints in windows:
        yield _Request(first, window, prefixes, constraints)
        first += len(window)


def _here(translator: Translator, request: _Request, options: TranslateOptions, counted: _Progress) -> bytes:
    """Returns the translations of a window by this process."""
    counted.begin(request.lines)
    return _translate(translator, request, options, counted.step)


class _Progress:
    """Counts sentences within a window, then whole windows."""

    def __init__(self, report: Callable[[float, float], None]) -> None:
        self._report = report
        self._lines = self._size = 0  # of earlier windows
        self._more = self._weight = 0  # of this window
        self._steps = 0

    def begin(self, window: Sequence[str]) -> None:
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


# One process.


@dataclass(frozen=True)
class _Request:
    """Lines that one process translates together; `first` is the number of the first."""

    first: int
    lines: Sequence[str]
    prefixes: Sequence[str] | None = None
    constraints: Sequence[Constraints] | None = None

    def part(self, share: range) -> _Request:
        """Returns the request for some of the lines."""
        part = slice(share.start, share.stop)
        return _Request(
            self.first + share.start,
            self.lines[part],
            None if self.prefixes is None else self.prefixes[part],
            None if self.constraints is None else self.constraints[part],
        )


def _translate(
    translator: Translator, request: _Request, options: TranslateOptions, done: Callable[[], None] = lambda: None
) -> bytes:
    """Returns the translations as they are written. Raises VtransError if a line is lost."""
    block, first = io.BytesIO(), request.first
    results = translator.translate_window(
        request.lines, options, first=first, prefixes=request.prefixes, constraints=request.constraints, done=done
    )
    for i, translations in enumerate(results):
        for text in rendered(request.lines[i], translations, options.form):
            write_line(block, text)
    written, expected = block.getvalue().count(b"\n"), len(request.lines) * options.lines
    if written != expected:
        raise VtransError(
            f"lines {first} to {first + len(request.lines) - 1} must give {expected} lines of output, got {written}."
        )
    return block.getvalue()


def _add(counts: Counts, more: Counts) -> None:
    """Adds the counts of another process. Their times overlap, so `seconds` stays."""
    for field in dataclasses.fields(counts):
        if field.name != "seconds":
            setattr(counts, field.name, getattr(counts, field.name) + getattr(more, field.name))


# Copies of this process.


@dataclass(frozen=True)
class _Answer:
    """What a worker sends back for a request."""

    block: bytes
    counts: Counts
    warnings: list[str]


Workers = Copies[_Request, _Answer]


def workers_for(translator: Translator, options: TranslateOptions, processes: int, threads: int = 1) -> Workers:
    """Returns that many copies of this process, each with `threads` threads, for `translate_stream`."""
    recorder = _Recorder()

    def answer(request: _Request, done: Callable[[], None]) -> _Answer:
        if translator.console is not recorder:
            torch.set_num_threads(threads)
            translator.console = recorder
        translator.counts = Counts()
        block = _translate(translator, request, options, done)
        return _Answer(block, translator.counts, recorder.taken())

    advice = "try again with fewer `processes` or a smaller `batch_tokens`"
    return Copies(answer, processes, "translating", advice)


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
    translator: Translator, requests: Iterator[_Request], counted: _Progress, workers: Workers
) -> Iterator[bytes]:
    """Yields the translations of each request; collects the counts and warnings of the workers."""
    until = 0.0  # when the last window was done
    for window, began, tasks in _submitted(requests, workers):
        counted.begin(window)
        steps, blocks, counts = 0, [], translator.counts
        for task in tasks:
            while not wait([task], POLL).done:
                more = sum(other.steps for other in tasks) - steps
                counted.step(more)
                steps += more
            answer = task.result()
            for warning in answer.warnings:
                if translator.console:
                    translator.console.warn(warning)
            _add(counts, answer.counts)
            blocks.append(answer.block)
        now = time.monotonic()
        counts.seconds += now - max(began, until)
        until = now
        yield b"".join(blocks)


def _submitted(
    requests: Iterator[_Request], workers: Workers
) -> Iterator[tuple[Sequence[str], float, list[Task[_Answer]]]]:
    """Yields the lines of each request, the time at which it was submitted, and its tasks.

    A thread reads and submits requests ahead, so that a worker that is done with its share of a window starts on the
    next one, and so that translations are written while the input waits.
    """
    ahead: queue.SimpleQueue[Any] = queue.SimpleQueue()
    free, stopped = threading.Semaphore(AHEAD), threading.Event()

    def submit() -> None:
        try:
            for request in requests:
                free.acquire()
                if stopped.is_set():
                    return
                parts = [request.part(share) for share in shares(request.lines, workers.number) if share]
                ahead.put((request.lines, time.monotonic(), [workers.submit(part) for part in parts]))
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


def shares(window: Sequence[str], processes: int) -> list[range]:
    """Returns consecutive shares of a window that cost about the same; some are empty if there are few lines."""
    costs = [size_of(line) + LINE_COST for line in window]
    total, cuts, cost = sum(costs), [0], 0
    for i, cost_of_line in enumerate(costs):
        # A line belongs to the process whose part of the total cost contains its middle.
        while cost + cost_of_line / 2 >= len(cuts) * total / processes:
            cuts.append(i)
        cost += cost_of_line
    cuts += [len(window)] * (processes + 1 - len(cuts))
    return [range(start, stop) for start, stop in pairwise(cuts)]


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
