"""Translates the lines of many requests together.

A `Worker` owns one model and a thread. Requests wait in a queue; the worker takes lines from all of them in turn, so
that a long request does not hold up a short one, and translates them as one batch.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vtrans.errors import VtransError

WINDOW = 64  # lines translated together: more are hardly faster per line, and wait longer for the slowest
GATHER = 0.003  # seconds that a first line waits for others


class Translated(Protocol):
    """A translation, as the server sees it."""

    @property
    def text(self) -> str: ...

    @property
    def alignment(self) -> tuple[tuple[int, int], ...] | None: ...


Found = list[Translated]
"""The translations of a line, best first."""


@dataclass(frozen=True)
class Wanted:
    """What a request wants of each line: the number of translations, and whether with word alignments."""

    nbest: int = 1
    alignments: bool = False


Translate = Callable[[Sequence[str], Wanted], Sequence[Sequence[Translated]]]


@dataclass
class Counts:
    """What a worker has done."""

    lines: int = 0
    batches: int = 0
    seconds: float = 0.0


@dataclass(eq=False)
class _Job:
    """The lines of one request."""

    lines: Sequence[str]
    wanted: Wanted
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[list[Found]]
    taken: int = 0
    found: dict[int, Found] = field(default_factory=dict)
    error: Exception | None = None

    def settle(self) -> None:
        """Answers the request, in the thread of its event loop."""
        if self.answer.done():  # cancelled
            return
        if self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result([self.found[i] for i in range(len(self.lines))])


class Worker:
    """Translates in a thread of its own what coroutines ask for. `nbest` is the most translations of a line."""

    def __init__(self, translate: Translate, nbest: int = 1) -> None:
        self.nbest = nbest
        self.counts = Counts()
        self._translate = translate
        self._jobs: deque[_Job] = deque()  # those with lines that have not been taken
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    async def translate(self, lines: Sequence[str], wanted: Wanted) -> list[Found]:
        """Returns the translations of lines that are not blank. If it is cancelled, lines that still wait are dropped.

        Raises what the model raises.
        """
        if not lines:
            return []
        loop = asyncio.get_running_loop()
        job = _Job(lines, wanted, loop, loop.create_future())
        with self._changed:
            if self._closed:
                raise VtransError("the server is stopping; try again later.")
            self._jobs.append(job)
            self._changed.notify()
        try:
            return await job.answer
        finally:
            with self._changed:
                if job in self._jobs:
                    self._jobs.remove(job)

    @property
    def waiting(self) -> int:
        """The lines that wait to be taken."""
        with self._changed:
            return self._lines_waiting()

    def _lines_waiting(self) -> int:
        return sum(len(job.lines) - job.taken for job in self._jobs)

    @property
    def seconds_per_line(self) -> float:
        return self.counts.seconds / self.counts.lines if self.counts.lines else 0.0

    def close(self) -> None:
        """Ends the thread after the lines that it has taken."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._take():
            began = time.monotonic()
            self._work(batch)
            self.counts.seconds += time.monotonic() - began
            self.counts.lines += len(batch)
            self.counts.batches += 1
            for job in {id(job): job for job, _ in batch}.values():
                if job.error is not None or len(job.found) == len(job.lines):
                    job.loop.call_soon_threadsafe(job.settle)

    def _take(self) -> list[tuple[_Job, int]]:
        """Waits for lines and returns some of those that want the same, in turns of one from each request; none once
        the worker is closed."""
        taken: list[tuple[_Job, int]] = []
        with self._changed:
            while not self._jobs:
                if self._closed:
                    return taken
                self._changed.wait()
                self._changed.wait_for(lambda: self._closed or self._lines_waiting() >= WINDOW, GATHER)
            wanted = self._jobs[0].wanted
            others: deque[_Job] = deque()
            while self._jobs and len(taken) < WINDOW:
                job = self._jobs.popleft()
                if job.wanted != wanted:
                    others.append(job)
                    continue
                taken.append((job, job.taken))
                job.taken += 1
                if job.taken < len(job.lines):
                    self._jobs.append(job)
            self._jobs.extendleft(reversed(others))
            return taken

    def _work(self, batch: list[tuple[_Job, int]]) -> None:
        """Translates a batch, or each request's part of it by itself if that fails."""
        try:
            self._record(batch)
        except Exception as error:
            jobs = {id(job): job for job, _ in batch}
            if len(jobs) == 1:
                batch[0][0].error = error
                return
            for own in jobs.values():
                self._work([(job, i) for job, i in batch if job is own])

    def _record(self, batch: Sequence[tuple[_Job, int]]) -> None:
        found = self._translate([job.lines[i] for job, i in batch], batch[0][0].wanted)
        for (job, i), translations in zip(batch, found, strict=True):
            job.found[i] = list(translations)
