"""Admits requests that arrive in time, have a valid key and are within limits, and answers them or reports an error."""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from traceback import walk_tb
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from vtrans.apps.server.access import Access
from vtrans.apps.server.client_threads import CLIENT, in_thread
from vtrans.apps.server.endpoints import Call, Endpoint
from vtrans.apps.server.limits import Keys, Limits, RateLimit
from vtrans.apps.server.metrics import Metrics
from vtrans.apps.server.refusals import CLOSE, Refusal, is_deepl, retry_after
from vtrans.apps.server.requests import FORM_BYTES, fields_of, read_body
from vtrans.apps.server.service import Service
from vtrans.system.errors import DocumentError, DocumentSizeError

Warn = Callable[[str], None]
UNFINISHED = 64  # maximum number of arriving requests per client
LARGE = 50_000  # bytes of a request that is read and checked in a thread: a form of many fields takes seconds
WRONG_KEYS = 10  # per client: at once, and as many again per minute


class Admission:
    """Reads requests and refuses those that must not be answered.

    A request that has not arrived, or has no valid key, does not count towards limits that clients share.
    """

    def __init__(self, limits: Limits, access: Access) -> None:
        self._limits, self._access = limits, access
        # The timeouts of each client's arriving requests, the oldest first.
        self._arriving: defaultdict[str, dict[asyncio.Timeout, None]] = defaultdict(dict)
        self._rate = RateLimit(limits.per_minute)
        self._wrong_keys = RateLimit(WRONG_KEYS)

    async def read(self, request: Request, limit: int) -> Call:
        """Reads a request of at most `limit` bytes. Its client is its API key if keys are required, otherwise its
        address. Raises a Refusal unless it arrives in time and has a valid key."""
        client, owner = client_of(request), ""
        body = await self._body(request, client, limit)
        CLIENT.set(client)
        if len(body) < LARGE:
            fields = await fields_of(request, body)
        else:
            fields = await in_thread(lambda: asyncio.run(fields_of(request, body)))
        key, deepl = fields.get("api_key") or "", is_deepl(request.url.path)
        if deepl:
            scheme, _, key = request.headers.get("authorization", "").partition(" ")
            key = key.strip() if scheme == "DeepL-Auth-Key" else ""
        if not isinstance(key, str):
            raise Refusal(400, "api_key must be a string.")
        if self._access.keys is not None:
            owner = self._owner(self._access.keys, client, key)
            client = f"key {owner}"
        elif deepl and not key:  # no page of another site can send the header
            raise Refusal(403, "The header Authorization must be DeepL-Auth-Key and a key; without --api-keys, any.")
        CLIENT.set(client)
        return Call(request, fields, len(body), client, owner)

    async def _body(self, request: Request, client: str, limit: int) -> bytes:
        """Returns the body of a request. Raises a Refusal if it arrives too late. A request beyond UNFINISHED cancels
        the client's oldest one, so that a program that only opens connections cannot lock out others at its address."""
        timeout = asyncio.timeout(self._limits.body_seconds)
        try:
            async with timeout:
                arriving = self._arriving[client]
                arriving[timeout] = None
                if len(arriving) > UNFINISHED:
                    oldest = next(iter(arriving))
                    del arriving[oldest]
                    if not oldest.expired():
                        oldest.reschedule(0)
                return await read_body(request, limit)
        except TimeoutError:
            if timeout in self._arriving[client]:
                sentence = f"The request did not arrive within {self._limits.body_seconds:g} seconds."
                raise Refusal(408, sentence, CLOSE) from None
            sentence = f"Slowdown: more than {UNFINISHED} requests of this address have not arrived completely."
            raise Refusal(429, sentence, {**CLOSE, **retry_after(1)}) from None
        finally:
            self._arriving[client].pop(timeout, None)
            if not self._arriving[client]:
                del self._arriving[client]

    def count(self, client: str) -> None:
        """Counts a request of this client. Raises a Refusal if it is one too many."""
        if seconds := self._rate.take(client):
            sentence = f"Slowdown: at most {self._limits.per_minute:,} requests per minute are allowed."
            raise Refusal(429, sentence, retry_after(seconds))

    def _owner(self, keys: Keys, client: str, key: str) -> str:
        """Returns the owner that a valid key names. After WRONG_KEYS wrong keys, a client must wait before its next key
        is compared, so that it cannot guess one. Raises a Refusal for a missing or wrong key."""
        if not key:
            raise Refusal(403, "The API key is missing.")
        if seconds := self._wrong_keys.seconds(client):
            sentence = "Slowdown: too many wrong API keys have come from this address."
            raise Refusal(429, sentence, retry_after(seconds))
        owner = keys.owner(key)
        if owner is None:
            self._wrong_keys.take(client)
            raise Refusal(403, "Invalid API key")
        return owner


def client_of(request: Request) -> str:
    """Returns the client that limits count: an IPv4 address, or the first 64 bits of an IPv6 address, because a
    subscriber usually holds the whole /64 network. Behind a trusted proxy, the proxy names the address."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address.packed[:8].hex())


class RequestHandler:
    """Admits and answers the requests of all endpoints. `warn` receives failures, never the text of a request."""

    def __init__(self, service: Service, limits: Limits, access: Access, warn: Warn) -> None:
        self.limits, self.metrics = limits, Metrics(service)
        self._service, self._warn, self._admission = service, warn, Admission(limits, access)

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
        """Admits a request and returns its answer. The limit on concurrent requests counts only requests that have
        arrived and have a valid key."""
        most = self.limits.file_bytes + FORM_BYTES if endpoint.large else self.limits.body_bytes
        call = await self._admission.read(request, most)
        if self.metrics.answering >= self.limits.requests:
            sentence = f"The server is answering {self.limits.requests:,} requests; try again later."
            raise Refusal(503, sentence, retry_after(self.seconds()))
        self._admission.count(call.client)
        with self.counted():
            return await unless_gone(request, self._answer(endpoint, call))

    async def _answer(self, endpoint: Endpoint, call: Call) -> Any:
        answer = partial(endpoint.answer, call)
        if endpoint.asks is not None:
            check = partial(endpoint.asks.of, call.fields)
            answer = partial(answer, await in_thread(check) if call.size >= LARGE else check())
        return await (answer() if inspect.iscoroutinefunction(endpoint.answer) else in_thread(answer))

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

    def seconds(self) -> int:
        """Returns the estimated seconds until the waiting lines are translated, at least 1."""
        workers = self._service.workers.values()
        return max(1, round(max(worker.waiting * worker.seconds_per_line for worker in workers)))


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
