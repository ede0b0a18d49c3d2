"""Calls in threads, one at a time per client, so that one client's documents do not delay the other clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from threading import BoundedSemaphore, Thread
from typing import TypeVar
from weakref import WeakValueDictionary

CLIENT = ContextVar("CLIENT", default="")
"""The client whose request is being answered."""

RUNNING = BoundedSemaphore(16)  # maximum number of concurrent calls
_TURNS: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock] = WeakValueDictionary()

T = TypeVar("T")


async def in_thread(call: Callable[[], T]) -> T:
    """Runs a call in a thread once the client's earlier calls have ended, and returns its result. If cancelled, a call
    that has begun keeps the client's turn until it ends, but does not keep the process alive."""
    loop = asyncio.get_running_loop()
    turn = _TURNS.setdefault((loop, CLIENT.get()), asyncio.Lock())
    await turn.acquire()
    answer: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        turn.release()
        if error is not None and not answer.done():
            answer.set_exception(error)
        elif not answer.done():
            answer.set_result(result)  # type: ignore[arg-type]  # None only with an error, or if T allows it

    def run() -> None:
        result = error = None
        try:
            with RUNNING:
                result = None if answer.cancelled() else call()
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, result, error)

    Thread(target=run, daemon=True).start()
    return await answer
