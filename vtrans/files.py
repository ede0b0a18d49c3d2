"""Files: written to a temporary name, flushed to disk and renamed; their hashes and their names."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from vtrans.errors import FileError


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A temporary path to write to, which is flushed to disk and renamed to `path` when the context ends.

    If the context raises, the temporary file is removed and `path` stays as it was. The file lies in a folder of its
    own beside `path`, because safetensors makes further temporary files next to it; a process that is killed leaves
    all of them in that one folder.
    """
    # A process id would not do: processes on several machines, or in several containers, may share the folder.
    folder = path.with_name(f".{path.name}.{secrets.randbits(63)}.tmp")
    temporary = folder / path.name
    try:
        folder.mkdir()
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sync_folder(path.parent)


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A stream whose content replaces the file `path` when the context ends, as `aside` does.

    It follows a link, keeps the permissions of the file, and writes directly to a device or a pipe, which cannot be
    replaced. Raises FileError if the file cannot be opened.
    """
    target = Path(os.path.realpath(path))
    with ExitStack() as stack:
        try:
            if target.exists() and not stat.S_ISREG(target.stat().st_mode):
                stream = stack.enter_context(target.open("wb"))
            else:
                temporary = stack.enter_context(aside(target))
                stream = stack.enter_context(temporary.open("wb"))
                if target.exists():
                    temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        except OSError as error:
            raise FileError(f"{path} cannot be written: {reason(error)}.") from None
        yield stream


def write_atomically(path: str | Path, data: bytes) -> None:
    """Writes a small file as `replacing` does."""
    with replacing(path) as stream:
        stream.write(data)


def sync_folder(folder: Path) -> None:
    """Flushes the names in a folder to disk if the system can. Without it a rename may be lost in a power failure."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def file_sha256(path: Path) -> str | None:
    """The SHA-256 of a file in hexadecimal, or None if the file cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def reason(error: Exception) -> str:
    """Why an operation failed, to end a sentence of an error message."""
    return str(getattr(error, "strerror", None) or error or type(error).__name__).rstrip(".")


def printable(name: str | Path) -> str:
    """A file's name with `\\xff` for each byte that is not UTF-8, so that JSON and a terminal can show it."""
    return os.fsencode(name).decode("utf-8", errors="backslashreplace")


def check_path(path: str | Path) -> None:
    """Raises FileError for a path that is not UTF-8, which safetensors and CTranslate2 cannot open."""
    try:
        os.fsencode(path).decode("utf-8")
    except UnicodeDecodeError:
        raise FileError(
            f"the path of a model, run or data folder must be UTF-8, got {printable(path)}; rename it, or use another."
        ) from None
