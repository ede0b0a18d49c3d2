"""Why a request is not answered: a status and one sentence, which the client gets as {"error": sentence}, or with
DeepL's interface as {"message": sentence}."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse

QUOTA_EXCEEDED = 456  # DeepL's own status
_DEEPL = ("/v2/", "/v3/")


def is_deepl(path: str) -> bool:
    """Returns whether a path belongs to DeepL's interface."""
    return path.startswith(_DEEPL)


class Refusal(Exception):
    """A request that is refused with this status, sentence and headers."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})

    def response(self, path: str) -> JSONResponse:
        """Returns what a client of this path gets."""
        return JSONResponse({"message" if is_deepl(path) else "error": self.sentence}, self.status, self.headers)


def retry_after(seconds: float) -> dict[str, str]:
    """Returns the headers that ask the client to try again after some seconds."""
    return {"Retry-After": str(max(1, round(seconds)))}
