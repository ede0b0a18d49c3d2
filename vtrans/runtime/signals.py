"""The signals that end a command, at once or after what is under way."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a terminal that closes, end a command as Ctrl-C does: tidily. What compiled code makes
    of a signal's exception, an error of its own, counts as that signal too."""
    came: list[str] = []

    def end(number: int, frame: object) -> None:
        came.append("" if number == signal.SIGINT else signal.Signals(number).name)
        raise KeyboardInterrupt(came[-1])

    names = ("SIGINT", "SIGTERM", "SIGHUP")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = (signal.SIG_DFL, signal.default_int_handler)
    usual = {n: signal.signal(n, end) for n in numbers if signal.getsignal(n) in before}
    try:
        yield
    except Exception as error:
        if came:
            raise KeyboardInterrupt(came[-1]) from error
        raise
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


class PutOff:
    """SIGTERM, Ctrl-C and SIGHUP let what is under way be finished and saved; a second one ends at once. SIGHUP, of a
    terminal that closes, does nothing where nohup has it ignored."""

    def __init__(self) -> None:
        self.number = 0  # of the signal that came, if any

    @contextmanager
    def caught(self, tell: Callable[[str], None]) -> Iterator[None]:
        """While it lasts; `tell` is called with the name of the one that comes."""

        def ask(number: int, frame: object) -> None:
            if self.number:
                raise KeyboardInterrupt
            self.number = number
            with suppress(RuntimeError):  # it may have come in the middle of writing to stderr
                tell(signal.Signals(number).name)

        numbers = [signal.SIGTERM, signal.SIGINT]
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, ask) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
