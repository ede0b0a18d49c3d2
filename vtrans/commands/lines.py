"""The lines that a command reads and writes, of files or of stdin and stdout, and how far it has come with them."""

from __future__ import annotations

import io
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from vtrans.console import Console, Counter
from vtrans.errors import FileError
from vtrans.text import Extent, LineReport, OnBadUtf8, open_bytes, read_lines, writing


@contextmanager
def source_of(path: Path | None, on_bad_utf8: OnBadUtf8, console: Console) -> Iterator[tuple[Iterator[str], Extent]]:
    """The lines of a file or of stdin, how much there is, and a warning about what reading them met."""
    report, name = LineReport(), str(path or "stdin")
    with open_bytes(path) if path else _stdin() as source:
        yield read_lines(source, name, on_bad_utf8=on_bad_utf8, report=report), Extent(source, report)
    if report.odd_line_ends:
        odd = many(report.odd_line_ends, "character", "that other tools take for a line end became a space")
        console.warn(f"{name}: {odd}")
    if report.replacements:
        console.warn(f"{name}: {many(report.replacements, 'bad UTF-8 sequence', 'became U+FFFD')}")


@contextmanager
def lines_of(path: Path | None, on_bad_utf8: OnBadUtf8, console: Console) -> Iterator[Iterator[str]]:
    """The lines alone of what source_of opens."""
    with source_of(path, on_bad_utf8, console) as (lines, _):
        yield lines


def _stdin() -> BinaryIO:
    """The bytes of stdin, unbuffered: a thread that still waits for them at the end holds no lock."""
    try:
        os.set_blocking(0, True)  # else a pipe that is empty for a moment would look like its end
        return cast(BinaryIO, open(0, "rb", buffering=0, closefd=False))
    except OSError as error:
        raise FileError(f"stdin can't be read: {error.strerror}.") from None


def stdin_is_terminal() -> bool:
    """Whether someone would have to type the input."""
    return sys.stdin is not None and sys.stdin.isatty()


def read_all(path: Path | None, on_bad_utf8: OnBadUtf8, console: Console) -> list[str]:
    """All lines of a file or of stdin at once."""
    with lines_of(path, on_bad_utf8, console) as lines:
        return list(lines)


@contextmanager
def writer(path: Path | None) -> Iterator[BinaryIO]:
    """stdout, or a file, packed if its name says so, that is replaced once it is whole."""
    if path is None:
        yield _stdout()
    else:
        with writing(path) as stream:
            yield stream


def _stdout() -> BinaryIO:
    if sys.stdout is None:
        raise FileError("stdout is closed; there is nowhere to write the result.")
    return sys.stdout.buffer


def print_line(text: str) -> None:
    """A line of the result."""
    stream = _stdout()
    stream.write(text.encode() + b"\n")
    stream.flush()


def terminal_width() -> int | None:
    """Columns of the terminal that the result goes to; None where it goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def result_console() -> Console:
    """Where tables that are the result go: stdout, in UTF-8 wherever that is no terminal."""
    stream = sys.stdout
    if stream is None:
        raise FileError("stdout is closed; there is nowhere to write the result.")
    if isinstance(stream, io.TextIOWrapper) and not stream.isatty():
        stream.reconfigure(encoding="utf-8")
    return Console(stream=stream)


@contextmanager
def progress(
    console: Console, out: BinaryIO, *, what: str = "translated", shown: bool = True, share: bool = False
) -> Iterator[Counter]:
    """Counts sentences on stderr, unless that would be drawn over lines that are typed or shown.

    What reads a pipe, such as `head`, mostly writes to the same terminal: there a line is printed now and
    then, in place of a display that is drawn over and over.
    """
    if not shown or out.isatty():
        console = Console(quiet=True)
    drawn = not (out is getattr(sys.stdout, "buffer", None) and stat.S_ISFIFO(os.fstat(out.fileno()).st_mode))
    with console.progress(what, unit="sentences", rate=True, shares=share, drawn=drawn) as counter:
        yield counter


def many(number: int, noun: str, rest: str) -> str:
    """`1 line in`, `2,000 lines in`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'} {rest}"
