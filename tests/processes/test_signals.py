"""Signals end a command tidily, wait for the end of a block, or set a flag."""

from __future__ import annotations

import signal
import threading
from contextlib import AbstractContextManager

import pytest

from vtrans.processes.signals import StopSignal, ended_by_signals, uninterrupted


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


def test_the_first_signal_is_remembered_and_reported() -> None:
    stop, told = StopSignal(), list[str]()
    before = signal.getsignal(signal.SIGTERM)
    with stop.caught(told.append):
        assert stop.number == 0
        signal.raise_signal(signal.SIGTERM)
    assert (stop.number, told) == (signal.SIGTERM, ["SIGTERM"])
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_by_signals():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_stop_signal_may_be_caught_even_if_it_is_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        stop = StopSignal()
        with stop.caught(even_ignored=[signal.SIGINT]):
            signal.raise_signal(signal.SIGINT)
        assert stop.number == signal.SIGINT
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("block", [ended_by_signals(), uninterrupted(), StopSignal().caught()])
def test_other_threads_than_the_main_one_run_unchanged(block: AbstractContextManager[None]) -> None:
    done = []

    def work() -> None:
        with block:
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
