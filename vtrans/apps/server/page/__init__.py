"""The web page and the routes of its files. It loads nothing from other hosts."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Route

TYPES = {"index.html": "text/html", "page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
# Under this policy, a browser runs only our script and contacts no other host, whatever text the page shows.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}


def page_routes() -> list[Route]:
    """Returns a route for each file of the page."""

    async def answer(request: Request) -> FileResponse:
        name = request.url.path[1:] or "index.html"
        return FileResponse(Path(__file__).parent / name, media_type=TYPES[name], headers=HEADERS)

    return [Route(path, answer) for path in ("/", "/page.css", "/page.js", "/icon.svg")]
