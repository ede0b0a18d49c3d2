"""Reading and writing the lines of a command: files, stdin, stdout and progress."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from vtrans.system.console import Console, Counter
from vtrans.system.errors import FileError, InputError
from vtrans.system.files import output
from vtrans.text.lines import LineReport, OnBadUtf8, open_bytes, read_lines, writing


class Extent:
    """How much text a stream holds, for a progress display. It is known for regular files only.

    For a file that is not UTF-8 it is an estimate, which assumes that the rest is as long as the part read so far.
    """

    def __init__(self, stream: BinaryIO, report: LineReport) -> None:
        self._report, self._done = report, 0
        self._size = 0  # bytes of the file from the current position; 0: unknown
        with suppress(OSError):  # not a file, or one without positions
            self._descriptor = stream.fileno()
            here = os.fstat(self._descriptor)
            self._start = os.lseek(self._descriptor, 0, os.SEEK_CUR)
            self._size = max(0, here.st_size - self._start) if stat.S_ISREG(here.st_mode) else 0
        self.known = self._size > 0

    def advance(self, size: int) -> float | None:
        """Adds bytes of text to those that are done, and returns their share of the whole, from 0 to 1, if that is
        known."""
        self._done += size
        read = os.lseek(self._descriptor, 0, os.SEEK_CUR) - self._start if self.known else 0
        whole = self._size * self._report.bytes / max(1, read)
        return min(1.0, self._done / whole) if whole else None


@contextmanager
def source_of(path: Path | None, on_bad_utf8: OnBadUtf8, console: Console) -> Iterator[tuple[Iterator[str], Extent]]:
    """Yields the lines of a file or stdin and their extent. Warns afterwards of characters that were replaced."""
    report, name = LineReport(), str(path or "stdin")
    with open_bytes(path) if path else _stdin() as source:
        yield read_lines(source, name, on_bad_utf8=on_bad_utf8, report=report), Extent(source, report)
    if report.odd_line_ends:
        odd = many(report.odd_line_ends, "character", "replaced by a space, because other tools end a line there")
        console.warn(f"{name}: {odd}")
    if report.replacements:
        console.warn(f"{name}: {many(report.replacements, 'bad UTF-8 sequence', 'replaced by U+FFFD')}")


def _stdin() -> BinaryIO:
    """Returns stdin as unbuffered bytes, so that a thread that still waits for it at exit holds no lock."""
    try:
        if sys.platform != "win32":  # where it fails for files and consoles
            os.set_blocking(0, True)  # otherwise a pipe that is empty for a moment would look like the end
        return cast(BinaryIO, open(0, "rb", buffering=0, closefd=False))
    except OSError as error:
        raise FileError(f"stdin cannot be read: {error.strerror}.") from None


def stdin_is_terminal() -> bool:
    """Returns whether the input comes from a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def read_all(path: Path | None, on_bad_utf8: OnBadUtf8, console: Console) -> list[str]:
    """Returns all lines of a file or stdin."""
    with source_of(path, on_bad_utf8, console) as (lines, _):
        return list(lines)


def read_both(src: Path, other: Path, what: str, how: OnBadUtf8, console: Console) -> list[list[str]]:
    """Returns all lines of two files. Raises InputError as `check_equal`."""
    sides = [read_all(path, how, console) for path in (src, other)]
    check_equal(src, other, list(map(len, sides)), what)
    return sides


def check_equal(src: Path, other: Path, counts: Sequence[int], what: str) -> None:
    """Raises InputError unless two files have equally many lines: each line of one needs `what` in the other."""
    if counts[0] != counts[1]:
        raise InputError(f"{src} has {counts[0]:,} lines, but {other} has {counts[1]:,}; each line needs its {what}.")


def writer(path: Path | None) -> AbstractContextManager[BinaryIO]:
    """Returns stdout, or a file that is compressed according to its name and renamed once it is complete."""
    return _stdout() if path is None else writing(path)


def _stdout() -> io.BufferedWriter:
    """Returns a stream to stdout, whose errors name it. It is buffered even if Python is not (PYTHONUNBUFFERED), since
    an unbuffered write to a full disk may write only a part and raise nothing."""
    if sys.stdout is None:
        raise FileError("stdout is closed; there is nowhere to write the result.")
    sys.stdout.flush()
    return output(sys.stdout.fileno(), "stdout")


def print_line(text: str) -> None:
    """Writes a line to stdout."""
    with _stdout() as stream:
        stream.write(text.encode() + b"\n")


def print_json(value: Any) -> None:
    """Writes a value to stdout as JSON."""
    print_line(json.dumps(value, ensure_ascii=False, indent=2))


def terminal_width() -> int | None:
    """Returns the columns of the terminal that stdout is, or None."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def result_console() -> Console:
    """Returns a console that writes to stdout, in UTF-8 unless that is a terminal. A full disk is an error."""
    stream = _stdout()
    encoding = sys.stdout.encoding if stream.isatty() else "utf-8"
    return Console(stream=io.TextIOWrapper(stream, encoding))


@contextmanager
def progress(console: Console, out: BinaryIO, *, what: str = "translated", shown: bool = True) -> Iterator[Counter]:
    """Yields a counter that shows progress on stderr, unless lines are typed or shown in the same terminal.

    If stdout is a pipe, its reader (such as `head`) probably writes to the same terminal: then a line is printed now
    and then instead of a display that is redrawn.
    """
    if not shown or out.isatty():
        console = Console(quiet=True)
    drawn = not stat.S_ISFIFO(os.fstat(out.fileno()).st_mode)
    with console.progress(what, unit="sentences", drawn=drawn) as counter:
        yield counter


def many(number: int, noun: str, rest: str) -> str:
    """Returns, for example, `1 line in` or `2,000 lines in`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'} {rest}"
