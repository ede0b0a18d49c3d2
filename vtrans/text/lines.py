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
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from vtrans.system.errors import FileError, InputError
from vtrans.system.files import no_file, reason, replacing

OnBadUtf8 = Literal["error", "replace"]

_MARKS = {  # UTF-32 first: the mark of UTF-32-LE begins with the mark of UTF-16-LE
    codecs.BOM_UTF32_LE: "utf-32le",
    codecs.BOM_UTF32_BE: "utf-32be",
    codecs.BOM_UTF16_LE: "utf-16le",
    codecs.BOM_UTF16_BE: "utf-16be",
}
_SAMPLE = 1000  # bytes
codecs.register_error("vtrans.bad", lambda error: ("\udcff", cast(UnicodeDecodeError, error).end))
_CHUNK = 1 << 18
_ODD = "\r\v\f\x1c-\x1e\x85\u2028\u2029"  # where str.splitlines and other tools end a line, too
_BAD = "\udc80-\udcff"  # bytes that are not UTF-8, as the error handler surrogateescape writes them
_LINE_END, _ODD_LINE_END = re.compile(f"[\n{_ODD}]"), re.compile(f"[{_ODD}]")
_BAD_BYTE = re.compile(f"[{_BAD}]")
# Memory limit for decompressing an .xz file. `xz -9` needs 65 MB; a header can ask for 4 GB.
_MOST_MEMORY = 1 << 30
# A file with a longer line is not text; it may be /dev/zero.
_LONGEST_LINE = 1 << 28
# OSError includes gzip.BadGzipFile and the errors of the bz2 module; EOFError means a truncated file.
_READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, MemoryError)


@dataclass
class LineReport:
    """Counters of `read_lines`, which run up to one block ahead of the lines yielded."""

    odd_line_ends: int = 0
    """Characters that other tools treat as a line end; each became a space."""
    replacements: int = 0
    """U+FFFD characters in place of bytes that are not UTF-8 (one for up to three bytes)."""
    bytes: int = field(default=0, compare=False)
    """Bytes of text read, after decompression."""


def open_bytes(path: str | Path) -> BinaryIO:
    """Opens a file for reading, decompressed if its name ends in .gz, .xz or .bz2.

    Raises FileError if it cannot be opened. `read_lines` reports damaged content.
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
    """The decompressed content of all compressed streams in a file.

    `lzma.open` and `bz2.open` mistake damage at the start of a second stream for the end of the file, and lose lines.
    """

    def __init__(self, file: BinaryIO, make: Callable[[], lzma.LZMADecompressor | bz2.BZ2Decompressor]) -> None:
        self._file, self._make, self._decompressor = file, make, make()

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Fills part of the buffer. Returns the number of bytes, 0 at the end of the file."""
        while len(buffer):
            packed = b""
            if self._decompressor.eof:
                packed = self._decompressor.unused_data.lstrip(b"\0")  # zeros may pad an xz stream
                while not packed:
                    if not (more := self._file.read(_CHUNK)):
                        return 0
                    packed = more.lstrip(b"\0")
                self._decompressor = self._make()
            elif self._decompressor.needs_input and not (packed := self._file.read(_CHUNK)):
                raise EOFError("it ends within a compressed stream")
            if data := self._decompressor.decompress(packed, len(buffer)):
                buffer[: len(data)] = data
                return len(data)
        return 0


def read_lines(
    stream: BinaryIO,
    name: str,
    *,
    on_bad_utf8: OnBadUtf8 = "error",
    report: LineReport | None = None,
) -> Iterator[str]:
    """Yields the lines of a stream, without their line ends.

    n newlines give n lines, or n + 1 if text follows the last. A line is yielded as soon as its `\\n` has arrived, so a
    pipe may stay open. Memory holds one block and the longest line. Errors call the stream `name`. Raises InputError
    for bytes that are invalid in the encoding (with `on_bad_utf8` "replace" they become U+FFFD instead), for UTF-16 or
    UTF-32 without a byte order mark, and for a line of more than 256 MiB; FileError if the stream is damaged.
    """
    report = report if report is not None else LineReport()
    line = 1  # number of the block's first line
    offset = 0  # of the block, in bytes
    # read1 returns the bytes that have arrived; read(n) of a buffered pipe would wait for n bytes.
    blocks = _blocks(getattr(stream, "read1", stream.read), name, report)
    encoding, blocks = _as_utf8(blocks)
    for block in _whole_lines(blocks, name):
        text = block.decode("utf-8", "surrogateescape")
        if line == 1:
            if unmarked := unmarked_encoding(block.partition(b"\n")[0]):
                raise InputError(f"{name} must be UTF-8, but looks like {converted(unmarked)}.")
            # Concatenated files have several marks. Removing all lets text survive being written and read again.
            bare = text.lstrip("\ufeff")
            offset = (len(text) - len(bare)) * len("\ufeff".encode(encoding))
            text = bare
        lines = text.splitlines()
        bad = None
        # splitlines also splits at odd line ends, which a pattern would take four times as long to find.
        if len(lines) != text.count("\n") or not text.endswith("\n") or not is_utf8(block):
            bad = _BAD_BYTE.search(text) if on_bad_utf8 == "error" else None
            good = text[: text.rfind("\n", 0, bad.start()) + 1] if bad else text
            lines = good.removesuffix("\n").split("\n") if good else []
            readable = good.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            report.replacements += readable.count("\ufffd") - good.count("\ufffd")
            cleaned, odd = _ODD_LINE_END.subn(" ", readable.replace("\r\n", "\n").removesuffix("\r"))
            report.odd_line_ends += odd
            lines = cleaned.split("\n")[: len(lines)]
        yield from lines
        if bad:
            before = text[: bad.start()]
            number = line + before.count("\n")
            place = offset + len(before.encode(encoding))
            what = f"byte 0x{ord(bad[0]) & 0xFF:02x}" if encoding == "utf-8" else "half a character"
            raise InputError(
                f"{name}: line {number} is not {encoding.upper()}: {what} at byte offset {place}; convert the file to "
                "UTF-8, or set `on_bad_utf8` to replace."
            )
        line += text.count("\n")
        offset += len(text.encode(encoding, "replace"))


