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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vtrans.documents.document import Translated
from vtrans.documents.translating import Nbest
from vtrans.errors import VtransError
from vtrans.text.matches import Match
from vtrans.wording.glossary import Glossary

WINDOW = 64  # lines per batch: larger batches are hardly faster per line, and wait longer for the slowest line
CHARACTERS = 8000  # a batch takes no more lines after so many characters, so that others do not wait for it long
LONG = 1000  # a line of more characters is long
GATHER = 0.003  # seconds that a first line waits for others


@dataclass(frozen=True)
class Wanted:
    """What a request wants of each line: the number of translations, whether with word alignments, the request's own
    glossary, search settings that replace the model's, as pairs of name and value, and the fuzzy matches of lines. Only
    lines of requests that want the same are translated together."""

    nbest: int = 1
    alignments: bool = False
    glossary: Glossary | None = None
    search: tuple[tuple[str, Any], ...] = ()
    matches: tuple[tuple[str, Match], ...] = ()


class Ready(Protocol):
    """Receives the translations of a batch, and tells whether they are still needed."""

    def __call__(self, k: int, translations: Sequence[Translated], /) -> None:
        """Takes the translations of line `k`."""

    def abandoned(self) -> bool:
        """Returns whether every line that is not ready belongs to a request whose client has gone."""


Translate = Callable[[Sequence[str], Wanted, Ready], Sequence[Sequence[Translated]]]
"""Returns the translations of lines. It may call the last argument with a line's translations as soon as it has them,
and raise any exception once the batch is abandoned."""


@dataclass
class Counts:
    """What a worker has done."""

    lines: int = 0
    batches: int = 0
    seconds: float = 0.0


class _Job:
    """The lines of one request."""

    def __init__(self, lines: Sequence[str], wanted: Wanted) -> None:
        self.lines, self.wanted = lines, wanted
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[list[Nbest]] = self.loop.create_future()
        self.left: dict[bool, deque[int]] = {False: deque(), True: deque()}  # the lines that wait, by whether long
        for i, line in enumerate(lines):
            self.left[len(line) > LONG].append(i)
        self.translations: dict[int, Nbest] = {}
        self.error: Exception | None = None
        self.gone = False  # whether it was answered or cancelled

    @property
    def waiting(self) -> int:
        return sum(map(len, self.left.values()))

    def settle(self) -> None:
        """Answers the request, in the thread of its event loop."""
        if self.answer.done():
            return
        if self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result([self.translations[i] for i in range(len(self.lines))])


@dataclass
class _Batch:
    """Lines that are translated together: short ones of several requests with the same `wanted`, or a long one."""

    lines: list[tuple[_Job, int]]
    long: bool = False

    def __call__(self, k: int, translations: Sequence[Translated], /) -> None:
        job, i = self.lines[k]
        if i not in job.translations:
            job.translations[i] = list(translations)
            if len(job.translations) == len(job.lines):
                job.loop.call_soon_threadsafe(job.settle)

    def abandoned(self) -> bool:
        return not any(self._is_wanted(job, i) for job, i in self.lines)

    @staticmethod
    def _is_wanted(job: _Job, i: int) -> bool:
        return not job.gone and i not in job.translations

    def translate(self, translate: Translate) -> None:
        """Translates the lines, or each request's part of them by itself if that fails."""
        try:
            wanted = self.lines[0][0].wanted
            for k, translations in enumerate(translate([job.lines[i] for job, i in self.lines], wanted, self)):
                self(k, translations)
        except Exception as error:
            left = [(job, i) for job, i in self.lines if self._is_wanted(job, i)]
            jobs = list(dict.fromkeys(job for job, _ in left))
            if len(jobs) == 1:
                jobs[0].error = error
                jobs[0].loop.call_soon_threadsafe(jobs[0].settle)
                return
            for job in jobs:
                _Batch([line for line in left if line[0] is job]).translate(translate)


