"""Output for people: messages and progress on stderr, and tables. This module alone imports rich.

A terminal gets colours and live displays. Anything else (a file, a pipe, TERM=dumb) gets plain lines without control
codes, and at most one progress line every ten seconds. rich is imported in the methods that draw with it, so that
`vtrans --help` stays fast. Text is never read as markup: a corpus line may contain "[/red]" or an escape sequence.
"""

from __future__ import annotations

import math
import os
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from vtrans.system.files import discard

if TYPE_CHECKING:
    import rich.console
    import rich.progress

T = TypeVar("T")

PLAIN_SECONDS = 10.0  # minimum time between two progress lines without a terminal
DRAW_SECONDS = 0.1  # minimum time between two updates of a display, because a caller may count every line of a corpus
LEAST_SHARE = 0.01  # before this share, the time left is unknown: the first unit includes loading a model

# Characters that control a terminal or the direction of text, except line ends and tabs. They are printed as escapes.
STEERING = (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SHOWN = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in STEERING}


def duration(seconds: float) -> str:
    """Returns a time in words: `42 s`, `3 min 20 s`, `2 h 05 min` or `3 d 04 h`."""
    whole = max(0, round(seconds))
    for unit, size, smaller, part in ("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part:02d} {smaller}"
    return f"{whole} s"


class _Stream:
    """A text stream that accepts any text and raises no OSError, so that a broken display does not end a training.

    Characters missing from its encoding are written as backslash escapes. After the first failed write (a closed pipe
    or a full disk), it drops all output.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.encoding: str = getattr(stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def write(self, text: str) -> int:
        if stream := self._stream:
            try:
                stream.write(text.encode(self.encoding, "backslashreplace").decode(self.encoding))
                stream.flush()
            except OSError:
                self._stream = None
                with suppress(OSError):  # it has no descriptor
                    if (descriptor := stream.fileno()) in (1, 2):
                        discard(descriptor)
        return len(text)

    def flush(self) -> None:
        """Does nothing: `write` leaves nothing unwritten."""


@dataclass(eq=False)
class Counter:
    """Counts finished units for `Console.progress`, and shows the count at most once per `every` seconds."""

    show: Callable[[Counter], None]
    every: float
    total: float | None
    unit: str
    share: float | None = field(init=False, default=None)  # of the work that is done, from 0 to 1, if known
    shown: bool = field(init=False, default=False)
    done: float = field(init=False, default=0.0)
    note: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._next = self._began + self.every

    def advance(self, n: float = 1, share: float | None = None) -> None:
        """Counts `n` more units; `share` is as for `update`."""
        self.update(self.done + n, share)

    def update(self, completed: float, share: float | None = None, note: str = "") -> None:
        """Sets the number of finished units, and their share of the work if the total is unknown. A terminal shows the
        note, cut to its width, instead of the count and the speed."""
        self.done, self.note = completed, note
        self.share = completed / self.total if self.total else share
        if (now := time.monotonic()) >= self._next:
            self._next, self.shown = now + self.every, True
            self.show(self)

    @property
    def words(self) -> str:
        """The count, speed and time left, or the share and the note."""
        share, percent = self.share, "" if self.share is None else f"{self.share:.0%}"
        if self.note:
            return f"{percent} {self.note}".strip()
        seconds = time.monotonic() - self._began
        rate = self.done / max(seconds, 1e-9)
        of = f" of {self.total:,.0f}" if self.total is not None else ""
        parts = [f"{self.done:,.0f}{of} {self.unit}".strip(), f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"]
        left = f"{duration((1 - share) / share * seconds)} left" if share and LEAST_SHARE <= share < 1 else ""
        return ", ".join(filter(None, (*parts, percent, left)))


class Console:
    """Prints messages, tables and progress to stderr or another `stream`; if `quiet`, only warnings and errors.

    A command that runs other commands' steps does not advise: it takes the advised next steps itself.
    """

    def __init__(self, *, quiet: bool = False, advises: bool = True, stream: TextIO | None = None) -> None:
        self.quiet, self.advises = quiet, advises
        self._out = _Stream(stream if stream is not None else sys.stderr)
        dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
        self.is_terminal = self._out.isatty() and not dumb

    def silence(self) -> None:
        """Makes this console print nothing, not even errors."""
        self.quiet, self.is_terminal, self._out = True, False, _Stream(None)

    def info(self, text: str, advice: str = "") -> None:
        """Prints `text` above any live display, and `advice` on how to continue if this console advises."""
        if not self.quiet:
            self._print(f"{text}; {advice}" if advice and self.advises else text, "")

    def warn(self, text: str) -> None:
        """Prints a warning, even if quiet."""
        self._print(f"warning: {text}", "yellow")

    def error(self, text: str) -> None:
        """Prints an error, even if quiet."""
        self._print(f"error: {text}", "bold red")

    def table(self, title: str, rows: Iterable[Sequence[object]], *, header: Sequence[str] = ()) -> None:
        """Prints `rows` under `title` in columns. Columns of numbers are aligned right."""
        cells = [[_shown(str(cell)).replace("\n", " ") for cell in row] for row in rows]
        if not self.quiet:
            self._print(title, "bold")
            for line in _columns(cells, header):
                self._print(line, "")

    @contextmanager
    def progress(
        self, what: str, total: float | None = None, unit: str = "", *, drawn: bool = True, plain: bool = True
    ) -> Iterator[Counter]:
        """Shows the progress of a loop while the context lasts, below any outer `progress`.

        Without `drawn`, a terminal gets plain lines too. Without `plain`, only a terminal shows anything; print lines
        with `info` instead. Do not use it while writing to stdout on a terminal.
        """
        if self.is_terminal and drawn and not self.quiet:
            with self._bar(what, total, unit) as counter:
                yield counter
            return
        every = PLAIN_SECONDS if plain and not self.quiet else math.inf
        counter = Counter(lambda counter: self.info(f"{what}: {counter.words}"), every, total, unit)
        yield counter
        if counter.shown:  # so that a log does not end at 97%
            counter.show(counter)

    def counted(self, items: Iterable[T], description: str, total: float | None, unit: str) -> Iterator[T]:
        """Yields the items, and shows the progress of the loop over them."""
        with self.progress(description, total, unit) as counter:
            for item in items:
                yield item
                counter.advance()

    def _print(self, text: str, style: str) -> None:
        if self.is_terminal:
            self._rich.print(_shown(text), style=style, soft_wrap=True)
        else:
            self._out.write(_shown(text) + "\n")

    @cached_property
    def _rich(self) -> rich.console.Console:
        from rich.console import Console as RichConsole

        file: Any = self._out  # rich uses only write, flush, isatty and encoding
        return RichConsole(file=file, force_terminal=True, markup=False, highlight=False, emoji=False)

    @cached_property
    def _bars(self) -> rich.progress.Progress:
        """The display that draws all bars."""
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        # A narrow terminal cuts the end of the words, not the bar.
        words = TextColumn("{task.fields[words]}", markup=False, table_column=Column(ratio=1, no_wrap=True))
        columns = TextColumn("{task.description}", markup=False), BarColumn(self._rich.width // 8), words
        quietly: Any = {"transient": True, "redirect_stdout": False, "redirect_stderr": False}
        return Progress(*columns, console=self._rich, expand=True, refresh_per_second=4, **quietly)

    @contextmanager
    def _bar(self, what: str, total: float | None, unit: str) -> Iterator[Counter]:
        """Shows a bar below the existing ones while the context lasts."""

        def show(counter: Counter) -> None:
            whole = None if counter.share is None else 1.0
            self._bars.update(task, total=whole, completed=counter.share or 0.0, words=_shown(counter.words))

        self._bars.start()
        task = self._bars.add_task(_shown(what), total=None, words="")
        counter = Counter(show, DRAW_SECONDS, total, unit)
        try:
            yield counter
            show(counter)
        finally:
            if len(self._bars.tasks) == 1:
                self._bars.stop()
            self._bars.remove_task(task)


def _shown(text: str) -> str:
    return text.translate(_SHOWN)


def text_width(text: str) -> int:
    """Returns the width of `text` in terminal columns; combining accents, vowel signs and joiners have no width."""
    marks = ("Mn", "Me", "Cf")
    shown = (c for c in text if c == "\u00ad" or unicodedata.category(c) not in marks)
    return sum((1, 2)[unicodedata.east_asian_width(c) in "WF"] for c in shown)


def _columns(rows: Iterable[Sequence[str]], header: Sequence[str]) -> list[str]:
    """Returns the header, unless it is empty, and the rows as lines of aligned columns."""
    lines = [list[str]() for _ in (header, *rows)]
    for column in zip_longest(header, *rows, fillvalue=""):
        width = max(map(text_width, column))
        to_right = all(cell[:1] in "+-0123456789" for cell in column[1:])
        for line, cell in zip(lines, column, strict=True):
            space = " " * (width - text_width(cell))
            line.append(space + cell if to_right else cell + space)
    return ["  " + "  ".join(line).rstrip() for line in lines[not header :]]
