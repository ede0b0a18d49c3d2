"""The newline and encoding law of vtrans/text/lines.py, as properties and as a table of cases."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrans.system.errors import FileError, InputError, VtransError
from vtrans.text.lines import (
    LineReport,
    OnBadUtf8,
    count_lines,
    marked_encoding,
    open_bytes,
    read_lines,
    unmarked_encoding,
    write_line,
)

# Bytes and text in which the hard cases are common.
ODD = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
texts = st.text(st.one_of(st.sampled_from("ab \n\r\ufeff\ufffd\0🙂" + ODD), st.characters(codec="utf-8")))
parts = st.sampled_from(
    [b"a", b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf", b"\xff", b"\xc3", b"\xa4", b"\xef\xbf\xbd", b"\xed\xa0\x80"]
)


def is_utf8(data: bytes) -> bool:
    first = re.sub(rb"^(?:\xef\xbb\xbf)+", b"", data).partition(b"\n")[0]
    return not marked_encoding(data) and not unmarked_encoding(first)


blobs = st.one_of(st.binary(), texts.map(str.encode), st.lists(parts).map(b"".join)).filter(is_utf8)


class Trickle(io.RawIOBase):
    """A stream that returns at most `sizes` bytes per read, as a slow pipe does."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self.data, self.sizes, self.turn = data, sizes, 0

    def read(self, size: int = -1) -> bytes:
        n = self.sizes[self.turn % len(self.sizes)]
        self.turn += 1
        result, self.data = self.data[:n], self.data[n:]
        return result


def lines(data: bytes, on_bad_utf8: OnBadUtf8 = "replace", report: LineReport | None = None) -> list[str]:
    return list(read_lines(io.BytesIO(data), "f", on_bad_utf8=on_bad_utf8, report=report))


@given(blobs)
def test_n_newlines_give_n_or_n_plus_one_lines(data: bytes) -> None:
    text = data
    while text.startswith(b"\xef\xbb\xbf"):
        text = text[3:]
    expected = text.count(b"\n") + (text != b"" and not text.endswith(b"\n"))
    assert len(lines(data)) == expected


