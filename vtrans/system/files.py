"""Files: atomic writing (temporary name, flush, rename), errors, locks, hashes and names."""

from __future__ import annotations

import difflib
import errno
import hashlib
import io
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from vtrans.system.errors import FileError, VtransError, WriteError

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Content = Literal["text", "file", "model", "memory", "folder"]
"""The kind of content written to a path. `destination` says which paths it allows."""

# If a write fails with one of these, or without an error number, the path is not at fault.
_DISK_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, None)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yields a temporary path to write to, which is flushed to disk and renamed to `path` when the context ends.

    If the context raises, the temporary file is removed and `path` is unchanged. A link is replaced; `replaced` follows
    it. The file is alone in a temporary folder next to `path`: safetensors creates further temporary files there, so a
    killed process leaves all of them in one folder. Raises what `unwritable` returns.
    """
    # A process id is not unique: processes in several containers, or on several hosts, may write to the folder.
    folder = path.with_name(f".{path.name}.{secrets.randbits(63)}.tmp")
    temporary = folder / path.name
    try:
        with named_os_errors(path):
            folder.mkdir()
        yield temporary
        with named_os_errors(path):
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sync_folder(path.parent)


def destination(path: str | Path, content: Content) -> Path:
    """Returns the path to write an output to: `path` with links resolved. It need not exist.

    A model or a memory must go to a regular file, and a folder to a folder. Text may also go to a FIFO or a device,
    whose path is returned unchanged. Raises FileError for anything else, and for the path of a model or a folder that
    is not UTF-8.
    """
    if content in ("model", "folder"):
        check_path(path)
    with named_os_errors(path):
        try:
            mode = Path(path).stat().st_mode
        except FileNotFoundError:
            mode = None
    if mode is None or (stat.S_ISDIR(mode) if content == "folder" else stat.S_ISREG(mode)):
        return Path(os.path.realpath(path))
    if content == "text" and (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
        return Path(path)
    allowed = {"text": "a file, a FIFO or a device", "folder": "a folder"}.get(content, "a regular file")
    what = "text" if content == "text" else f"a {content}"
    raise FileError(f"{what} cannot be written to {path}: it exists, and is not {allowed}; choose another path.")


@contextmanager
def replaced(path: str | Path, content: Content) -> Iterator[Path]:
    """Yields a new, empty file that replaces the file `path` when the context ends, as `atomic_path` does.

    It is written to the `destination` of `content`, which must not be a FIFO or a device, and keeps the permissions of
    the replaced file.
    """
    target = destination(path, content)
    with atomic_path(target) as temporary:
        with named_os_errors(path):
            temporary.touch()
            mode = stat.S_IMODE((target if target.exists() else temporary).stat().st_mode)
            temporary.chmod(mode | stat.S_IWUSR)
        yield temporary
        with named_os_errors(path):
            temporary.chmod(mode)


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """Yields a stream whose content replaces the file `path` when the context ends, as `replaced` does.

    A FIFO or a device is written directly. Opening and writing the stream raise what `unwritable` returns.
    """
    target = destination(path, "text")
    with ExitStack() as stack:
        is_replaced = target.is_file() or not target.exists()
        written = stack.enter_context(replaced(target, "text")) if is_replaced else target
        with named_os_errors(path):
            stream = stack.enter_context(output(written, path))
        yield stream


class _Output(io.FileIO):
    """A file opened for writing, whose errors call it `name`. Only the first failed write raises; later ones are
    dropped, because Python writes a buffer again when freeing it, and Python 3.14 prints that error."""

    def __init__(self, file: Path | int, name: object) -> None:
        super().__init__(file, "wb", closefd=not isinstance(file, int))
        self._called, self._failed = name, False

    def write(self, data: ReadableBuffer, /) -> Any:
        if self._failed:
            return memoryview(data).nbytes
        try:
            with named_os_errors(self._called):
                return super().write(data)
        except VtransError:
            self._failed = True
            raise


def output(file: Path | int, name: object) -> io.BufferedWriter:
    """Returns a stream to a file or a descriptor; closing it leaves a descriptor open. Its writes raise what
    `unwritable` returns, or BrokenPipeError for a pipe whose reader has closed it."""
    return io.BufferedWriter(_Output(file, name))


@contextmanager
def named_os_errors(path: object) -> Iterator[None]:
    """Converts an OSError of the block with `unwritable`, and names `path` in a WriteError."""
    try:
        yield
    except BrokenPipeError:
        raise
    except WriteError as error:
        raise WriteError(path, error.reason) from None
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: object, error: OSError, advice: str = "") -> FileError | WriteError:
    """Returns the error for a file that cannot be written: WriteError if its disk is full or fails, else FileError,
    because the path is at fault. The message ends with `advice`."""
    why = f"{reason(error)}{advice}"
    if error.errno in _DISK_FAILURES:
        return WriteError(path, why)
    return FileError(f"{path} cannot be written: {why}.")


def overwritten(file: Path, outputs: Iterable[Path]) -> bool:
    """Returns whether one of the outputs is the file, or a link to it."""
    return file.exists() and any(output.exists() and output.samefile(file) for output in outputs)


def discard(descriptor: int) -> None:
    """Discards further output to stdout or stderr. Python flushes them at exit; if that fails, it prints an error and
    exits with code 120."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def write_atomically(path: str | Path, data: bytes) -> None:
    """Writes a small file as `replacing` does."""
    with replacing(path) as stream:
        stream.write(data)


