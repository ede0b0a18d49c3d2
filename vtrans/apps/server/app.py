"""The application: the endpoints of both APIs of a Service, the web page, and access control."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from vtrans.apps.cleaning.detection import detector
from vtrans.apps.documents.database import Database
from vtrans.apps.server.access import Access, guarded
from vtrans.apps.server.deepl.endpoints import DeepL
from vtrans.apps.server.endpoints import Endpoint, description
from vtrans.apps.server.libretranslate import LibreTranslate
from vtrans.apps.server.limits import Limits, Refusal, Usage
from vtrans.apps.server.request_handler import RequestHandler, Warn
from vtrans.apps.server.service import Service
from vtrans.apps.server.uploads import Files

PAGE = {"index.html": "text/html", "page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
# Under this policy, a browser runs only our script and contacts no other host, whatever text the page shows.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}


async def page(request: Request) -> FileResponse:
    """Returns a file of the web page, which loads nothing from other hosts."""
    name = request.url.path[1:] or "index.html"
    return FileResponse(Path(__file__).parent / "page" / name, media_type=PAGE[name], headers=HEADERS)


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
    files = Files(service, limits, usage)
    deepl = DeepL(service, limits, handler, usage, files)
    endpoints = [
        *LibreTranslate(service, limits, access, usage, files).endpoints(),
        Endpoint("GET", "/metrics", handler.metrics.answer, open=True),
        *deepl.endpoints(),
    ]

    async def spec(request: Request) -> Response:
        return JSONResponse(app.state.description)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await deepl.close()
        kept.close()

    middleware = [Middleware(guarded, access)]
    if origins := list(access.cors):
        middleware.append(Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"]))

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return Refusal(error.status_code, f"{error.detail}.", error.headers).response(request.url.path)

    pages = [Route(path, page) for path in ("/", "/page.css", "/page.js", "/icon.svg")]
    routes = [*pages, Route("/spec", spec), *map(handler.route, endpoints)]
    app = Starlette(
        routes=routes, middleware=middleware, exception_handlers={HTTPException: refused}, lifespan=lifespan
    )
    app.state.endpoints, app.state.description = endpoints, description(endpoints, version, limits)
    app.router.redirect_slashes = False  # a redirect would go to the host that the client names
    return app