@given(blobs, st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_chunk_boundaries_do_not_matter(data: bytes, sizes: list[int]) -> None:
    whole, trickled = LineReport(), LineReport()
    slow = cast(BinaryIO, Trickle(data, sizes))
    assert list(read_lines(slow, "f", on_bad_utf8="replace", report=trickled)) == lines(data, report=whole)
    assert whole == trickled


def outcome(stream: BinaryIO) -> tuple[list[str], str]:
    """The lines before an error, and the error's message."""
    got = []
    try:
        for text in read_lines(stream, "f"):
            got.append(text)
    except InputError as error:
        return got, str(error)
    return got, ""


@given(blobs)
def test_lines_are_counted_as_they_are_read(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "text.gz"
    path.write_bytes(gzip.compress(data))
    assert count_lines(path) == (len(lines(data)), hashlib.sha256(data).hexdigest())


@given(blobs)
def test_bad_utf8_is_named_by_its_offset(data: bytes) -> None:
    got, message = outcome(io.BytesIO(data))
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:  # at the same byte, although lines are decoded alone
        place = f"f: line {len(got) + 1} is not UTF-8: byte 0x{data[error.start]:02x} at byte offset {error.start};"
        assert message.startswith(place)
    else:
        assert message == ""


@given(blobs)
def test_reading_what_was_written_gives_equal_lines(data: bytes) -> None:
    once = lines(data)
    out = io.BytesIO()
    for line in once:
        write_line(out, line)
    report = LineReport()
    assert lines(out.getvalue(), "error", report) == once
    assert report == LineReport()


@given(st.lists(st.text()))
def test_write_line_writes_exactly_one_line(texts: list[str]) -> None:
    out = io.BytesIO()
    for text in texts:
        write_line(out, text)
    assert out.getvalue().count(b"\n") == len(texts)
    assert len(lines(out.getvalue(), "error")) == len(texts)
    assert len(out.getvalue().decode().splitlines()) == len(texts)


@given(texts)
def test_lines_survive_other_tools(text: str) -> None:
    """`str.splitlines` splits no line that was read, and only line ends were changed."""
    for line in lines(text.encode()):
        assert len(line.splitlines()) <= 1
        assert not line.endswith("\r")
    plain = "".join(lines(text.encode())).replace(" ", "")
    expected = "".join(c for c in text.lstrip("\ufeff") if c not in ODD + "\n ")
    assert plain == expected


def test_a_line_is_yielded_as_soon_as_its_newline_arrives() -> None:
    """The pipe stays open, and the writer waits for the reader."""
    reading, writing = os.pipe()
    with open(reading, "rb") as stream, open(writing, "wb", buffering=0) as pipe:  # noqa: PTH123  # descriptors
        incoming = read_lines(stream, "pipe")
        got: list[str] = []
        # In a thread, so that a reader that waits for more bytes fails the test instead of hanging.
        for sent in (b"one\n", b"two\nthree\nfo", b"ur\n"):
            pipe.write(sent)
            for _ in range(sent.count(b"\n")):
                reader = threading.Thread(target=lambda: got.append(next(incoming)), daemon=True)
                reader.start()
                reader.join(10)
                assert not reader.is_alive()
    assert got == ["one", "two", "three", "four"]


COMPRESSIONS: list[tuple[str, Callable[[bytes], bytes]]] = [
    (".gz", gzip.compress),
    (".xz", lzma.compress),
    (".bz2", bz2.compress),
]


def test_each_replaced_sequence_is_counted() -> None:
    report = LineReport()
    assert lines(b"\xef\xbf\xbd\xff\nb\xc3", report=report) == ["\ufffd\ufffd", "b\ufffd"]
    assert report.replacements == 2


ENCODINGS = ("utf-16le", "utf-16be", "utf-32le", "utf-32be")


@given(
    st.text(st.one_of(st.sampled_from("a\n\r\u2028\u0a0a\U0001f600"), st.characters(exclude_categories=["Cs"]))),
    st.sampled_from(ENCODINGS),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
)
def test_an_encoding_that_a_byte_order_mark_names_reads_like_utf8(text: str, encoding: str, sizes: list[int]) -> None:
    slow = cast(BinaryIO, Trickle(f"\ufeff{text}".encode(encoding), sizes))
    assert list(read_lines(slow, "f")) == lines(f"\ufeff{text}".encode())


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("bad", ["half", "surrogate"])
def test_half_a_character_of_utf16_is_named_or_replaced(encoding: str, bad: str) -> None:
    good, rest = "\ufeffa\nb\U0001f600".encode(encoding), "\nc".encode(encoding)
    data = good + ("\ud800".encode(encoding, "surrogatepass") + rest if bad == "surrogate" else b"a")
    got, message = outcome(io.BytesIO(data))
    assert got == ["a"]
    assert f"line 2 is not {encoding.upper()}" in message
    assert f" {len(good)};" in message
    report = LineReport()
    assert lines(data, report=report) == ["a", "b\U0001f600\ufffd", *(["c"] if bad == "surrogate" else [])]
    assert report.replacements == 1


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_utf16_without_a_byte_order_mark_is_refused_and_with_one_it_is_counted(tmp_path: Path, encoding: str) -> None:
    for how in get_args(OnBadUtf8):
        with pytest.raises(InputError, match=encoding.upper()):
            lines("Ein Hund.\nZwei".encode(encoding), how)
    (path := tmp_path / "text").write_bytes("\ufeffEin Hund.\nZwei".encode(encoding))
    assert count_lines(path)[0] == 2
    assert lines(b"a\0bc\0d\n\0\0\0\0\n") == ["a\0bc\0d", "\0" * 4]


@pytest.mark.parametrize(("suffix", "compress"), COMPRESSIONS)
def test_a_damaged_compressed_file_is_named(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"text{suffix}"
    whole = compress(os.urandom(10_000) + b"\n")
    damaged = whole[:5000] + bytes(200) + whole[5200:]
    for data in (whole[:-10], whole[:100], damaged, b"plain text\n"):
        path.write_bytes(data)
        with pytest.raises(FileError, match=f"text{suffix}"):  # noqa: SIM117
            with open_bytes(path) as stream:
                list(read_lines(stream, str(path), on_bad_utf8="replace"))


@pytest.mark.parametrize(("suffix", "compress"), COMPRESSIONS)
def test_every_compressed_stream_is_read(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"text{suffix}"
    path.write_bytes(compress(b"a\nb") + compress(b"c\n") + bytes(8) + compress(b"d") + bytes(600_000))
    with open_bytes(path) as stream:
        assert list(read_lines(stream, str(path))) == ["a", "bc", "d"]


def test_an_xz_file_that_asks_for_gigabytes_is_named(tmp_path: Path) -> None:
    """The header says how much memory unpacking takes: here 4 GB, in a file of 25 bytes."""
    path = tmp_path / "text.xz"
    path.write_bytes(b"Z" + b"\xff" * 23 + b"r")
    with pytest.raises(FileError, match=r"text\.xz"):  # noqa: SIM117
        with open_bytes(path) as stream:
            list(read_lines(stream, str(path)))


def test_an_endless_line_ends_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtrans.text.lines._LONGEST_LINE", 1 << 20)
    with Path("/dev/zero").open("rb") as stream, pytest.raises(InputError, match=r"/dev/zero: line 1 .* 1,048,576 "):
        list(read_lines(stream, "/dev/zero"))
    long = io.BytesIO(b"a\n" + bytes(1 << 20) + b"\nb" * 2)
    assert [len(line) for line in read_lines(long, "long")] == [1, 1 << 20, 1, 1]
    with pytest.raises(InputError, match="line 3"):
        list(read_lines(io.BytesIO(b"a\nb\n" + bytes((1 << 20) + 1)), "long"))


def test_missing_and_unreadable_files_are_named(tmp_path: Path) -> None:
    for name in ("none", "none.gz"):
        with pytest.raises(FileError, match=name):
            open_bytes(tmp_path / name)
    with pytest.raises(FileError, match=str(tmp_path)):
        open_bytes(tmp_path)
    with pytest.raises(FileError, match="null byte"):
        open_bytes("a\0b")
    assert FileError.exit_code == 2
    assert VtransError.exit_code == 1
