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
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, TextIO, TypeVar

from vtrans.system.files import discard

if TYPE_CHECKING:
    import rich.console
    import rich.progress

T = TypeVar("T")

PLAIN_SECONDS = 10.0
"""The minimum time between two progress lines without a terminal."""

LEAST_SHARE = 0.01
"""A progress line estimates the time left once this share of the work is done. The time of the first unit includes
preparations such as loading a model."""

DRAW_SECONDS = 0.1
"""The minimum time between two updates of a display, because a caller may count every line of a corpus."""

_DIRECTION = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
STEERING = (*range(9), *range(11, 32), *range(127, 160), *_DIRECTION)
"""Characters that control a terminal, except line ends and tabs: control and bidirectional formatting characters.
They are printed as escapes."""
_SHOWN = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in STEERING}


def duration(seconds: float) -> str:
    """Returns a time in words: `42 s`, `3 min 20 s`, `2 h 05 min` or `3 d 04 h`."""
    whole = max(0, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours:02d} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


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

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError("the stream is closed")
        return self._stream.fileno()

    def write(self, text: str) -> int:
        if self._stream is not None:
            writable = text.encode(self.encoding, "backslashreplace").decode(self.encoding)
            try:
                self._stream.write(writable)
                self._stream.flush()
            except OSError:
                self._give_up(self._stream)
        return len(text)

    def flush(self) -> None:
        """Does nothing: `write` leaves nothing unwritten."""

    def _give_up(self, stream: TextIO) -> None:
        self._stream = None
        with suppress(OSError):  # it has no descriptor
            if (descriptor := stream.fileno()) in (1, 2):
                discard(descriptor)


