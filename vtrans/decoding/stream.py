"""An open stream of lines in, their translations out, in order: by one process, or shared by several.

Lines come in windows, bounded in lines and in bytes, which neither wait for ever nor grow. Under torchrun
rank 0 reads, deals each window out to all ranks, puts their translations in order and writes; what a line
becomes, its number and what is counted are the same whatever the number of ranks.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, BinaryIO

from vtrans.config import Sampling
from vtrans.console import Console
from vtrans.decoding.translator import WINDOW, Form, Translator, rendered, with_prefixes
from vtrans.errors import InputError, VtransError
from vtrans.runtime.ranks import Ranks
from vtrans.runtime.signals import uninterrupted
from vtrans.text import write_line

WINDOW_BYTES = 1 << 20  # of text, at which a window ends before it has all its lines
IDLE = 0.2  # seconds without input after which an open pipe gets its answers
PATIENCE = 1.0  # seconds after which it gets them even if its lines keep trickling in
LINE_COST = 32  # a line costs about as much as that many bytes more of it, when work is dealt out


def translate_stream(
    translator: Translator,
    lines: Iterable[str],
    stream: BinaryIO,
    *,
    nbest: int = 1,
    sampling: Sampling | None = None,
    form: Form = "text",
    alignments: bool = False,
    prefixes: Iterable[str] | None = None,
    line_buffered: bool = False,
    progress: Callable[[float, float], None] = lambda lines, size: None,
    ranks: Ranks | None = None,
) -> None:
    """Writes the translations of `lines` to `stream`, whole lines, flushed a window at a time.

    `form` is that of `rendered`, `alignments` and `prefixes` are those of `nbest`. A line in gives `nbest`
    lines out, or one of JSON. `line_buffered` answers each line before the next is read. `progress` is
    called as sentences are translated, with how many lines have been and with their bytes. With `ranks`,
    of which this must be the first, the others translate their part of each window in `serve`. Ctrl-C and
    SIGTERM leave whole lines. At the end the translator's console is told of blank lines, and warned of
    lines that were not but whose translation is.
    """
    wide = 1 if ranks is None else ranks.world
    settings: dict[str, Any] = {"nbest": nbest, "sampling": sampling, "form": form, "alignments": alignments}
    counted = _Progress(progress)
    first = 1
    if ranks is not None and wide > 1:
        # A rank that has no model to translate with says so before any line is read.
        _dealt(translator, [], None, first, counted.step, ranks, **settings)
    come = windows(lines, 1 if line_buffered else WINDOW * wide, most=WINDOW_BYTES * wide)
    for window, begun in with_prefixes(come, prefixes):
        if ranks is None or wide == 1 or len(window) == 1:
            counted.begin(window)
            block = _block(translator, window, begun, first, counted.step, **settings)
        else:
            counted.begin(window, wide)
            block = _dealt(translator, window, begun, first, counted.step, ranks, **settings)
        with uninterrupted():
            stream.write(block)
            stream.flush()
        first += len(window)
        counted.end()
    translator.say_what_is_blank()


class _Progress:
    """Sentence by sentence through a window, then window by window."""

    def __init__(self, report: Callable[[float, float], None]) -> None:
        self._report = report
        self._lines = self._size = 0  # of the windows that are done
        self._more = self._weight = 0  # of this one
        self._steps, self._wide = 0, 1

    def begin(self, window: Sequence[str], wide: int = 1) -> None:
        """A window of which this process translates one part in `wide`."""
        self._more, self._weight = len(window), sum(map(_size, window))
        self._steps, self._wide = 0, wide

    def step(self) -> None:
        self._steps += 1
        lines = min(self._more, self._steps * self._wide)
        self._report(self._lines + lines, self._size + self._weight * lines / self._more)

    def end(self) -> None:
        self._lines += self._more
        self._size += self._weight
        self._report(self._lines, self._size)


def serve(
    load: Callable[[Console], Translator],
    ranks: Ranks,
    *,
    nbest: int = 1,
    sampling: Sampling | None = None,
    form: Form = "text",
    alignments: bool = False,
) -> None:
    """What the other ranks do beside `translate_stream`, with its settings, until it has no more lines.

    `load` gives the translator, which must be that of rank 0. What is to be said of its lines, be it that
    it has failed, rank 0 says.
    """
    heard = _Heard(quiet=True)
    problem: Exception | None = None
    try:
        translator = load(heard)
    except Exception as error:
        problem = error
    while request := ranks.deal():
        reply: dict[str, Any] = {}
        if problem is None:
            try:
                asked = json.loads(request)
                translator.counts = type(translator.counts)()
                block = _block(
                    translator,
                    asked["lines"],
                    asked["prefixes"],
                    asked["first"],
                    lambda: None,
                    nbest=nbest,
                    sampling=sampling,
                    form=form,
                    alignments=alignments,
                )
                reply = {"block": block.decode(), "counts": dataclasses.asdict(translator.counts)}
            except Exception as error:
                problem = error
        if problem is not None:
            reply = {"error": _in_words(problem), "input": isinstance(problem, InputError)}
        ranks.answer(json.dumps({**reply, "warnings": heard.taken()}).encode())


class _Heard(Console):
    """The console of a rank that leaves speaking to rank 0."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._warnings: list[str] = []

    def warn(self, text: str) -> None:
        self._warnings.append(text)

    def taken(self) -> list[str]:
        """The warnings since the last call."""
        taken, self._warnings = self._warnings, []
        return taken