def locked(file: BinaryIO | int) -> bool:
    """Tries to lock an open file or folder, and returns whether this process now holds the lock.

    The system releases the lock when the file is closed or the process ends in any way. On Windows and some network
    disks, which have no such lock, every call returns True.
    """
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # this disk has no locks
        return True
    return True


def sync_folder(folder: Path) -> None:
    """Flushes a folder's entries to disk if the system can. Otherwise a power failure may undo a rename."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def file_sha256(path: Path) -> str | None:
    """Returns the SHA-256 of a file in hexadecimal, or None if the file cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def reason(error: Exception) -> str:
    """Returns why an operation failed, as the end of a sentence in an error message."""
    return str(getattr(error, "strerror", None) or error or type(error).__name__).rstrip(".")


def printable(name: str | Path) -> str:
    """Returns a file's name with `\\xff` for each byte that is not UTF-8, so that JSON and a terminal can show it."""
    return os.fsencode(name).decode("utf-8", errors="backslashreplace")


def no_file(path: str | Path, kind: str = "file", others: Iterable[str] = (), advice: str = "") -> FileError:
    """Returns the error for a missing file. It suggests the most similar name in the folder or in `others`, or gives
    `advice` if there is none."""
    folder, name = os.path.split(path)
    try:
        names = [file.name for file in Path(folder or ".").iterdir()]
    except (OSError, ValueError):
        names = []
    close = [str(Path(folder, file)) for file in difflib.get_close_matches(name, names, n=1, cutoff=0.7)]
    close += difflib.get_close_matches(str(path), others, n=1)
    end = f"; did you mean {close[0]}?" if close else f"; {advice}." if advice else "."
    return FileError(f"there is no {kind} {path}{end}")


def check_path(path: str | Path) -> None:
    """Raises FileError for a path that is not UTF-8, which safetensors and CTranslate2 cannot open."""
    try:
        os.fsencode(path).decode("utf-8")
    except UnicodeDecodeError:
        raise FileError(
            f"the path of a model, run or data folder must be UTF-8, got {printable(path)}; rename it, or use another."
        ) from None


def shipped() -> Path:
    """Returns the folder of the recipes and models that ship with vtrans: in the installed package, or next to it in a
    checkout."""
    installed = Path(__file__).parents[1] / "recipes"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "recipes"
