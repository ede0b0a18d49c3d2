"""Access control: web pages of other sites, trusted proxies, and the hosts that the server answers for."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import HttpUrl, ValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vtrans.apps.server.limits import CLOSE, Keys, Refusal
from vtrans.system.errors import InputError

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[0-9a-z._-]+)(:[0-9]*)?")  # a Host header: a name or an address, and a port


@dataclass(frozen=True)
class Access:
    """Who may send requests.

    `cors` lists the web origins whose pages may, or `*` for all. Client addresses are read from X-Forwarded-For only if
    a `trusted_proxy` sends it. `host` is the address to listen on. If it is a loopback address, or if there are
    `allowed_hosts`, the Host header must name an allowed host, a loopback host or the host of `public_url`. Raises
    InputError for an invalid value.
    """

    keys: Keys | None = None
    cors: Sequence[str] = ()
    trusted_proxy: Sequence[str] = ()
    public_url: str | None = None
    allowed_hosts: Sequence[str] = ()
    host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        for origin in self.cors:
            if origin not in ("*", meant := _origin(origin)):
                raise InputError(
                    f"`cors` must be *, or a scheme and a host as browsers send them, got {origin!r}; "
                    f"did you mean {meant or 'https://example.com'}?"
                )
        for proxy in self.trusted_proxy:
            try:
                ipaddress.ip_network(proxy)
            except ValueError as error:
                raise InputError(
                    f"`trusted_proxy` must be an IP address or a network such as 10.0.0.0/8, got {proxy!r}: {error}."
                ) from None
        if (url := self.public_url) is not None and not (_origin(url) and re.fullmatch("https?://[^?#]+", url)):
            raise InputError(
                "`public_url` must begin with http:// or https:// and a host, and end with the path, such as "
                f"https://example.com/translate, got {url!r}."
            )
        for host in self.allowed_hosts:
            if not host or _name(host) != host.lower():
                raise InputError(
                    f"`allowed_hosts` must be hosts without a scheme and a port, such as example.com, got {host!r}."
                )

    def serves_host(self, header: str) -> bool:
        """Returns whether to answer a request with this Host header. It may be empty: monitors may not send one."""
        if not header or not (is_loopback(self.host) or self.allowed_hosts):
            return True
        name = _name(header)
        public = urlsplit(self.public_url or "").hostname
        return is_loopback(name) or name in (public, *map(str.lower, self.allowed_hosts))

    def allows_origin(self, headers: Mapping[str, str]) -> bool:
        """Returns whether a request with these headers may change stored data. A page may if its origin is in `cors` or
        is the server's own (the Host header or `public_url`). Programs other than browsers may; they send no origin."""
        origin = headers.get("origin")
        if origin is None or origin in self.cors or "*" in self.cors:
            return True
        return origin.partition("://")[2] == headers.get("host") or origin == _origin(self.public_url or "")


def is_loopback(host: str) -> bool:
    """Returns whether a host is a loopback name or address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _name(header: str) -> str:
    """Returns the host in a Host header without its port, or an empty string if it is malformed."""
    found = _HOST.fullmatch(header.lower())
    return found[1].removesuffix(".") if found else ""


def _origin(text: str) -> str | None:
    """Returns the origin that a text probably means, or None if it names no host."""
    try:
        url = HttpUrl(text if "://" in text else f"https://{text}")
    except ValidationError:
        return None
    return str(HttpUrl.build(scheme=url.scheme, host=url.host or "", port=url.port)).rstrip("/")


def url_at(host: str, port: int, *_: int) -> str:
    """Returns the URL of a server at an address of a socket."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def guarded(app: ASGIApp, access: Access) -> ASGIApp:
    """Returns an application that refuses requests for hosts that are not served, and that stops browsers from guessing
    the type of an answer, so that they never run a translated text as a script.

    A page of another site whose name resolves to this machine (DNS rebinding) could otherwise use the server as if it
    were its own.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_typed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Content-Type-Options"] = "nosniff"
            await send(message)

        answered_by, host = app, Headers(scope=scope).get("host", "") if scope["type"] == "http" else ""
        if not access.serves_host(host):
            sentence = f"The host {host[:100]!r} is not served; the option --allowed-hosts adds it."
            answered_by = Refusal(403, sentence, CLOSE).response(scope["path"])
        await answered_by(scope, receive, send_typed)

    return answer
