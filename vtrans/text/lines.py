"""Reads lines of text from bytes and writes them back.

A line ends at `\\n` only. One `\\r` before it is removed, and so is a byte order mark at the start of the file. The
other characters at which `str.splitlines` splits (U+2028, U+2029, U+0085, VT, FF, FS, GS, RS, a lone CR) become a space
and are counted. Text is always UTF-8; the locale does not matter.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from vtrans.errors import FileError, InputError
from vtrans.files import no_file, reason, replacing

OnBadUtf8 = Literal["error", "replace"]

_BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 18
# What str.splitlines takes for a line end, except \n. Other tools would split a line there.
_ODD_LINE_END = re.compile("[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_LINE_END = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# The memory that unpacking an .xz file may take. `xz -9` needs 65 MB; a header can ask for 4 GB.
_MOST_MEMORY = 1 << 30
# A longer line is no text: the input may be /dev/zero.
_LONGEST_LINE = 1 << 28
# OSError includes gzip.BadGzipFile and the errors of the bz2 module; EOFError means a truncated file.
_READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, MemoryError)


@dataclass
class LineReport:
    """What `read_lines` has counted so far: at most one block more than the lines that it has yielded."""

    odd_line_ends: int = 0
    """Characters that other tools take for a line end; each became a space."""
    replacements: int = 0
    """U+FFFD characters in place of bytes that are not UTF-8 (one for up to three bytes)."""
    bytes: int = field(default=0, compare=False)
    """Bytes of text read, after decompression."""


def open_bytes(path: str | Path) -> BinaryIO:
    """Opens a file for reading, decompressed if its name ends in .gz, .xz or .bz2.

    Raises FileError if it cannot be opened. `read_lines` finds damage inside it.
    """
    name = str(path)
    try:
        if name.endswith(".gz"):
            return cast(BinaryIO, gzip.open(name, "rb"))
        if name.endswith(".xz"):
            limited = partial(lzma.LZMADecompressor, memlimit=_MOST_MEMORY)
            return cast(BinaryIO, _Unpacked(Path(name).open("rb"), limited))
        if name.endswith(".bz2"):
            return cast(BinaryIO, _Unpacked(Path(name).open("rb"), bz2.BZ2Decompressor))
        return Path(name).open("rb")
    except FileNotFoundError:
        raise no_file(name) from None
    except IsADirectoryError:
        raise FileError(f"{name} is a folder, but must be a file.") from None
    except (OSError, ValueError) as error:
        raise FileError(f"{name} cannot be read: {reason(error)}.") from None


class _Unpacked(io.RawIOBase):
    """The content of the compressed streams in a file.

    `lzma.open` and `bz2.open` take damage at the start of a second stream for the end of the file, and lose its lines.
    """

    def __init__(self, file: BinaryIO, make: Callable[[], lzma.LZMADecompressor | bz2.BZ2Decompressor]) -> None:
        self._file, self._make, self._decompressor = file, make, make()
        self._position = 0  # in the content

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()
        super().close()

    def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int:
        """Unpacks up to a position in the content, from its start if the position is behind."""
        assert whence == os.SEEK_SET
        if position < self._position:
            self._file.seek(0)
            self._decompressor, self._position = self._make(), 0
        while self._position < position and self.read(min(_CHUNK, position - self._position)):
            pass
        return self._position

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fills a part of the buffer, and nothing at the end. Returns the number of bytes."""
        while len(buffer):
            packed = b""
            if self._decompressor.eof:
                packed = self._decompressor.unused_data.lstrip(b"\0")  # zeros may follow a stream of xz
                while not packed:
                    if not (more := self._file.read(_CHUNK)):
                        return 0
                    packed = more.lstrip(b"\0")
                self._decompressor = self._make()
            elif self._decompressor.needs_input and not (packed := self._file.read(_CHUNK)):
                raise EOFError("it ends within a compressed stream")
            if data := self._decompressor.decompress(packed, len(buffer)):
                buffer[: len(data)] = data
                self._position += len(data)
                return len(data)
        return 0


def read_lines(
    stream: BinaryIO,
    name: str,
    *,
    on_bad_utf8: OnBadUtf8 = "error",
    report: LineReport | None = None,
    line: int = 1,
    offset: int = 0,
) -> Iterator[str]:
    """Yields the lines of a stream, without their line ends.

    n newlines give n lines, or n + 1 if text follows the last. A line is yielded as soon as its `\\n` has arrived, so a
    pipe may stay open. Memory holds one block and the longest line. Errors call the stream `name`. Raises InputError
    for bytes that are not UTF-8 (with `on_bad_utf8` "replace" they become U+FFFD instead), and FileError if the stream
    is truncated or damaged. `line` and `offset` are the number and the byte offset of the first line, if the stream is
    a later part of a text.
    """
    report = report if report is not None else LineReport()
    reader = _Decoder(name, on_bad_utf8, report, line, offset)
    # read1 returns the bytes that have arrived; read(n) of a buffered pipe would wait for n bytes.
    read = getattr(stream, "read1", stream.read)
    begun = offset > 0
    pieces: list[bytes] = []
    length = 0  # bytes in `pieces`
    while chunk := _block(read, name):
        report.bytes += len(chunk)
        cut = chunk.rfind(b"\n")
        if cut < 0:
            pieces.append(chunk)
            if (length := length + len(chunk)) > _LONGEST_LINE:
                raise InputError(f"{name}: line {reader.line} has more than {_LONGEST_LINE:,} bytes; give a text file.")
            continue
        block = b"".join((*pieces, chunk[:cut]))
        pieces = [chunk[cut + 1 :]] if cut + 1 < len(chunk) else []
        length = len(chunk) - cut - 1
        yield from reader.lines(block if begun else reader.without_bom(block))
        begun = True
    rest = b"".join(pieces)
    rest = rest if begun else reader.without_bom(rest)
    if rest:
        yield from reader.lines(rest)


