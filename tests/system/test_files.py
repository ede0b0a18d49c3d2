"""files: writing to a temporary name, flushing and renaming."""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from vtrans.apps.documents.memory import Memory
from vtrans.apps.interop.formats import atomic_folder
from vtrans.storage.tensors import write_tensors
from vtrans.system.errors import FileError, VtransError, WriteError
from vtrans.system.files import Content, destination, named_os_errors, replacing, write_atomically


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
        (errno.ENOENT, FileError, 2),
    ],
)
def test_a_disk_that_fails_is_not_the_fault_of_the_path(number: int, kind: type[VtransError], code: int) -> None:
    with pytest.raises(kind, match="out") as caught, named_os_errors("out.de"):
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


@pytest.mark.parametrize("there", [True, False])
def test_models_and_folders_go_to_the_end_of_links(tmp_path: Path, there: bool) -> None:
    pairs: tuple[tuple[Content, str], ...] = (("model", "m"), ("folder", "f"))
    for content, name in pairs:
        real, link = tmp_path / name, tmp_path / f"{name}-link"
        (tmp_path / f"{name}-middle").symlink_to(real)
        link.symlink_to(tmp_path / f"{name}-middle")
        if there:
            real.write_bytes(b"old") if content == "model" else real.mkdir()
        assert destination(link, content) == real
    write_tensors(tmp_path / "m-link", {}, {"kind": "model"})
    with atomic_folder(tmp_path / "f-link") as folder:
        (folder / "new").write_bytes(b"new")
    assert (tmp_path / "m").read_bytes()[8:9] == b"{"
    assert (tmp_path / "f" / "new").read_bytes() == b"new"
    links = sorted(path.name for path in tmp_path.iterdir() if path.is_symlink())
    assert links == ["f-link", "f-middle", "m-link", "m-middle"]
    assert len(list(tmp_path.iterdir())) == 6


def kinds(folder: Path) -> dict[str, tuple[int, int]]:
    """The type and the number of each file in a folder."""
    return {path.name: (path.lstat().st_mode, path.lstat().st_ino) for path in folder.iterdir()}


def test_a_model_or_a_folder_replaces_nothing_of_another_kind(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    before = kinds(tmp_path)
    for name in ("fifo", "folder", "link", "loop"):
        with pytest.raises(FileError, match=name):
            write_tensors(tmp_path / name, {}, {"kind": "model"})
        with pytest.raises(FileError, match=name):
            Memory(tmp_path / name)
    for name in ("fifo", "file", "link", "loop"):
        with pytest.raises(FileError, match=name), atomic_folder(tmp_path / name):
            raise AssertionError
    assert kinds(tmp_path) == before


@pytest.mark.parametrize("mode", [0o600, 0o440])
def test_a_model_keeps_the_permissions_of_the_one_that_it_replaces(tmp_path: Path, mode: int) -> None:
    model = tmp_path / "model"
    model.write_bytes(b"old")
    model.chmod(mode)
    write_tensors(model, {}, {"kind": "model"})
    assert stat.S_IMODE(model.stat().st_mode) == mode
    assert model.read_bytes() != b"old"


def test_text_goes_to_a_descriptor_that_is_a_pipe() -> None:
    reader, writer = os.pipe()
    write_atomically(f"/dev/fd/{writer}", b"through")
    os.close(writer)
    assert os.read(reader, 100) == b"through"
    os.close(reader)


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
