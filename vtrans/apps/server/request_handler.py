"""Admits requests that arrive in time, have a valid key and are within limits, and answers them or reports an error."""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from traceback import walk_tb
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from vtrans.apps.server.access import Access
from vtrans.apps.server.batching import Worker
from vtrans.apps.server.endpoints import Call, Endpoint
from vtrans.apps.server.limits import CLOSE, Limits, RateLimit, Refusal, is_deepl, retry_after
from vtrans.apps.server.requests import FORM_BYTES, Fields, fields_of, read_body
from vtrans.apps.server.service import CLIENT, Service, in_thread
from vtrans.system.errors import DocumentError, DocumentSizeError
from vtrans.text.languages import Languages

Warn = Callable[[str], None]
BODY_SECONDS = 30.0  # time limit for receiving a request
BUSY_SECONDS = 2  # after which a client may try again
UNFINISHED = 64  # maximum number of arriving requests per client
LARGE = 50_000  # bytes of a request that is read and checked in a thread: a form of many fields takes seconds
WRONG_KEYS = 10  # per client: at once, and as many again per minute
BOUNDS = ("0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "+Inf")  # seconds


def client_of(request: Request) -> str:
    """Returns the client that limits count: an IPv4 address, or the first 64 bits of an IPv6 address, because a
    subscriber usually holds the whole /64 network. Behind a trusted proxy, the proxy names the address."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address.packed[:8].hex())


class Metrics:
    """Counts answered requests and the time that they took. Contains no text of a request and no address."""

    def __init__(self, workers: Mapping[Languages, Worker]) -> None:
        self.answering = 0
        self._workers = workers
        self._answers: Counter[str] = Counter()
        self._seconds: Counter[str] = Counter()  # a histogram

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Counts a request that took this time."""
        self._answers[f'{{path="{path}",status="{status}"}}'] += 1
        for bound in BOUNDS:
            self._seconds[f'_bucket{{path="{path}",le="{bound}"}}'] += seconds <= float(bound)
        self._seconds[f'_sum{{path="{path}"}}'] += seconds  # type: ignore[assignment]  # a Counter adds floats too
        self._seconds[f'_count{{path="{path}"}}'] += 1

    async def answer(self, request: Request) -> Response:
        """Returns all figures in Prometheus' text format."""

        def of_workers(figure: Callable[[Worker], float]) -> dict[str, float]:
            workers = self._workers.items()
            return {f'{{source="{pair.src}",target="{pair.tgt}"}}': figure(worker) for pair, worker in workers}

        families = (
            ("requests_total", "counter", "Requests answered.", self._answers),
            ("requests_in_progress", "gauge", "Requests being answered.", {"": self.answering}),
            ("request_seconds", "histogram", "Time to answer a request.", self._seconds),
            ("sentences_total", "counter", "Sentences translated.", of_workers(lambda w: w.lines)),
            ("batches_total", "counter", "Batches translated.", of_workers(lambda w: w.batches)),
            ("busy_seconds_total", "counter", "Time spent translating.", of_workers(lambda w: w.seconds)),
            ("waiting_sentences", "gauge", "Sentences that wait.", of_workers(lambda w: w.waiting)),
        )
        lines = []
        for name, kind, help, values in families:
            lines += [f"# HELP vtrans_{name} {help}", f"# TYPE vtrans_{name} {kind}"]
            lines += [f"vtrans_{name}{labels} {value}" for labels, value in values.items()]
        return Response("\n".join([*lines, ""]), media_type="text/plain; version=0.0.4")


class RequestHandler:
    """Admits and answers the requests of all endpoints. `warn` receives failures, never the text of a request.

    A request that has not arrived, or has no valid key, does not count towards limits that clients share.
    """

    def __init__(self, service: Service, limits: Limits, access: Access, warn: Warn) -> None:
        self.limits, self.metrics = limits, Metrics(service.workers)
        self._access, self._warn = access, warn
        self._arriving = Counter[str]()
        self._rate, self._wrong_keys = RateLimit(limits.per_minute), RateLimit(WRONG_KEYS)

    def route(self, endpoint: Endpoint) -> Route:
        """Returns the route of an endpoint."""

        async def answer(request: Request) -> Response:
            began = time.monotonic()
            try:
                async with asyncio.timeout(self.limits.timeout) as timeout:
                    answer = await (endpoint.answer(request) if endpoint.open else self._admitted(endpoint, request))
                response = endpoint.response(answer)
            except ClientDisconnect:
                response = Response(status_code=499)  # the client has gone
            except Exception as error:
                response = self.refusal(error, timed_out=timeout.expired()).response(request.url.path)
            self.metrics.answered(endpoint.path, response.status_code, time.monotonic() - began)
            return response

        return Route(endpoint.path, answer, methods=[endpoint.method])

    async def _admitted(self, endpoint: Endpoint, request: Request) -> Any:
        """Reads and admits a request, and returns its answer. Limits count its API key if keys are required, otherwise
        its address."""
        client = client_of(request)
        asked = await self._asked(endpoint, request, client)
        owner = self._owner(request, getattr(asked, "api_key", ""), client)
        client = f"key {owner}" if owner else client
        if self.metrics.answering >= self.limits.requests:
            sentence = f"The server is answering {self.limits.requests:,} requests; try again later."
            raise Refusal(503, sentence, retry_after(BUSY_SECONDS))
        if seconds := self._rate.take(client):
            sentence = f"Slowdown: at most {self.limits.per_minute:,} requests per minute are allowed."
            raise Refusal(429, sentence, retry_after(seconds))
        CLIENT.set(client)
        call = Call(request, owner)
        answer = partial(endpoint.answer, call, asked) if endpoint.asks else partial(endpoint.answer, call)
        with self.counted():
            work = answer() if inspect.iscoroutinefunction(endpoint.answer) else in_thread(answer)
            return await unless_gone(request, work)

    async def _asked(self, endpoint: Endpoint, request: Request, client: str) -> Fields | None:
        """Receives a request, and returns its checked fields. Raises a Refusal if it arrives too late, or if too many
        requests of the client are still arriving."""
        if self._arriving[client] >= UNFINISHED:
            sentence = f"Slowdown: {UNFINISHED} requests of this address have not arrived completely."
            raise Refusal(429, sentence, {**CLOSE, **retry_after(1)})
        self._arriving[client] += 1
        try:
            async with asyncio.timeout(BODY_SECONDS):
                most = self.limits.file_bytes + FORM_BYTES if endpoint.large else self.limits.body_bytes
                body = await read_body(request, most)
        except TimeoutError:
            sentence = f"The request did not arrive within {BODY_SECONDS:g} seconds."
            raise Refusal(408, sentence, CLOSE) from None
        finally:
            self._arriving[client] -= 1
            self._arriving += Counter()  # which removes zeros

        async def checked() -> Fields | None:
            fields = await fields_of(request, body)
            return endpoint.asks.of(fields) if endpoint.asks else None

        CLIENT.set(client)
        return await (checked() if len(body) < LARGE else in_thread(lambda: asyncio.run(checked())))

    def _owner(self, request: Request, key: str, client: str) -> str:
        """Returns the owner that the API key of a request names; without keys, an empty string. After WRONG_KEYS wrong
        keys, a client must wait before its next key is compared, so that it cannot guess one. Raises a Refusal for a
        missing or wrong key."""
        if deepl := is_deepl(request.url.path):
            scheme, _, key = request.headers.get("authorization", "").partition(" ")
            key = key.strip() if scheme == "DeepL-Auth-Key" else ""
        if self._access.keys is None:
            if deepl and not key:  # no page of another site can send the header
                sentence = "The header Authorization must be DeepL-Auth-Key and a key; without --api-keys, any."
                raise Refusal(403, sentence)
            return ""
        if not key:
            raise Refusal(403, "The API key is missing.")
        if seconds := self._wrong_keys.seconds(client):
            sentence = "Slowdown: too many wrong API keys have come from this address."
            raise Refusal(429, sentence, retry_after(seconds))
        owner = self._access.keys.owner(key)
        if owner is None:
            self._wrong_keys.take(client)
            raise Refusal(403, "Invalid API key")
        return owner

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts work towards the limit of concurrent requests."""
        self.metrics.answering += 1
        try:
            yield
        finally:
            self.metrics.answering -= 1

    def refusal(self, error: Exception, *, timed_out: bool) -> Refusal:
        """Returns the refusal that tells a client about an exception."""
        if isinstance(error, Refusal):
            return error
        if isinstance(error, DocumentError):
            return Refusal(413 if isinstance(error, DocumentSizeError) else 400, str(error))
        if isinstance(error, TimeoutError) and timed_out:
            return Refusal(504, f"The request took more than {self.limits.timeout:g} seconds; send less text.")
        self._warn(f"a request failed: {_place(error)}")
        return Refusal(500, "The server failed to answer; try again, or tell its operator.")


async def unless_gone(request: Request, work: Awaitable[Any]) -> Any:
    """Returns the result of `work`. If the client disconnects first, cancels `work` and raises ClientDisconnect.

    The body must have been read.
    """

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


def _place(error: Exception) -> str:
    """Returns the type and place of an exception, without its message, which may contain text of the request."""
    *_, (frame, line) = walk_tb(error.__traceback__)
    return f"{type(error).__name__} in {frame.f_code.co_name}, line {line}"
