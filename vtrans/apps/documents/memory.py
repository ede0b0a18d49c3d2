"""A memory of corrected translations, for reuse.

A correction is on disk when `add` returns. It replaces an earlier one of the same text by the same owner.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from vtrans.apps.documents.database import Database
from vtrans.apps.documents.placeholders import placeholders
from vtrans.apps.documents.remembered import Remembered, around
from vtrans.data.matches import Kind
from vtrans.system.errors import FileError, InputError
from vtrans.text.languages import Languages

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


class Memory:
    """The corrections in a file, which is created if missing, unless it `must_exist`. Several threads may use it.
    Raises FileError if the file is not a memory, or cannot be read or written."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path, self.file = path, Database(path, must_exist=must_exist)
        try:
            self.get(Languages("", ""), "x")
        except FileError:
            self.close()
            raise

    def add(self, languages: Languages, source: str, translation: str, owner: str = "") -> None:
        """Adds a correction, or replaces the owner's correction of the same text."""
        statement = "INSERT OR REPLACE INTO corrections VALUES (?, ?, ?, ?, ?)"
        self.file.change(statement, owner, *languages, source.strip(), translation.strip())

    def get(
        self, languages: Languages, source: str, kind: Kind = "sentence", *, sure: bool = False, owner: str = ""
    ) -> str | None:
        """Returns an owner's translation of a text, or else everyone's, with the white space around the text; None if
        there is none. With the languages bound, it is a `Known`. Corrections are one or more sentences without
        markup."""
        text = source.strip() if kind == "sentence" else ""
        query = (
            "SELECT translation FROM corrections WHERE owner IN (?, '') AND src = ? AND tgt = ? AND source = ? "
            "ORDER BY owner DESC"
        )
        row = next(iter([*self.file.rows(query, owner, *languages, text)]), None)
        usable = text and row and placeholders(text) == placeholders(row[0])
        return around(source, row[0]) if row and usable else None

    def remembered(self, languages: Languages, owner: str | None = None) -> Remembered:
        """Returns the translations in these languages that an owner may use; all if `owner` is None. An empty language
        means any. Raises InputError for several target languages."""
        remembered, targets = Remembered(), set[str]()
        query = "SELECT src, tgt, source, translation FROM corrections WHERE ? IN (src, '') AND ? IN (tgt, '')"
        if owner is not None:
            query += " AND owner IN (?, '') ORDER BY owner DESC"
        for src, tgt, *pair in self.file.rows(query, *languages, *([] if owner is None else [owner])):
            remembered.add_text(Languages(src, tgt), *pair)
            targets.add(tgt)
        if len(targets) > 1:
            raise InputError(
                f"{self.path} has translations into {', '.join(sorted(targets))}, and the model does not say which of "
                "these languages it translates into; give a memory of one."
            )
        return remembered

    def __len__(self) -> int:
        ((number,),) = self.file.rows("SELECT CAST(count(*) AS TEXT) FROM corrections")
        return int(number)

    def tmx(self, version: str) -> Iterator[str]:
        """Yields the lines of a TMX file with all corrections, written by this version of vtrans."""
        header = f'creationtool="vtrans" creationtoolversion="{version}" segtype="block" o-tmf="vtrans"'
        yield '<?xml version="1.0" encoding="UTF-8"?>'
        yield '<tmx version="1.4">'
        yield f'  <header {header} adminlang="en" srclang="*all*" datatype="plaintext"/>'
        yield "  <body>"
        for src, tgt, source, translation in self.file.rows("SELECT src, tgt, source, translation FROM corrections"):
            variants = (
                f"<tuv xml:lang={quoteattr(code)}><seg>{escape(_NOT_XML.sub('', text))}</seg></tuv>"
                for code, text in ((src, source), (tgt, translation))
            )
            yield f"    <tu>{''.join(variants)}</tu>"
        yield "  </body>"
        yield "</tmx>"

    def close(self) -> None:
        self.file.close()
