"""From where the server may be used: pages of other sites, proxies in front of it, and its address in public."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from vtrans.errors import InputError
from vtrans.server.limits import Keys

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Access:
    """Who may send requests. `cors` are the origins of web pages that may, or `*` for all. Addresses of clients are
    read from X-Forwarded-For only if a `trusted_proxy` sends it. Raises InputError for a value that cannot work."""

    keys: Keys | None = None
    cors: Sequence[str] = ()
    trusted_proxy: Sequence[str] = ()
    public_url: str | None = None

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
        if self.public_url is not None:
            parts = urlsplit(self.public_url)
            if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or parts.query or parts.fragment:
                raise InputError(
                    "`public_url` must begin with http:// or https:// and a host, and end with the path, such as "
                    f"https://example.com/translate, got {self.public_url!r}."
                )


def _origin(text: str) -> str | None:
    """Returns the origin that a text probably means, if that can be said."""
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        port, host = parts.port, (parts.hostname or "").encode("idna").decode()
    except ValueError:
        return None
    if not host:
        return None
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + (f":{port}" if port not in (None, _DEFAULT_PORTS.get(parts.scheme)) else "")


def url_at(host: str, port: int) -> str:
    """Returns the URL of a server at an address."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
