"""The HTTP interface: LibreTranslate's endpoints over a Service, the web page, and the description of the interface."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vtrans.apps.cleaning.detection import Detection, detector
from vtrans.apps.documents.database import Database
from vtrans.apps.documents.document import READERS, PlainDocument
from vtrans.apps.documents.files import FORMATS
from vtrans.apps.documents.placeholders import placeholders
from vtrans.apps.server.access import Access, url_at
from vtrans.apps.server.admission import Call, host_check, no_sniff
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.deepl.endpoints import DeepL
from vtrans.apps.server.deepl.usage import Usage
from vtrans.apps.server.limits import Limits
from vtrans.apps.server.metrics import CONTENT_TYPE
from vtrans.apps.server.page import page_routes
from vtrans.apps.server.parameters import (
    FORM_BYTES,
    SEARCH_KEYS,
    TranslateRequest,
    file_request,
    form_of_address,
    is_json,
    required_text,
    search_settings,
    translate_request,
)
from vtrans.apps.server.refusals import Refusal
from vtrans.apps.server.request_handler import Admitted, RequestHandler, Warn
from vtrans.apps.server.service import AUTO, Answer, Service
from vtrans.apps.server.uploads import Results, attachment, translated_name, uploaded_file
from vtrans.config.keys import Key
from vtrans.text.languages import Languages, language_name


class Api:
    """LibreTranslate's endpoints."""

    def __init__(
        self, service: Service, limits: Limits, access: Access, handler: RequestHandler, usage: Usage, version: str
    ) -> None:
        self.service, self.limits, self.access = service, limits, access
        self._handler, self._usage, self._results = handler, usage, Results()
        self._spec = specification(version, limits)

    async def languages(self, request: Request) -> Response:
        """Answers with LibreTranslate's fields. `formality` and `confidence` are ours: the targets for which a request
        may have them."""
        lists: dict[str, Callable[[str], list[str]]] = {
            "targets": self.service.targets,
            "formality": functools.partial(self.service.able, options=RequestOptions(formality="more")),
            "confidence": functools.partial(self.service.able, options=RequestOptions(confidence=True)),
        }
        return JSONResponse(
            [
                {"code": code, "name": language_name(code), **{name: find(code) for name, find in lists.items()}}
                for code in self.service.codes
            ]
        )

    async def health(self, request: Request) -> Response:
        """Answers with status 200 even if the queue is long: restarting a busy server would not help."""
        waiting = sum(worker.waiting for worker in self.service.workers.values())
        return JSONResponse({"status": "ok", "queue": waiting})

    async def settings(self, request: Request) -> Response:
        source, target = next(iter(self.service.workers))
        return JSONResponse(
            {
                "charLimit": self.limits.characters,
                "frontendTimeout": 500,
                "apiKeys": self.access.keys is not None,
                "keyRequired": self.access.keys is not None,
                "suggestions": self.service.memory is not None,
                "filesTranslation": True,
                "supportedFilesFormat": list(FORMATS),
                "language": {
                    "source": {"code": source, "name": language_name(source)},
                    "target": {"code": target, "name": language_name(target)},
                },
            }
        )

    async def metrics(self, request: Request) -> Response:
        return Response(self._handler.metrics.text(self.service), media_type=CONTENT_TYPE)

    async def spec(self, request: Request) -> Response:
        return JSONResponse(self._spec)

    async def detect(self, call: Call) -> Response:
        text = required_text(call.fields, "q")
        return JSONResponse([detection.as_dict() for detection in await self.service.detect(text)])

    async def translate(self, call: Call) -> Response:
        asked = translate_request(call.fields, self.limits)
        size = sum(map(len, asked.texts))
        self._usage.check(call.owner, size)
        answer = JSONResponse(await self._translated(asked, call.owner))
        self._usage.add(call.owner, size)
        return answer

    async def _translated(self, asked: TranslateRequest, owner: str) -> dict[str, Any]:
        service, read = self.service, READERS[asked.format]
        source, target = service.source(asked.source), service.code(asked.target)
        if asked.alignments and asked.format == "text":
            read = functools.partial(PlainDocument, aligned=True)
        detected = await service.sources(asked.texts, target, read) if source == AUTO else []
        sources = [detection.language for detection in detected] or [source] * len(asked.texts)
        options = RequestOptions(
            1 + asked.alternatives,
            glossary=asked.glossary,
            search=asked.search,
            formality=asked.formality,
            confidence=asked.confidence,
        )
        answers = await service.translate(asked.texts, sources, target, read, options, owner)
        return _as_json(asked, answers, detected)

    async def translate_file(self, call: Call) -> Response:
        upload, asked_source, asked_target = file_request(call.fields)
        source, target = self.service.source(asked_source), self.service.code(asked_target)
        options = RequestOptions(search=search_settings(call.fields), formality=form_of_address(call.fields))
        file = await uploaded_file(self.service, self.limits, upload, source, target)
        self._usage.check(call.owner, file.characters)
        content = await file.translated(self.service, options, call.owner)
        self._usage.add(call.owner, file.characters)
        key = self._results.add(translated_name(upload.name, file.source, target), content)
        # The client's Host header is not used: this server would seem to vouch for links to other hosts.
        base = (self.access.public_url or url_at(*call.request.scope["server"])).rstrip("/")
        path = call.request.app.url_path_for("download_file", filename=key)
        return JSONResponse({"translatedFileUrl": base + str(path)})

    async def suggest(self, call: Call) -> Response:
        request, fields = call.request, call.fields
        if not self.access.allows_origin(request.headers):
            raise Refusal(403, "Pages of this site must not change translations; the option --cors allows it.")
        if self.service.memory is None:
            raise Refusal(403, "Suggestions are disabled on this server.")
        if self.access.keys is None and not is_json(request):  # a page of another site may send forms, but no JSON
            raise Refusal(400, "A correction without an API key must be sent as JSON.")
        text, translation = texts = [required_text(fields, name) for name in ("q", "s")]
        if max(map(len, texts)) > self.limits.characters:
            raise Refusal(400, f"q and s must have at most {self.limits.characters:,} characters each.")
        if not all(text.strip() for text in texts):
            raise Refusal(400, "q and s must not be blank.")
        ours, theirs = map(placeholders, texts)
        if different := [*(ours - theirs), *(theirs - ours)]:
            raise Refusal(400, f"q and s must have the same placeholders, but {different[0]} is not in both alike.")
        languages = Languages(*(self.service.code(required_text(fields, name)) for name in ("source", "target")))
        if languages not in self.service.workers:
            raise Refusal(400, f"{languages.tgt} is not available as a target language from {languages.src}")
        await asyncio.to_thread(self.service.correct, languages, text, translation, call.owner)
        return JSONResponse({"success": True})

    async def download_file(self, request: Request) -> Response:
        result = self._results.get(request.path_params["filename"])
        if result is None:
            raise Refusal(404, "There is no such file. Files are removed after an hour.")
        return attachment(*result)


