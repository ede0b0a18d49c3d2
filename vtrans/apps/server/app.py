"""The application: the endpoints of both APIs of a Service, the web page, and access control."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vtrans.apps.cleaning.detection import detector
from vtrans.apps.documents.database import Database
from vtrans.apps.server.access import Access, guarded
from vtrans.apps.server.deepl.endpoints import DeepL
from vtrans.apps.server.endpoints import Endpoint, description
from vtrans.apps.server.libretranslate import LibreTranslate
from vtrans.apps.server.limits import Limits, Usage
from vtrans.apps.server.page import page_routes
from vtrans.apps.server.refusals import Refusal
from vtrans.apps.server.request_handler import RequestHandler, Warn
from vtrans.apps.server.service import Service


def make_app(
    service: Service,
    limits: Limits,
    *,
    access: Access = Access(),  # noqa: B008 - it does not change
    warn: Warn = lambda text: None,
    version: str = "",
) -> Starlette:
    """Returns the application. Loads the language detector now, so that no request waits for it."""
    detector()
    handler = RequestHandler(service, limits, access, warn)
    kept = Database(service.memory.path if service.memory is not None else None, durable=False)
    usage = Usage(kept, limits.month_characters, warn)
    deepl = DeepL(service, limits, handler, usage)
    endpoints = [
        *LibreTranslate(service, limits, access, usage).endpoints(),
        Endpoint("GET", "/metrics", handler.metrics.answer, open=True),
        *deepl.endpoints(),
    ]

    async def spec(request: Request) -> Response:
        return JSONResponse(app.state.description)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await deepl.close()
        for worker in service.workers.values():
            await asyncio.to_thread(worker.close)
        kept.close()

    middleware = [Middleware(guarded, access)]
    if origins := list(access.cors):
        middleware.append(Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"]))

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return Refusal(error.status_code, f"{error.detail}.", error.headers).response(request.url.path)

    routes = [*page_routes(), Route("/spec", spec), *map(handler.route, endpoints)]
    app = Starlette(
        routes=routes, middleware=middleware, exception_handlers={HTTPException: refused}, lifespan=lifespan
    )
    app.state.description = description(endpoints, version, limits)
    app.router.redirect_slashes = False  # a redirect would go to the host that the client names
    return app
