"""Worker processes, which end when this process does, however it ends.

`map_in_workers` starts new processes: it is `concurrent.futures.ProcessPoolExecutor` with a bounded number of items in
flight. `Copies` are forks of this process, which share its memory. Nothing here imports torch, so that a worker whose
function does not need it starts quickly and stays small.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any, Generic, TypeVar

from vtrans.errors import VtransError
from vtrans.runtime.signals import ENDING

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
            with _blocked((signal.SIGINT,)), _anonymous_main():
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
def _blocked(signals: Collection[signal.Signals]) -> Iterator[None]:
    """Processes started in the block never receive these signals, not even before `_start_worker` ignores SIGINT."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
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


# Copies of this process.

TELL = 0.1  # seconds between two reports of a worker


class Task(Future[Result]):
    """A request and its result; `steps` counts how often the worker has called `done` for it."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.request, self.steps = request, 0


class Copies(Generic[Item, Result]):
    """`number` copies of this process, each of which computes `answer(request, done)` for one request at a time.

    A copy is made by fork: it starts within milliseconds, and shares the memory of this process until either writes to
    it. Make copies before this process starts threads or uses several threads of OpenMP, whose locks and threads a
    copy would lack. Copies receive no ending signals; they end when the block ends, or this process does.
    """

    def __init__(self, answer: Callable[[Item, Callable[[], None]], Result], number: int, doing: str, advice: str):
        self.number, self._doing, self._advice = number, doing, advice
        self._tasks: queue.SimpleQueue[Task[Result] | None] = queue.SimpleQueue()
        self._processes: list[Any] = []
        self._joining = threading.Lock()
        try:
            connections = self._forked(answer)
        except BaseException:
            self._end()
            raise
        for process, connection in zip(self._processes, connections, strict=True):
            threading.Thread(target=self._run, args=(process, connection), daemon=True).start()

    def _forked(self, answer: Callable[[Item, Callable[[], None]], Result]) -> list[Connection]:
        """Makes the copies. Returns the connections to them."""
        context: Any = multiprocessing.get_context("fork")
        connections: list[Connection] = []
        for _ in range(self.number):
            ours, theirs = context.Pipe()
            connections.append(ours)
            process = context.Process(target=_serve, args=(theirs, connections, answer), daemon=True)
            with _blocked(ENDING), warnings.catch_warnings():
                # Python warns of any other thread. Those of numpy wait for work, and hold no lock.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
            self._processes.append(process)
        return connections

    def __enter__(self) -> Copies[Item, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        """Ends all workers at once."""
        for process in self._processes:
            process.kill()
            self._tasks.put(None)
        for process in self._processes:
            self._exit_code(process)

    def _exit_code(self, process: Any) -> int:
        """Waits for the end of a process. If two threads waited at a time, one of them would miss its exit code."""
        with self._joining:
            process.join()
        return int(process.exitcode)

    def submit(self, request: Item) -> Task[Result]:
        """Gives a request to the next worker that is free. Requests start in the order in which they are submitted.

        The task raises the exception of `answer`, or VtransError if the worker dies.
        """
        task: Task[Result] = Task(request)
        self._tasks.put(task)
        return task

    def _run(self, process: Any, connection: Connection) -> None:
        """Gives tasks to one worker; runs in a thread of this process."""
        while (task := self._tasks.get()) is not None:
            try:
                connection.send(task.request)
                while isinstance(got := connection.recv(), int):
                    task.steps += got
            except (EOFError, OSError):
                task.set_exception(self._died(self._exit_code(process)))
                return
            result, error = got
            if error is None:
                task.set_result(result)
            else:
                task.set_exception(error)
        connection.close()

    def _died(self, code: int) -> VtransError:
        end = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return VtransError(
            f"one of {self.number} worker processes died ({end}) while {self._doing}, perhaps because memory ran out; "
            f"{self._advice}."
        )


def _serve(
    connection: Connection, others: Sequence[Connection], answer: Callable[[Any, Callable[[], None]], Any]
) -> None:
    """Answers the requests that come through `connection`; runs in a copy."""
    for other in others:
        other.close()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the process that made this one has ended
        while True:
            connection.send(_answered(connection.recv(), answer, connection.send))


def _answered(
    request: Any, answer: Callable[[Any, Callable[[], None]], Any], tell: Callable[[int], None]
) -> tuple[Any, Exception | None]:
    """Returns the answer to a request, or its exception; tells the calls of `done` now and then."""
    steps, told = 0, time.monotonic()

    def done() -> None:
        nonlocal steps, told
        steps += 1
        if time.monotonic() - told > TELL:
            tell(steps)
            steps, told = 0, time.monotonic()

    try:
        return answer(request, done), None
    except Exception as error:
        error.add_note(traceback.format_exc())
        return None, error