class Counter:
    """Counts finished units for `Console.progress`, and shows the count at most once per `every` seconds."""

    def __init__(
        self,
        total: float | None = None,
        unit: str = "",
        every: float = math.inf,
        show: Callable[[Counter], None] = lambda counter: None,
    ) -> None:
        self.share = 0.0 if total else None
        """The finished share of the work, from 0 to 1, if known."""
        self.shown = False
        self._done, self._note = 0.0, ""
        self._total, self._unit, self._every, self._show = total, unit, every, show
        self._began = time.monotonic()
        self._next = self._began + every

    def advance(self, n: float = 1, share: float | None = None) -> None:
        """Counts `n` more units; `share` is as for `update`."""
        self.update(self._done + n, share)

    def update(self, completed: float, share: float | None = None, note: str = "") -> None:
        """Sets the number of finished units, and their share of the work if the total is unknown. A terminal shows the
        note, cut to its width, instead of the count and the speed."""
        self._done, self._note = completed, note
        self.share = completed / self._total if self._total else share
        now = time.monotonic()
        if now >= self._next:
            self._next, self.shown = now + self._every, True
            self._show(self)

    @property
    def words(self) -> str:
        """The count, speed and time left, or the share and the note."""
        seconds, share = time.monotonic() - self._began, self.share
        percent = "" if share is None else f"{share:.0%}"
        if self._note:
            return f"{percent} {self._note}".strip()
        rate = self._done / max(seconds, 1e-9)
        of = f" of {self._total:,.0f}" if self._total is not None else ""
        parts = [f"{self._done:,.0f}{of} {self._unit}".strip(), f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"]
        if share is not None:
            parts.append(percent)
            if LEAST_SHARE <= share < 1:
                parts.append(f"{duration((1 - share) / share * seconds)} left")
        return ", ".join(parts)


class Console:
    """Prints messages, tables and progress to stderr or another `stream`; if `quiet`, only warnings and errors.

    A command that runs other commands' steps does not advise: it takes the advised next steps itself.
    """

    def __init__(self, *, quiet: bool = False, advises: bool = True, stream: TextIO | None = None) -> None:
        self.quiet, self.advises = quiet, advises
        self._out = _Stream(stream if stream is not None else sys.stderr)
        dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
        self.is_terminal = self._out.isatty() and not dumb
        self._rich: rich.console.Console | None = None
        self._bars: rich.progress.Progress | None = None

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

    def table(self, title: str, rows: Iterable[Sequence[object]], *, header: Sequence[str] | None = None) -> None:
        """Prints `rows` under `title` in columns. Columns of numbers are aligned right."""
        if self.quiet:
            return
        self._print(title, "bold")
        for line in _columns([[_shown(str(cell)).replace("\n", " ") for cell in row] for row in rows], header):
            self._print(line, "")

    @contextmanager
    def progress(
        self, description: str, total: float | None = None, unit: str = "", *, drawn: bool = True
    ) -> Iterator[Counter]:
        """Shows the progress of a loop while the context lasts, below any outer `progress` or `live`.

        Without `drawn`, a terminal gets plain lines too. Do not use it while writing to stdout on a terminal.
        """
        if self.quiet:
            yield Counter()
        elif self.is_terminal and drawn:
            with self._bar(description, total, unit) as counter:
                yield counter
        else:
            counter = Counter(total, unit, PLAIN_SECONDS, lambda counter: self.info(f"{description}: {counter.words}"))
            yield counter
            if counter.shown:  # so that a log does not end at 97%
                self.info(f"{description}: {counter.words}")

    def counted(self, items: Iterable[T], description: str, total: float | None, unit: str) -> Iterator[T]:
        """Yields the items, and shows the progress of the loop over them."""
        with self.progress(description, total, unit) as counter:
            for item in items:
                yield item
                counter.advance()

    def live(self, title: str) -> AbstractContextManager[Counter]:
        """Shows the finished share of the work, and the notes of `update`, while the context lasts.

        Without a terminal, nothing is shown; print lines with `info` instead.
        """
        return self._bar(title, None, "") if self.is_terminal and not self.quiet else nullcontext(Counter())

    def _print(self, text: str, style: str) -> None:
        text = _shown(text)
        if self.is_terminal:
            from rich.text import Text

            self._drawing().print(Text(text, style=style), soft_wrap=True)
        else:
            self._out.write(text + "\n")

    def _drawing(self) -> rich.console.Console:
        """Returns rich's console, created at the first call."""
        if self._rich is None:
            from rich.console import Console as RichConsole

            self._rich = RichConsole(
                file=self._out,  # type: ignore[arg-type]  # rich uses only write, flush, isatty, fileno and encoding
                force_terminal=True,
                markup=False,
                highlight=False,
                emoji=False,
            )
        return self._rich

    @contextmanager
    def _bar(self, description: str, total: float | None, unit: str) -> Iterator[Counter]:
        """Shows a bar below the existing ones while the context lasts. One display of rich draws all bars."""
        if self._bars is None:
            self._bars = self._display()
            self._bars.start()
        bars = self._bars
        task = bars.add_task(_shown(description), total=None, words="")

        def show(counter: Counter) -> None:
            whole = None if counter.share is None else 1.0
            bars.update(task, total=whole, completed=counter.share or 0.0, words=_shown(counter.words))

        counter = Counter(total, unit, DRAW_SECONDS, show)
        try:
            yield counter
            show(counter)
        finally:
            if len(bars.tasks) == 1:
                bars.stop()
                self._bars = None
            bars.remove_task(task)

    def _display(self) -> rich.progress.Progress:
        """Returns the display that draws all bars."""
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        # A narrow terminal cuts the end of the words, not the bar.
        words = TextColumn("{task.fields[words]}", markup=False, table_column=Column(ratio=1, no_wrap=True))
        console = self._drawing()
        return Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(console.width // 8),
            words,
            console=console,
            expand=True,
            transient=True,
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        )


def _shown(text: str) -> str:
    """Returns `text` with the characters of STEERING as escapes."""
    return text.translate(_SHOWN)


def text_width(text: str) -> int:
    """Returns the width of `text` in terminal columns; combining accents, vowel signs and joiners have no width."""
    marks = ("Mn", "Me", "Cf")
    shown = (c for c in text if c == "\u00ad" or unicodedata.category(c) not in marks)
    return sum((1, 2)[unicodedata.east_asian_width(c) in "WF"] for c in shown)


def _columns(rows: list[list[str]], header: Sequence[str] | None) -> list[str]:
    """Returns the rows as lines of aligned columns, with two spaces between them."""
    everything = [*([list(header)] if header else []), *rows]
    count = max(map(len, everything), default=0)
    everything = [row + [""] * (count - len(row)) for row in everything]
    body = everything[1:] if header else everything
    figures = ("", "+", "-", *"0123456789")
    right = [all(row[i][:1] in figures for row in body) for i in range(count)]
    widths = [max(map(text_width, column)) for column in zip(*everything, strict=True)]
    lines = []
    for row in everything:
        cells = []
        for cell, width, to_right in zip(row, widths, right, strict=True):
            space = " " * (width - text_width(cell))
            cells.append(space + cell if to_right else cell + space)
        lines.append("  " + "  ".join(cells).rstrip())
    return lines
