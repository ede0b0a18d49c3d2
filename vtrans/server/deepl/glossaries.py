"""Glossaries that clients store: named dictionaries of terms, each for a pair of languages without regions."""

from __future__ import annotations

import csv
import io
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from vtrans.documents.database import Database, Statement
from vtrans.server.refusals import QUOTA_EXCEEDED, Refusal
from vtrans.text.languages import Languages
from vtrans.wording.glossary import Glossary

MOST_GLOSSARIES = 1000  # of an owner
MOST_ENTRIES = 20_000  # of a dictionary
MOST_CHARACTERS = 1024  # of a term or its translation
REMEMBERED = 100  # dictionaries as terms of requests
FORMATS = ("tsv", "csv")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")

Entries = Mapping[str, str]
Dictionaries = Mapping[Languages, Entries]


@dataclass(frozen=True)
class StoredGlossary:
    """A glossary, and the number of entries of each dictionary."""

    id: str
    name: str
    made: str
    counts: Mapping[Languages, int]

    def as_json(self) -> dict[str, object]:
        """Returns what version 3 of the interface says of a glossary."""
        dictionaries = [dictionary_json(languages, count) for languages, count in self.counts.items()]
        return {
            "glossary_id": self.id,
            "name": self.name,
            "dictionaries": dictionaries,
            "creation_time": self.made,
        }

    def as_json_2(self) -> dict[str, object]:
        """Returns what version 2 says of a glossary, which must have one dictionary."""
        ((languages, count),) = self.counts.items()
        return {
            "glossary_id": self.id,
            "name": self.name,
            "ready": True,
            **dictionary_json(languages, count),
            "creation_time": self.made,
        }


def dictionary_json(languages: Languages, count: int) -> dict[str, object]:
    """Returns what the interface says of a dictionary."""
    return {"source_lang": languages.src, "target_lang": languages.tgt, "entry_count": count}


class Glossaries:
    """The glossaries in a file. Each method takes their owner, and raises a Refusal if there is no such glossary."""

    def __init__(self, file: Database) -> None:
        self._file = file
        self._terms: dict[tuple[str, Languages], Glossary] = {}

    def create(self, owner: str, name: str, dictionaries: Dictionaries) -> StoredGlossary:
        """Stores a new glossary."""
        if len(self.all_of(owner)) >= MOST_GLOSSARIES:
            raise Refusal(QUOTA_EXCEEDED, f"There are {MOST_GLOSSARIES:,} glossaries already; delete one.")
        id = str(uuid.uuid4())
        made = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        glossary = ("INSERT INTO glossaries VALUES (?, ?, ?, ?)", (id, owner, name, made))
        self._change(glossary, *(_put(id, *item) for item in dictionaries.items()))
        return self.get(owner, id)

    def all_of(self, owner: str) -> list[StoredGlossary]:
        """Returns all glossaries of an owner, the oldest first."""
        ids = [*self._file.rows("SELECT id FROM glossaries WHERE owner = ? ORDER BY made, id", owner)]
        return [self.get(owner, id) for (id,) in ids]

    def get(self, owner: str, id: str) -> StoredGlossary:
        """Returns what is known of a glossary, without its entries."""
        found = [*self._file.rows("SELECT name, made FROM glossaries WHERE owner = ? AND id = ?", owner, id)]
        if not found:
            raise Refusal(404, "Glossary not found.")
        lines = "length(entries) - length(replace(entries, char(10), '')) + 1"
        query = f"SELECT src, tgt, CAST({lines} AS TEXT) FROM dictionaries WHERE glossary = ? ORDER BY src, tgt"
        counts = {Languages(src, tgt): int(count) for src, tgt, count in self._file.rows(query, id)}
        ((name, made),) = found
        return StoredGlossary(id, name, made, counts)

    def entries(self, owner: str, id: str, languages: Languages) -> Entries:
        """Returns the entries of a dictionary."""
        query = "SELECT entries FROM dictionaries WHERE glossary = ? AND src = ? AND tgt = ?"
        self.get(owner, id)
        found = [*self._file.rows(query, id, *languages)]
        if not found:
            raise Refusal(404, f"Glossary has no dictionary from {languages.src} to {languages.tgt}.")
        return _read(found[0][0])

    def terms(self, owner: str, id: str, languages: Languages) -> Glossary:
        """Returns a dictionary as the terms of a request."""
        self.get(owner, id)
        if (id, languages) not in self._terms:
            entries = self.entries(owner, id, languages)
            if len(self._terms) >= REMEMBERED:
                self._terms.clear()
            self._terms[id, languages] = Glossary(tuple((term, (target,)) for term, target in entries.items()))
        return self._terms[id, languages]

    def update(self, owner: str, id: str, name: str | None, dictionaries: Dictionaries) -> StoredGlossary:
        """Renames a glossary if there is a name, and adds entries to its dictionaries."""
        before = self.get(owner, id)
        changes: list[Statement] = [("UPDATE glossaries SET name = ? WHERE id = ?", (name or before.name, id))]
        for languages, entries in dictionaries.items():
            known = self.entries(owner, id, languages) if languages in before.counts else {}
            changes.append(_put(id, languages, check_size({**known, **entries})))
        self._change(*changes)
        return self.get(owner, id)

    def replace(self, owner: str, id: str, languages: Languages, entries: Entries) -> None:
        """Replaces or adds a dictionary."""
        self.get(owner, id)
        self._change(_put(id, languages, entries))

    def delete(self, owner: str, id: str) -> None:
        """Deletes a glossary."""
        self.get(owner, id)
        self._change(("DELETE FROM glossaries WHERE id = ?", (id,)))

    def delete_dictionary(self, owner: str, id: str, languages: Languages) -> None:
        """Deletes a dictionary."""
        self.entries(owner, id, languages)
        query = "DELETE FROM dictionaries WHERE glossary = ? AND src = ? AND tgt = ?"
        self._change((query, (id, *languages)))

    def _change(self, *statements: Statement) -> None:
        self._file.change(*statements)
        self._terms.clear()


def _put(id: str, languages: Languages, entries: Entries) -> Statement:
    return "INSERT OR REPLACE INTO dictionaries VALUES (?, ?, ?, ?)", (id, *languages, as_tsv(entries))


def as_tsv(entries: Entries) -> str:
    """Returns entries as lines of a term, a tab and its translation."""
    return "\n".join("\t".join(entry) for entry in entries.items())


def _read(tsv: str) -> Entries:
    lines = (line.partition("\t") for line in tsv.split("\n"))
    return {term: target for term, _, target in lines}


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
        if any(_CONTROL.search(cell) or len(cell) > MOST_CHARACTERS for cell in cells[:2]):
            raise _invalid(
                f"entry {number} must have no control characters and at most {MOST_CHARACTERS:,} characters on a side"
            )
        if term in entries:
            raise _invalid(f"entry {number} repeats the term {term[:60]!r}")
        entries[term] = target
    if not entries:
        raise _invalid("there are none")
    return check_size(entries)


def check_size(entries: Entries) -> Entries:
    """Returns entries if there are not too many of them."""
    if len(entries) > MOST_ENTRIES:
        raise _invalid(f"there must be at most {MOST_ENTRIES:,}, got {len(entries):,}")
    return entries


def _invalid(reason: str) -> Refusal:
    return Refusal(400, f"Invalid glossary entries provided: {reason}.")
