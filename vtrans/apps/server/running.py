"""Runs the application with uvicorn until a signal arrives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from vtrans.system.errors import InputError
from vtrans.system.signals import handled_by

HEAD_SECONDS = 10.0  # for the head of a request, counted from its first byte, or from the start of the connection
IDLE_SECONDS = 30  # until a connection without a request is closed
BACKLOG = 1024


class Protocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol, with a time limit for the head of a request."""

    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head = self.loop.call_later(HEAD_SECONDS, transport.close)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._has_head()
        elif self._head is None and before.response_complete:
            self._head = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_head()
        super().connection_lost(exc)

    def _has_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None


class Server(uvicorn.Server):
    """A server that stops at a signal, after it has answered all accepted requests. A second signal stops it
    immediately."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        with handled_by(self._stop):
            yield

    def _stop(self, number: int) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket. Raises InputError if the address cannot be used."""
    if not 0 <= port <= 65535:
        raise InputError(f"`port` must be from 0 to 65535, got {port}.")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise InputError(
            f"cannot listen at {host}, port {port}: {error.strerror}; choose another `host` or `port`."
        ) from None


def make_server(app: Any, proxies: Sequence[str] = ()) -> Server:
    """Returns a server for the application that trusts these proxies. It writes no log, because query strings and
    errors may contain text to translate."""
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return Server(
        uvicorn.Config(
            app,
            http=Protocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=IDLE_SECONDS,
            backlog=BACKLOG,
            proxy_headers=bool(proxies),
            forwarded_allow_ips=list(proxies),
        )
    )
