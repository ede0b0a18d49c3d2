"""The endpoints of DeepL's interface: texts, documents, languages and usage, and those of glossaries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vtrans.apps.server.admission import Call
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.client_threads import in_thread
from vtrans.apps.server.deepl.documents import Documents
from vtrans.apps.server.deepl.glossaries import Glossaries
from vtrans.apps.server.deepl.glossary_endpoints import GlossaryEndpoints
from vtrans.apps.server.deepl.parameters import Asked, TextRequest, asked_of, text_request, variants
from vtrans.apps.server.deepl.usage import Usage
from vtrans.apps.server.limits import Limits
from vtrans.apps.server.parameters import FORM_BYTES, Upload
from vtrans.apps.server.refusals import Refusal
from vtrans.apps.server.request_handler import Admitted, RequestHandler
from vtrans.apps.server.service import AUTO, Answer, Service
from vtrans.apps.server.uploads import UploadedFile, attachment, translated_name, uploaded_file
from vtrans.text.languages import Languages, base, language_name

UNLIMITED = 10**12  # what DeepL says where there is no limit


class DeepL:
    """The endpoints. Translating shares the service, its limits and its queue with LibreTranslate's."""

    def __init__(self, service: Service, limits: Limits, handler: RequestHandler, usage: Usage) -> None:
        self._service, self._limits, self._handler, self._usage = service, limits, handler, usage
        self._documents = Documents()
        self._glossaries = Glossaries(service.memory.file) if service.memory is not None else None

    def routes(self) -> Iterator[Route]:
        """Yields the routes of all endpoints."""
        texts, files = self._limits.body_bytes, self._limits.file_bytes + FORM_BYTES
        endpoints: list[tuple[str, str, Admitted, int]] = [
            ("POST", "/v2/translate", self.translate, texts),
            ("GET", "/v2/languages", self.languages, texts),
            ("GET", "/v2/usage", self.usage, texts),
            ("POST", "/v2/document", self.upload, files),
            ("POST", "/v2/document/{id}", self.document_status, texts),
            ("POST", "/v2/document/{id}/result", self.document_result, texts),
        ]
        more = GlossaryEndpoints(self._service, self._glossaries).endpoints()
        for method, path, endpoint, limit in [*endpoints, *((*entry, files) for entry in more)]:
            yield Route(path, self._handler.admitted(path, endpoint, limit), methods=[method])

    async def close(self) -> None:
        await self._documents.close()

    async def translate(self, call: Call) -> Response:
        request = text_request(call.fields, self._service, self._limits)
        size = sum(map(len, request.texts))
        self._usage.check(call.owner, size)
        answers = await self._translated(request, call.owner)
        self._usage.add(call.owner, size)
        return JSONResponse({"translations": answers})

    async def _translated(self, request: TextRequest, owner: str) -> list[dict[str, Any]]:
        texts, asked = request.texts, request.asked
        if asked.source:
            sources = [asked.source] * len(texts)
        else:
            detected = await self._service.sources(texts, asked.target, request.read)
            sources = [detection.language for detection in detected]
        answers: dict[int, Answer] = {}
        for source in dict.fromkeys(sources):
            places = [i for i, code in enumerate(sources) if code == source]
            part, codes = [texts[i] for i in places], [source] * len(places)
            options = await self._options(owner, asked, source)
            made = await self._service.translate(part, codes, asked.target, request.read, options, owner)
            answers |= zip(places, made, strict=True)
        return [
            {"detected_source_language": base(source).upper(), "text": answers[i].text}
            | ({"billed_characters": len(texts[i])} if request.billed else {})
            | ({"model_type_used": request.model_type} if request.model_type else {})
            for i, source in enumerate(sources)
        ]

    async def _options(self, owner: str, asked: Asked, source: str) -> RequestOptions:
        """Returns the options of a request from this language, with its glossary."""
        options = asked.options(self._service, source)
        if not asked.glossary_id:
            return options
        if self._glossaries is None:
            raise Refusal(404, "Glossary not found.")
        stored = await in_thread(partial(self._glossaries.get, owner, asked.glossary_id))
        terms = await in_thread(lambda: stored.terms)
        if (languages := Languages(base(source), base(asked.target))) not in terms:
            raise Refusal(404, f"Glossary has no dictionary from {languages.src} to {languages.tgt}.")
        return replace(options, glossary=terms[languages])

    async def languages(self, call: Call) -> Response:
        kind = call.fields.get("type") or "source"
        if kind not in ("source", "target"):
            raise Refusal(400, "Value for 'type' not supported: it must be source or target.")
        pairs = list(self._service.workers)
        if kind == "source":
            codes = dict.fromkeys(base(pair.src) for pair in pairs)
            return JSONResponse([{"language": code.upper(), "name": language_name(code)} for code in codes])
        formality = RequestOptions(formality="more")
        able = {pair.tgt for pair in pairs if self._service.supports(pair, formality)}
        targets = {code: pair.tgt in able for pair in pairs for code in variants(pair.tgt)}
        return JSONResponse(
            [
                {"language": code.upper(), "name": language_name(code), "supports_formality": formal}
                for code, formal in targets.items()
            ]
        )

    async def usage(self, call: Call) -> Response:
        count = self._usage.count(call.owner)
        return JSONResponse({"character_count": count, "character_limit": self._usage.limit or UNLIMITED})

    async def upload(self, call: Call) -> Response:
        asked, upload = asked_of(call.fields, self._service), _upload(call.fields)
        file = await uploaded_file(self._service, self._limits, upload, asked.source or AUTO, asked.target)
        self._usage.check(call.owner, file.characters)
        options = await self._options(call.owner, asked, file.source)
        work = self._document(file, options, call.owner)
        name = translated_name(upload.name, file.source, asked.target)
        id, key = self._documents.add(call.owner, name, file.characters, work)
        return JSONResponse({"document_id": id, "document_key": key})

    async def _document(self, file: UploadedFile, options: RequestOptions, owner: str) -> bytes | Refusal:
        """Returns a translated document, or what its owner is told if that fails."""
        with self._handler.counted():
            try:
                async with asyncio.timeout(self._limits.timeout) as timeout:
                    content = await file.translated(self._service, options, owner)
                self._usage.add(owner, file.characters)
            except Exception as error:
                return self._handler.refusal(error, timed_out=timeout.expired())
        return content

    async def document_status(self, call: Call) -> Response:
        id = call.request.path_params["id"]
        document = self._documents.get(call.owner, id, call.fields.get("document_key"))
        failure = await self._documents.failure(document)
        if failure:
            status: dict[str, Any] = {"status": "error", "error_message": failure.sentence}
        elif document.task.done():
            status = {"status": "done", "billed_characters": document.characters}
        else:
            status = {"status": "translating", "seconds_remaining": self._handler.seconds()}
        return JSONResponse({"document_id": id, **status})

    async def document_result(self, call: Call) -> Response:
        id = call.request.path_params["id"]
        document = self._documents.get(call.owner, id, call.fields.get("document_key"))
        return attachment(*self._documents.result(document))


def _upload(fields: dict[str, Any]) -> Upload:
    """Returns the file of a request, whose name may be a parameter of its own. It keeps its format."""
    upload, name, form = (fields.get(field) for field in ("file", "filename", "output_format"))
    if not isinstance(upload, Upload):
        raise Refusal(400, "Parameter 'file' not specified.")
    if isinstance(name, str) and name:
        upload = replace(upload, name=name)
    ending = PurePath(upload.name.lower()).suffix
    if form and form != ending.removeprefix("."):
        raise Refusal(400, f"Value for 'output_format' not supported: the file stays in the format {ending}.")
    return upload