def make_app(
    service: Service,
    limits: Limits,
    *,
    access: Access = Access(),  # noqa: B008 - it does not change
    warn: Warn = lambda text: None,
    version: str = "",
) -> Starlette:
    """Returns the application. It has loaded what its requests need."""
    detector()
    handler = RequestHandler(service, limits, access, warn)
    kept = Database(service.memory.path if service.memory is not None else None, durable=False)
    usage = Usage(kept, limits.month_characters, warn)
    api = Api(service, limits, access, handler, usage, version)
    deepl = DeepL(service, limits, handler, usage)
    text_bytes, file_bytes = limits.body_bytes, limits.file_bytes + FORM_BYTES
    posted: dict[str, tuple[Admitted, int]] = {
        "/detect": (api.detect, text_bytes),
        "/translate": (api.translate, text_bytes),
        "/translate_file": (api.translate_file, file_bytes),
        "/suggest": (api.suggest, text_bytes),
    }
    routes = [
        *page_routes(),
        Route("/languages", api.languages),
        Route("/health", api.health),
        Route("/frontend/settings", api.settings),
        Route("/metrics", api.metrics),
        Route("/spec", api.spec),
        *(Route(path, handler.admitted(path, *endpoint), methods=["POST"]) for path, endpoint in posted.items()),
        Route("/download_file/{filename}", handler.answered("/download_file", api.download_file), name="download_file"),
        *deepl.routes(),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await deepl.close()
        for worker in service.workers.values():
            await asyncio.to_thread(worker.close)
        kept.close()

    middleware = [Middleware(no_sniff), Middleware(host_check, access)]
    if origins := list(access.cors):
        middleware.append(Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"]))

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return Refusal(error.status_code, f"{error.detail}.", error.headers).response(request.url.path)

    handlers = {HTTPException: refused}
    app = Starlette(routes=routes, middleware=middleware, exception_handlers=handlers, lifespan=lifespan)
    app.router.redirect_slashes = False  # a redirection would lead to the host that the client names
    return app


def _as_json(asked: TranslateRequest, answers: Sequence[Answer], detected: Sequence[Detection]) -> dict[str, Any]:
    """Returns the JSON of LibreTranslate: lists for a list of texts, else single values. `alignments` and
    `confidences` are ours."""
    fields: dict[str, list[Any]] = {"translatedText": [answer.text for answer in answers]}
    if detected:
        fields["detectedLanguage"] = [detection.as_dict() for detection in detected]
    if asked.alternatives:
        fields["alternatives"] = [answer.alternatives for answer in answers]
    if asked.alignments:
        fields["alignments"] = [answer.links for answer in answers]
    if asked.confidence:
        fields["confidences"] = [answer.confidences for answer in answers]
    return fields if asked.many else {name: values[0] for name, values in fields.items()}


def specification(version: str, limits: Limits) -> dict[str, Any]:
    """Returns the description of the interface at /spec, in OpenAPI 3.1: openapi.json with these limits."""
    made: dict[str, Any] = json.loads((Path(__file__).parent / "openapi.json").read_bytes())
    made["info"]["version"] = version
    schemas = made["components"]["schemas"]
    texts = schemas["TranslateRequest"]["properties"]["q"]
    texts["description"] = f"The text or texts, at most {limits.characters:,} characters together."
    texts["oneOf"][1]["maxItems"] = limits.texts
    for request in ("TranslateRequest", "FileRequest"):
        schemas[request]["properties"] |= {name: _setting(key) for name, key in SEARCH_KEYS.items()}
    return made


def _setting(key: Key) -> dict[str, Any]:
    """The schema of a search setting. Without it, the model's setting holds."""
    if key.kind is bool:
        schema: dict[str, Any] = {"type": "boolean"}
    elif key.kind is list:
        schema = {"type": "array", "items": {"type": "string"}, "maxItems": key.request}
    elif key.kind is str:
        schema = {"enum": list(key.choices or ())}
    else:
        schema = {"type": "integer" if key.kind is int else "number", "minimum": key.low, "maximum": key.high}
    return schema | {"description": key.described}
