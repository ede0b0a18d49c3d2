"""Translates the lines of many requests together.

A `Worker` owns one model, and a thread per concurrent batch. Requests wait in a queue; a thread takes lines from all of
them in turn, so that a long request does not hold up a short one, and translates them as one batch.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from vtrans.apps.documents.document import Translated
from vtrans.apps.documents.translating import Nbest
from vtrans.system.errors import VtransError
from vtrans.text.vocabulary import Formality
from vtrans.translate.steps.line import Line
from vtrans.translate.wording.glossary import Glossary

WINDOW = 64  # lines per batch: larger batches are hardly faster per line, and wait longer for the slowest line
CHARACTERS = 8000  # a batch takes no more lines after this many characters, so that others do not wait long for it
LONG_LINE = 1000  # a line with more characters is long
GATHER = 0.003  # seconds that a first line waits for others

SearchSettings = tuple[tuple[str, Any], ...]
"""(name, value) pairs that override the model's search settings."""


@dataclass(frozen=True)
class RequestOptions:
    """Options of a request, which apply to all of its lines. `alignments` and `confidence` add word alignments and word
    confidences. Only requests with equal options share a batch."""

    nbest: int = 1
    alignments: bool = False
    glossary: Glossary | None = None
    search: SearchSettings = ()
    formality: Formality | None = None
    confidence: bool = False


Translate = Callable[[Sequence[Line], RequestOptions, "Batch"], Sequence[Sequence[Translated]]]
"""Returns the translations of each line, best first. It may call the batch with a line's translations as soon as it has
them, and raise any exception once the batch is abandoned."""


@dataclass
class Counts:
    """Counters of a worker."""

    lines: int = 0
    batches: int = 0
    seconds: float = 0.0


class _Request:
    """The lines of one request. Its answer is done once all are translated, one has failed, or the client has gone."""

    def __init__(self, lines: Sequence[Line], options: RequestOptions) -> None:
        self.lines, self.options = lines, options
        self.answer: Future[list[Nbest]] = Future()
        self.left: dict[bool, deque[int]] = {False: deque(), True: deque()}  # waiting lines; the long ones under True
        for i, line in enumerate(lines):
            self.left[len(line.text) > LONG_LINE].append(i)
        self.translations: dict[int, Nbest] = {}

    @property
    def waiting(self) -> int:
        return sum(map(len, self.left.values()))

    def wants(self, i: int) -> bool:
        """Returns whether the translations of line `i` are still needed."""
        return not self.answer.done() and i not in self.translations

    def add(self, i: int, translations: Sequence[Translated]) -> None:
        """Adds the translations of line `i`."""
        if self.wants(i):
            self.translations[i] = list(translations)
            if len(self.translations) == len(self.lines):
                with suppress(InvalidStateError):  # another thread was as fast
                    self.answer.set_result([self.translations[k] for k in range(len(self.lines))])


@dataclass
class Batch:
    """Lines that are translated together: short ones of several requests with the same options, or a long one."""

    lines: list[tuple[_Request, int]]
    long: bool = False

    def __call__(self, k: int, translations: Sequence[Translated], /) -> None:
        """Adds the translations of line `k` of the batch to its request."""
        request, i = self.lines[k]
        request.add(i, translations)

    def abandoned(self) -> bool:
        """Returns whether no request still needs a line of the batch."""
        return not any(request.wants(i) for request, i in self.lines)

    def translate(self, translate: Translate) -> None:
        """Translates the lines. If that fails, retries each request separately, so that only the faulty one fails."""
        try:
            options = self.lines[0][0].options
            for k, translations in enumerate(translate([request.lines[i] for request, i in self.lines], options, self)):
                self(k, translations)
        except Exception as error:
            left = [(request, i) for request, i in self.lines if request.wants(i)]
            requests = dict.fromkeys(request for request, _ in left)
            if len(requests) == 1:
                with suppress(InvalidStateError):  # its client has just gone
                    left[0][0].answer.set_exception(error)
                return
            for request in requests:
                Batch([line for line in left if line[0] is request]).translate(translate)


