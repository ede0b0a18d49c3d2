"""Translates a stream of lines to a stream of lines, in order.

Under torchrun, rank 0 reads and writes, and all ranks translate a share of each window. The output, line numbers and
counts do not depend on the number of ranks.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, BinaryIO

from vtrans.console import Console
from vtrans.decoding.translation import TranslateOptions, rendered
from vtrans.decoding.translator import DEFAULT_OPTIONS, WINDOW, Translator, with_prefixes
from vtrans.decoding.windows import WINDOW_BYTES, size_of, windows
from vtrans.errors import InputError, VtransError
from vtrans.runtime.ranks import Ranks
from vtrans.runtime.signals import uninterrupted
from vtrans.text import write_line

LINE_COST = 32  # a line costs about as much as 32 more bytes of text


def translate_stream(
    translator: Translator,
    lines: Iterable[str],
    stream: BinaryIO,
    options: TranslateOptions = DEFAULT_OPTIONS,
    *,
    prefixes: Iterable[str] | None = None,
    line_buffered: bool = False,
    progress: Callable[[float, float], None] = lambda lines, size: None,
    ranks: Ranks | None = None,
) -> None:
    """Writes the translations of `lines` to `stream` as whole lines, and flushes it after each window.

    `prefixes` are those of `Translator.nbest`. `line_buffered` translates each line before the next is read. `progress`
    is called after each sentence with the lines and bytes translated so far. With `ranks`, call this on rank 0; the
    other ranks translate their shares in `serve`. Ctrl-C and SIGTERM never leave part of a line.
    """
    world = 1 if ranks is None else ranks.world
    counted = _Progress(progress)
    first = 1
    if ranks is not None and world > 1:
        # The first window is empty: a rank that cannot load its model reports this before any line is read.
        _translate_on_ranks(translator, _Request(1, []), options, counted.step, ranks)
    received = windows(lines, 1 if line_buffered else WINDOW * world, most=WINDOW_BYTES * world)
    for window, begun in with_prefixes(received, prefixes):
        request = _Request(first, window, begun)
        if ranks is None or world == 1 or len(window) == 1:
            counted.begin(window)
            block = _translate(translator, request, options, counted.step)
        else:
            counted.begin(window, world)
            block = _translate_on_ranks(translator, request, options, counted.step, ranks)
        with uninterrupted():
            stream.write(block)
            stream.flush()
        first += len(window)
        counted.end()


class _Progress:
    """Counts sentences within a window, then whole windows."""

    def __init__(self, report: Callable[[float, float], None]) -> None:
        self._report = report
        self._lines = self._size = 0  # of earlier windows
        self._more = self._weight = 0  # of this window
        self._steps, self._world = 0, 1

    def begin(self, window: Sequence[str], world: int = 1) -> None:
        """Starts a window that `world` processes translate together."""
        self._more, self._weight = len(window), sum(map(size_of, window))
        self._steps, self._world = 0, world

    def step(self) -> None:
        self._steps += 1
        lines = min(self._more, self._steps * self._world)
        self._report(self._lines + lines, self._size + self._weight * lines / self._more)

    def end(self) -> None:
        self._lines += self._more
        self._size += self._weight
        self._report(self._lines, self._size)


# One rank.


@dataclass(frozen=True)
class _Request:
    """Lines that one process translates together; `first` is the number of the first."""

    first: int
    lines: Sequence[str]
    prefixes: Sequence[str] | None = None


def _translate(
    translator: Translator, request: _Request, options: TranslateOptions, done: Callable[[], None] = lambda: None
) -> bytes:
    """Returns the translations as they are written. Raises VtransError if a line is lost."""
    block, first = io.BytesIO(), request.first
    found = translator.translate_window(request.lines, options, first=first, prefixes=request.prefixes, done=done)
    for i, translations in enumerate(found):
        for text in rendered(request.lines[i], translations, options.form):
            write_line(block, text)
    written, expected = block.getvalue().count(b"\n"), len(request.lines) * options.lines
    if written != expected:
        raise VtransError(
            f"lines {first} to {first + len(request.lines) - 1} must give {expected} lines of output, got {written}."
        )
    return block.getvalue()


# Several ranks.


def serve(load: Callable[[Console], Translator], ranks: Ranks, options: TranslateOptions) -> None:
    """Translates, on the other ranks, what `translate_stream` on rank 0 sends, until it ends.

    `load` returns the translator, which must be equal to that of rank 0. Rank 0 prints all warnings and errors.
    """
    console = _Recorder()
    problem: Exception | None = None
    try:
        translator = load(console)
    except Exception as error:
        problem = error
    while request := ranks.deal():
        reply: dict[str, Any] = {}
        if problem is None:
            try:
                translator.counts = type(translator.counts)()
                block = _translate(translator, _Request(**json.loads(request)), options)
                reply = {"block": block.decode(), "counts": dataclasses.asdict(translator.counts)}
            except Exception as error:
                problem = error
        if problem is not None:
            reply = {"error": _message(problem), "input": isinstance(problem, InputError)}
        ranks.answer(json.dumps({**reply, "warnings": console.taken()}).encode())


class _Recorder(Console):
    """The console of a rank that sends its warnings to rank 0."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self._warnings: list[str] = []

    def warn(self, text: str) -> None:
        self._warnings.append(text)

    def taken(self) -> list[str]:
        """Returns the warnings since the last call."""
        taken, self._warnings = self._warnings, []
        return taken


def _message(error: Exception) -> str:
    if isinstance(error, VtransError):
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"


def _translate_on_ranks(
    translator: Translator, request: _Request, options: TranslateOptions, done: Callable[[], None], ranks: Ranks
) -> bytes:
    """Returns what `_translate` returns, with the work divided among all ranks; collects their counts and warnings."""
    began, counts = time.monotonic(), translator.counts
    before, prefixes = counts.seconds, request.prefixes
    requests = [
        _Request(
            request.first + share.start,
            request.lines[share.start : share.stop],
            None if prefixes is None else prefixes[share.start : share.stop],
        )
        for share in shares(request.lines, ranks.world)
    ]
    ranks.deal([json.dumps(dataclasses.asdict(part)).encode() for part in requests])
    problem: Exception | None = None
    blocks = []
    try:
        blocks.append(_translate(translator, requests[0], options, done))
    except Exception as error:  # the answers of the other ranks must still be received
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


def shares(window: Sequence[str], world: int) -> list[range]:
    """Returns consecutive shares of a window that cost about the same; some are empty if there are few lines."""
    costs = [size_of(line) + LINE_COST for line in window]
    total, cuts, cost = sum(costs), [0], 0
    for i, own in enumerate(costs):
        # A line belongs to the rank whose part of the total cost contains its middle.
        while cost + own / 2 >= len(cuts) * total / world:
            cuts.append(i)
        cost += own
    cuts += [len(window)] * (world + 1 - len(cuts))
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
    for t in translator.logprob(remembered(), targets, done):
        source = unanswered.popleft()
        write_line(stream, rendered(source, [t], "json")[0] if as_json else f"{t.logprob:.6f}\t{t.score:.6f}")
        total += math.fsum(t.token_logprobs)
    stream.flush()
    return total
