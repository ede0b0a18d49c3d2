"""Worker processes, which end with this process, however it ends.

`map_in_workers` starts new processes: it is `concurrent.futures.ProcessPoolExecutor` with a bounded number of items in
flight. A `WorkerPool` forks this process, so its workers share memory. This module does not import torch, so that a
worker whose function does not need torch starts quickly and stays small.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import cycle
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from types import ModuleType
from typing import Any, Generic, NoReturn, TypeVar

from vtrans.system.errors import AbandonedError, VtransError
from vtrans.system.forks import DiedError, ended, forking

Item = TypeVar("Item")
Result = TypeVar("Result")

_function: Callable[[Any], Any] | None = None  # of this worker


def map_in_workers(
    make: Callable[[], Callable[[Item], Result]], items: Iterable[Item], workers: int, doing: str, advice: str
) -> Generator[Result, None, None]:
    """Yields `function(item)` for each item, in order, computed by `workers` processes.

    `function` is the result of `make()`, which each worker calls once; `make` and the items are pickled. At most
    `workers` + 1 items are in flight, and closing the generator ends the processes. The workers take turns, so one of
    any `workers` consecutive items goes to each. With one worker, this process computes. An exception of the function
    is raised here. If a worker dies, VtransError says what it was `doing`, and ends with `advice`.
    """
    if workers < 2:
        yield from map(make(), items)
        return
    # Not fork: it would copy locks that other threads of this process may hold.
    context = multiprocessing.get_context("spawn")
    pools = [ProcessPoolExecutor(1, context, _start_worker) for _ in range(workers)]
    in_flight: deque[Future[Result]] = deque()
    try:
        for pool, item in zip(cycle(pools), items, strict=False):
            with _uninterrupted(), _anonymous_main():
                in_flight.append(pool.submit(_apply, make, item))
            if len(in_flight) > workers:
                yield in_flight.popleft().result()
        while in_flight:
            yield in_flight.popleft().result()
    except BrokenProcessPool:
        raise VtransError(f"a worker process died while {doing}, perhaps because memory ran out; {advice}.") from None
    finally:
        for pool in pools:
            pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this worker when the process that started it ends; an idle worker would not notice."""
    if parent := multiprocessing.parent_process():
        parent.join()
    os._exit(1)


