"""Translates the lines of many requests together.

Requests wait in a queue. A batch takes lines from all of them in turn, so that a long request does not hold up a short
one. The queue belongs to the event loop; only the model runs in a thread.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from vtrans.apps.documents.document import Nbest
from vtrans.text.vocabulary import Formality
from vtrans.translate.steps.line import Line
from vtrans.translate.wording.glossary import Glossary

WINDOW = 64  # lines per batch: larger batches are hardly faster per line, and wait longer for the slowest line
CHARACTERS = 8000  # a batch takes no more lines after this many characters, so that others do not wait long for it
LONG_LINE = 1000  # a line with more characters is long
GATHER = 0.003  # seconds that a first line waits for others


@dataclass(frozen=True)
class RequestOptions:
    """Options of a request, which apply to all of its lines. `alignments` and `confidence` add word alignments and word
    confidences. A `preferred` formality is ignored if the model has not learned it. Only requests with equal options
    share a batch."""

    nbest: int = 1
    alignments: bool = False
    glossary: Glossary | None = None
    formality: Formality | None = None
    preferred: bool = False
    confidence: bool = False


Translate = Callable[[Sequence[Line], RequestOptions, "Batch"], Sequence[Nbest]]
"""Returns the translations of each line, best first. It may call the batch with a line's translations as soon as it has
them, and raise any exception once the batch is abandoned."""


class _Request:
    """The lines of one request to a worker. Its answer is done once all are translated, one has failed, or the client
    has gone."""

    def __init__(self, worker: Worker, lines: Sequence[Line], options: RequestOptions) -> None:
        self.worker, self.lines, self.options = worker, lines, options
        self.answer: asyncio.Future[list[Nbest]] = asyncio.get_running_loop().create_future()
        self.left: dict[bool, deque[int]] = {False: deque(), True: deque()}  # waiting lines; the long ones under True
        for i, line in enumerate(lines):
            self.left[len(line.text) > LONG_LINE].append(i)
        self.translations: dict[int, Nbest] = {}

    def wants(self, i: int) -> bool:
        """Returns whether the translations of line `i` are still needed."""
        return not self.answer.done() and i not in self.translations

    def add(self, i: int, translations: Nbest) -> None:
        """Adds the translations of line `i`."""
        if self.wants(i):
            self.translations[i] = translations
            if len(self.translations) == len(self.lines):
                self.answer.set_result([self.translations[k] for k in range(len(self.lines))])


@dataclass
class Batch:
    """Lines that are translated together: short ones of several requests with the same options, or a long one."""

    lines: list[tuple[_Request, int]]
    long: bool

    def __call__(self, k: int, translations: Nbest, /) -> None:
        """Adds the translations of line `k` of the batch to its request, from another thread."""
        request, i = self.lines[k]
        request.answer.get_loop().call_soon_threadsafe(request.add, i, translations)

    def abandoned(self) -> bool:
        """Returns whether no request still needs one of the missing lines."""
        missing = [request for request, i in self.lines if i not in request.translations]
        return bool(missing) and all(request.answer.done() for request in missing)

    async def translate(self, threads: ThreadPoolExecutor) -> None:
        """Translates the lines. If that fails, retries each request separately, so that only the faulty one fails."""
        first, lines = self.lines[0][0], [request.lines[i] for request, i in self.lines]
        run = asyncio.get_running_loop().run_in_executor
        try:
            found = await run(threads, first.worker.model, lines, first.options, self)
            for (request, i), translations in zip(self.lines, found, strict=True):
                request.add(i, translations)
        except Exception as error:
            left = [(request, i) for request, i in self.lines if request.wants(i)]
            requests = dict.fromkeys(request for request, _ in left)
            if len(requests) == 1:
                left[0][0].answer.set_exception(error)
                return
            for request in requests:
                await Batch([line for line in left if line[0] is request], self.long).translate(threads)


class Slots:
    """Translates the lines of several workers in up to `number` concurrent batches. Long lines take at most half of the
    slots, so that short ones do not wait for all of them."""

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self.requests: list[_Request] = []  # those with waiting lines
        self._threads = ThreadPoolExecutor(number)
        self._running: dict[asyncio.Task[None], bool] = {}  # batches, and whether each is a long line
        self._last = False  # whether the last batch was a long line

    def add(self, request: _Request) -> None:
        """Adds the lines of a request, which wait briefly for more lines, and for a slot."""
        self.requests.append(request)
        if sum(self._waiting().values()) >= WINDOW:
            self._start()
        else:
            asyncio.get_running_loop().call_later(GATHER, self._start)

    def _waiting(self) -> dict[bool, int]:
        return {long: sum(len(request.left[long]) for request in self.requests) for long in (False, True)}

    def _start(self) -> None:
        """Starts batches in the free slots."""
        while batch := self._next():
            task = asyncio.get_running_loop().create_task(self._translated(batch))
            self._running[task] = self._last = batch.long
            task.add_done_callback(self._running.pop)
            task.add_done_callback(lambda _: self._start())

    async def _translated(self, batch: Batch) -> None:
        began, worker = time.monotonic(), batch.lines[0][0].worker
        await batch.translate(self._threads)
        worker.seconds += time.monotonic() - began
        worker.lines += len(batch.lines)
        worker.batches += 1

    def _next(self) -> Batch | None:
        """Returns the next batch, or None if none may start. Short and long lines take turns."""
        waiting, idle = self._waiting(), self.number - len(self._running)
        slots = {False: idle, True: min(idle, max(1, self.number // 2) - Counter(self._running.values())[True])}
        for long in (not self._last, self._last):
            if waiting[long] and slots[long] > 0:
                # Idle slots share the lines, so that none idles while another has all of them.
                return self._take(long, 1 if long else min(WINDOW, math.ceil(waiting[long] / idle)))
        return None

    def _take(self, long: bool, most: int) -> Batch:
        """Returns up to `most` waiting lines with the same worker and options, taking one line per request in turn."""
        first, *others = [request for request in self.requests if request.left[long]]
        alike = [one for one in others if (one.worker, one.options) == (first.worker, first.options)]
        turns, batch, size = deque([first, *alike]), Batch([], long), 0
        while turns and len(batch.lines) < most and size < CHARACTERS:
            request = turns.popleft()
            i = request.left[long].popleft()
            batch.lines.append((request, i))
            size += len(request.lines[i].text)
            if request.left[long]:
                turns.append(request)
        # Requests that had no turn come first next time.
        had = dict.fromkeys(request for request, _ in batch.lines)
        order = [*(request for request in self.requests if request not in had), *had]
        self.requests = [request for request in order if any(request.left.values())]
        return batch


class Worker:
    """Translates lines with one model, and counts lines, batches and seconds. `nbest` is the maximum number of
    translations per line. `check` raises InputError for a request that the model does not support."""

    def __init__(
        self,
        model: Translate,
        nbest: int = 1,
        slots: Slots | None = None,
        *,
        check: Callable[[RequestOptions], None] = lambda options: None,
    ) -> None:
        self.model, self.nbest, self.check = model, nbest, check
        self.lines, self.batches, self.seconds = 0, 0, 0.0
        self._slots = slots or Slots()

    async def translate(self, lines: Sequence[Line], options: RequestOptions) -> list[Nbest]:
        """Returns the translations of lines that are not blank. If it is cancelled, waiting lines are dropped, and
        a batch in which no other request needs a line is abandoned. Raises the model's errors."""
        if not lines:
            return []
        request = _Request(self, lines, options)
        self._slots.add(request)
        try:
            return await request.answer
        finally:
            if request in self._slots.requests:
                self._slots.requests.remove(request)

    @property
    def waiting(self) -> int:
        """The number of waiting lines."""
        requests = [request for request in self._slots.requests if request.worker is self]
        return sum(len(left) for request in requests for left in request.left.values())
