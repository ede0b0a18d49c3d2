"""Answers requests: those that are admitted, within limits, and with an error if answering fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from vtrans.apps.server.access import Access
from vtrans.apps.server.admission import Admission, Call
from vtrans.apps.server.limits import Limits
from vtrans.apps.server.metrics import Metrics
from vtrans.apps.server.parameters import unless_gone
from vtrans.apps.server.refusals import Refusal, retry_after
from vtrans.apps.server.service import Service
from vtrans.system.errors import DocumentError, DocumentSizeError

Endpoint = Callable[[Request], Awaitable[Response]]
Admitted = Callable[[Call], Awaitable[Response]]
"""Answers a request that was admitted."""
Warn = Callable[[str], None]


class RequestHandler:
    """Admits and answers the requests of all endpoints. `warn` receives failures, never the text of a request."""

    def __init__(self, service: Service, limits: Limits, access: Access, warn: Warn) -> None:
        self.limits, self.metrics = limits, Metrics()
        self._service, self._warn, self._admission = service, warn, Admission(limits, access)

    def admitted(self, path: str, endpoint: Admitted, limit: int) -> Endpoint:
        """Returns an endpoint for requests of at most `limit` bytes. It refuses those above the limit of concurrent
        requests, which counts only requests that have arrived and may be answered."""

        async def answer(request: Request) -> Response:
            call = await self._admission.read(request, limit)
            if self.metrics.answering >= self.limits.requests:
                sentence = f"The server is answering {self.limits.requests:,} requests; try again later."
                raise Refusal(503, sentence, retry_after(self.seconds()))
            self._admission.count(call.client)
            with self.counted():
                return await unless_gone(request, endpoint(call))

        return self.answered(path, answer)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts work towards the limit of concurrent requests."""
        self.metrics.answering += 1
        try:
            yield
        finally:
            self.metrics.answering -= 1

    def answered(self, path: str, endpoint: Endpoint) -> Endpoint:
        """Returns an endpoint that answers every request, with an error if it fails."""

        async def answer(request: Request) -> Response:
            began = time.monotonic()
            response = await self._answer(endpoint, request)
            self.metrics.answered(path, response.status_code, time.monotonic() - began)
            return response

        return answer

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        try:
            async with asyncio.timeout(self.limits.timeout) as timeout:
                return await endpoint(request)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except Exception as error:
            return self.refusal(error, timed_out=timeout.expired()).response(request.url.path)

    def refusal(self, error: Exception, *, timed_out: bool) -> Refusal:
        """Returns what a client is told about an exception."""
        if isinstance(error, Refusal):
            return error
        if isinstance(error, DocumentError):
            return Refusal(413 if isinstance(error, DocumentSizeError) else 400, str(error))
        if isinstance(error, TimeoutError) and timed_out:
            return Refusal(504, f"The request took more than {self.limits.timeout:g} seconds; send less text.")
        self._warn(f"a request failed: {_place(error)}")
        return Refusal(500, "The server failed to answer; try again, or tell its operator.")

    def seconds(self) -> int:
        """Returns about how long it takes until the lines that wait now are translated."""
        workers = self._service.workers.values()
        return max(1, round(max(worker.waiting * worker.seconds_per_line for worker in workers)))


def _place(error: Exception) -> str:
    """Returns the type of an exception and where it was raised. Its message may contain text of the request."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" in {trace.tb_frame.f_code.co_name}, line {trace.tb_lineno}" if trace is not None else ""
    return type(error).__name__ + where
