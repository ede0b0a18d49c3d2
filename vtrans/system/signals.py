"""Handling of the terminating signals SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal) in commands."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress

ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def handled_by(
    handler: Callable[[signal.Signals], None], even_ignored: Collection[signal.Signals] = ()
) -> Iterator[None]:
    """Calls `handler` for terminating signals inside the block, and restores the old handlers after it.

    An ignored signal stays ignored, as nohup and background jobs of a shell require, unless `even_ignored` lists it.
    Python handles signals in the main thread only, so in any other thread this has no effect.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    left_alone = {number: (None,) if number in even_ignored else (None, signal.SIG_IGN) for number in ENDING}
    taken = [number for number in ENDING if signal.getsignal(number) not in left_alone[number]]
    before = {number: signal.signal(number, lambda came, frame: handler(signal.Signals(came))) for number in taken}
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)


@contextmanager
def ended_by_signals(even_ignored: Collection[signal.Signals] = ()) -> Iterator[None]:
    """Ends the block with KeyboardInterrupt on any terminating signal; the exception carries the name of a signal other
    than SIGINT. If compiled code replaces the exception by another, raises KeyboardInterrupt anyway. `even_ignored` is
    as for `handled_by`."""
    came: list[str] = []

    def end(number: signal.Signals) -> None:
        came.append("" if number == signal.SIGINT else number.name)
        raise KeyboardInterrupt(came[-1])

    with handled_by(end, even_ignored):
        try:
            yield
        except Exception as error:
            if came:
                raise KeyboardInterrupt(came[-1]) from error
            raise


class StopSignal:
    """Records the first terminating signal without acting on it; a second one raises KeyboardInterrupt at once."""

    number = 0  # of the received signal; 0: none

    @contextmanager
    def caught(
        self, tell: Callable[[str], None] = lambda name: None, even_ignored: Collection[signal.Signals] = ()
    ) -> Iterator[None]:
        """Catches signals inside the block, and calls `tell` with the name of the first one. `even_ignored` is as for
        `handled_by`."""

        def remember(number: signal.Signals) -> None:
            if self.number:
                raise KeyboardInterrupt
            self.number = number
            with suppress(RuntimeError):  # the signal may interrupt a write to the stream that `tell` writes to
                tell(number.name)

        with handled_by(remember, even_ignored):
            yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delays the first terminating signal until the end of the block, so that the block's output is complete."""
    stop = StopSignal()
    with stop.caught():
        yield
    if stop.number:
        signal.raise_signal(stop.number)
