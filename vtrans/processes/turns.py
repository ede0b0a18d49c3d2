"""Methods that threads run one at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import RLock
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class HasTurn(Protocol):
    """An object whose methods threads run one at a time."""

    turn: RLock


Own = TypeVar("Own", bound=HasTurn)
Given = ParamSpec("Given")
Result = TypeVar("Result")


def in_turn(method: Callable[Concatenate[Own, Given], Result]) -> Callable[Concatenate[Own, Given], Result]:
    """Returns the method as one that waits until no other thread is in a method in turn of the same object."""

    @functools.wraps(method)
    def wait(self: Own, /, *given: Given.args, **named: Given.kwargs) -> Result:
        with self.turn:
            return method(self, *given, **named)

    return wait