def lines_in(path: str | Path, on_bad_utf8: OnBadUtf8 = "error", report: LineReport | None = None) -> Iterator[str]:
    """Yields the lines of a file, which may be compressed. Raises what `open_bytes` and `read_lines` raise."""
    with open_bytes(path) as stream:
        yield from read_lines(stream, str(path), on_bad_utf8=on_bad_utf8, report=report)


@dataclass(frozen=True)
class LineIndex:
    """A text divided into parts of equally many lines; the last part may have fewer."""

    sha256: str
    """Of the text, after decompression."""
    lines: int
    starts: tuple[int, ...]
    """The byte offset of each part in the decompressed text, then that of the end."""


def index_lines(path: Path, every: int) -> LineIndex:
    """Returns the parts of `every` lines of a file, without decoding it. A byte order mark belongs to no part.

    Raises FileError if the file cannot be read to its end.
    """
    digest, lines, position, left, last = hashlib.sha256(), 0, 0, every, b""
    starts: list[int] = []
    with open_bytes(path) as stream:
        while block := _block(stream.read, str(path)):
            digest.update(block)
            if not starts:
                starts.append(len(block) - len(_without_bom(block)))
            ends, at = block.count(b"\n"), -1
            lines += ends
            while ends >= left:
                for _ in range(left):
                    at = block.find(b"\n", at + 1)
                starts.append(position + at + 1)
                ends, left = ends - left, every
            left -= ends
            position, last = position + len(block), block[-1:]
    if position > (starts or [0])[-1]:
        starts.append(position)
        lines += last != b"\n"
    return LineIndex(digest.hexdigest(), lines, tuple(starts or [0]))


def _block(read: Callable[[int], bytes], name: str) -> bytes:
    try:
        return read(_CHUNK)
    except _READ_ERRORS as error:
        raise FileError(f"{name} cannot be read to its end: {reason(error)}.") from None


class Extent:
    """How much text a stream holds, for a progress display. It is known for regular files only.

    For a compressed file it is an estimate, which assumes that the rest compresses like the part read so far.
    """

    def __init__(self, stream: BinaryIO, report: LineReport) -> None:
        self._report = report
        self._packed = isinstance(stream, (gzip.GzipFile, _Unpacked))
        self._size = 0  # bytes of the file from the current position; 0: unknown
        with suppress(OSError):  # not a file, or one without positions
            self._descriptor = stream.fileno()
            here = os.fstat(self._descriptor)
            self._start = os.lseek(self._descriptor, 0, os.SEEK_CUR)
            self._size = max(0, here.st_size - self._start) if stat.S_ISREG(here.st_mode) else 0

    @property
    def known(self) -> bool:
        return self._size > 0

    def share(self, done: float) -> float:
        """Returns `done` bytes of text as a share of the whole, from 0 to 1."""
        whole = float(self._size)
        if self._packed:
            whole *= self._report.bytes / max(1, os.lseek(self._descriptor, 0, os.SEEK_CUR) - self._start)
        return min(1.0, done / whole) if whole else 0.0


class _Decoder:
    """Decodes blocks of whole lines, and counts lines and bytes for error messages."""

    def __init__(self, name: str, on_bad_utf8: OnBadUtf8, report: LineReport, line: int, offset: int) -> None:
        self.name, self.on_bad_utf8, self.report = name, on_bad_utf8, report
        self.line = line  # number of the next line
        self.offset = offset  # of its first byte

    def without_bom(self, block: bytes) -> bytes:
        """Returns the first block of a stream without its byte order marks.

        Concatenated files have several. Removing all of them means that text that was read and written reads the same.
        """
        rest = _without_bom(block)
        self.offset += len(block) - len(rest)
        return rest

    def lines(self, block: bytes) -> Iterator[str]:
        """Yields the lines of a block that ends before a `\\n` or at the end of the stream."""
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
                        "or set `on_bad_utf8` to replace."
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


def _without_bom(block: bytes) -> bytes:
    while block.startswith(_BOM):
        block = block[len(_BOM) :]
    return block


def one_line(text: str) -> str:
    """Returns `text` with a space for every character that some tool takes for a line end."""
    return _LINE_END.sub(" ", text)


def write_line(stream: BinaryIO, text: str) -> None:
    """Writes `text` as exactly one line: line ends inside it become spaces."""
    # A lone surrogate, which UTF-8 input never contains, is written as "?".
    stream.write(one_line(text).encode("utf-8", errors="replace") + b"\n")


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Writes a file with `writing` and `write_line`."""
    with writing(path) as stream:
        for line in lines:
            write_line(stream, line)


@contextmanager
def writing(path: str | Path) -> Iterator[BinaryIO]:
    """Yields a stream whose content replaces a file (see `replacing`). It is compressed if the name ends in .gz, .xz or
    .bz2."""
    name = str(path)
    with replacing(path) as file:
        packed: Any = nullcontext(file)
        if name.endswith(".gz"):
            # Without name and time, so that equal lines give equal files.
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
        elif name.endswith(".xz"):
            packed = lzma.LZMAFile(file, "wb")  # noqa: SIM115  # closed just below
        elif name.endswith(".bz2"):
            packed = bz2.BZ2File(file, "wb")
        with packed as stream:
            yield stream
