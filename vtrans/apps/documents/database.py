"""The data of a service's clients in an SQLite file: corrections, glossaries, and translated characters per month.

A change survives a killed process and, if the file is `durable`, a power failure. Each row belongs to an owner: the
client that added it, or everyone if the owner is empty.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

from vtrans.system.errors import FileError
from vtrans.system.files import destination

APPLICATION = 0x76747261  # marks the file as one of ours
TABLES = (
    "CREATE TABLE IF NOT EXISTS corrections (owner TEXT, src TEXT, tgt TEXT, source TEXT, translation TEXT, "
    "PRIMARY KEY (owner, src, tgt, source)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS glossaries (id TEXT PRIMARY KEY, owner TEXT, name TEXT, made TEXT, dictionaries TEXT)",
    "CREATE TABLE IF NOT EXISTS characters (owner TEXT, month TEXT, number INTEGER, "
    "PRIMARY KEY (owner, month)) WITHOUT ROWID",
)


class Database:
    """The database file. It is created if it does not exist, unless it `must_exist`; without a path, the data stays in
    memory. If it is `durable`, a change is on the disk when `change` returns, which takes some milliseconds. Several
    threads may use it. Raises FileError if the file is not a memory, or cannot be read or written."""

    def __init__(self, path: Path | None, *, must_exist: bool = False, durable: bool = True) -> None:
        self.path, self._lock = path, RLock()
        if path:
            destination(path, "memory")
        with self._explained():
            self._file = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None)
        try:
            self._prepare(must_exist, durable)
        except FileError:
            self.close()
            raise

    def _prepare(self, must_exist: bool, durable: bool) -> None:
        with self._explained():
            (mark,) = self._file.execute("PRAGMA application_id").fetchone()
            if mark != APPLICATION:
                (tables,) = self._file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
                if tables or must_exist:
                    raise FileError(f"{self.path} is not a memory of vtrans.")
                self._file.execute(f"PRAGMA application_id = {APPLICATION}")
            self._file.execute("PRAGMA journal_mode = WAL")  # another process may read while this one writes
            self._file.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            for table in TABLES:
                self._file.execute(table)

    def change(self, statement: str, *values: str | int) -> None:
        """Executes an SQL statement with its values."""
        with self._explained():
            self._file.execute(statement, values)

    def rows(self, query: str, *values: str) -> list[tuple[str, ...]]:
        """Returns the rows of a query. Raises FileError for a value that is not text."""
        with self._explained():
            rows = self._file.execute(query, values).fetchall()
        if not all(isinstance(value, str) for row in rows for value in row):
            raise FileError(f"the memory {self.path} cannot be used: it has values that are not text.")
        return rows

    def close(self) -> None:
        self._file.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except sqlite3.DatabaseError as error:
            raise FileError(f"the memory {self.path} cannot be used: {error}.") from None