def _apply(make: Callable[[], Callable[[Any], Any]], item: Any) -> Any:
    # Every item carries `make`, although a worker needs it once. If it were an argument of the initializer,
    # Process.start would write it to the new process, and block forever if that process died before reading it all.
    global _function
    if _function is None:
        _function = make()
    return _function(item)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Blocks SIGINT in processes started in the block, even before `_start_worker` ignores it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _anonymous_main() -> Iterator[None]:
    """Keeps processes started in the block from importing this program's main module.

    Otherwise, a script without `if __name__ == "__main__"` would run again in each of them.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


# Copies of this process.

Tell = Callable[[Any], None]
"""Sends a part of an answer to the requesting process."""
WATCH = 0.05  # seconds between two calls of `abandoned`
_COPY = 0  # asks for a new copy, instead of a process id


class WorkerPool(Generic[Item, Result]):
    """Up to `number` copies of this process. Each computes `answer(request, tell)` for one request at a time.

    A copy is forked when a request finds none free: it starts within milliseconds, and shares the memory of this
    process until either writes to it. A separate process forks the copies, so that this process may start threads
    later, whose locks a fork would copy. OpenMP's threads end here. Copies receive no terminating signals; they end
    when the block or this process ends.
    """

    def __init__(self, answer: Callable[[Item, Tell], Result], number: int, doing: str, advice: str):
        self.number, self._doing, self._advice = number, doing, advice
        self._free: queue.SimpleQueue[tuple[int, Connection] | None] = queue.SimpleQueue()
        for _ in range(number):
            self._free.put(None)  # a copy not yet made
        self._asking = threading.Lock()
        self._maker, theirs = multiprocessing.Pipe()
        context: Any = multiprocessing.get_context("fork")
        self._process = context.Process(target=_make_copies, args=(theirs, self._maker, answer), daemon=True)
        with theirs, forking():
            self._process.start()

    def __enter__(self) -> WorkerPool[Item, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all copies at once."""
        with self._asking, self._maker, suppress(OSError):  # the forking process may have ended
            self._maker.send(None)
        self._process.join()

    def call(
        self,
        request: Item,
        hear: Callable[[Any], None] = lambda part: None,
        abandoned: Callable[[], bool] | None = None,
    ) -> Result:
        """Returns the answer of the next free copy. Several threads may call this at once.

        Calls `hear` with each part that `answer` passes to `tell`, and polls `abandoned`. Raises the exception of
        `answer`, AbandonedError once `abandoned` returns True, or DiedError if the copy dies. A copy that has not
        answered is killed, and the next request gets a new one.
        """
        answer: Result
        parts: list[Any]
        copy = self._free.get()
        try:
            _, connection = copy = copy or self._copy()
            connection.send(request)
            while True:
                while abandoned and not connection.poll(WATCH):
                    if abandoned():
                        raise AbandonedError("the request was abandoned.")
                answer, error, *parts = connection.recv()
                if not parts:
                    break
                hear(*parts)
        except BaseException as failure:
            self._free.put(None)
            how = self._ask(copy[0]) if copy else ""
            if not isinstance(failure, (EOFError, OSError)):
                raise
            raise DiedError(
                f"one of {self.number} worker processes died ({how}) while {self._doing}, perhaps because memory ran "
                f"out; {self._advice}."
            ) from None
        self._free.put(copy)
        if error:
            raise error
        return answer

    def _copy(self) -> tuple[int, Connection]:
        """Returns the process id of a new copy, and the connection to it."""
        ours, theirs = multiprocessing.Pipe()
        with theirs:
            return self._ask(_COPY, theirs), ours

    def _ask(self, pid: int, connection: Connection | None = None) -> Any:
        """Makes a copy with the connection and returns its process id, or ends copy `pid` and returns how it ended.
        Raises DiedError if this is impossible."""
        try:
            with self._asking:
                self._maker.send(pid)
                if connection:
                    send_handle(self._maker, connection.fileno(), 0)
                reply = self._maker.recv()
        except (EOFError, OSError) as error:
            reply = error
        if isinstance(reply, Exception):
            raise DiedError(f"no worker process can be started for {self._doing} ({reply}); {self._advice}.")
        return reply


def _make_copies(asked: Connection, other: Connection, answer: Callable[[Any, Tell], Any]) -> None:
    """Forks and ends copies on request, until the requesting process ends. Runs in a process with one thread."""
    other.close()
    pids: set[int] = set()
    with suppress(EOFError, OSError):  # the process that asks has ended
        while (pid := asked.recv()) is not None:
            reply: int | str | OSError
            try:
                if pid == _COPY:
                    with Connection(recv_handle(asked)) as connection:
                        if not (reply := os.fork()):
                            asked.close()
                            _serve(connection, answer)
                    pids.add(reply)
                else:
                    reply = ended(pid)
                    pids.discard(pid)
            except OSError as error:  # no memory, or too many processes
                reply = error
            asked.send(reply)
    for pid in pids:
        ended(pid)


def _serve(connection: Connection, answer: Callable[[Any, Tell], Any]) -> NoReturn:
    """Answers the requests that come through `connection`; runs in a copy."""
    try:
        with suppress(EOFError, OSError):  # the process that asks has ended
            while True:
                request = connection.recv()
                reply: tuple[Any, Exception | None]
                try:
                    reply = answer(request, lambda part: connection.send((None, None, part))), None
                except Exception as error:
                    error.add_note(traceback.format_exc())
                    reply = None, error
                connection.send(reply)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