def _in_words(error: Exception) -> str:
    if isinstance(error, VtransError):
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"


def _block(
    translator: Translator,
    window: Sequence[str],
    begun: Sequence[str] | None,
    first: int,
    done: Callable[[], None],
    *,
    nbest: int,
    sampling: Sampling | None,
    form: Form,
    alignments: bool,
) -> bytes:
    """The translations of a window as they are written; VtransError if a line is lost on the way."""
    block = io.BytesIO()
    found = translator.translate_window(window, nbest, sampling, first, done, alignments=alignments, prefixes=begun)
    for i, translations in enumerate(found):
        for text in rendered(window[i], translations, form):
            write_line(block, text)
    written, expected = block.getvalue().count(b"\n"), len(window) * (1 if form == "json" else nbest)
    if written != expected:
        raise VtransError(f"lines {first} to {first + len(window) - 1} gave {written} lines, not {expected}.")
    return block.getvalue()


def _dealt(
    translator: Translator,
    window: Sequence[str],
    begun: Sequence[str] | None,
    first: int,
    done: Callable[[], None],
    ranks: Ranks,
    **settings: Any,
) -> bytes:
    """`_block` by all ranks: each has its share, counts and warnings come together here."""
    began, counts = time.monotonic(), translator.counts
    before = counts.seconds
    shares = shared(window, ranks.world)
    requests: list[dict[str, Any]] = [
        {
            "first": first + share.start,
            "lines": window[share.start : share.stop],
            "prefixes": None if begun is None else begun[share.start : share.stop],
        }
        for share in shares
    ]
    ranks.deal([json.dumps(request).encode() for request in requests])
    problem: Exception | None = None
    blocks = []
    try:
        own = requests[0]
        blocks.append(_block(translator, own["lines"], own["prefixes"], first, done, **settings))
    except Exception as error:  # the others' answers must be taken all the same
        problem = error
    for rank, answer in enumerate(ranks.answer(b"{}")[1:], 1):
        reply = json.loads(answer)
        for warning in reply["warnings"]:
            if translator.console:
                translator.console.warn(warning)
        if "error" in reply:
            kind = InputError if reply["input"] else VtransError
            problem = problem or kind(f"process {rank} of {ranks.world}: {reply['error']}")
            continue
        blocks.append(reply["block"].encode())
        for name, count in reply["counts"].items():
            setattr(counts, name, getattr(counts, name) + count)
    counts.seconds = before + time.monotonic() - began
    if problem is not None:
        raise problem
    return b"".join(blocks)


