"""Glossaries that clients store: named dictionaries of terms, each for a pair of languages without regions. Versions 2
and 3 of DeepL's API share them."""

from __future__ import annotations

import csv
import io
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from threading import RLock
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator
from starlette.responses import Response

from vtrans.apps.documents.database import Database
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.endpoints import Call, Endpoint
from vtrans.apps.server.refusals import QUOTA_EXCEEDED, Refusal
from vtrans.apps.server.requests import Fields, Text
from vtrans.apps.server.service import Service
from vtrans.text.languages import Languages, base
from vtrans.translate.wording.glossary import Glossary

MOST_GLOSSARIES, MOST_TEXT = 1000, 10**7  # per owner: glossaries, and characters in their dictionaries
MOST_CHARACTERS = 1024  # of a term or its translation
REMEMBERED = 100  # glossaries in memory
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")

TSV = "text/tab-separated-values"
_FIELD = re.compile(r"dictionaries\[(\d+)\]\.(\w+)")
_ANY_GLOSSARY = RequestOptions(glossary=Glossary((("a", ("b",)),)))

Entries = Mapping[str, str]
Source = Annotated[Text, Field(examples=["EN"])]
Target = Annotated[Text, Field(examples=["DE", "PT-BR"])]


class LanguagePair(Fields):
    source_lang: Source
    target_lang: Target


class Dictionary(LanguagePair):
    entries: Text
    entries_format: Literal["tsv", "csv"] = "tsv"


Dictionaries = Annotated[list[Dictionary], Field(max_length=1000, fail_fast=True)]


class NewGlossary2(Dictionary):
    name: Text


class Change(Fields):
    """A new name, and entries to add. The fields of a form have names such as `dictionaries[0].entries`."""

    name: Text | None = None
    dictionaries: Annotated[Dictionaries, Field(default_factory=list)]

    @model_validator(mode="before")
    @classmethod
    def _nested(cls, fields: dict[str, Any]) -> dict[str, Any]:
        nested: dict[str, dict[str, Any]] = {}
        for name, value in fields.items():
            if found := _FIELD.fullmatch(name):
                nested.setdefault(found[1], {})[found[2]] = value
        return {"dictionaries": list(nested.values()), **fields} if nested else fields


class NewGlossary3(Change):
    name: Text
    dictionaries: Annotated[Dictionaries, Field(min_length=1)]


class DictionarySize(BaseModel):
    source_lang: str
    target_lang: str
    entry_count: int

    @classmethod
    def of(cls, languages: Languages, entries: Entries) -> DictionarySize:
        return cls(source_lang=languages.src, target_lang=languages.tgt, entry_count=len(entries))


class NamedGlossary(BaseModel):
    glossary_id: str
    name: str
    creation_time: str


class Glossary2(DictionarySize, NamedGlossary):
    ready: Literal[True] = True


class Glossary3(NamedGlossary):
    dictionaries: list[DictionarySize]


class DictionaryEntries(DictionarySize):
    entries: str
    entries_format: Literal["tsv"] = "tsv"


@dataclass(frozen=True)
class StoredGlossary:
    """A stored glossary. `made` is its creation time in UTC, as the API writes it."""

    id: str
    name: str
    made: str
    dictionaries: Mapping[Languages, Entries]

    @cached_property
    def terms(self) -> Mapping[Languages, Glossary]:
        """The dictionaries as glossaries for requests."""
        return {
            languages: Glossary(tuple((term, (target,)) for term, target in entries.items()))
            for languages, entries in self.dictionaries.items()
        }

    def version_2(self) -> Glossary2:
        """Returns the answer in version 2 of the API. Raises a Refusal unless there is exactly one dictionary."""
        if len(self.dictionaries) != 1:
            raise Refusal(404, "Glossary not found: version 3 has those with several dictionaries, or none.")
        (size,) = self._sizes()
        return Glossary2(glossary_id=self.id, name=self.name, creation_time=self.made, **size.model_dump())

    def version_3(self) -> Glossary3:
        """Returns the answer in version 3 of the API."""
        return Glossary3(glossary_id=self.id, name=self.name, creation_time=self.made, dictionaries=self._sizes())

    def _sizes(self) -> list[DictionarySize]:
        return [DictionarySize.of(*dictionary) for dictionary in self.dictionaries.items()]


class Glossaries:
    """The glossaries in a database file, by owner and id."""

    def __init__(self, file: Database) -> None:
        self._file, self._lock = file, RLock()
        self._known: dict[tuple[str, str], StoredGlossary] = {}

    def all_of(self, owner: str) -> list[StoredGlossary]:
        """Returns all glossaries of an owner, the oldest first."""
        return self._read(
            "SELECT id, name, made, dictionaries FROM glossaries WHERE owner = ? ORDER BY made, id", owner
        )

    def get(self, owner: str, id: str) -> StoredGlossary:
        """Returns a glossary. Raises a Refusal if the owner has none with this id."""
        query = "SELECT id, name, made, dictionaries FROM glossaries WHERE owner = ? AND id = ?"
        with self._lock:
            if (owner, id) not in self._known:
                if not (found := self._read(query, owner, id)):
                    raise Refusal(404, "Glossary not found.")
                if len(self._known) >= REMEMBERED:
                    self._known.clear()
                self._known[owner, id] = found[0]
            return self._known[owner, id]

    def put(self, owner: str, glossary: StoredGlossary) -> StoredGlossary:
        """Stores and returns a new or changed glossary. Raises a Refusal if the owner's quota is exceeded."""
        text = json.dumps([[*languages, entries] for languages, entries in glossary.dictionaries.items()])
        with self._lock:
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
        return glossary

    def change(self, owner: str, id: str, change: Callable[[StoredGlossary], StoredGlossary]) -> StoredGlossary:
        """Stores the changed version of a glossary, and returns it."""
        with self._lock:
            return self.put(owner, change(self.get(owner, id)))

    def delete(self, owner: str, id: str) -> None:
        """Deletes a glossary. Raises a Refusal if the owner has none with this id."""
        with self._lock:
            self.get(owner, id)
            self._file.change("DELETE FROM glossaries WHERE id = ?", id)
            self._known.pop((owner, id), None)

    def _read(self, query: str, *values: str) -> list[StoredGlossary]:
        return [
            StoredGlossary(id, name, made, {Languages(src, tgt): entries for src, tgt, entries in json.loads(text)})
            for id, name, made, text in self._file.rows(query, *values)
        ]


def entries_of(text: str, form: str) -> Entries:
    """Returns the entries in a TSV or CSV text. CSV rows may also name their languages, which are ignored. Raises a
    Refusal for invalid entries."""
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


class GlossaryEndpoints:
    """The glossary endpoints. They run in threads, because large glossaries take seconds. If `glossaries` is None,
    lists are empty and nothing can be stored. Version 2 shows only glossaries with one dictionary."""

    def __init__(self, service: Service, glossaries: Glossaries | None) -> None:
        self._service, self._stored = service, glossaries

    def endpoints(self) -> list[Endpoint]:
        two, three = "/v2/glossaries", "/v3/glossaries"
        return [
            Endpoint("GET", "/v2/glossary-language-pairs", self.language_pairs),
            Endpoint("POST", two, self.create_2, 201, large=True),
            Endpoint("GET", two, self.list_2),
            Endpoint("GET", f"{two}/{{id}}", self.get_2),
            Endpoint("DELETE", f"{two}/{{id}}", self.delete),
            Endpoint("GET", f"{two}/{{id}}/entries", self.entries_2),
            Endpoint("POST", three, self.create_3, 201, large=True),
            Endpoint("GET", three, self.list_3),
            Endpoint("GET", f"{three}/{{id}}", self.get_3),
            Endpoint("DELETE", f"{three}/{{id}}", self.delete),
            Endpoint("PATCH", f"{three}/{{id}}", self.update, large=True),
            Endpoint("GET", f"{three}/{{id}}/entries", self.entries_3),
            Endpoint("PUT", f"{three}/{{id}}/dictionaries", self.replace, large=True),
            Endpoint("DELETE", f"{three}/{{id}}/dictionaries", self.delete_dictionary),
        ]

    @property
    def _glossaries(self) -> Glossaries:
        if self._stored is None:
            raise Refusal(403, "Glossaries are disabled on this server; the option --memory names a file for them.")
        return self._stored

    def _all(self, call: Call) -> list[StoredGlossary]:
        return self._stored.all_of(call.owner) if self._stored else []

    def _get(self, call: Call) -> StoredGlossary:
        return self._glossaries.get(call.owner, call.id)

    @cached_property
    def _pairs(self) -> list[Languages]:
        """The pairs of languages that support glossaries, without regions."""
        able = [pair for pair in self._service.pairs if self._service.supports(pair, _ANY_GLOSSARY)]
        return list(dict.fromkeys(Languages(*map(base, pair)) for pair in able))

    def _languages(self, asked: LanguagePair) -> Languages:
        """Returns the languages of a dictionary. Raises a Refusal if they do not support glossaries."""
        codes = [code for pair in self._pairs for code in pair]
        source = language("source_lang", asked.source_lang, codes)
        languages = Languages(source, language("target_lang", asked.target_lang, codes))
        if languages not in self._pairs:
            raise Refusal(400, f"Glossaries from {languages.src} to {languages.tgt} are not supported.")
        return languages

    def _dictionaries(self, given: Sequence[Dictionary]) -> dict[Languages, Entries]:
        dictionaries = {self._languages(one): entries_of(one.entries, one.entries_format) for one in given}
        if len(dictionaries) < len(given):
            raise Refusal(400, "Value for 'dictionaries' not supported: each pair of languages must come once.")
        return dictionaries

    def _created(self, call: Call, name: str, dictionaries: Sequence[Dictionary]) -> StoredGlossary:
        made = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        glossary = StoredGlossary(str(uuid.uuid4()), name, made, self._dictionaries(dictionaries))
        return self._glossaries.put(call.owner, glossary)

    def language_pairs(self, call: Call) -> dict[Literal["supported_languages"], list[LanguagePair]]:
        """Lists the languages of glossaries."""
        pairs = [LanguagePair(source_lang=pair.src, target_lang=pair.tgt) for pair in self._pairs]
        return {"supported_languages": pairs}

    def create_2(self, call: Call, asked: NewGlossary2) -> Glossary2:
        """Makes a glossary."""
        return self._created(call, asked.name, [asked]).version_2()

    def create_3(self, call: Call, asked: NewGlossary3) -> Glossary3:
        """Makes a glossary."""
        return self._created(call, asked.name, asked.dictionaries).version_3()

    def list_2(self, call: Call) -> dict[Literal["glossaries"], list[Glossary2]]:
        """Lists the glossaries."""
        return {"glossaries": [one.version_2() for one in self._all(call) if len(one.dictionaries) == 1]}

    def list_3(self, call: Call) -> dict[Literal["glossaries"], list[Glossary3]]:
        """Lists the glossaries."""
        return {"glossaries": [one.version_3() for one in self._all(call)]}

    def get_2(self, call: Call) -> Glossary2:
        """Describes a glossary."""
        return self._get(call).version_2()

    def get_3(self, call: Call) -> Glossary3:
        """Describes a glossary."""
        return self._get(call).version_3()

    def delete(self, call: Call) -> None:
        """Deletes a glossary."""
        self._glossaries.delete(call.owner, call.id)

    def entries_2(self, call: Call) -> Response:
        """Sends the entries, separated by tabs."""
        glossary, accepted = self._get(call), call.request.headers.get("accept", TSV)
        glossary.version_2()
        if not any(kind in accepted for kind in (TSV, "text/*", "*/*")):
            raise Refusal(415, f"The header Accept must be {TSV}, got {accepted[:80]!r}.")
        return Response(as_tsv(*glossary.dictionaries.values()), media_type=TSV)

    def entries_3(self, call: Call, asked: LanguagePair) -> dict[Literal["dictionaries"], list[DictionaryEntries]]:
        """Sends the entries of a dictionary."""
        languages, dictionaries = self._languages(asked), self._get(call).dictionaries
        entries = _known(dictionaries, languages)
        size = DictionarySize.of(languages, entries).model_dump()
        return {"dictionaries": [DictionaryEntries(**size, entries=as_tsv(entries))]}

    def update(self, call: Call, asked: Change) -> Glossary3:
        """Renames a glossary, or adds entries."""
        added = self._dictionaries(asked.dictionaries)

        def change(old: StoredGlossary) -> StoredGlossary:
            dictionaries = dict(old.dictionaries)
            for languages, entries in added.items():
                dictionaries[languages] = {**dictionaries.get(languages, {}), **entries}
            return replace(old, name=asked.name or old.name, dictionaries=dictionaries)

        return self._glossaries.change(call.owner, call.id, change).version_3()

    def replace(self, call: Call, asked: Dictionary) -> DictionarySize:
        """Replaces a dictionary."""
        ((languages, entries),) = self._dictionaries([asked]).items()
        self._glossaries.change(
            call.owner, call.id, lambda old: replace(old, dictionaries={**old.dictionaries, languages: entries})
        )
        return DictionarySize.of(languages, entries)

    def delete_dictionary(self, call: Call, asked: LanguagePair) -> None:
        """Deletes a dictionary."""
        languages = self._languages(asked)

        def change(old: StoredGlossary) -> StoredGlossary:
            _known(old.dictionaries, languages)
            left = {pair: entries for pair, entries in old.dictionaries.items() if pair != languages}
            return replace(old, dictionaries=left)

        self._glossaries.change(call.owner, call.id, change)


def _known(dictionaries: Mapping[Languages, Entries], languages: Languages) -> Entries:
    """Returns the dictionary of these languages. Raises a Refusal if there is none."""
    if languages not in dictionaries:
        raise Refusal(404, f"Glossary has no dictionary from {languages.src} to {languages.tgt}.")
    return dictionaries[languages]


def language(name: str, given: str, codes: Sequence[str]) -> str:
    """Returns the first of `codes` that matches a client's code: an equal code, or else the same language if one of the
    two has no region. Raises a Refusal, which calls it `name`, if none matches."""
    asked = given.replace("_", "-").lower()
    for code in codes:
        if code.lower() == asked:
            return code
    for code in codes:
        if base(code) == base(asked) and (asked == base(asked) or code.lower() == base(code)):
            return code
    served = ", ".join(sorted({code.upper() for code in codes}))
    raise Refusal(400, f"Value for '{name}' not supported: it must be one of {served}, got {asked[:40].upper()!r}.")
