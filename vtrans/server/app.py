"""The HTTP interface: LibreTranslate's endpoints over a Service."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vtrans.languages import language_name
from vtrans.server.limits import Keys, Limits, RateLimit
from vtrans.server.parameters import (
    TranslateRequest,
    api_key,
    parameters,
    read_body,
    required_text,
    translate_request,
    unless_gone,
)
from vtrans.server.refusals import Refusal, busy
from vtrans.server.service import AUTO, Answer, Service

Endpoint = Callable[[Request], Awaitable[Response]]
Warn = Callable[[str], None]


class Api:
    """The endpoints. `warn` hears of failures, without their text."""

    def __init__(self, service: Service, limits: Limits, keys: Keys | None, warn: Warn) -> None:
        self.service, self.limits, self.keys, self.warn = service, limits, keys, warn
        self._rate = RateLimit(limits.per_minute)
        self._answering = 0

    async def languages(self, request: Request) -> Response:
        service = self.service
        return JSONResponse(
            [{"code": code, "name": language_name(code), "targets": service.targets(code)} for code in service.codes]
        )

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def settings(self, request: Request) -> Response:
        source, target = next(iter(self.service.workers))
        return JSONResponse(
            {
                "charLimit": self.limits.characters,
                "frontendTimeout": 500,
                "apiKeys": self.keys is not None,
                "keyRequired": self.keys is not None,
                "suggestions": False,
                "filesTranslation": False,
                "supportedFilesFormat": [],
                "language": {
                    "source": {"code": source, "name": language_name(source)},
                    "target": {"code": target, "name": language_name(target)},
                },
            }
        )

    async def detect(self, request: Request) -> Response:
        found = await self._admitted(request, self.limits.body_bytes)
        text = required_text(found, "q")
        return JSONResponse([detection.as_dict() for detection in await self.service.detect(text)])

    async def translate(self, request: Request) -> Response:
        asked = translate_request(await self._admitted(request, self.limits.body_bytes), self.limits)
        service = self.service
        source = AUTO if asked.source == AUTO else service.code(asked.source)
        target = service.code(asked.target)
        work = service.translate(asked.texts, source, target, asked.alternatives)
        answers = await unless_gone(request, work)
        return JSONResponse(_translated(asked, answers))

    async def _admitted(self, request: Request, limit: int) -> dict[str, Any]:
        """Returns the parameters of a request that may be answered. Raises a Refusal for a client without a valid key
        or with too many requests."""
        found = await parameters(request, await read_body(request, limit, self.limits.body_seconds))
        key, client = api_key(found), request.client.host if request.client else ""
        if self.keys is not None:
            number = self.keys.number(key)
            if number is None:
                raise Refusal(403, "Invalid API key" if key else "This server needs an API key, as api_key.")
            client = f"key {number}"
        if seconds := self._rate.take(client):
            wait = {"Retry-After": str(max(1, round(seconds)))}
            raise Refusal(429, f"Slowdown: at most {self.limits.per_minute:,} requests per minute are allowed.", wait)
        return found

    def answered(self, endpoint: Endpoint) -> Endpoint:
        """Returns an endpoint that answers every request, with an error if need be, and refuses those above the limit
        of requests at a time."""

        @functools.wraps(endpoint)
        async def answer(request: Request) -> Response:
            self._answering += 1
            try:
                if self._answering > self.limits.requests:
                    raise busy(f"The server is answering {self.limits.requests:,} requests; try again later.", 1)
                return await endpoint(request)
            except Refusal as refusal:
                return _error(refusal)
            except ClientDisconnect:
                return Response(status_code=499)  # nobody reads it
            except Exception as error:
                self.warn(f"a request failed: {_place(error)}")
                return _error(Refusal(500, "The server failed to answer; try again, or tell its operator."))
            finally:
                self._answering -= 1

        return answer


def make_app(
    service: Service,
    limits: Limits,
    *,
    keys: Keys | None = None,
    origins: Sequence[str] = (),
    warn: Warn = lambda text: None,
) -> Starlette:
    """Returns the application. Pages of the `origins` may call it from a browser; `*` means all."""
    api = Api(service, limits, keys, warn)
    routes = [
        Route("/languages", api.languages),
        Route("/health", api.health),
        Route("/frontend/settings", api.settings),
        Route("/detect", api.answered(api.detect), methods=["POST"]),
        Route("/translate", api.answered(api.translate), methods=["POST"]),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        for worker in service.workers.values():
            await asyncio.to_thread(worker.close)

    cors = [Middleware(CORSMiddleware, allow_origins=list(origins), allow_methods=["GET", "POST"])] if origins else []

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _error(Refusal(error.status_code, f"{error.detail}.", error.headers))

    return Starlette(routes=routes, middleware=cors, exception_handlers={HTTPException: refused}, lifespan=lifespan)


def _error(refusal: Refusal) -> Response:
    return JSONResponse({"error": refusal.sentence}, refusal.status, refusal.headers)


def _place(error: Exception) -> str:
    """Returns the type of an exception and where it was raised. Its message may contain text of the request."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" in {trace.tb_frame.f_code.co_name}, line {trace.tb_lineno}" if trace is not None else ""
    return type(error).__name__ + where


def _translated(asked: TranslateRequest, answers: Sequence[Answer]) -> dict[str, Any]:
    """Returns the JSON of LibreTranslate: lists for a list of texts, else single values."""
    fields: dict[str, list[Any]] = {"translatedText": [answer.text for answer in answers]}
    if asked.source == AUTO:
        fields["detectedLanguage"] = [answer.detected.as_dict() for answer in answers if answer.detected]
    if asked.alternatives:
        fields["alternatives"] = [answer.alternatives for answer in answers]
    return fields if asked.many else {name: values[0] for name, values in fields.items()}