def shared(window: Sequence[str], world: int) -> list[range]:
    """The window in `world` runs of lines that cost about the same; some are empty if there are few lines."""
    total = sum(_size(line) + LINE_COST for line in window)
    cuts, cost = [0], 0
    for i, line in enumerate(window):
        # A line goes to the rank in whose part of the whole its middle lies.
        middle = cost + (_size(line) + LINE_COST) / 2
        while middle >= len(cuts) * total / world:
            cuts.append(i)
        cost += _size(line) + LINE_COST
    cuts += [len(window)] * (world + 1 - len(cuts))
    return [range(start, stop) for start, stop in pairwise(cuts)]


def logprob_stream(
    translator: Translator,
    sources: Iterable[str],
    targets: Iterable[str],
    stream: BinaryIO,
    *,
    as_json: bool = False,
    done: Callable[[], None] = lambda: None,
) -> float:
    """Writes, for each pair, the log-probability of the target, a tab and its score, or a line of JSON as
    that of a translation. Returns the sum of the log-probabilities of what was scored."""
    unanswered: deque[str] = deque()  # no more than a window

    def remembered() -> Iterator[str]:
        for line in sources:
            unanswered.append(line)
            yield line

    total = 0.0
    for t in translator.logprob(remembered(), targets, done):
        source = unanswered.popleft()
        write_line(stream, rendered(source, [t], "json")[0] if as_json else f"{t.logprob:.6f}\t{t.score:.6f}")
        total += math.fsum(t.token_logprobs)
    stream.flush()
    return total


# Windows.


def windows(
    lines: Iterable[str],
    size: int = WINDOW,
    idle: float = IDLE,
    patience: float = PATIENCE,
    most: int = WINDOW_BYTES,
) -> Iterator[list[str]]:
    """Lines in windows of `size`, or of fewer: when the next would make them more than `most` bytes of
    text (a single line may be), when none has come for `idle` seconds, or when the first of them has
    waited for `patience` seconds and no other is there.

    A thread reads ahead, at most two windows. What reading raises is raised here, after the lines
    before it have been handed out.
    """
    ahead = _Ahead(2 * size, 2 * most)

    def read() -> None:
        try:
            for line in lines:
                if not ahead.put(line, _size(line)):
                    return
            ahead.put(None)
        except BaseException as error:
            ahead.put(error)

    threading.Thread(target=read, daemon=True).start()
    try:
        while window := ahead.window(size, most, idle, patience):
            yield window
    finally:
        ahead.close()


class _Ahead:
    """What one thread has read and another has not yet taken: at most so many lines, and bytes of them."""

    def __init__(self, lines: int, size: int) -> None:
        self._most_lines, self._most_size = lines, size
        self._items: deque[tuple[str | BaseException | None, int]] = deque()
        self._size = 0
        self._closed = False
        self._changed = threading.Condition()

    def put(self, item: str | BaseException | None, size: int = 0) -> bool:
        """Append an item once there is room; False if nobody takes any more."""
        with self._changed:
            while not self._closed and self._full(size):
                self._changed.wait()
            self._items.append((item, size))
            self._size += size
            self._changed.notify()
            return not self._closed

    def _full(self, size: int) -> bool:
        return bool(self._items) and (len(self._items) >= self._most_lines or self._size + size > self._most_size)

    def window(self, lines: int, size: int, idle: float, patience: float) -> list[str]:
        """The next lines, one at least; none at the end. Raises what reading has raised."""
        taken: list[str] = []
        weight = 0
        with self._changed:
            self._changed.wait_for(lambda: self._items)
            until = time.monotonic() + patience
            while len(taken) < lines:
                left = max(0.0, min(idle, until - time.monotonic()))
                if not self._items and not self._changed.wait_for(lambda: self._items, left):
                    break
                item, more = self._items[0]
                if not isinstance(item, str):  # it stays there for the next call, if lines go first
                    if isinstance(item, BaseException) and not taken:
                        raise item
                    break
                if taken and weight + more > size:
                    break
                taken.append(item)
                weight += more
                self._items.popleft()
                self._size -= more
                self._changed.notify()
        return taken

    def close(self) -> None:
        """Nothing will be taken any more: the thread that reads stops at its next line."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify()


def _size(line: str) -> int:
    """Bytes of a line, with its line end."""
    return len(line) + 1 if line.isascii() else len(line.encode("utf-8", "surrogatepass")) + 1
