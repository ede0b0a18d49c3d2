"""The endpoints of glossaries: versions 2 and 3 of the interface, over the same glossaries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from vtrans.server.admission import Call
from vtrans.server.answering import Admitted
from vtrans.server.batching import RequestOptions
from vtrans.server.deepl.glossaries import (
    FORMATS,
    Entries,
    Glossaries,
    StoredGlossary,
    as_tsv,
    dictionary_json,
    entries_of,
)
from vtrans.server.deepl.parameters import choice, given_text, language
from vtrans.server.refusals import Refusal
from vtrans.server.service import Service
from vtrans.text.languages import Languages, base
from vtrans.wording.glossary import Glossary

TSV = "text/tab-separated-values"
_FIELD = re.compile(r"dictionaries\[(\d+)\]\.(\w+)")
_ANY_GLOSSARY = RequestOptions(glossary=Glossary((("a", ("b",)),)))


class GlossaryEndpoints:
    """The endpoints. Without a file that keeps glossaries there are none, and they cannot be made."""

    def __init__(self, service: Service, glossaries: Glossaries | None) -> None:
        self._service, self._stored = service, glossaries

    def endpoints(self) -> list[tuple[str, str, Admitted]]:
        """Returns the method, path and function of each endpoint."""
        return [
            ("GET", "/v2/glossary-language-pairs", self.language_pairs),
            ("POST", "/v2/glossaries", self.create_2),
            ("GET", "/v2/glossaries", self.list_2),
            ("GET", "/v2/glossaries/{id}", self.get_2),
            ("GET", "/v2/glossaries/{id}/entries", self.entries_2),
            ("DELETE", "/v2/glossaries/{id}", self.delete),
            ("POST", "/v3/glossaries", self.create),
            ("GET", "/v3/glossaries", self.list),
            ("GET", "/v3/glossaries/{id}", self.get),
            ("PATCH", "/v3/glossaries/{id}", self.update),
            ("GET", "/v3/glossaries/{id}/entries", self.entries),
            ("DELETE", "/v3/glossaries/{id}", self.delete),
            ("PUT", "/v3/glossaries/{id}/dictionaries", self.replace),
            ("DELETE", "/v3/glossaries/{id}/dictionaries", self.delete_dictionary),
        ]

    @property
    def _glossaries(self) -> Glossaries:
        if self._stored is None:
            raise Refusal(403, "Glossaries are disabled on this server; the option --memory names a file for them.")
        return self._stored

    def _pairs(self) -> list[Languages]:
        """Returns the languages between which glossaries are supported, without regions."""
        able = [pair for pair in self._service.workers if self._service.supports(pair, _ANY_GLOSSARY)]
        return list(dict.fromkeys(Languages(*map(base, pair)) for pair in able))

    def _languages(self, fields: Mapping[str, Any]) -> Languages:
        """Returns the languages of a dictionary."""
        pairs = self._pairs()
        asked = [
            language(fields, f"{side}_lang", [code for pair in pairs for code in pair]) for side in ("source", "target")
        ]
        languages = Languages(*map(base, asked))
        if languages not in pairs:
            raise Refusal(400, f"Glossaries from {languages.src} to {languages.tgt} are not supported.")
        return languages

    def _entries(self, fields: Mapping[str, Any]) -> Entries:
        form = choice(fields, "entries_format", FORMATS, "tsv")
        return entries_of(given_text(fields, "entries"), form)

    def _dictionaries(self, fields: Mapping[str, Any]) -> dict[Languages, Entries]:
        given = fields.get("dictionaries") or _in_form(fields)
        if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
            raise Refusal(400, "Value for 'dictionaries' not supported: it must be a list of objects.")
        dictionaries = {self._languages(one): self._entries(one) for one in given}
        if len(dictionaries) < len(given):
            raise Refusal(400, "Value for 'dictionaries' not supported: each pair of languages must come once.")
        return dictionaries

    async def language_pairs(self, call: Call) -> Response:
        pairs = [{"source_lang": pair.src, "target_lang": pair.tgt} for pair in self._pairs()]
        return JSONResponse({"supported_languages": pairs})

    async def create(self, call: Call) -> Response:
        name, dictionaries = given_text(call.fields, "name"), self._dictionaries(call.fields)
        if not dictionaries:
            raise Refusal(400, "Parameter 'dictionaries' not specified.")
        return JSONResponse(self._glossaries.create(call.owner, name, dictionaries).as_json(), 201)

    async def create_2(self, call: Call) -> Response:
        name, dictionary = given_text(call.fields, "name"), {self._languages(call.fields): self._entries(call.fields)}
        return JSONResponse(self._glossaries.create(call.owner, name, dictionary).as_json_2(), 201)

    async def list(self, call: Call) -> Response:
        found = self._stored.all_of(call.owner) if self._stored else []
        return JSONResponse({"glossaries": [glossary.as_json() for glossary in found]})

    async def list_2(self, call: Call) -> Response:
        found = self._stored.all_of(call.owner) if self._stored else []
        return JSONResponse({"glossaries": [one.as_json_2() for one in found if len(one.counts) == 1]})

    async def get(self, call: Call) -> Response:
        return JSONResponse(self._glossaries.get(call.owner, _id(call)).as_json())

    async def get_2(self, call: Call) -> Response:
        return JSONResponse(self._single(call).as_json_2())

    def _single(self, call: Call) -> StoredGlossary:
        """Returns a glossary that version 2 knows."""
        glossary = self._glossaries.get(call.owner, _id(call))
        if len(glossary.counts) != 1:
            raise Refusal(404, "Glossary not found: version 3 has those with several dictionaries, or none.")
        return glossary

    async def update(self, call: Call) -> Response:
        name = given_text(call.fields, "name") if call.fields.get("name") is not None else None
        dictionaries = self._dictionaries(call.fields)
        return JSONResponse(self._glossaries.update(call.owner, _id(call), name, dictionaries).as_json())

    async def entries(self, call: Call) -> Response:
        languages = self._languages(call.fields)
        entries = as_tsv(self._glossaries.entries(call.owner, _id(call), languages))
        one = {"source_lang": languages.src, "target_lang": languages.tgt, "entries": entries, "entries_format": "tsv"}
        return JSONResponse({"dictionaries": [one]})

    async def entries_2(self, call: Call) -> Response:
        accepted = call.request.headers.get("accept", "*/*")
        if not any(kind in accepted for kind in (TSV, "text/*", "*/*")):
            raise Refusal(415, f"The header Accept must be {TSV}, got {accepted[:80]!r}.")
        (languages,) = self._single(call).counts
        entries = as_tsv(self._glossaries.entries(call.owner, _id(call), languages))
        return Response(entries, media_type=TSV)

    async def replace(self, call: Call) -> Response:
        languages, entries = self._languages(call.fields), self._entries(call.fields)
        self._glossaries.replace(call.owner, _id(call), languages, entries)
        return JSONResponse(dictionary_json(languages, len(entries)))

    async def delete(self, call: Call) -> Response:
        self._glossaries.delete(call.owner, _id(call))
        return Response(status_code=204)

    async def delete_dictionary(self, call: Call) -> Response:
        self._glossaries.delete_dictionary(call.owner, _id(call), self._languages(call.fields))
        return Response(status_code=204)


def _in_form(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the dictionaries of a form, whose fields have names such as `dictionaries[0].entries`."""
    dictionaries: dict[str, dict[str, Any]] = {}
    for name, value in fields.items():
        if found := _FIELD.fullmatch(name):
            dictionaries.setdefault(found[1], {})[found[2]] = value
    return list(dictionaries.values())


def _id(call: Call) -> str:
    return str(call.request.path_params["id"])
