"""Measures such as 12 cm, and times that models misread: which ones a line has, and how a translation has them.

A measure is a number with the symbol of a unit. Times are written as in German: `8am-5pm` is 8–17 Uhr, and `7.30pm`
is 19:30 Uhr.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import regex

_MEASURE = regex.compile(
    r"(?<![\w.,$\u20ac\u00a3-])(\d+(?:[.,]\d+)*)[\s\u00a0]?"
    r"([cdkm]?m[\u00b2\u00b3]|[cdkm]m|(?<=\s)m|km/h|m/s|[km]g|[cdhm]l"
    r"|[kMGT]B|[kMG]Hz|k[WJ]|kWh|kcal|mAh|\u00b0[CF]|(?<=\d)(?:h|min))(?![\w/])"
)
_BEFORE = r"(?<![\w.,:/$\u20ac\u00a3-])"
_HALF = r"[\s\u00a0]?([ap])(?:m|\.m\.(?=\s?\S)|\.m)(?!\w)"
_HOUR = r"(1[0-2]|[1-9])"
_RANGE = regex.compile(rf"{_BEFORE}{_HOUR}(?:[:.](\d\d))?(?:{_HALF})?\s?[-\u2013]\s?{_HOUR}(?:[:.](\d\d))?{_HALF}")
_POINTED = regex.compile(rf"(?:(?<!\w)([Aa])t\s)?{_BEFORE}{_HOUR}\.(\d\d){_HALF}")

Measure = tuple[int, int, str]
"""Where it is in a line, and its form."""


def measures(line: str, marks: Mapping[int, int]) -> Iterator[Measure]:
    """Yields the measures of a line. `marks` replace those of numbers."""
    for found in _MEASURE.finditer(line) if any(map(str.isdigit, line)) else ():
        yield found.start(), found.end(), f"{found[1].translate(marks)} {found[2]}"


def times_in_german(line: str) -> Iterator[Measure]:
    """Yields the ranges of times of a line, and the times with a point."""
    if not any(map(str.isdigit, line)):
        return
    for found in _RANGE.finditer(line):
        first, first_minutes, first_half, last, last_minutes, last_half = found.groups()
        if not first_half:  # as in 9-11 am and 11-2 pm
            first_half = last_half if int(first) % 12 < int(last) % 12 else "ap"[last_half == "a"]
        times = [(_hour(first, first_half), first_minutes), (_hour(last, last_half), last_minutes)]
        full = not (first_minutes or last_minutes)
        written = (str(hour) if full else f"{hour}:{minutes or '00'}" for hour, minutes in times)
        yield found.start(), found.end(), "\u2013".join(written) + " Uhr"
    for found in _POINTED.finditer(line):
        at, hour, minutes, half = found.groups()
        before = {"a": "um ", "A": "Um "}.get(at, "")
        yield found.start(), found.end(), f"{before}{_hour(hour, half)}:{minutes} Uhr"


def _hour(hour: str, half: str) -> int:
    """Returns an hour before or after noon as one of 24."""
    return int(hour) % 12 + 12 * (half == "p")
