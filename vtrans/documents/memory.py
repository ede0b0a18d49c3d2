"""A memory of corrected translations, which are used again: an SQLite file.

A correction is on the disk when `add` returns. The latest one of a text holds.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from xml.sax.saxutils import escape, quoteattr

from vtrans.documents.placeholders import placeholders
from vtrans.documents.remembered import Remembered, around
from vtrans.errors import FileError, InputError
from vtrans.files import destination
from vtrans.text.languages import Languages
from vtrans.text.matches import Kind

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
APPLICATION = 0x76747261  # marks the file as one of ours
_TABLE = (
    "CREATE TABLE IF NOT EXISTS corrections (src TEXT, tgt TEXT, source TEXT, translation TEXT, "
    "PRIMARY KEY (src, tgt, source)) WITHOUT ROWID"
)


class Memory:
    """The corrections in a file, which is made if it does not exist, unless it `must_exist`. Several threads may use
    it. Raises FileError for a file that is not a memory, and if it cannot be read or written."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path, self._lock = path, Lock()
        destination(path, "memory")
        with self._explained():
            self._file = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            (mark,) = self._file.execute("PRAGMA application_id").fetchone()
            if mark != APPLICATION:
                (tables,) = self._file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
                if tables or must_exist:
                    raise FileError(f"{path} is not a memory of vtrans.")
                self._file.execute(f"PRAGMA application_id = {APPLICATION}")
            self._file.execute("PRAGMA journal_mode = WAL")  # another process may read while this one writes
            self._file.execute("PRAGMA synchronous = FULL")
            self._file.execute(_TABLE)

    def add(self, languages: Languages, source: str, translation: str) -> None:
        """Adds a correction, or replaces that of the same text."""
        values = (*languages, source.strip(), translation.strip())
        with self._lock, self._explained():
            self._file.execute("INSERT OR REPLACE INTO corrections VALUES (?, ?, ?, ?)", values)

    def get(self, languages: Languages, source: str, kind: Kind = "sentence", *, sure: bool = False) -> str | None:
        """Returns the translation of a text, with the white space around the text. For given languages, it is a
        `Known`. Corrections are sentences, or texts of several, without markup."""
        text = source.strip() if kind == "sentence" else ""
        with self._lock, self._explained():
            query = "SELECT translation FROM corrections WHERE src = ? AND tgt = ? AND source = ?"
            row = next(self._rows(query, *languages, text), None)
        usable = text and row and placeholders(text) == placeholders(row[0])
        return around(source, row[0]) if row and usable else None

    def remembered(self, languages: Languages) -> Remembered:
        """Returns all translations in these languages; an empty one means any. Raises InputError for several target
        languages."""
        remembered, targets = Remembered(), set[str]()
        with self._lock, self._explained():
            query = "SELECT src, tgt, source, translation FROM corrections WHERE ? IN (src, '') AND ? IN (tgt, '')"
            for src, tgt, *pair in self._rows(query, *languages):
                remembered.add_text(Languages(src, tgt), *pair)
                targets.add(tgt)
        if len(targets) > 1:
            raise InputError(
                f"{self.path} has translations into {', '.join(sorted(targets))}, and the model does not say which of "
                "these languages it translates into; give a memory of one."
            )
        return remembered

    def __len__(self) -> int:
        with self._lock, self._explained():
            (rows,) = self._file.execute("SELECT count(*) FROM corrections").fetchone()
        return int(rows)

    def tmx(self, version: str) -> Iterator[str]:
        """Yields the lines of a TMX file with all corrections, written by this version of vtrans."""
        header = f'creationtool="vtrans" creationtoolversion="{version}" segtype="block" o-tmf="vtrans"'
        yield '<?xml version="1.0" encoding="UTF-8"?>'
        yield '<tmx version="1.4">'
        yield f'  <header {header} adminlang="en" srclang="*all*" datatype="plaintext"/>'
        yield "  <body>"
        with self._lock, self._explained():
            for src, tgt, source, translation in self._rows("SELECT * FROM corrections"):
                sides = ((src, source), (tgt, translation))
                variants = (
                    f"<tuv xml:lang={quoteattr(code)}><seg>{escape(_NOT_XML.sub('', text))}</seg></tuv>"
                    for code, text in sides
                )
                yield f"    <tu>{''.join(variants)}</tu>"
        yield "  </body>"
        yield "</tmx>"

    def close(self) -> None:
        self._file.close()

    def _rows(self, query: str, *values: str) -> Iterator[tuple[str, ...]]:
        """Yields the rows of a query. Raises FileError for one with another value than text."""
        for row in self._file.execute(query, values):
            if not all(isinstance(value, str) for value in row):
                raise FileError(f"the memory {self.path} cannot be used: it has values that are not text.")
            yield row

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise FileError(f"the memory {self.path} cannot be used: {error}.") from None
