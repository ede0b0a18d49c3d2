"""What people read while a command runs, on stderr, and results that are tables; the only importer of rich.

On a terminal there are colours and live displays. Anywhere else (a file, a pipe, TERM=dumb) there
are plain lines without control codes, and a progress line every ten seconds at most. rich is imported
inside the methods that draw with it, so that `vtrans --help` never pays for it.

The caller's text is never read as markup: a corpus line may hold "[/red]" or an escape sequence.
"""

from __future__ import annotations

import os
import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    import rich.console
    import rich.live

PLAIN_SECONDS = 10.0
"""Least time between two progress lines where there is no terminal."""

DRAW_SECONDS = 0.1
"""Least time between two updates of a display: a caller may count every line of a corpus."""

# They would move the cursor, recolour the terminal or turn what follows: they are shown, not sent.
_DIRECTION = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
STEERING = (*range(9), *range(11, 32), *range(127, 160), *_DIRECTION)
"""What would steer a terminal, line ends and tabs apart: control characters, and those that turn the direction of
writing."""
_SHOWN = {code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in STEERING}


def duration(seconds: float) -> str:
    """A time in words, such as `42 s`, `3 min 20 s`, `2 h 05 min` and `3 d 04 h`."""
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
    """A text stream that takes any text and never raises: a broken display must not end a training.

    What its encoding lacks is written as a backslash escape. After the first failed write (the reader
    of a pipe has gone, the disk is full) all else is dropped.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:
        return getattr(self._stream, "encoding", None) or "utf-8"

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
            except OSError:
                self._give_up(self._stream)
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            try:
                self._stream.flush()
            except OSError:
                self._give_up(self._stream)

    def _give_up(self, stream: TextIO) -> None:
        self._stream = None
        if stream in (sys.__stderr__, sys.__stdout__):
            # Python flushes what is left at exit, and would turn exit code 0 into 120 for it.
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)


class Counter(Protocol):
    """What `Console.progress` gives: counts what has been done."""

    def advance(self, n: float = 1) -> None:
        """Count `n` more units."""

    def update(self, completed: float, share: float | None = None) -> None:
        """Set the units done so far, and where asked for what share of the whole they are, from 0 to 1."""


class Display(Protocol):
    """What `Console.live` gives: the training as it stands."""

    def update(self, fields: Mapping[str, str], completed: int) -> None:
        """Show these figures, in their order, after `completed` steps."""


class _NoCounter:
    """A counter that shows nothing."""

    def advance(self, n: float = 1) -> None:
        pass

    def update(self, completed: float, share: float | None = None) -> None:
        pass


class _NoDisplay:
    """A display that shows nothing."""

    def update(self, fields: Mapping[str, str], completed: int) -> None:
        pass


class _Lines:
    """A counter for where there is no terminal: at most a line every PLAIN_SECONDS."""

    def __init__(self, console: Console, description: str, total: float | None, unit: str, rate: bool) -> None:
        self._console, self._description, self._total, self._unit = console, description, total, unit
        self._rate = rate
        self._done: float = 0
        self._share: float | None = None
        self._began = self._last = time.monotonic()
        self._said = False

    def advance(self, n: float = 1) -> None:
        self.update(self._done + n)

    def update(self, completed: float, share: float | None = None) -> None:
        self._done = completed
        self._share = completed / self._total if self._total else share
        now = time.monotonic()
        if now - self._last >= PLAIN_SECONDS:
            self._last, self._said = now, True
            self._console.info(self._line(now - self._began))

    def close(self) -> None:
        """The last line, where there have been others: else a log would stop at 97%."""
        if self._said:
            seconds = time.monotonic() - self._began
            self._console.info(
                f"{self._description}: {self._done:,.0f} {self._unit} in {duration(seconds)}".replace("  ", " ")
            )

    def _line(self, seconds: float) -> str:
        parts = [_count(self._done, self._total, self._unit)]
        if self._rate:
            parts.append(_per_second(self._done, seconds))
        if self._share is not None:
            parts.append(f"{self._share:.0%}")
            if 0 < self._share < 1:
                parts.append(f"{duration((1 - self._share) / self._share * seconds)} left")
        return f"{self._description}: {', '.join(parts)}"


class _Bar:
    """A counter drawn by rich."""

    def __init__(
        self,
        console: rich.console.Console,
        description: str,
        total: float | None,
        unit: str,
        rate: bool,
        shares: bool,
    ) -> None:
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        if shares:
            columns: list[Any] = [BarColumn(), TaskProgressColumn(), TimeRemainingColumn(elapsed_when_finished=True)]
        elif total is None:
            columns = [TimeElapsedColumn()]
        else:
            columns = [BarColumn(), TimeRemainingColumn(elapsed_when_finished=True)]
        self.renderable = Progress(
            TextColumn("{task.description}", markup=False),
            *columns,
            TextColumn("{task.fields[count]}", markup=False),
            console=console,
            auto_refresh=False,
        )
        self._total, self._unit, self._rate = total, unit, rate
        self._done: float = 0
        self._share: float | None = 0.0 if shares else None
        self._drawn = 0.0
        self._began = time.monotonic()
        self._task = self.renderable.add_task(description, total=1.0 if shares else total, count="")
        self._draw()

    def advance(self, n: float = 1) -> None:
        self.update(self._done + n)

    def update(self, completed: float, share: float | None = None) -> None:
        self._done = completed
        if self._share is not None and share is not None:
            self._share = share
        if time.monotonic() - self._drawn >= DRAW_SECONDS:
            self._draw()

    def close(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        count = _count(self._done, self._total, self._unit)
        if self._rate and self._done:
            count += f", {_per_second(self._done, self._drawn - self._began)}"
        self.renderable.update(self._task, completed=self._done if self._share is None else self._share, count=count)


class _Panel:
    """The live display of a training: a bar of its steps, and its figures beneath."""

    def __init__(self, title: str, total: int, completed: int) -> None:
        self._title, self._total, self._completed, self._first = title, total, completed, completed
        self._began = time.monotonic()
        self._seconds = 0.0
        self._fields: dict[str, str] = {}

    def update(self, fields: Mapping[str, str], completed: int) -> None:
        self._fields = {name: _shown(value) for name, value in fields.items()}
        self._completed = completed
        self._seconds = time.monotonic() - self._began

    def __rich__(self) -> rich.console.RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        done = self._completed - self._first
        # As of the last update. Validations are part of the time, so that the estimate holds over hours.
        left = f"{duration((self._total - self._completed) * self._seconds / done)} left" if done > 0 else ""
        bar = Table.grid(padding=(0, 2))
        bar.add_row(
            Text(self._title, style="bold"),
            ProgressBar(total=self._total, completed=self._completed, width=30),
            Text(f"step {self._completed:,} of {self._total:,}"),
            Text(left),
        )
        figures = Table.grid(padding=(0, 3))
        figures.add_row(*(Text.assemble((name, "dim"), " ", (value, "bold")) for name, value in self._fields.items()))
        return Group(bar, figures)


class Console:
    """All output for people, on stderr. `quiet` leaves only warnings and errors.

    `stream` is another place than stderr: stdout, where tables are the result; `plain` asks for plain lines on
    a terminal too.
    """

    def __init__(self, *, quiet: bool = False, plain: bool = False, stream: TextIO | None = None) -> None:
        self.quiet = quiet
        self._out = _Stream(stream if stream is not None else sys.stderr)
        dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
        self.is_terminal = self._out.isatty() and not dumb and not plain
        self._rich: rich.console.Console | None = None
        self._stack: list[Any] = []
        self._live: rich.live.Live | None = None

    def info(self, text: str) -> None:
        """Print `text`, above a live display if there is one."""
        if not self.quiet:
            self._print(text, "")

    def warn(self, text: str) -> None:
        """Print a warning, quiet or not."""
        self._print(f"warning: {text}", "yellow")

    def error(self, text: str) -> None:
        """Print an error, quiet or not."""
        self._print(f"error: {text}", "bold red")

    def table(self, title: str, rows: Iterable[Sequence[object]], *, header: Sequence[str] | None = None) -> None:
        """Print `rows` under `title`, in columns; columns of figures are set to the right."""
        if self.quiet:
            return
        self._print(title, "bold")
        for line in _columns([[_shown(str(cell)).replace("\n", " ") for cell in row] for row in rows], header):
            self._print(line, "")

    @contextmanager
    def progress(
        self,
        description: str,
        total: float | None = None,
        unit: str = "",
        *,
        rate: bool = False,
        shares: bool = False,
        drawn: bool = True,
    ) -> Iterator[Counter]:
        """Show how far a loop has come, while the context lasts.

        It may stand inside another `progress` or a `live`, and is then drawn beneath. Draw nothing
        while stdout, too, is a terminal that is being written to. `rate` adds the units a second;
        `shares`: `update` tells what share of the whole is done, whose number of units nobody knows.
        Where not `drawn`, a terminal gets the plain lines too.
        """
        if self.quiet:
            yield _NoCounter()
        elif not (self.is_terminal and drawn):
            lines = _Lines(self, description, total, unit, rate)
            yield lines
            lines.close()
        else:
            bar = _Bar(self._drawing(), _shown(description), total, unit, rate, shares)
            with self._shown_live(bar.renderable):
                yield bar
                bar.close()

    @contextmanager
    def live(self, title: str, total: int, completed: int = 0) -> Iterator[Display]:
        """A live display of `total` training steps, `completed` of which an earlier run has done.

        It shows nothing where there is no terminal: print log lines through `info` there.
        """
        if self.quiet or not self.is_terminal:
            yield _NoDisplay()
        else:
            panel = _Panel(_shown(title), total, completed)
            with self._shown_live(panel):
                yield panel

    def _print(self, text: str, style: str) -> None:
        text = _shown(text)
        if self.is_terminal:
            from rich.text import Text

            self._drawing().print(Text(text, style=style), soft_wrap=True)
        else:
            self._out.write(text + "\n")
            self._out.flush()

    def _drawing(self) -> rich.console.Console:
        """rich's console, made at the first use."""
        if self._rich is None:
            from rich.console import Console as RichConsole

            self._rich = RichConsole(
                file=self._out,  # type: ignore[arg-type]  # rich uses write, flush, isatty, fileno and encoding only
                force_terminal=True,
                markup=False,
                highlight=False,
                emoji=False,
            )
        return self._rich

    @contextmanager
    def _shown_live(self, renderable: Any) -> Iterator[None]:
        """Keep `renderable` on the screen, beneath those already there.

        There is one live region for all: rich before 14.1 refuses a second.
        """
        from rich.console import Group
        from rich.live import Live

        self._stack.append(renderable)
        if self._live is None:
            self._live = Live(
                get_renderable=lambda: Group(*self._stack),
                console=self._drawing(),
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        else:
            self._live.refresh()
        try:
            yield
        finally:
            if len(self._stack) == 1:
                self._live.stop()
                self._live = None
            self._stack.remove(renderable)


def _shown(text: str) -> str:
    """`text` with what would steer the terminal written out; line ends and tabs stay."""
    return text.translate(_SHOWN)


def _count(done: float, total: float | None, unit: str) -> str:
    """What has been done, as `120 of 1,000 lines`."""
    of = f" of {total:,.0f}" if total is not None else ""
    return f"{done:,.0f}{of} {unit}".strip()


def _per_second(done: float, seconds: float) -> str:
    """A rate, as `350/s` or `2.4/s`."""
    rate = done / max(seconds, 1e-9)
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"


def text_width(text: str) -> int:
    """Columns that `text` takes in a terminal."""
    return sum((1, 2)[unicodedata.east_asian_width(c) in "WF"] for c in text if not joins(c))


def joins(character: str) -> bool:
    """Whether it takes no column of its own: accents, vowel signs, joiners; not the soft hyphen, which is drawn."""
    return unicodedata.category(character) in ("Mn", "Me", "Cf") and character != "\u00ad"


def _columns(rows: list[list[str]], header: Sequence[str] | None) -> list[str]:
    """`rows` as lines of aligned columns, two spaces between them."""
    count = max((len(row) for row in [*rows, *([header] if header else [])]), default=0)
    body = [row + [""] * (count - len(row)) for row in rows]
    figures = ("+", "-", *"0123456789")
    right = [all(row[i] == "" or row[i].startswith(figures) for row in body) for i in range(count)]
    everything = [*([list(header) + [""] * (count - len(header))] if header else []), *body]
    widths = [max(text_width(cell) for cell in column) for column in zip(*everything, strict=True)]
    lines = []
    for row in everything:
        cells = [
            " " * (width - text_width(cell)) + cell if to_right else cell + " " * (width - text_width(cell))
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines
