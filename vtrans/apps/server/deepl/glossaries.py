"""Glossaries that clients store: named dictionaries of terms, each for a pair of languages without regions.

Version 2 of DeepL's API shows the glossaries of version 3 that have one dictionary.
"""

from __future__ import annotations

import csv
import io
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from threading import RLock
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.responses import Response

from vtrans.apps.documents.database import Database
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.endpoints import Call, Endpoint
from vtrans.apps.server.limits import QUOTA_EXCEEDED, Refusal
from vtrans.apps.server.requests import Fields, Text
from vtrans.apps.server.service import Service, matching
from vtrans.text.languages import Languages, base
from vtrans.translate.wording.glossary import Glossary

MOST_GLOSSARIES, MOST_TEXT = 1000, 10**7  # per owner: glossaries, and characters in their dictionaries
MOST_CHARACTERS = 1024  # of a term or its translation
_FORMATS: dict[str, dict[str, Any]] = {
    "csv": {"strict": True},
    "tsv": {"delimiter": "\t", "quoting": csv.QUOTE_NONE},
}
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ANY_GLOSSARY = RequestOptions(glossary=Glossary((("a", ("b",)),)))

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


class NewGlossary3(Fields):
    name: Text
    dictionaries: Annotated[Dictionaries, Field(min_length=1)]


class Change(Fields):
    """A new name, and entries to add."""

    name: Text | None = None
    dictionaries: Annotated[Dictionaries, Field(default_factory=list)]


class DictionarySize(BaseModel):
    source_lang: str
    target_lang: str
    entry_count: int


class DictionaryEntries(DictionarySize):
    entries: str
    entries_format: Literal["tsv"] = "tsv"


class Glossary3(BaseModel):
    glossary_id: str
    name: str
    creation_time: str
    dictionaries: list[DictionarySize]


class Glossary2(DictionarySize):
    glossary_id: str
    name: str
    creation_time: str
    ready: Literal[True] = True


@dataclass(frozen=True)
class StoredGlossary:
    """A stored glossary; each term of its dictionaries has one translation. `made` is its creation time in UTC, as the
    API writes it."""

    id: str
    name: str
    made: str
    dictionaries: Mapping[Languages, Glossary]

    def dictionary(self, languages: Languages) -> Glossary:
        """Returns the dictionary of these languages. Raises a Refusal if there is none."""
        if languages not in self.dictionaries:
            raise Refusal(404, f"Glossary has no dictionary from {languages.src} to {languages.tgt}.")
        return self.dictionaries[languages]


@lru_cache(maxsize=100)  # reading a large glossary takes seconds
def _glossary(id: str, name: str, made: str, text: str) -> StoredGlossary:
    dictionaries = {Languages(src, tgt): _terms(entries) for src, tgt, entries in json.loads(text)}
    return StoredGlossary(id, name, made, dictionaries)


def _terms(entries: Mapping[str, str]) -> Glossary:
    return Glossary(tuple((term, (target,)) for term, target in entries.items()))


def _entries(dictionary: Glossary) -> dict[str, str]:
    return {term: target for term, (target,) in dictionary.pairs}


class Glossaries:
    """The glossaries in a database file, by owner and id."""

    def __init__(self, file: Database) -> None:
        self._file, self._changing = file, RLock()

    def all_of(self, owner: str) -> list[StoredGlossary]:
        """Returns all glossaries of an owner, the oldest first."""
        query = "SELECT id, name, made, dictionaries FROM glossaries WHERE owner = ? ORDER BY made, id"
        return [_glossary(*row) for row in self._file.rows(query, owner)]

    def get(self, owner: str, id: str) -> StoredGlossary:
        """Returns a glossary. Raises a Refusal if the owner has none with this id."""
        query = "SELECT id, name, made, dictionaries FROM glossaries WHERE owner = ? AND id = ?"
        for row in self._file.rows(query, owner, id):
            return _glossary(*row)
        raise Refusal(404, "Glossary not found.")

    def put(self, owner: str, glossary: StoredGlossary) -> StoredGlossary:
        """Stores and returns a new or changed glossary. Raises a Refusal if the owner's quota is exceeded."""
        text = json.dumps([[*languages, _entries(terms)] for languages, terms in glossary.dictionaries.items()])
        query = (
            "SELECT CAST(count(*) AS TEXT), CAST(ifnull(sum(length(dictionaries)), 0) AS TEXT) FROM glossaries "
            "WHERE owner = ? AND id != ?"
        )
        statement = "INSERT OR REPLACE INTO glossaries VALUES (?, ?, ?, ?, ?)"
        with self._changing:
            ((number, size),) = self._file.rows(query, owner, glossary.id)
            if int(number) >= MOST_GLOSSARIES or int(size) + len(text) > MOST_TEXT:
                raise Refusal(
                    QUOTA_EXCEEDED,
                    f"There may be {MOST_GLOSSARIES:,} glossaries, with {MOST_TEXT:,} characters together; delete one.",
                )
            self._file.change(statement, glossary.id, owner, glossary.name, glossary.made, text)
        return glossary

    def change(self, owner: str, id: str, change: Callable[[StoredGlossary], StoredGlossary]) -> StoredGlossary:
        """Stores the changed version of a glossary, and returns it."""
        with self._changing:
            return self.put(owner, change(self.get(owner, id)))

    def delete(self, owner: str, id: str) -> None:
        """Deletes a glossary. Raises a Refusal if the owner has none with this id."""
        with self._changing:
            self.get(owner, id)
            self._file.change("DELETE FROM glossaries WHERE id = ?", id)


def dictionary_of(text: str, form: str) -> Glossary:
    """Returns the entries in a TSV or CSV text. CSV rows may also name their languages, which are ignored. Raises a
    Refusal for invalid entries."""
    entries: dict[str, str] = {}
    try:
        for number, row in enumerate(csv.reader(io.StringIO(text, newline=""), **_FORMATS[form]), 1):
            term, *others = (cell.strip() for cell in row) if row else ("",)
            if not any((term, *others)):
                continue
            target = others[0] if len(others) in ((1, 3) if form == "csv" else (1,)) else ""
            if not term or not target:
                raise _invalid(f"entry {number} must be a term and its translation, got {' '.join(row)[:60]!r}")
            if _CONTROL.search(term + target) or max(len(term), len(target)) > MOST_CHARACTERS:
                raise _invalid(
                    f"entry {number} must have no control characters and at most {MOST_CHARACTERS:,} characters on a "
                    "side"
                )
            if term in entries:
                raise _invalid(f"entry {number} repeats the term {term[:60]!r}")
            entries[term] = target
    except csv.Error as error:
        raise _invalid(f"the {form.upper()} cannot be read: {error}") from None
    if not entries:
        raise _invalid("there are none")
    return _terms(entries)


def _invalid(reason: str) -> Refusal:
    return Refusal(400, f"Invalid glossary entries provided: {reason}.")


def language(name: str, given: str, codes: Sequence[str]) -> str:
    """Returns the code that a client means. Raises a Refusal, which calls it `name`, if it is none of `codes`."""
    if code := matching(given, codes):
        return code
    served = ", ".join(sorted({code.upper() for code in codes}))
    raise Refusal(400, f"Value for '{name}' not supported: it must be one of {served}, got {given[:40].upper()!r}.")


class GlossaryEndpoints:
    """The glossary endpoints. They run in threads, because large glossaries take seconds. If `glossaries` is None,
    lists are empty and nothing can be stored."""

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

    def _dictionaries(self, given: Sequence[Dictionary]) -> dict[Languages, Glossary]:
        dictionaries = {self._languages(one): dictionary_of(one.entries, one.entries_format) for one in given}
        if len(dictionaries) < len(given):
            raise Refusal(400, "Value for 'dictionaries' not supported: each pair of languages must come once.")
        return dictionaries

    def language_pairs(self, call: Call) -> dict[Literal["supported_languages"], list[LanguagePair]]:
        """Lists the languages of glossaries."""
        pairs = [LanguagePair(source_lang=pair.src, target_lang=pair.tgt) for pair in self._pairs]
        return {"supported_languages": pairs}

    def create_2(self, call: Call, asked: NewGlossary2) -> Glossary2:
        """Makes a glossary."""
        return _version_2(self.create_3(call, NewGlossary3(name=asked.name, dictionaries=[asked])))

    def create_3(self, call: Call, asked: NewGlossary3) -> Glossary3:
        """Makes a glossary."""
        made = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        glossary = StoredGlossary(str(uuid.uuid4()), asked.name, made, self._dictionaries(asked.dictionaries))
        return _version_3(self._glossaries.put(call.owner, glossary))

    def list_2(self, call: Call) -> dict[Literal["glossaries"], list[Glossary2]]:
        """Lists the glossaries with one dictionary."""
        described = self.list_3(call)["glossaries"]
        return {"glossaries": [_version_2(one) for one in described if len(one.dictionaries) == 1]}

    def list_3(self, call: Call) -> dict[Literal["glossaries"], list[Glossary3]]:
        """Lists the glossaries."""
        stored = self._stored.all_of(call.owner) if self._stored else []
        return {"glossaries": [_version_3(one) for one in stored]}

    def get_2(self, call: Call) -> Glossary2:
        """Describes a glossary with one dictionary."""
        return _version_2(self.get_3(call))

    def get_3(self, call: Call) -> Glossary3:
        """Describes a glossary."""
        return _version_3(self._glossaries.get(call.owner, call.id))

    def delete(self, call: Call) -> None:
        """Deletes a glossary."""
        self._glossaries.delete(call.owner, call.id)

    def entries_2(self, call: Call) -> Response:
        """Sends the entries of a glossary with one dictionary, separated by tabs."""
        one = self.get_2(call)
        entries = self._entries(call, Languages(one.source_lang, one.target_lang)).entries
        return Response(entries, media_type="text/tab-separated-values")

    def entries_3(self, call: Call, asked: LanguagePair) -> dict[Literal["dictionaries"], list[DictionaryEntries]]:
        """Sends the entries of a dictionary."""
        return {"dictionaries": [self._entries(call, self._languages(asked))]}

    def _entries(self, call: Call, languages: Languages) -> DictionaryEntries:
        dictionary = self._glossaries.get(call.owner, call.id).dictionary(languages)
        text = "\n".join("\t".join(entry) for entry in _entries(dictionary).items())
        return DictionaryEntries(**_size(languages, dictionary).model_dump(), entries=text)

    def update(self, call: Call, asked: Change) -> Glossary3:
        """Renames a glossary, or adds entries."""
        added = self._dictionaries(asked.dictionaries)

        def change(old: StoredGlossary) -> StoredGlossary:
            dictionaries = dict(old.dictionaries)
            for languages, terms in added.items():
                dictionaries[languages] = dictionaries.get(languages, Glossary(())).with_terms(terms)
            return replace(old, name=asked.name or old.name, dictionaries=dictionaries)

        return _version_3(self._glossaries.change(call.owner, call.id, change))

    def replace(self, call: Call, asked: Dictionary) -> DictionarySize:
        """Replaces a dictionary."""
        new = self._dictionaries([asked])
        self._glossaries.change(call.owner, call.id, lambda old: replace(old, dictionaries={**old.dictionaries, **new}))
        return _size(*new.popitem())

    def delete_dictionary(self, call: Call, asked: LanguagePair) -> None:
        """Deletes a dictionary."""
        languages = self._languages(asked)

        def change(old: StoredGlossary) -> StoredGlossary:
            old.dictionary(languages)
            left = {pair: terms for pair, terms in old.dictionaries.items() if pair != languages}
            return replace(old, dictionaries=left)

        self._glossaries.change(call.owner, call.id, change)


def _size(languages: Languages, dictionary: Glossary) -> DictionarySize:
    return DictionarySize(source_lang=languages.src, target_lang=languages.tgt, entry_count=len(dictionary.pairs))


def _version_3(stored: StoredGlossary) -> Glossary3:
    """Returns the description of a glossary."""
    sizes = [_size(*dictionary) for dictionary in stored.dictionaries.items()]
    return Glossary3(glossary_id=stored.id, name=stored.name, creation_time=stored.made, dictionaries=sizes)


def _version_2(described: Glossary3) -> Glossary2:
    """Returns the description of a glossary for version 2. Raises a Refusal unless it has exactly one dictionary."""
    if len(described.dictionaries) != 1:
        raise Refusal(404, "Glossary not found: version 3 has those with several dictionaries, or none.")
    return Glossary2(**described.model_dump(exclude={"dictionaries"}), **described.dictionaries[0].model_dump())
