"""The signals that end a command."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


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