class Slots:
    """Limits the number of concurrent batches of the workers that share these slots. Long lines take at most half of
    the slots, so that short ones do not wait for all of them."""

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self.changed = threading.Condition()  # notified of changed slots or waiting lines; guards both
        self.used = {False: 0, True: 0}  # by batches of short lines, and by long lines
        self.last = False  # whether the last batch was a long line

    @property
    def idle(self) -> int:
        return self.number - sum(self.used.values())

    def kind(self, waiting: Mapping[bool, int]) -> bool | None:
        """Returns whether the next batch is a long line, given the numbers of waiting lines; None if no batch may
        start. Short and long lines take turns."""
        free = {False: self.idle > 0, True: self.idle > 0 and self.used[True] < max(1, self.number // 2)}
        kinds = [long for long in (not self.last, self.last) if waiting[long] and free[long]]
        return kinds[0] if kinds else None


class Worker:
    """Translates lines for coroutines, in its own threads. `nbest` is the maximum number of translations per line,
    unless a request sets `beam`. `check` raises InputError for a request that the model does not support.

    At most one thread per slot calls `translate` at the same time.
    """

    def __init__(
        self,
        translate: Translate,
        nbest: int = 1,
        slots: Slots | None = None,
        *,
        check: Callable[[RequestOptions], None] = lambda options: None,
    ) -> None:
        self.nbest, self.check = nbest, check
        self.counts = Counts()
        self._translate = translate
        self._slots = slots or Slots()
        self._changed = self._slots.changed
        self._requests: list[_Request] = []  # those with waiting lines
        self._closed = False
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(self._slots.number)]
        for thread in self._threads:
            thread.start()

    async def translate(self, lines: Sequence[Line], options: RequestOptions) -> list[Nbest]:
        """Returns the translations of lines that are not blank. If it is cancelled, waiting lines are dropped, and
        a batch in which no other request needs a line is abandoned.

        Raises the model's errors, and VtransError if the worker is closed.
        """
        if not lines:
            return []
        request = _Request(lines, options)
        with self._changed:
            if self._closed:
                raise VtransError("the server is stopping; try again later.")
            self._requests.append(request)
            self._changed.notify_all()
        try:
            return await asyncio.wrap_future(request.answer)
        finally:
            request.answer.cancel()
            with self._changed:
                if request in self._requests:
                    self._requests.remove(request)

    @property
    def waiting(self) -> int:
        """The number of waiting lines."""
        with self._changed:
            return sum(self._waiting().values())

    def _waiting(self) -> dict[bool, int]:
        return {long: sum(len(request.left[long]) for request in self._requests) for long in (False, True)}

    @property
    def seconds_per_line(self) -> float:
        """Average seconds per line while all slots are in use; 0 before the first line."""
        return self.counts.seconds / self.counts.lines / self._slots.number if self.counts.lines else 0.0

    def close(self) -> None:
        """Translates the waiting lines, then ends the threads."""
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
                self._slots.used[batch.long] -= 1
                self._changed.notify_all()
                self.counts.seconds += time.monotonic() - began
                self.counts.lines += len(batch.lines)
                self.counts.batches += 1

    def _next(self) -> Batch | None:
        """Waits for lines, briefly for more lines, and for a slot. Returns the next batch, or None once the worker is
        closed and no lines are left."""
        with self._changed:
            while self._requests or not self._closed:
                if not self._requests:
                    self._changed.wait()
                    if self._requests:
                        self._changed.wait_for(lambda: self._closed or sum(self._waiting().values()) >= WINDOW, GATHER)
                elif (long := self._slots.kind(waiting := self._waiting())) is None:
                    self._changed.wait()
                else:
                    # Idle slots share the lines, so that none idles while another has all of them.
                    batch = self._take(long, 1 if long else min(WINDOW, math.ceil(waiting[long] / self._slots.idle)))
                    self._slots.used[long] += 1
                    self._slots.last = long
                    return batch
            return None

    def _take(self, long: bool, most: int) -> Batch:
        """Returns up to `most` waiting lines with the same options, taking one line per request in turn."""
        requests = [request for request in self._requests if request.left[long]]
        turns = deque(request for request in requests if request.options == requests[0].options)
        batch, size = Batch([], long), 0
        while turns and len(batch.lines) < most and size < CHARACTERS:
            request = turns.popleft()
            i = request.left[long].popleft()
            batch.lines.append((request, i))
            size += len(request.lines[i].text)
            if request.left[long]:
                turns.append(request)
        # Requests that had no turn come first next time.
        had = dict.fromkeys(request for request, _ in batch.lines)
        order = [*(request for request in self._requests if request not in had), *had]
        self._requests = [request for request in order if request.waiting]
        return batch
