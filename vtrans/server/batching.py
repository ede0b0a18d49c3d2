"""Translates the lines of many requests together.

A `Worker` owns one model, and a thread for each batch that may be translated at a time. Requests wait in a queue; a
thread takes lines from all of them in turn, so that a long request does not hold up a short one, and translates them as
one batch.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vtrans.errors import VtransError
from vtrans.wording.glossary import Glossary

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
    """What a request wants of each line: the number of translations, whether with word alignments, and the request's
    own glossary."""

    nbest: int = 1
    alignments: bool = False
    glossary: Glossary | None = None


Ready = Callable[[int, Sequence[Translated]], None]
Translate = Callable[[Sequence[str], Wanted, Ready], Sequence[Sequence[Translated]]]
"""Returns the translations of lines. It may call the last argument with the index of a line and its translations when
it has them."""


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


class Slots:
    """The number of batches that are translated at a time by the workers that share these slots."""

    def __init__(self, number: int = 1) -> None:
        self.number = self._idle = number
        self.free = threading.Semaphore(number)  # held by threads that translate, or take lines to translate
        self._changing = threading.Lock()

    def share(self, lines: int) -> int:
        """Returns how many of the lines that wait one slot takes. Idle slots share them, so that none idles while
        another has all of them."""
        with self._changing:
            return math.ceil(lines / max(self._idle, 1))

    def use(self, number: int) -> None:
        """Counts slots that begin a batch, or, if `number` is negative, end one."""
        with self._changing:
            self._idle -= number


class Worker:
    """Translates in threads of its own what coroutines ask for. `nbest` is the most translations of a line, and
    `glossaries` says whether requests may have glossaries.

    At most one thread per slot calls `translate` at the same time.
    """

    def __init__(
        self, translate: Translate, nbest: int = 1, slots: Slots | None = None, *, glossaries: bool = True
    ) -> None:
        self.nbest, self.glossaries = nbest, glossaries
        self.counts = Counts()
        self._translate = translate
        self._slots = slots or Slots()
        self._jobs: deque[_Job] = deque()  # those with lines that have not been taken
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(self._slots.number)]
        for thread in self._threads:
            thread.start()

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
            self._changed.notify_all()
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
        """The time until the next line is done while all slots are in use."""
        return self.counts.seconds / self.counts.lines / self._slots.number if self.counts.lines else 0.0

    def close(self) -> None:
        """Ends the threads after the lines that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while self._lines_come():
            with self._slots.free:
                if not (batch := self._take()):
                    continue
                began = time.monotonic()
                self._work(batch)
                self._slots.use(-1)
            with self._changed:
                self.counts.seconds += time.monotonic() - began
                self.counts.lines += len(batch)
                self.counts.batches += 1

    def _lines_come(self) -> bool:
        """Waits for lines, and a moment for more of them. Returns False once the worker is closed and none are left."""
        with self._changed:
            while not self._jobs:
                if self._closed:
                    return False
                self._changed.wait()
                self._changed.wait_for(lambda: self._closed or self._lines_waiting() >= WINDOW, GATHER)
            return True

    def _take(self) -> list[tuple[_Job, int]]:
        """Returns some of the waiting lines, all with the same `wanted`, in turns of one from each request; none if
        other threads have taken them all."""
        taken: list[tuple[_Job, int]] = []
        with self._changed:
            if not self._jobs:
                return taken
            most = min(WINDOW, self._slots.share(self._lines_waiting()))
            self._slots.use(1)
            wanted = self._jobs[0].wanted
            others: deque[_Job] = deque()
            while self._jobs and len(taken) < most:
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
            self._translate_batch(batch)
        except Exception as error:
            jobs = {id(job): job for job, _ in batch}
            if len(jobs) == 1:
                (job,) = jobs.values()
                job.error = error
                job.loop.call_soon_threadsafe(job.settle)
                return
            for own in jobs.values():
                self._work([(job, i) for job, i in batch if job is own])

    def _translate_batch(self, batch: Sequence[tuple[_Job, int]]) -> None:
        def ready(k: int, translations: Sequence[Translated]) -> None:
            job, i = batch[k]
            if i in job.found:
                return
            job.found[i] = list(translations)
            if len(job.found) == len(job.lines):
                job.loop.call_soon_threadsafe(job.settle)

        found = self._translate([job.lines[i] for job, i in batch], batch[0][0].wanted, ready)
        for k, (_, translations) in enumerate(zip(batch, found, strict=True)):
            ready(k, translations)
