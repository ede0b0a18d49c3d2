"""Bytes to lines and back: the newline and encoding law of vtrans.

A line ends at `\\n` and nowhere else. One `\\r` before it is stripped, so is a byte order mark at
the start of the file. The other characters at which `str.splitlines` splits (U+2028, U+2029,
U+0085, VT, FF, FS, GS, RS, a lone CR) are no line ends here: inside a line they become a space
and are counted. Text is UTF-8 always, whatever the locale says.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from vtrans.errors import FileError, InputError

OnBadUtf8 = Literal["error", "replace"]

_BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 18
# What str.splitlines takes for a line end, but for \n: all of it is lost at a read and a write elsewhere.
_ODD_LINE_END = re.compile("[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_LINE_END = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# What reading raises: OSError covers gzip.BadGzipFile and the bz2 module, EOFError a truncated file.
_READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)


@dataclass
class LineReport:
    """What reading met; the counts run up to a block ahead of the lines handed out."""

    odd_line_ends: int = 0
    """Characters that other tools take for a line end, each now a space."""
    replacements: int = 0
    """U+FFFD put in for bytes that are no UTF-8 (one for up to three bytes)."""
    bytes: int = field(default=0, compare=False)
    """Bytes of text that have been read, unpacked."""


def open_bytes(path: str | Path) -> BinaryIO:
    """The bytes of a file, unpacked if its name ends in .gz, .xz or .bz2.

    Raises FileError if it can't be opened; damage inside is met, and named, by `read_lines`.
    """
    name = str(path)
    try:
        if name.endswith(".gz"):
            return cast(BinaryIO, gzip.open(name, "rb"))
        if name.endswith(".xz"):
            return cast(BinaryIO, lzma.open(name, "rb"))
        if name.endswith(".bz2"):
            return cast(BinaryIO, bz2.open(name, "rb"))
        return Path(name).open("rb")
    except FileNotFoundError:
        raise FileError(f"there is no file {name}.") from None
    except IsADirectoryError:
        raise FileError(f"{name} is a folder; a file is wanted.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(f"{name} can't be read: {reason}.") from None


def read_lines(
    stream: BinaryIO,
    name: str,
    *,
    on_bad_utf8: OnBadUtf8 = "error",
    report: LineReport | None = None,
) -> Iterator[str]:
    """The lines of a stream, without their line ends.

    n newlines give n lines, or n + 1 if text follows the last. Memory is bounded by the longest
    line and a block; a line is handed out as soon as its `\\n` has arrived, so pipes may stay open.
    `name` stands in messages. Raises InputError for bytes that are no UTF-8 (with `on_bad_utf8`
    "replace" they become counted U+FFFD), FileError if the stream breaks off or is damaged.
    """
    report = report if report is not None else LineReport()
    reader = _Decoder(name, on_bad_utf8, report)
    # read1 returns what is there; read(n) of a buffered pipe would wait for n bytes.
    read = getattr(stream, "read1", stream.read)
    begun = False
    pieces: list[bytes] = []
    while True:
        try:
            chunk = read(_CHUNK)
        except _READ_ERRORS as error:
            raise FileError(f"{name} can't be read to its end: {_reason(error)}.") from None
        if not chunk:
            break
        report.bytes += len(chunk)
        cut = chunk.rfind(b"\n")
        if cut < 0:
            pieces.append(chunk)
            continue
        block = b"".join((*pieces, chunk[:cut]))
        pieces = [chunk[cut + 1 :]] if cut + 1 < len(chunk) else []
        yield from reader.lines(block if begun else reader.without_bom(block))
        begun = True
    rest = b"".join(pieces)
    rest = rest if begun else reader.without_bom(rest)
    if rest:
        yield from reader.lines(rest)


class Extent:
    """How much text a stream holds, if it is a regular file: for progress, which wants to know.

    Of a compressed file it is an estimate: it unpacks to as much as the part that `report` has seen.
    """

    def __init__(self, stream: BinaryIO, report: LineReport) -> None:
        self._report = report
        self._packed = isinstance(stream, (gzip.GzipFile, lzma.LZMAFile, bz2.BZ2File))
        self._size = 0  # of the file, from where reading begins; 0: not known
        with suppress(OSError):  # no file at all, or one without places
            self._descriptor = stream.fileno()
            here = os.fstat(self._descriptor)
            self._start = os.lseek(self._descriptor, 0, os.SEEK_CUR)
            self._size = max(0, here.st_size - self._start) if stat.S_ISREG(here.st_mode) else 0

    @property
    def known(self) -> bool:
        return self._size > 0

    def share(self, done: float) -> float:
        """The part of the whole, from 0 to 1, that `done` bytes of text are."""
        whole = float(self._size)
        if self._packed:
            whole *= self._report.bytes / max(1, os.lseek(self._descriptor, 0, os.SEEK_CUR) - self._start)
        return min(1.0, done / whole) if whole else 0.0


class _Decoder:
    """Blocks of whole lines to text, counting lines and bytes for the messages."""

    def __init__(self, name: str, on_bad_utf8: OnBadUtf8, report: LineReport) -> None:
        self.name, self.on_bad_utf8, self.report = name, on_bad_utf8, report
        self.line = 1  # number of the next line
        self.offset = 0  # of its first byte

    def without_bom(self, block: bytes) -> bytes:
        """The first block of a stream without byte order marks.

        All of them (concatenated files have several): a first line never starts with one, so that
        reading what was written gives the same lines.
        """
        while block.startswith(_BOM):
            block = block[len(_BOM) :]
            self.offset += len(_BOM)
        return block

    def lines(self, block: bytes) -> Iterator[str]:
        """The lines of a block that ends before a `\\n` or at the end of the stream."""
        try:
            text = block.decode("utf-8")
        except UnicodeDecodeError:
            yield from self._lines_with_bad_bytes(block)
            return
        self.offset += len(block) + 1
        lines = self._clean(text).split("\n")
        self.line += len(lines)
        yield from lines

    def _lines_with_bad_bytes(self, block: bytes) -> Iterator[str]:
        for raw in block.split(b"\n"):
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                if self.on_bad_utf8 == "error":
                    raise InputError(
                        f"{self.name}: line {self.line} is not UTF-8: byte 0x{raw[error.start]:02x} "
                        f"at byte offset {self.offset + error.start}; convert the file to UTF-8, "
                        "or use --on-bad-utf8 replace."
                    ) from None
                text = raw.decode("utf-8", errors="replace")
                self.report.replacements += text.count("\ufffd") - raw.count(b"\xef\xbf\xbd")
            self.offset += len(raw) + 1
            self.line += 1
            yield self._clean(text)

    def _clean(self, text: str) -> str:
        text = text.replace("\r\n", "\n").removesuffix("\r")
        if _ODD_LINE_END.search(text) is None:
            return text
        text, count = _ODD_LINE_END.subn(" ", text)
        self.report.odd_line_ends += count
        return text


def _reason(error: Exception) -> str:
    """Why, in the words of the exception, as the end of a sentence."""
    return str(getattr(error, "strerror", None) or error or type(error).__name__).rstrip(".")


def one_line(text: str) -> str:
    """`text` with a space for every character that anyone takes for a line end."""
    return _LINE_END.sub(" ", text)


def printable(name: str | Path) -> str:
    """A file's name with `\\xff` for each byte that is not UTF-8, as JSON and a terminal can hold it."""
    return os.fsencode(name).decode("utf-8", errors="backslashreplace")


