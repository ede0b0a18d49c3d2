"""The HTTP interface: LibreTranslate's endpoints over a Service, and the web page."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vtrans.documents.document import READERS, PlainDocument
from vtrans.documents.files import FORMATS, Filling, open_file
from vtrans.errors import DocumentError, DocumentSizeError
from vtrans.server.access import Access, url_at
from vtrans.server.admission import Admission, HostCheck, NoSniff
from vtrans.server.limits import Limits
from vtrans.server.metrics import CONTENT_TYPE, Metrics
from vtrans.server.page import page_routes
from vtrans.server.parameters import (
    TranslateRequest,
    file_request,
    is_json,
    required_text,
    search_settings,
    translate_request,
    unless_gone,
)
from vtrans.server.refusals import Refusal, retry_after
from vtrans.server.results import Results, safe_name, translated_name
from vtrans.server.service import AUTO, Answer, Service
from vtrans.server.spec import specification
from vtrans.text.detection import Detection
from vtrans.text.languages import Languages, language_name

FORM_BYTES = 10_000  # of a form besides its file

Endpoint = Callable[[Request], Awaitable[Response]]
Posted = Callable[[Request, dict[str, Any]], Awaitable[Response]]
"""Answers a request with parameters that was admitted."""
Warn = Callable[[str], None]


class Api:
    """The endpoints. `warn` receives failures, never the text of a request."""

    def __init__(self, service: Service, limits: Limits, access: Access, warn: Warn, version: str) -> None:
        self.service, self.limits, self.warn = service, limits, warn
        self.access, self.admission = access, Admission(limits, access)
        self._spec = specification(version, limits)
        self._results = Results()
        self._metrics = Metrics()

    async def languages(self, request: Request) -> Response:
        service = self.service
        return JSONResponse(
            [{"code": code, "name": language_name(code), "targets": service.targets(code)} for code in service.codes]
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
        return Response(self._metrics.text(self.service), media_type=CONTENT_TYPE)

    async def spec(self, request: Request) -> Response:
        return JSONResponse(self._spec)

    async def detect(self, request: Request, fields: dict[str, Any]) -> Response:
        text = required_text(fields, "q")
        return JSONResponse([detection.as_dict() for detection in await self.service.detect(text)])

    async def translate(self, request: Request, fields: dict[str, Any]) -> Response:
        asked = translate_request(fields, self.limits)
        return JSONResponse(await unless_gone(request, self._translated(asked)))

    async def _translated(self, asked: TranslateRequest) -> dict[str, Any]:
        service, read = self.service, READERS[asked.format]
        source, target = service.source(asked.source), service.code(asked.target)
        if asked.alignments and asked.format == "text":
            read = functools.partial(PlainDocument, aligned=True)
        detected = await service.sources(asked.texts, target, read) if source == AUTO else []
        sources = [detection.language for detection in detected] or [source] * len(asked.texts)
        answers = await service.translate(
            asked.texts, sources, target, read, asked.alternatives, asked.glossary, asked.search
        )
        return _as_json(asked, answers, detected)

    async def translate_file(self, request: Request, fields: dict[str, Any]) -> Response:
        limits, service = self.limits, self.service
        upload, asked_source, asked_target = file_request(fields)
        source, target = service.source(asked_source), service.code(asked_target)
        filling = Filling(target, source="" if source == AUTO else source)
        opened = await asyncio.to_thread(open_file, upload.name, upload.content, limits.file_bytes, filling)
        size = sum(map(len, opened.texts))
        if size > limits.file_characters:
            raise Refusal(413, f"A file must have at most {limits.file_characters:,} characters, got {size:,}.")
        if source == AUTO:
            detected = await service.sources(opened.texts, target, opened.read)
            longest = max(range(len(detected)), key=lambda i: len(opened.texts[i]))
            source = detected[longest].language
        sources, search = [source] * len(opened.texts), search_settings(fields)
        work = service.translate(opened.texts, sources, target, opened.read, search=search)
        answers = await unless_gone(request, work)
        content = await asyncio.to_thread(opened.written, [answer.text for answer in answers])
        key = self._results.add(translated_name(upload.name, source, target), content)
        # The client's Host header is not used: this server would seem to vouch for links to other hosts.
        base = (self.access.public_url or url_at(*request.scope["server"])).rstrip("/")
        return JSONResponse({"translatedFileUrl": base + str(request.app.url_path_for("download_file", filename=key))})

    async def suggest(self, request: Request, fields: dict[str, Any]) -> Response:
        if not self.access.allows_origin(request.headers):
            raise Refusal(403, "Pages of this site must not change translations; the option --cors allows it.")
        if self.service.memory is None:
            raise Refusal(403, "Suggestions are disabled on this server.")
        if self.access.keys is None and not is_json(request):  # a page of another site may send forms, but no JSON
            raise Refusal(400, "A correction without an API key must be sent as JSON.")
        texts = [required_text(fields, name) for name in ("q", "s")]
        if max(map(len, texts)) > self.limits.characters:
            raise Refusal(400, f"q and s must have at most {self.limits.characters:,} characters each.")
        if not all(text.strip() for text in texts):
            raise Refusal(400, "q and s must not be blank.")
        source, target = (self.service.code(required_text(fields, name)) for name in ("source", "target"))
        if Languages(source, target) not in self.service.workers:
            raise Refusal(400, f"{target} is not available as a target language from {source}")
        await asyncio.to_thread(self.service.correct, Languages(source, target), *texts)
        return JSONResponse({"success": True})

    async def download_file(self, request: Request) -> Response:
        result = self._results.get(request.path_params["filename"])
        if result is None:
            raise Refusal(404, "There is no such file. Files are removed after an hour.")
        name, content = result
        # Never shown as a page of this server: a translated page may hold scripts.
        named = f"attachment; filename=\"{safe_name(name)}\"; filename*=UTF-8''{quote(name, safe='')}"  # RFC 6266
        return Response(content, media_type="application/octet-stream", headers={"Content-Disposition": named})

    def posted(self, path: str, endpoint: Posted, limit: int) -> Endpoint:
        """Returns an endpoint for requests of at most `limit` bytes. It refuses those above the limit of concurrent
        requests, which counts only requests that have arrived and may be answered."""

        async def admitted(request: Request) -> Response:
            fields, client = await self.admission.read(request, limit)
            if self._metrics.answering >= self.limits.requests:
                raise self._busy()
            self.admission.count(client)
            self._metrics.answering += 1
            try:
                return await endpoint(request, fields)
            finally:
                self._metrics.answering -= 1

        return self.answered(path, admitted)

    def answered(self, path: str, endpoint: Endpoint) -> Endpoint:
        """Returns an endpoint that answers every request, with an error if it fails."""

        async def answer(request: Request) -> Response:
            began = time.monotonic()
            response = await self._answer(endpoint, request)
            self._metrics.answered(path, response.status_code, time.monotonic() - began)
            return response

        return answer

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        try:
            async with asyncio.timeout(self.limits.timeout) as timeout:
                return await endpoint(request)
        except Refusal as refusal:
            return refusal.response()
        except DocumentError as error:
            return Refusal(413 if isinstance(error, DocumentSizeError) else 400, str(error)).response()
        except TimeoutError as error:
            if not timeout.expired():
                return self._failed(error)
            sentence = f"The request took more than {self.limits.timeout:g} seconds; send less text."
            return Refusal(504, sentence).response()
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except Exception as error:
            return self._failed(error)

    def _failed(self, error: Exception) -> Response:
        self.warn(f"a request failed: {_place(error)}")
        return Refusal(500, "The server failed to answer; try again, or tell its operator.").response()

    def _busy(self) -> Refusal:
        workers = self.service.workers.values()
        seconds = max(worker.waiting * worker.seconds_per_line for worker in workers)
        sentence = f"The server is answering {self.limits.requests:,} requests; try again later."
        return Refusal(503, sentence, retry_after(seconds))


def make_app(
    service: Service,
    limits: Limits,
    *,
    access: Access = Access(),  # noqa: B008 - it does not change
    warn: Warn = lambda text: None,
    version: str = "",
) -> Starlette:
    """Returns the application."""
    api = Api(service, limits, access, warn, version)
    text_bytes, file_bytes = limits.body_bytes, limits.file_bytes + FORM_BYTES
    posted: dict[str, tuple[Posted, int]] = {
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
        *(Route(path, api.posted(path, *endpoint), methods=["POST"]) for path, endpoint in posted.items()),
        Route("/download_file/{filename}", api.answered("/download_file", api.download_file), name="download_file"),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        for worker in service.workers.values():
            await asyncio.to_thread(worker.close)

    middleware = [Middleware(NoSniff), Middleware(HostCheck, access)]
    if origins := list(access.cors):
        middleware.append(Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"]))

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return Refusal(error.status_code, f"{error.detail}.", error.headers).response()

    handlers = {HTTPException: refused}
    app = Starlette(routes=routes, middleware=middleware, exception_handlers=handlers, lifespan=lifespan)
    app.router.redirect_slashes = False  # a redirection would lead to the host that the client names
    return app


def _place(error: Exception) -> str:
    """Returns the type of an exception and where it was raised. Its message may contain text of the request."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" in {trace.tb_frame.f_code.co_name}, line {trace.tb_lineno}" if trace is not None else ""
    return type(error).__name__ + where


def _as_json(asked: TranslateRequest, answers: Sequence[Answer], detected: Sequence[Detection]) -> dict[str, Any]:
    """Returns the JSON of LibreTranslate: lists for a list of texts, else single values. `alignments` is ours."""
    fields: dict[str, list[Any]] = {"translatedText": [answer.text for answer in answers]}
    if detected:
        fields["detectedLanguage"] = [detection.as_dict() for detection in detected]
    if asked.alternatives:
        fields["alternatives"] = [answer.alternatives for answer in answers]
    if asked.alignments:
        fields["alignments"] = [answer.links for answer in answers]
    return fields if asked.many else {name: values[0] for name, values in fields.items()}
