"""Signals end a command tidily."""

from __future__ import annotations

import signal

import pytest

from vtrans.runtime.signals import ended_by_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_compiled_code_turns_into_an_error_is_still_that_signal(number: signal.Signals) -> None:
    def compiled() -> None:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt as error:
            raise ValueError("could not determine the shape") from error

    with pytest.raises(KeyboardInterrupt) as caught, ended_by_signals():
        compiled()
    assert str(caught.value) == ("" if number == signal.SIGINT else "SIGTERM")
    with pytest.raises(ValueError, match="of its own"), ended_by_signals():
        raise ValueError("of its own")
