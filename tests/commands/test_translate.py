"""The report of `vtrans translate`."""

from __future__ import annotations

import io

import pytest

from vtrans.commands.translate import report
from vtrans.console import Console
from vtrans.decoding.translation import Counts


def reported(counts: Counts, **settings: int) -> list[str]:
    """Returns the lines of the report, without the first one about the speed."""
    stream = io.StringIO()
    report(counts, Console(stream=stream), **settings)
    return stream.getvalue().split("\n")[1:-1]


def test_nothing_unusual_is_not_reported() -> None:
    assert reported(Counts(lines=2, cut=1)) == []


@pytest.mark.parametrize("name", ["empty", "unfinished", "looping", "missing"])
def test_dubious_translations_are_counted_in_a_warning(name: str) -> None:
    for count in (1, 2000):
        (line,) = reported(Counts(lines=3000, **{name: count}))
        assert line.startswith(f"warning: {count:,} ")


@pytest.mark.parametrize("name", ["blank", "retried"])
def test_other_counts_are_information(name: str) -> None:
    (line,) = reported(Counts(lines=2, **{name: 2}))
    assert line.startswith("2 ")


def test_empty_translations_come_with_advice_unless_it_was_followed() -> None:
    assert "--min-length" in reported(Counts(lines=1, empty=1))[0]
    assert "--min-length" not in reported(Counts(lines=1, empty=1), min_length=1)[0]
