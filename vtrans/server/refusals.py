"""Why a request is not answered: a status and one sentence, which the client gets as {"error": sentence}."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse


class Refusal(Exception):
    """A request that is refused with this status, sentence and headers."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})

    def response(self) -> JSONResponse:
        """Returns what the client gets."""
        return JSONResponse({"error": self.sentence}, self.status, self.headers)


def retry_after(seconds: float) -> dict[str, str]:
    """Returns the headers that ask the client to try again after some seconds."""
    return {"Retry-After": str(max(1, round(seconds)))}
