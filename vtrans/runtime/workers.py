"""Processes beside this one, which all do the same work and answer in order.

Nothing here needs torch, so that a process whose work does not either starts in a moment and stays small.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any, TypeVar

from vtrans.errors import VtransError

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_GRACE = 5.0  # seconds in which a process that has nothing more to do must end


def answers(
    make: Callable[[], Callable[[Item], Answer]], items: Iterable[Item], size: int, what: str, advice: str
) -> Generator[Answer, None, None]:
    """What `make()` answers to each item, in order, in `size` processes: each calls `make`, which is sent to it, once.

    Each has one item at a time, so what is under way is bounded by their number. Closing the generator ends the
    processes. What one of them raises is raised here; VtransError if one dies, which says `what` it did, and ends in
    the `advice`.
    """
    with _team(make, size, what, advice) as team:
        busy: deque[_Worker] = deque()
        for item in items:
            worker, done = team[len(busy) % size], None
            if len(busy) == size:
                worker = busy.popleft()
                done = [worker.result()]
            worker.give(item)  # before its result is seen to, so that it need not wait
            busy.append(worker)
            if done:
                yield done[0]
        while busy:
            yield busy.popleft().result()


class _Worker:
    """A process that works, and our end of the pipe to it."""

    def __init__(self, make: object, what: str, advice: str) -> None:
        self._what, self._advice = what, advice
        context = multiprocessing.get_context("spawn")  # a fork would copy locks that a thread of ours may hold
        self._pipe, theirs = context.Pipe()
        # What `start` hands over must be little: it hangs if the process dies before it has read all of it.
        self._process: BaseProcess = context.Process(target=_work, args=(theirs,), daemon=True)
        try:
            self._process.start()
        finally:
            theirs.close()  # ours is the only copy left: when it closes, the other side knows
        self.give(make)

    def give(self, item: object) -> None:
        with self._alive():
            self._pipe.send(item)

    def result(self) -> Any:
        with self._alive():
            result = self._pipe.recv()
        if isinstance(result, BaseException):
            raise result
        return result

    def leave(self) -> None:
        """Tells the process that nothing more comes."""
        self._pipe.close()

    def end(self) -> None:
        """Returns when the process has ended."""
        self._process.join(_GRACE)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()

    @contextmanager
    def _alive(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):  # the other end of the pipe is gone
            self._process.join(_GRACE)
            code = self._process.exitcode
            how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
            raise VtransError(
                f"a process that {self._what} was ended {how}, perhaps for want of memory; {self._advice}."
            ) from None


@contextmanager
def _team(make: object, size: int, what: str, advice: str) -> Iterator[list[_Worker]]:
    """So many processes, gone when the block ends, however it ends."""
    team: list[_Worker] = []
    try:
        with _no_interrupt(), _nameless_main():
            for _ in range(size):
                team.append(_Worker(make, what, advice))
        yield team
    finally:
        for worker in team:
            worker.leave()
        for worker in team:
            worker.end()


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """A Ctrl-C comes after the block, and never to a process that is started in it: that ends with this one."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows: they ignore it once they run
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _nameless_main() -> Iterator[None]:
    """A process started in the block does not run the program of this one again, as it would do to find
    functions there: a script that does not expect it would start processes in its turn."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _work(pipe: Connection) -> None:
    """What a process does until its pipe is closed: make what answers, and answer what comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, OSError):  # the one who asked is gone, perhaps killed: so nobody wants to hear of it
        answer = pipe.recv()()
        while True:
            item = pipe.recv()
            try:
                result = answer(item)
            except Exception as error:
                result = error
            pipe.send(result)
