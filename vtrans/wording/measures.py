"""Measures such as 12 cm, and amounts that models copy: where a line has them, and how a translation has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import regex

_MEASURE = regex.compile(
    r"(?<![\w.,$\u20ac\u00a3-])(\d++(?:[.,]\d++)*+)\s?"
    r"([cdkm]?m[\u00b2\u00b3]|[cdkm]m|(?<=\s)m|km/h|m/s|[km]g|[cdhm]l"
    r"|[kMGT]B|[kMG]Hz|k[WJ]|kWh|kcal|mAh|\u00b0[CF]|mph|[fm]ps|[MG]bps|rpm|dpi|lbs?|oz|ft|(?<=\d)(?:h|min))(?![\w/])"
)
_AMOUNT = regex.compile(
    r"(?<![\w.,])(?:(?:[\u00a3\u00a5\u20a9\u20aa\u20b9\u20ba\u20bd]|(?!US)[A-Z]{1,2}\$)\s?\d++(?:[.,]\d++)*+(?:bn|[kmKMB])?"
    r"|\d++(?:[.,]\d++)*+\+)(?![\w+])"
)

Measure = tuple[int, int, str]
"""Where it is in a line, and its form."""


def measures(line: str, marks: Mapping[int, int]) -> Iterator[Measure]:
    """Yields the measures of a line, numbers before a plus sign, and amounts of money with other signs than $
    and €, such as A$20. `marks` replace those of numbers."""
    if any(map(str.isdigit, line)):
        for match in _MEASURE.finditer(line):
            yield match.start(), match.end(), f"{match[1].translate(marks)} {match[2]}"
        for match in _AMOUNT.finditer(line):
            yield match.start(), match.end(), match[0].translate(marks)
