"""Glossaries that clients store: named dictionaries of terms, each for a pair of languages without regions."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from vtrans.apps.documents.database import Database
from vtrans.apps.server.refusals import QUOTA_EXCEEDED, Refusal
from vtrans.text.languages import Languages
from vtrans.translate.wording.glossary import Glossary

MOST_GLOSSARIES, MOST_TEXT = 1000, 10**7  # of an owner, and the characters of their dictionaries
MOST_CHARACTERS = 1024  # of a term or its translation
REMEMBERED = 100  # glossaries in memory
FORMATS = ("tsv", "csv")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")

Entries = Mapping[str, str]


@dataclass(frozen=True)
class StoredGlossary:
    """A glossary, which was made at that time, as the interface writes it."""

    id: str
    name: str
    made: str
    dictionaries: Mapping[Languages, Entries]

    @cached_property
    def terms(self) -> Mapping[Languages, Glossary]:
        """The dictionaries as glossaries of requests."""
        return {
            languages: Glossary(tuple((term, (target,)) for term, target in entries.items()))
            for languages, entries in self.dictionaries.items()
        }

    def as_json(self, version: int) -> dict[str, object]:
        """Returns what a version of the interface says of a glossary. In version 2 it must have one dictionary."""
        parts = [dictionary_json(*dictionary) for dictionary in self.dictionaries.items()]
        contents = {"ready": True, **parts[0]} if version == 2 else {"dictionaries": parts}
        return {"glossary_id": self.id, "name": self.name, **contents, "creation_time": self.made}


def dictionary_json(languages: Languages, entries: Entries) -> dict[str, object]:
    """Returns what the interface says of a dictionary."""
    return {"source_lang": languages.src, "target_lang": languages.tgt, "entry_count": len(entries)}


class Glossaries:
    """The glossaries in a file, each of an owner."""

    def __init__(self, file: Database) -> None:
        self._file = file
        self._known: dict[tuple[str, str], StoredGlossary] = {}

    def all_of(self, owner: str) -> list[StoredGlossary]:
        """Returns all glossaries of an owner, the oldest first."""
        return self._read(
            "SELECT id, name, made, dictionaries FROM glossaries WHERE owner = ? ORDER BY made, id", owner
        )

    def get(self, owner: str, id: str) -> StoredGlossary:
        """Returns a glossary. Raises a Refusal if the owner has none of this name."""
        glossary = self._known.get((owner, id))
        if glossary is None:
            query = "SELECT id, name, made, dictionaries FROM glossaries WHERE owner = ? AND id = ?"
            if not (found := self._read(query, owner, id)):
                raise Refusal(404, "Glossary not found.")
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[owner, id] = glossary = found[0]
        return glossary

    def put(self, owner: str, glossary: StoredGlossary) -> None:
        """Stores a glossary, a new one or another version. Raises a Refusal if the owner has too many terms."""
        text = json.dumps([[*languages, entries] for languages, entries in glossary.dictionaries.items()])
        query = (
            "SELECT CAST(count(*) AS TEXT), CAST(ifnull(sum(length(dictionaries)), 0) AS TEXT) FROM glossaries "
            "WHERE owner = ? AND id != ?"
        )
        ((number, size),) = self._file.rows(query, owner, glossary.id)
        if int(number) >= MOST_GLOSSARIES or int(size) + len(text) > MOST_TEXT:
            raise Refusal(
                QUOTA_EXCEEDED,
                f"There may be {MOST_GLOSSARIES:,} glossaries, with {MOST_TEXT:,} characters together; delete one.",
            )
        statement = "INSERT OR REPLACE INTO glossaries VALUES (?, ?, ?, ?, ?)"
        self._file.change(statement, glossary.id, owner, glossary.name, glossary.made, text)
        self._known.pop((owner, glossary.id), None)

    def delete(self, owner: str, id: str) -> None:
        """Deletes a glossary. Raises a Refusal if the owner has none of this name."""
        self.get(owner, id)
        self._file.change("DELETE FROM glossaries WHERE id = ?", id)
        self._known.pop((owner, id), None)

    def _read(self, query: str, *values: str) -> list[StoredGlossary]:
        return [
            StoredGlossary(id, name, made, {Languages(src, tgt): entries for src, tgt, entries in json.loads(text)})
            for id, name, made, text in self._file.rows(query, *values)
        ]


def entries_of(text: str, form: str) -> Entries:
    """Returns the entries in a text, in one of FORMATS. CSV may name the languages of each entry, which are not read.
    Raises a Refusal for anything else."""
    if form == "csv":
        try:
            rows: Iterable[list[str]] = [*csv.reader(io.StringIO(text, newline=""), strict=True)]
        except csv.Error as error:
            raise _invalid(f"the CSV cannot be read: {error}") from None
    else:
        rows = [line.removesuffix("\r").split("\t") for line in text.split("\n")]
    entries: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) not in ((2, 4) if form == "csv" else (2,)) or not all(cells[:2]):
            raise _invalid(f"entry {number} must be a term and its translation, got {' '.join(row)[:60]!r}")
        term, target = cells[:2]
        if any(_CONTROL.search(cell) or len(cell) > MOST_CHARACTERS for cell in (term, target)):
            raise _invalid(
                f"entry {number} must have no control characters and at most {MOST_CHARACTERS:,} characters on a side"
            )
        if term in entries:
            raise _invalid(f"entry {number} repeats the term {term[:60]!r}")
        entries[term] = target
    if not entries:
        raise _invalid("there are none")
    return entries


def as_tsv(entries: Entries) -> str:
    """Returns entries as lines of a term, a tab and its translation."""
    return "\n".join("\t".join(entry) for entry in entries.items())


def _invalid(reason: str) -> Refusal:
    return Refusal(400, f"Invalid glossary entries provided: {reason}.")