class Slots:
    """The number of batches that are translated at a time by the workers that share these slots. Long lines take at
    most half of them, so that others do not wait for all the long ones."""

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self.changed = threading.Condition()  # a slot or the lines that wait; guards all of them
        self.used = {False: 0, True: 0}  # by batches of short lines, and by long lines
        self._last = False  # whether the last batch was a long line

    @property
    def idle(self) -> int:
        return self.number - sum(self.used.values())

    def kind(self, waiting: Mapping[bool, int]) -> bool | None:
        """Returns whether the next batch is a long line, given the lines that wait; None if there must be none now.
        Short and long lines take turns."""
        free = {False: self.idle > 0, True: self.idle > 0 and self.used[True] < max(1, self.number // 2)}
        kinds = [long for long in (not self._last, self._last) if waiting[long] and free[long]]
        return kinds[0] if kinds else None

    def take(self, long: bool) -> None:
        """Counts a batch that begins."""
        self.used[long] += 1
        self._last = long

    def give_back(self, long: bool) -> None:
        """Counts a batch that ends."""
        self.used[long] -= 1
        self.changed.notify_all()


class Worker:
    """Translates lines for coroutines, in its own threads. `nbest` is the most translations of a line, unless a
    request sets `beam`. `check` raises InputError for a request that the model does not support.

    At most one thread per slot calls `translate` at the same time.
    """

    def __init__(
        self,
        translate: Translate,
        nbest: int = 1,
        slots: Slots | None = None,
        *,
        check: Callable[[Wanted], None] = lambda wanted: None,
    ) -> None:
        self.nbest, self.check = nbest, check
        self.counts = Counts()
        self._translate = translate
        self._slots = slots or Slots()
        self._changed = self._slots.changed
        self._jobs: list[_Job] = []  # those with lines that wait
        self._closed = False
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(self._slots.number)]
        for thread in self._threads:
            thread.start()

    async def translate(self, lines: Sequence[str], wanted: Wanted) -> list[Nbest]:
        """Returns the translations of lines that are not blank. If it is cancelled, waiting lines are dropped, and
        a batch in which no other request needs a line is abandoned.

        Raises what the model raises.
        """
        if not lines:
            return []
        job = _Job(lines, wanted)
        with self._changed:
            if self._closed:
                raise VtransError("the server is stopping; try again later.")
            self._jobs.append(job)
            self._changed.notify_all()
        try:
            return await job.answer
        finally:
            with self._changed:
                job.gone = True
                if job in self._jobs:
                    self._jobs.remove(job)

    @property
    def waiting(self) -> int:
        """The lines that wait to be taken."""
        with self._changed:
            return sum(self._waiting().values())

    def _waiting(self) -> dict[bool, int]:
        return {long: sum(len(job.left[long]) for job in self._jobs) for long in (False, True)}

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
        while batch := self._next():
            began = time.monotonic()
            batch.translate(self._translate)
            with self._changed:
                self._slots.give_back(batch.long)
                self.counts.seconds += time.monotonic() - began
                self.counts.lines += len(batch.lines)
                self.counts.batches += 1

    def _next(self) -> _Batch | None:
        """Waits for lines, a moment for more of them, and for a slot. Returns None once the worker is closed and no
        lines are left."""
        with self._changed:
            while self._jobs or not self._closed:
                if not self._jobs:
                    self._changed.wait()
                    if self._jobs:
                        self._changed.wait_for(lambda: self._closed or sum(self._waiting().values()) >= WINDOW, GATHER)
                elif (long := self._slots.kind(waiting := self._waiting())) is None:
                    self._changed.wait()
                else:
                    # Idle slots share the lines, so that none idles while another has all of them.
                    batch = self._take(long, 1 if long else min(WINDOW, math.ceil(waiting[long] / self._slots.idle)))
                    self._slots.take(long)
                    return batch
            return None

    def _take(self, long: bool, most: int) -> _Batch:
        """Returns up to `most` of the waiting lines, all with the same `wanted`, in turns of one from each request."""
        jobs = [job for job in self._jobs if job.left[long]]
        turns = deque(job for job in jobs if job.wanted == jobs[0].wanted)
        batch, size = _Batch([], long), 0
        while turns and len(batch.lines) < most and size < CHARACTERS:
            job = turns.popleft()
            i = job.left[long].popleft()
            batch.lines.append((job, i))
            size += len(job.lines[i])
            if job.left[long]:
                turns.append(job)
        # The requests that had no turn are the first ones next time.
        had = dict.fromkeys(job for job, _ in batch.lines)
        order = [*(job for job in self._jobs if job not in had), *had]
        self._jobs = [job for job in order if job.waiting]
        return batch
