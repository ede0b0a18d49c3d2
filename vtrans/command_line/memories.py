"""The memory of `vtrans translate`: the translations of documents, which are kept once they have been read, or the file
of `vtrans serve`."""

from __future__ import annotations

import hashlib
import os
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from vtrans.command_line.documents import check_packages, take, translated_in
from vtrans.compiled.compiler import cache_folder, private_folder
from vtrans.errors import FileError, InputError, VtransError
from vtrans.files import file_sha256, write_atomically
from vtrans.text.languages import Languages
from vtrans.text.lines import open_bytes

if TYPE_CHECKING:
    from vtrans.documents.remembered import Remembered

LEAST_KEPT = 1_000_000  # bytes of documents, which take more than a second to read
MOST_KEPT = 4  # memories in the cache
SQLITE = b"SQLite format 3\0"


def remembered(path: Path, languages: Languages) -> Remembered:
    """Returns the translations in these languages of a memory: a file of `vtrans serve`, a document with translations,
    or a folder of those. An empty language means any. Raises FileError or InputError if there are none."""
    check_packages("`memory`")
    from vtrans.documents.memory import Memory
    from vtrans.documents.pairs import ENDINGS

    if path.is_dir() or path.suffix.lower() in ENDINGS:
        return _of_documents(path, languages)
    with open_bytes(path) as file:
        if file.read(len(SQLITE)) != SQLITE:
            raise FileError(f"{path} is neither a memory of `vtrans serve` nor a document ({', '.join(ENDINGS)}).")
    with closing(Memory(path, must_exist=True)) as file_of_server:
        memory = file_of_server.remembered(languages)
    if not memory:
        raise InputError(f"{path} has no translations from {' to '.join(code or 'any' for code in languages)}.")
    return memory


def _of_documents(path: Path, languages: Languages) -> Remembered:
    """Returns the translations of a document, or of those in a folder. They are kept in the cache."""
    from vtrans.documents.pairs import Taken
    from vtrans.documents.remembered import Remembered

    kept = _kept(path, languages)
    if kept:
        with suppress(OSError, ValueError):
            memory = Remembered.read(kept.read_bytes())
            os.utime(kept)
            return memory
    memory = Remembered()
    take(path, Taken(languages, memory))
    if kept:
        with suppress(OSError, VtransError):
            write_atomically(kept, memory.written())
            for old in sorted(kept.parent.glob("memory-*.json"), key=lambda file: file.stat().st_mtime)[:-MOST_KEPT]:
                old.unlink()
    return memory


def _kept(path: Path, languages: Languages) -> Path | None:
    """Returns where the cache has, or will have, the translations of documents; None for small ones, or if there is no
    cache that only this user can write to. The name depends on all that the translations depend on."""
    if not hasattr(os, "geteuid"):
        return None
    try:
        files = translated_in(path)
        if sum(file.stat().st_size for file in files) < LEAST_KEPT:
            return None
        package = Path(__file__).parent.parent
        parts = [package / part for part in ("documents", "wording", "text")]
        code = sorted(file for part in parts for end in ("py", "txt") for file in part.rglob(f"*.{end}"))
        names = [str(file.relative_to(path.parent)) for file in files]
        read_by = [file_sha256(file) for file in code] + [version(name) for name in ("polib", "sentencex")]
        facts = [*languages, *names, *map(file_sha256, files), *read_by]
        name = hashlib.sha256("\0".join(map(str, facts)).encode(errors="surrogateescape")).hexdigest()[:20]
        return private_folder(cache_folder()) / f"memory-{name}.json"
    except OSError:
        return None