def check_path(path: str | Path) -> None:
    """FileError for a path that is not UTF-8, by which safetensors and CTranslate2 can't open a file."""
    try:
        os.fsencode(path).decode("utf-8")
    except UnicodeDecodeError:
        raise FileError(
            f"the path {printable(path)} is not UTF-8, but that of a model, a run or a data folder must be; rename it, "
            "or give another."
        ) from None


def write_line(stream: BinaryIO, text: str) -> None:
    """Exactly one line out, whatever `text` holds: line ends inside it become spaces."""
    # A lone surrogate, which no UTF-8 input can give, is written as "?" rather than lost with its line.
    stream.write(one_line(text).encode("utf-8", errors="replace") + b"\n")


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A file written aside, flushed to disk and renamed over `path` when the block ends.

    If the block raises, `path` is as it was and nothing else stays. A link is followed, permissions are
    kept; a device or a pipe is written directly, since it can't be renamed over. Raises FileError if
    the file can't be opened.
    """
    target = Path(os.path.realpath(path))
    try:
        special = target.exists() and not stat.S_ISREG(target.stat().st_mode)
        if special:
            handle: BinaryIO = target.open("wb")
        else:
            aside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            handle = aside.open("wb")
            if target.exists():
                aside.chmod(stat.S_IMODE(target.stat().st_mode))
    except OSError as error:
        raise FileError(f"{path} can't be written: {_reason(error)}.") from None
    if special:
        with handle:
            yield handle
        return
    try:
        with handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        aside.replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            aside.unlink()
        raise
    sync_folder(target.parent)


@contextmanager
def writing(path: str | Path) -> Iterator[BinaryIO]:
    """`replacing`, packed if the name ends in .gz, .xz or .bz2, as `open_bytes` unpacks."""
    name = str(path)
    with replacing(path) as file:
        packed: Any = nullcontext(file)
        if name.endswith(".gz"):
            # Neither name nor time inside: equal lines give equal files.
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
        elif name.endswith(".xz"):
            packed = lzma.LZMAFile(file, "wb")  # noqa: SIM115  # closed just below
        elif name.endswith(".bz2"):
            packed = bz2.BZ2File(file, "wb")
        with packed as stream:
            yield stream


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, where the system can: a rename is safe only then."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_atomically(path: str | Path, data: bytes) -> None:
    """The whole of a small file, with the promises of `replacing`."""
    with replacing(path) as stream:
        stream.write(data)
