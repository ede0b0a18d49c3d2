"""Worker processes that apply one function to a stream of items and return the results in order.

This is `concurrent.futures.ProcessPoolExecutor` with a bounded number of items in flight, and with workers that end
when this process does, however it ends. Nothing here imports torch, so that a worker whose function does not need it
starts quickly and stays small.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

from vtrans.errors import VtransError

Item = TypeVar("Item")
Result = TypeVar("Result")

_function: Callable[[Any], Any] | None = None  # of this worker


def map_in_workers(
    make: Callable[[], Callable[[Item], Result]], items: Iterable[Item], workers: int, doing: str, advice: str
) -> Generator[Result, None, None]:
    """Yields `function(item)` for each item, in order, computed by `workers` processes.

    `function` is the result of `make()`, which each worker calls once; `make` and the items are pickled. At most
    `workers` items are in flight, and closing the generator ends the processes. An exception of the function is
    raised here. A worker that dies raises VtransError: it was `doing` its work, and `advice` says what to do.
    """
    # A fork would copy locks that another thread of this process may hold.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker)
    in_flight: deque[Future[Result]] = deque()
    try:
        for item in items:
            done = [in_flight.popleft().result()] if len(in_flight) == workers else []
            with _uninterrupted(), _anonymous_main():
                in_flight.append(pool.submit(_apply, make, item))
            yield from done
        while in_flight:
            yield in_flight.popleft().result()
    except BrokenProcessPool:
        raise VtransError(f"a worker process died while {doing}, perhaps because memory ran out; {advice}.") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this worker when the process that started it ends; an idle worker would not notice."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _apply(make: Callable[[], Callable[[Any], Any]], item: Any) -> Any:
    # `make` comes with every item although a worker needs it once. As an argument of the initializer it would be
    # written to the new process by Process.start, which blocks for ever if that process dies before reading all of it.
    global _function
    if _function is None:
        _function = make()
    return _function(item)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes started in the block never receive Ctrl-C, not even before `_start_worker` ignores it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _anonymous_main() -> Iterator[None]:
    """Processes started in the block do not import this program's main module.

    A script without `if __name__ == "__main__"` would otherwise run again in each of them.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
