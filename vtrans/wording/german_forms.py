"""What models misread in English lines, and how it is written in German.

These are ranges of times (`8am-5pm`) and of weekdays, abbreviations, and dates that are lines of their own (`May 12`)
or subjects. A model knows most other dates and times, and inflects the words around them.
"""

from __future__ import annotations

from collections.abc import Iterator

import regex

from vtrans.text.number_words import WORDS
from vtrans.wording.measures import Measure

_BEFORE = r"(?<![\w.,:/$\u20ac\u00a3-])"
_HALF = r"\s?([ap])(?:m(?! I\b)|\.m\.(?=\s*[^\s\p{Lu}])|\.m)(?!\w)"
_HOUR = r"(1[0-2]|[1-9])"
_RANGE = regex.compile(rf"{_BEFORE}{_HOUR}(?:[:.](\d\d))?(?:{_HALF})?\s?[-\u2013]\s?{_HOUR}(?:[:.](\d\d))?{_HALF}")
_ABBREVIATIONS = {
    "approx.": "ca.", "Art.": "Art.", "e.g.": "z. B.", "etc": "usw", "etc.": "usw.", "Fig.": "Abb.", "i.e.": "d. h.",
    "incl.": "inkl.", "no.": "Nr.", "pp.": "S.", "Tel": "Tel", "vs": "vs.", "vs.": "vs.",
}  # fmt: skip
_ABBREVIATION = regex.compile(
    r"(?<![\w.])(?:(?<!\b(?:said|say|says|or|is|was|answered) )no\.(?=\s?\d)|(?:Art|Fig|pp)\.(?=\s?\d)"
    r"|(?:approx|e\.g|i\.e|incl|vs)\.|etc\.(?!\s*\p{Lu})|etc(?=\.)|vs|Tel(?=[.:]))(?![\w-])"
)
MONTHS = dict(zip(WORDS["en"].months, WORDS["de"].months, strict=True))
_WEEKDAYS = {"Mon": "Mo", "Tue": "Di", "Wed": "Mi", "Thu": "Do", "Fri": "Fr", "Sat": "Sa", "Sun": "So"}
_MONTH = rf"({'|'.join(MONTHS)})"
_DAY = r"(3[01]|[12]\d|[1-9])(?:st|nd|rd|th)?(?!\w)"
_DATE = regex.compile(rf"^(?:{_MONTH}\s{_DAY}|{_DAY}\s{_MONTH})(?:,?\s(\d{{4}}))?(?=\s(?:is|was|will)\b|(\.?$))")
WEEKDAY = r"(Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)"
_DAYS = regex.compile(rf"(?<![\w.,/-]){WEEKDAY}\.?\s?[-\u2013]\s?{WEEKDAY}(?!\w)(?:\.(?=\s*[^\s\p{{Lu}}]))?")


def german_forms(line: str) -> Iterator[Measure]:
    """Yields the ranges of times and weekdays, the abbreviations and the dates of an English line, and their German
    forms."""
    for match in _ABBREVIATION.finditer(line):
        yield match.start(), match.end(), _ABBREVIATIONS[match[0]]
    for match in _DAYS.finditer(line):
        first, last = (_WEEKDAYS[day[:3]] for day in match.groups())
        yield match.start(), match.end(), f"{first}\u2013{last}"
    if any(map(str.isdigit, line)):
        if date := _DATE.match(line):  # which is the line or its subject
            month, day, first_day, second_month, year, ends = date.groups()
            form = f"{day or first_day}. {MONTHS[month or second_month]}" + (f" {year}" if year else "")
            yield date.start(), date.end(), form if ends is not None else f"Der {form}"
        yield from _times(line)


def _times(line: str) -> Iterator[Measure]:
    """Yields ranges of times."""
    for match in _RANGE.finditer(line):
        first, first_minutes, first_half, last, last_minutes, last_half = match.groups()
        if not first_half:  # as in 9-11 am and 11-2 pm
            first_half = (
                last_half if _order(first, first_minutes) < _order(last, last_minutes) else "ap"[last_half == "a"]
            )
        times = [(_hour(first, first_half), first_minutes), (_hour(last, last_half), last_minutes)]
        full = not (first_minutes or last_minutes)
        written = (str(hour) if full else f"{hour}:{minutes or '00'}" for hour, minutes in times)
        yield match.start(), match.end(), "\u2013".join(written) + " Uhr"


def _order(hour: str, minutes: str | None) -> tuple[int, int]:
    """Returns what times in the same half of the day are ordered by."""
    return int(hour) % 12, int(minutes or 0)


def _hour(hour: str, half: str) -> int:
    """Returns an hour before or after noon as one of 24."""
    return int(hour) % 12 + 12 * (half == "p")
