"""files: writing to a temporary name, flushing and renaming."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from vtrans.errors import FileError, VtransError, WriteError
from vtrans.files import explained, file_sha256, printable, replacing, write_atomically


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"

    def fail(error: BaseException) -> None:
        with replacing(path) as stream:
            stream.write(b"half")
            raise error

    for error in (ValueError("stop"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            fail(error)
        assert list(tmp_path.iterdir()) == []
    write_atomically(path, b"old")
    with pytest.raises(ValueError, match="stop"):
        fail(ValueError("stop"))
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("number", "kind", "code"),
    [
        (errno.ENOSPC, WriteError, 1),
        (errno.EDQUOT, WriteError, 1),
        (errno.EIO, WriteError, 1),
        (errno.EACCES, FileError, 2),
        (errno.EROFS, FileError, 2),
        (errno.ENOENT, FileError, 2),
    ],
)
def test_a_disk_that_fails_is_not_the_fault_of_the_path(number: int, kind: type[VtransError], code: int) -> None:
    with pytest.raises(kind, match="out") as caught, explained("out.de"):
        raise OSError(number, os.strerror(number))
    assert caught.value.exit_code == code
    assert os.strerror(number) in str(caught.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_write_to_a_full_disk_names_the_file() -> None:
    with pytest.raises(WriteError, match="/dev/full"), replacing("/dev/full") as stream:
        stream.write(b"x" * 100_000)
    with pytest.raises(WriteError, match="/dev/full"):
        write_atomically("/dev/full", b"x")  # flushed when it is closed


def test_the_old_file_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with replacing(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_links_are_followed_and_pipes_are_written_directly(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
    reader.start()
    write_atomically(fifo, b"through")
    reader.join(10)
    assert got == [b"through"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_path_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "folder", tmp_path):
        with pytest.raises(FileError, match=str(path)):
            write_atomically(path, b"")
    assert list(tmp_path.iterdir()) == []


def test_the_hash_of_a_file_is_its_sha256_and_none_if_it_cannot_be_read(tmp_path: Path) -> None:
    write_atomically(tmp_path / "abc", b"abc")
    assert file_sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_sha256(tmp_path / "missing") is None


def test_a_name_that_is_not_utf8_is_printable() -> None:
    assert printable(os.fsdecode(b"a\xffb")) == "a\\xffb"
