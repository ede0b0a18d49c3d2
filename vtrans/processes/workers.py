"""Worker processes, which end when this process does, however it ends.

`map_in_workers` starts new processes: it is `concurrent.futures.ProcessPoolExecutor` with a bounded number of items in
flight. A `WorkerPool` has forks of this process, which share its memory. Nothing here imports torch, so that a worker
whose function does not need it starts quickly and stays small.
"""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import queue
import signal
import socket
import struct
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
from typing import Any, Generic, NamedTuple, NoReturn, Protocol, TypeVar

from vtrans.errors import VtransError
from vtrans.processes.process import end_openmp_threads
from vtrans.processes.signals import ENDING

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
    # written to the new process by Process.start, which blocks forever if that process dies before reading all of it.
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

TELL = 0.01  # seconds between two reports of a worker, and between two looks for a message to it
WATCH = 0.05  # seconds between two calls of `Task.abandoned`


class Done(Protocol):
    """What the answer to a request tells of its progress."""

    def __call__(self, *part: Any) -> None:
        """Counts a step. An argument is a part of the result, for `Task.hear`."""

    def abandoned(self) -> bool:
        """Returns whether nobody waits for the result any more."""


class DiedError(VtransError):
    """A worker died, so there is no result."""


class Task(Future[Result]):
    """A request and its result. `steps` counts how often the worker has called `done` for it, and `hear` is called with
    what it gave to `done`, in a thread of this process. That thread also calls `abandoned` again and again; once it
    returns True, `done.abandoned` of the worker does so too."""

    def __init__(self, request: Any, hear: Callable[[Any], None], abandoned: Callable[[], bool] | None) -> None:
        super().__init__()
        self.request, self.hear, self.abandoned, self.steps = request, hear, abandoned, 0


