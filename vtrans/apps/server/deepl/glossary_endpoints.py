"""The endpoints of glossaries: versions 2 and 3 of the interface, over the same glossaries."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any

from starlette.responses import JSONResponse, Response

from vtrans.apps.server.admission import Call
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.client_threads import in_thread
from vtrans.apps.server.deepl.glossaries import (
    FORMATS,
    Entries,
    Glossaries,
    StoredGlossary,
    as_tsv,
    dictionary_json,
    entries_of,
)
from vtrans.apps.server.deepl.parameters import choice, language
from vtrans.apps.server.parameters import required_text
from vtrans.apps.server.refusals import Refusal
from vtrans.apps.server.request_handler import Admitted
from vtrans.apps.server.service import Service
from vtrans.text.languages import Languages, base
from vtrans.translate.wording.glossary import Glossary

TSV = "text/tab-separated-values"
_FIELD = re.compile(r"dictionaries\[(\d+)\]\.(\w+)")
_ANY_GLOSSARY = RequestOptions(glossary=Glossary((("a", ("b",)),)))


class GlossaryEndpoints:
    """The endpoints. Without a file that keeps glossaries there are none, and they cannot be made. Version 2 knows
    those with one dictionary."""

    def __init__(self, service: Service, glossaries: Glossaries | None) -> None:
        self._service, self._stored, self._lock = service, glossaries, Lock()

    def endpoints(self) -> list[tuple[str, str, Admitted]]:
        """Returns the method, path and function of each endpoint."""
        both: list[tuple[str, str, Callable[[Call], Response]]] = [
            ("POST", "", self.create),
            ("GET", "", self.list),
            ("GET", "/{id}", self.get),
            ("DELETE", "/{id}", self.delete),
            ("GET", "/{id}/entries", self.entries),
        ]
        version_3: list[tuple[str, str, Callable[[Call], Response]]] = [
            ("PATCH", "/{id}", self.update),
            ("PUT", "/{id}/dictionaries", self.replace),
            ("DELETE", "/{id}/dictionaries", self.delete_dictionary),
        ]
        endpoints = [
            ("GET", "/v2/glossary-language-pairs", self.language_pairs),
            *((method, f"/v2/glossaries{path}", endpoint) for method, path, endpoint in both),
            *((method, f"/v3/glossaries{path}", endpoint) for method, path, endpoint in [*both, *version_3]),
        ]
        return [(method, path, partial(self._answered, endpoint)) for method, path, endpoint in endpoints]

    async def _answered(self, endpoint: Callable[[Call], Response], call: Call) -> Response:
        """Answers a request in a thread: large glossaries take seconds. Only one of them changes glossaries at a
        time."""

        def answer() -> Response:
            with self._lock:
                return endpoint(call)

        return await in_thread(answer)

    @property
    def _glossaries(self) -> Glossaries:
        if self._stored is None:
            raise Refusal(403, "Glossaries are disabled on this server; the option --memory names a file for them.")
        return self._stored

    def _glossary(self, call: Call) -> StoredGlossary:
        """Returns the glossary that a request names."""
        glossary = self._glossaries.get(call.owner, call.request.path_params["id"])
        if _version(call) == 2 and len(glossary.dictionaries) != 1:
            raise Refusal(404, "Glossary not found: version 3 has those with several dictionaries, or none.")
        return glossary

    def _pairs(self) -> list[Languages]:
        """Returns the languages between which glossaries are supported, without regions."""
        able = [pair for pair in self._service.workers if self._service.supports(pair, _ANY_GLOSSARY)]
        return list(dict.fromkeys(Languages(*map(base, pair)) for pair in able))

    def _languages(self, fields: Mapping[str, Any]) -> Languages:
        """Returns the languages of a dictionary."""
        pairs = self._pairs()
        codes = [code for pair in pairs for code in pair]
        languages = Languages(*(language(fields, name, codes) for name in ("source_lang", "target_lang")))
        if languages not in pairs:
            raise Refusal(400, f"Glossaries from {languages.src} to {languages.tgt} are not supported.")
        return languages

    def _dictionary(self, fields: Mapping[str, Any]) -> tuple[Languages, Entries]:
        form = choice(fields, "entries_format", FORMATS, "tsv")
        return self._languages(fields), entries_of(required_text(fields, "entries"), form)

    def _dictionaries(self, fields: Mapping[str, Any]) -> dict[Languages, Entries]:
        """Returns the dictionaries of a request. The fields of a form have names such as `dictionaries[0].entries`."""
        in_form: dict[str, dict[str, Any]] = {}
        for name, value in fields.items():
            if found := _FIELD.fullmatch(name):
                in_form.setdefault(found[1], {})[found[2]] = value
        given = fields.get("dictionaries") or list(in_form.values())
        if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
            raise Refusal(400, "Value for 'dictionaries' not supported: it must be a list of objects.")
        dictionaries = dict(map(self._dictionary, given))
        if len(dictionaries) < len(given):
            raise Refusal(400, "Value for 'dictionaries' not supported: each pair of languages must come once.")
        return dictionaries

    def language_pairs(self, call: Call) -> Response:
        pairs = [{"source_lang": pair.src, "target_lang": pair.tgt} for pair in self._pairs()]
        return JSONResponse({"supported_languages": pairs})

    def create(self, call: Call) -> Response:
        fields, version = call.fields, _version(call)
        dictionaries = dict([self._dictionary(fields)]) if version == 2 else self._dictionaries(fields)
        if not dictionaries:
            raise Refusal(400, "Parameter 'dictionaries' not specified.")
        made = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        glossary = StoredGlossary(str(uuid.uuid4()), required_text(fields, "name"), made, dictionaries)
        self._glossaries.put(call.owner, glossary)
        return JSONResponse(glossary.as_json(version), 201)

    def list(self, call: Call) -> Response:
        found, version = self._stored.all_of(call.owner) if self._stored else [], _version(call)
        shown = [one.as_json(version) for one in found if version > 2 or len(one.dictionaries) == 1]
        return JSONResponse({"glossaries": shown})

    def get(self, call: Call) -> Response:
        return JSONResponse(self._glossary(call).as_json(_version(call)))

    def delete(self, call: Call) -> Response:
        self._glossaries.delete(call.owner, call.request.path_params["id"])
        return Response(status_code=204)

    def entries(self, call: Call) -> Response:
        dictionaries = self._glossary(call).dictionaries
        if _version(call) == 2:
            accepted = call.request.headers.get("accept", TSV)
            if not any(kind in accepted for kind in (TSV, "text/*", "*/*")):
                raise Refusal(415, f"The header Accept must be {TSV}, got {accepted[:80]!r}.")
            return Response(as_tsv(*dictionaries.values()), media_type=TSV)
        languages = self._known(dictionaries, call)
        entries = {"entries": as_tsv(dictionaries[languages]), "entries_format": "tsv"}
        return JSONResponse({"dictionaries": [dictionary_json(languages, dictionaries[languages]) | entries]})

    def _known(self, dictionaries: Mapping[Languages, Entries], call: Call) -> Languages:
        """Returns the languages that a request names, which must have a dictionary."""
        languages = self._languages(call.fields)
        if languages not in dictionaries:
            raise Refusal(404, f"Glossary has no dictionary from {languages.src} to {languages.tgt}.")
        return languages

    def update(self, call: Call) -> Response:
        glossary = self._glossary(call)
        name = required_text(call.fields, "name") if "name" in call.fields else glossary.name
        dictionaries = dict(glossary.dictionaries)
        for languages, entries in self._dictionaries(call.fields).items():
            dictionaries[languages] = {**dictionaries.get(languages, {}), **entries}
        glossary = replace(glossary, name=name, dictionaries=dictionaries)
        self._glossaries.put(call.owner, glossary)
        return JSONResponse(glossary.as_json(3))

    def replace(self, call: Call) -> Response:
        glossary, (languages, entries) = self._glossary(call), self._dictionary(call.fields)
        dictionaries = {**glossary.dictionaries, languages: entries}
        self._glossaries.put(call.owner, replace(glossary, dictionaries=dictionaries))
        return JSONResponse(dictionary_json(languages, entries))

    def delete_dictionary(self, call: Call) -> Response:
        glossary = self._glossary(call)
        dictionaries = dict(glossary.dictionaries)
        del dictionaries[self._known(dictionaries, call)]
        self._glossaries.put(call.owner, replace(glossary, dictionaries=dictionaries))
        return Response(status_code=204)


def _version(call: Call) -> int:
    """Returns the version of the interface of a request."""
    return 2 if call.request.url.path.startswith("/v2/") else 3