def _blocks(read: Callable[[int], bytes], name: str, report: LineReport) -> Iterator[bytes]:
    """Yields the bytes of a stream as they arrive. Raises FileError if the stream is damaged."""
    try:
        while block := read(_CHUNK):
            report.bytes += len(block)
            yield block
    except _READ_ERRORS as error:
        raise FileError(f"{name} cannot be read to its end: {reason(error)}.") from None


def _as_utf8(blocks: Iterator[bytes]) -> tuple[str, Iterator[bytes]]:
    """Returns the encoding given by a text's byte order mark, and the text in UTF-8. Bytes that are invalid in UTF-16
    or UTF-32 become 0xff."""
    first = next(blocks, b"")
    while any(mark.startswith(first) and mark != first for mark in _MARKS) and (more := next(blocks, b"")):
        first += more
    blocks = chain([first], blocks)
    if (encoding := marked_encoding(first)) is None:
        return "utf-8", blocks
    texts = codecs.iterdecode(blocks, encoding, "vtrans.bad")
    return encoding, (text.encode("utf-8", "surrogateescape") for text in texts)


def _whole_lines(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Yields blocks of whole lines, as soon as their `\\n` has arrived; the last line may have none."""
    begun, line = bytearray(), 1
    for block in blocks:
        if end := block.rfind(b"\n") + 1:
            yield bytes(begun + block[:end])
            begun, line = bytearray(), line + block.count(b"\n")
        begun += block[end:]
        if len(begun) > _LONGEST_LINE:
            raise InputError(f"{name}: line {line} has more than {_LONGEST_LINE:,} bytes; give a text file.")
    if begun:
        yield bytes(begun)


def marked_encoding(data: bytes) -> str | None:
    """Returns the encoding given by a text's byte order mark, or None for UTF-8."""
    return next((encoding for mark, encoding in _MARKS.items() if data.startswith(mark)), None)


def unmarked_encoding(data: bytes) -> str | None:
    """Returns the encoding of mostly Latin UTF-16 or UTF-32 text without a byte order mark, or None."""
    sample = data[:_SAMPLE]
    for encoding in _MARKS.values() if b"\0" in sample else ():
        with suppress(UnicodeDecodeError):
            text = codecs.getincrementaldecoder(encoding)().decode(sample)
            readable = all(sign.isprintable() or sign.isspace() for sign in text)
            if readable and 2 * sum(sign < "\u0100" for sign in text) > max(len(text), 2):
                return encoding
    return None


def is_utf8(data: bytes) -> bool:
    """Returns whether bytes are UTF-8."""
    with suppress(UnicodeDecodeError):
        data.decode()
        return True
    return False


def converted(encoding: str) -> str:
    """Returns the end of an error message: the name of an encoding, and how to convert a text to UTF-8."""
    return f"{encoding.upper()}; convert it, for example with `iconv -f {encoding.upper()} -t UTF-8`"


def lines_in(path: str | Path, on_bad_utf8: OnBadUtf8 = "error", report: LineReport | None = None) -> Iterator[str]:
    """Yields the lines of a file, which may be compressed. Raises the errors of `open_bytes` and `read_lines`."""
    with open_bytes(path) as stream:
        yield from read_lines(stream, str(path), on_bad_utf8=on_bad_utf8, report=report)


def count_lines(path: Path) -> tuple[int, str]:
    """Returns the number of lines in a file, and the SHA-256 of its decompressed content. Raises FileError if the file
    cannot be read to its end."""
    lines = sum(1 for _ in lines_in(path, "replace"))
    with open_bytes(path) as stream:
        return lines, hashlib.file_digest(cast(Any, stream), "sha256").hexdigest()


def one_line(text: str) -> str:
    """Returns `text` with a space for every character that some tool treats as a line end."""
    return _LINE_END.sub(" ", text)


def write_line(stream: BinaryIO, text: str) -> None:
    """Writes `text` as exactly one line: line ends inside it become spaces."""
    # A lone surrogate, which UTF-8 input never contains, is written as "?".
    stream.write(one_line(text).encode("utf-8", errors="replace") + b"\n")


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Writes a file of lines, compressed if its name says so (see `writing`)."""
    with writing(path) as stream:
        for line in lines:
            write_line(stream, line)


@contextmanager
def writing(path: str | Path) -> Iterator[BinaryIO]:
    """Yields a stream whose content replaces a file (see `replacing`), compressed if the name ends in .gz, .xz or
    .bz2."""
    name = str(path)
    with replacing(path) as file:
        packed: Any = nullcontext(file)
        if name.endswith(".gz"):
            # No name or time in the header, so that equal lines give equal files.
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
        elif name.endswith(".xz"):
            packed = lzma.LZMAFile(file, "wb")  # noqa: SIM115  # closed just below
        elif name.endswith(".bz2"):
            packed = bz2.BZ2File(file, "wb")
        with packed as stream:
            yield stream
