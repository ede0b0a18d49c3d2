"""Signals end a command tidily, wait for the end of a block, or set a flag."""

import signal

import pytest

from vtrans.system.signals import ended_by_signals, uninterrupted


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


def test_a_signal_takes_effect_at_the_end_of_an_uninterrupted_block() -> None:
    written = []

    def write() -> None:
        with ended_by_signals():
            with uninterrupted():
                written.append("half")
                signal.raise_signal(signal.SIGTERM)
                written.append("a line")
            written.append("never")

    with pytest.raises(KeyboardInterrupt) as caught:
        write()
    assert str(caught.value) == "SIGTERM"
    assert written == ["half", "a line"]


def test_a_second_signal_ends_an_uninterrupted_block_at_once() -> None:
    def write() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("not reached")

    with pytest.raises(KeyboardInterrupt):
        write()
