"""Reads lines of text from bytes and writes them back.

A line ends at `\\n` only. One `\\r` before it is removed, and so is a byte order mark at the start of the file. The
other characters at which `str.splitlines` splits (U+2028, U+2029, U+0085, VT, FF, FS, GS, RS, a lone CR) become a space
and are counted. Text is UTF-8, or UTF-16 or UTF-32 if a byte order mark says so; the locale does not matter.
"""

from __future__ import annotations

import bz2
import codecs
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
_MARKS = {  # the mark of UTF-32-LE begins with that of UTF-16-LE
    codecs.BOM_UTF32_LE: "utf-32le",
    codecs.BOM_UTF32_BE: "utf-32be",
    codecs.BOM_UTF16_LE: "utf-16le",
    codecs.BOM_UTF16_BE: "utf-16be",
}
_SAMPLE = 1000  # bytes
_BAD = "\udcff"  # what becomes the byte 0xff, which UTF-8 never contains
codecs.register_error("vtrans.bad", lambda error: (_BAD, cast(UnicodeDecodeError, error).end))
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
    for bytes that are not of the encoding (with `on_bad_utf8` "replace" they become U+FFFD instead) and for UTF-16
    without a byte order mark, and FileError if the stream is truncated or damaged. `line` and `offset` are the number
    and the byte offset of the first line, if the stream is a later part of a text.
    """
    report = report if report is not None else LineReport()
    reader = _Decoder(name, on_bad_utf8, report, line, offset)
    # read1 returns the bytes that have arrived; read(n) of a buffered pipe would wait for n bytes.
    read = getattr(stream, "read1", stream.read)
    begun = offset > 0
    first = b"" if begun else _first_block(read, name)
    if encoding := marked_encoding(first):
        reader.source = _AsUtf8(read, encoding, first)
        read, first = reader.source.read, b""
    pieces: list[bytes] = []
    length = 0  # bytes in `pieces`
    while chunk := first or _block(read, name):
        first = b""
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


def _first_block(read: Callable[[int], bytes], name: str) -> bytes:
    """Returns the first bytes of a stream, with the whole byte order mark if there is one."""
    first = more = _block(read, name)
    while more and any(len(first) < len(mark) and mark.startswith(first) for mark in _MARKS):
        first += (more := _block(read, name))
    return first


def marked_encoding(data: bytes) -> str | None:
    """Returns the encoding that the byte order mark of a text names, or None for UTF-8."""
    return next((encoding for mark, encoding in _MARKS.items() if data.startswith(mark)), None)


def unmarked_encoding(data: bytes) -> str | None:
    """Returns UTF-16 or UTF-32 if a text without a byte order mark has zeros and is mostly Latin in it; else None."""
    sample = data[:_SAMPLE]
    for encoding in _MARKS.values() if b"\0" in sample else ():
        with suppress(UnicodeDecodeError):
            text = codecs.getincrementaldecoder(encoding)().decode(sample)
            readable = all(sign.isprintable() or sign.isspace() for sign in text)
            if readable and 2 * sum(sign < "\u0100" for sign in text) > max(len(text), 2):
                return encoding
    return None


def converted(encoding: str) -> str:
    """Returns the end of an error about an encoding: its name, and how a text is converted to UTF-8."""
    return f"{encoding.upper()}; convert it, for example with `iconv -f {encoding.upper()} -t UTF-8`"


class _AsUtf8:
    """A stream of another encoding as UTF-8, with a byte 0xff for bytes that are not of the encoding. `bad` is the
    offset of the first of them."""

    def __init__(self, read: Callable[[int], bytes], encoding: str, first: bytes) -> None:
        self.encoding, self.bad = encoding, -1
        self._read, self._first, self._position = read, first, 0
        self._decoder = codecs.getincrementaldecoder(encoding)("vtrans.bad")

    def read(self, size: int) -> bytes:
        """Returns what has arrived, and nothing at the end only."""
        while True:
            data, self._first = self._first or self._read(size), b""
            begin = self._position - len(self._decoder.getstate()[0])
            self._position += len(data)
            text = self._decoder.decode(data, final=not data)
            if self.bad < 0 and _BAD in text:
                self.bad = begin + len(text.partition(_BAD)[0].encode(self.encoding))
            if text or not data:
                return text.encode("utf-8", "surrogateescape")


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
                if encoding := marked_encoding(block):
                    raise InputError(
                        f"{path} must be UTF-8, because jobs read parts of it, but is {converted(encoding)}."
                    )
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

    For a file that is not UTF-8 it is an estimate, which assumes that the rest is as long as the part read so far.
    """

    def __init__(self, stream: BinaryIO, report: LineReport) -> None:
        self._report = report
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
        read = os.lseek(self._descriptor, 0, os.SEEK_CUR) - self._start if self.known else 0
        whole = self._size * self._report.bytes / max(1, read)
        return min(1.0, done / whole) if whole else 0.0


class _Decoder:
    """Decodes blocks of whole lines, and counts lines and bytes for error messages."""

    def __init__(self, name: str, on_bad_utf8: OnBadUtf8, report: LineReport, line: int, offset: int) -> None:
        self.name, self.on_bad_utf8, self.report = name, on_bad_utf8, report
        self.line = line  # number of the next line
        self.offset = offset  # of its first byte
        self.source: _AsUtf8 | None = None

    def without_bom(self, block: bytes) -> bytes:
        """Returns the first block of a stream without its byte order marks.

        Concatenated files have several. Removing all of them means that text that was read and written reads the same.
        Raises InputError if the first line looks like UTF-16.
        """
        if encoding := unmarked_encoding(block.partition(b"\n")[0]):
            raise InputError(f"{self.name} must be UTF-8, but looks like {converted(encoding)}.")
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
                    offset, what = self.offset + error.start, f"UTF-8: byte 0x{raw[error.start]:02x}"
                    if self.source:
                        offset, what = self.source.bad, f"{self.source.encoding.upper()}: half a character"
                    raise InputError(
                        f"{self.name}: line {self.line} is not {what} at byte offset {offset}; convert the file to "
                        "UTF-8, or set `on_bad_utf8` to replace."
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
