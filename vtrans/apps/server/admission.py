"""Decides which requests are answered, by the host they name, their arrival, their API key and their client."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vtrans.apps.server.access import Access
from vtrans.apps.server.client_threads import CLIENT, in_thread
from vtrans.apps.server.limits import Keys, Limits, RateLimit
from vtrans.apps.server.parameters import CLOSE, api_key, parameters, read_body
from vtrans.apps.server.refusals import Refusal, is_deepl, retry_after

UNFINISHED = 64  # requests of one client that are arriving
LARGE = 50_000  # bytes of a request that is read in a thread, as a form of many fields takes seconds
WRONG_KEYS = 10  # of one client, at once and again per minute


@dataclass(frozen=True)
class Call:
    """A request that was read: its parameters, whom limits count, and the owner of what it stores."""

    request: Request
    fields: dict[str, Any]
    client: str
    owner: str


class Admission:
    """Reads requests and refuses those that must not be answered.

    A request that has not arrived, or has no valid key, takes nothing from other clients.
    """

    def __init__(self, limits: Limits, access: Access) -> None:
        self._limits, self._access = limits, access
        # The time limits of the requests of each client that are arriving, the oldest first.
        self._arriving: defaultdict[str, dict[asyncio.Timeout, None]] = defaultdict(dict)
        self._rate = RateLimit(limits.per_minute)
        self._wrong_keys = RateLimit(WRONG_KEYS)

    async def read(self, request: Request, limit: int) -> Call:
        """Returns a request with at most `limit` bytes. Limits count its API key if it must have one, otherwise its
        address. Raises a Refusal unless it arrives in time and has a valid key."""
        client, owner = client_of(request), ""
        body = await self._body(request, client, limit)
        CLIENT.set(client)
        if len(body) < LARGE:
            fields = await parameters(request, body)
        else:
            fields = await in_thread(lambda: asyncio.run(parameters(request, body)))
        key = api_key(request, fields)
        if self._access.keys is not None:
            owner = self._owner(self._access.keys, client, key)
            client = f"key {owner}"
        elif is_deepl(request.url.path) and not key:  # no page of another site can send the header
            raise Refusal(403, "The header Authorization must be DeepL-Auth-Key and a key; without --api-keys, any.")
        CLIENT.set(client)
        return Call(request, fields, client, owner)

    async def _body(self, request: Request, client: str, limit: int) -> bytes:
        """Returns the body of a request, which must arrive in time. One request too many of a client replaces its
        oldest one, so that a program that opens connections and sends nothing cannot lock out others at its address."""
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
        """Returns the owner that a valid key names. A client that has sent many wrong keys must wait before another one
        is compared, so that it cannot guess one."""
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
    """Returns whom limits count: the address of a client, or the first 64 bits of an IPv6 address, as whoever has one
    has all addresses that begin like it. A trusted proxy has named the client."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address.packed[:8].hex())


def no_sniff(app: ASGIApp) -> ASGIApp:
    """Tells browsers to trust the type of each answer, so that they never run a translated text as a script."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Content-Type-Options"] = "nosniff"
            await send(message)

        await app(scope, receive, send_with_header)

    return answer


def host_check(app: ASGIApp, access: Access) -> ASGIApp:
    """Refuses requests for hosts that the server must not answer for.

    A page of another site whose name resolves to this machine (DNS rebinding) could otherwise use the server as if it
    were its own.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        answered_by = app
        if scope["type"] == "http":
            request = Request(scope)
            host = request.headers.get("host", "")
            if not access.serves_host(host):
                sentence = f"The host {host[:100]!r} is not served; the option --allowed-hosts adds it."
                answered_by = Refusal(403, sentence, CLOSE).response(request.url.path)
        await answered_by(scope, receive, send)

    return answer
