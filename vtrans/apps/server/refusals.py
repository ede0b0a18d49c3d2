"""Refused requests and their error responses. `vtrans --help` imports this module, so it needs no extra."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.responses import JSONResponse

CLOSE = {"Connection": "close"}  # the rest of the request is not read
QUOTA_EXCEEDED = 456  # DeepL's own status


def is_deepl(path: str) -> bool:
    """Returns whether a path belongs to DeepL's API."""
    return path.startswith(("/v2/", "/v3/"))


class Refusal(Exception):
    """A request that is refused with this status, sentence and headers."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})

    def response(self, path: str) -> JSONResponse:
        """Returns the error response in the format of the path's API."""
        from starlette.responses import JSONResponse

        return JSONResponse({"message" if is_deepl(path) else "error": self.sentence}, self.status, self.headers)


def retry_after(seconds: float) -> dict[str, str]:
    """Returns the headers that ask the client to try again after some seconds."""
    return {"Retry-After": str(max(1, round(seconds)))}