class WorkerPool(Generic[Item, Result]):
    """`number` copies of this process, each of which computes `answer(request, done)` for one request at a time.

    A copy is made by fork: it starts within milliseconds, and shares the memory of this process until either writes to
    it. Make copies before this process starts threads, whose locks a copy would find taken; those of OpenMP end here.
    The first copy does nothing but make the others, so that one that dies can be replaced later.
    Copies receive no ending signals; they end when the block ends, or this process does.
    """

    def __init__(self, answer: Callable[[Item, Done], Result], number: int, doing: str, advice: str):
        self.number, self._doing, self._advice = number, doing, advice
        self._tasks: queue.SimpleQueue[Task[Result] | None] = queue.SimpleQueue()
        end_openmp_threads()
        self._asking = threading.Lock()
        # Each message is whole.
        self._maker, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        context: Any = multiprocessing.get_context("fork")
        self._process = context.Process(target=_make_copies, args=(theirs, self._maker, answer), daemon=True)
        try:
            with _blocked(ENDING), warnings.catch_warnings():
                # Python warns of any other thread. Those of numpy wait for work, and hold no lock.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._process.start()
            theirs.close()
            copies = [self._copy() for _ in range(number)]
        except BaseException:
            self._end()
            raise
        for copy in copies:
            threading.Thread(target=self._run, args=(copy,), daemon=True).start()

    def _copy(self) -> tuple[int, Connection]:
        """Returns the process id of a new copy, and the connection to it."""
        ours, theirs = multiprocessing.Pipe()
        with theirs:
            return self._ask(0, [theirs.fileno()]), ours

    def _ask(self, pid: int, handles: Sequence[int] = ()) -> int:
        """Returns the process id of a new copy, which takes over a handle, or the exit code of copy `pid`, which has
        ended. Raises OSError if this is impossible."""
        with self._asking:
            socket.send_fds(self._maker, [_REPLY.pack(pid, 0)], handles)
            received = self._maker.recv(_REPLY.size)
        if not received:
            raise BrokenPipeError("the process that makes copies has ended")
        reply, problem = _REPLY.unpack(received)
        if problem:
            raise OSError(problem, os.strerror(problem))
        return int(reply)

    def __enter__(self) -> WorkerPool[Item, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        """Ends all workers at once."""
        for _ in range(self.number):
            self._tasks.put(None)
        with suppress(OSError):  # the process that makes copies may have ended
            self._maker.shutdown(socket.SHUT_RDWR)
        self._process.join()
        with self._asking:
            self._maker.close()

    def submit(
        self,
        request: Item,
        hear: Callable[[Any], None] = lambda part: None,
        abandoned: Callable[[], bool] | None = None,
    ) -> Task[Result]:
        """Gives a request to the next worker that is free. Requests start in the order in which they are submitted.

        The task raises the exception of `answer`, or DiedError if the worker dies. Another one then takes its place.
        """
        task: Task[Result] = Task(request, hear, abandoned)
        self._tasks.put(task)
        return task

    def _run(self, copy: tuple[int, Connection] | None) -> None:
        """Gives tasks to one worker at a time; runs in a thread of this process."""
        while (task := self._tasks.get()) is not None:
            try:
                copy = copy or self._copy()
                result, error = _exchanged(copy[1], task)
            except (EOFError, OSError) as lost:
                result, error, copy = None, self._died(copy[0] if copy else 0, lost), None
            if error is None:
                task.set_result(result)
            else:
                task.set_exception(error)

    def _died(self, pid: int, lost: Exception) -> DiedError:
        """Returns the error for a copy that has ended, or, without a `pid`, that could not be made."""
        try:
            code = self._ask(pid) if pid else 0
        except OSError as error:
            pid, lost = 0, error
        if not pid:
            return DiedError(f"no worker process can be started for {self._doing} ({lost}); {self._advice}.")
        end = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return DiedError(
            f"one of {self.number} worker processes died ({end}) while {self._doing}, perhaps because memory ran out; "
            f"{self._advice}."
        )


def _exchanged(connection: Connection, task: Task[Result]) -> tuple[Any, Exception | None]:
    """Returns the answer of a copy to a task, or its exception."""
    connection.send(task.request)
    abandoned = task.abandoned
    while True:
        arrived = connection.poll(WATCH if abandoned else None)
        if abandoned and abandoned():
            connection.send(_ABANDON)
            abandoned = None
        if not arrived:
            continue
        if not isinstance(got := connection.recv(), _Told):
            result, error = got
            return result, error
        task.steps += got.steps
        for part in got.parts:
            task.hear(part)


class _Told(NamedTuple):
    """What a copy tells before its answer is complete."""

    steps: int
    parts: list[Any]


_ABANDON = None  # the message that nobody waits for the result; no request is None
_REPLY = struct.Struct("qi")  # a process id or an exit code, and an error number


def _make_copies(asked: socket.socket, other: socket.socket, answer: Callable[[Any, Done], Any]) -> None:
    """Makes the copies that are asked for, until the process that asks ends; runs in a copy without other threads."""
    other.close()
    # A collection writes to every object that it examines, and so takes the pages that hold them out of what is shared.
    gc.freeze()
    pids: set[int] = set()
    with suppress(ConnectionError):  # the process that asks was killed before it read a reply
        while True:
            message, handles, _, _ = socket.recv_fds(asked, _REPLY.size, 1)
            if not message:
                break
            (pid, _), reply, problem = _REPLY.unpack(message), 0, 0
            try:
                if pid:
                    reply = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    pids.discard(pid)
                elif (reply := os.fork()) == 0:
                    asked.close()
                    _serve(Connection(handles[0]), answer)
                else:
                    pids.add(reply)
            except OSError as error:  # no memory, or too many processes
                problem = error.errno or errno.EAGAIN
            for handle in handles:
                os.close(handle)
            asked.send(_REPLY.pack(reply, problem))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


def _serve(connection: Connection, answer: Callable[[Any, Done], Any]) -> NoReturn:
    """Answers the requests that come through `connection`; runs in a copy."""
    try:
        threading.Thread(target=_end_with_parent, daemon=True).start()
        with suppress(EOFError, OSError):  # the process that made this one has ended
            while True:
                request = connection.recv()
                if request is not _ABANDON:  # it comes too late for the last request
                    connection.send(_answered(request, answer, connection))
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _answered(request: Any, answer: Callable[[Any, Done], Any], connection: Connection) -> tuple[Any, Exception | None]:
    """Returns the answer to a request, or its exception."""
    try:
        return answer(request, _Progress(connection)), None
    except Exception as error:
        error.add_note(traceback.format_exc())
        return None, error


class _Progress:
    """The `Done` of a copy: exchanges messages with the process that made it, now and then."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._steps, self._parts = 0, list[Any]()
        self._told = self._looked = time.monotonic()
        self._abandoned = False

    def __call__(self, *part: Any) -> None:
        self._steps += 1
        self._parts += part
        if time.monotonic() - self._told > TELL:
            self._connection.send(_Told(self._steps, self._parts))
            self._steps, self._parts, self._told = 0, [], time.monotonic()

    def abandoned(self) -> bool:
        if not self._abandoned and time.monotonic() - self._looked > TELL:
            self._abandoned = self._connection.poll() and self._connection.recv() is _ABANDON
            self._looked = time.monotonic()
        return self._abandoned
