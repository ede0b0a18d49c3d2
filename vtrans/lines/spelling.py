"""Writes pairs of curly quotation marks as straight ones, and escaped apostrophes as characters.

Models that have learned from text with straight marks take others for rare symbols. A vocabulary with both curly marks
keeps them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import regex

from vtrans.lines.line import Line, Stage
from vtrans.lines.unknowns import Characters
from vtrans.wording.protect import Masked, Span

_CURLY = regex.compile(r"(?<!\w)\u201c(?=\S)[^\"\u201c-\u201f]+(?<=\S)\u201d(?!\w)")
_APOSTROPHE = regex.compile(r"(?<=\p{L})&(?:#39|#x27|apos|#8217|rsquo);(?=\p{L})")


class UsualSpelling(Stage):
    """Writes pairs of curly quotation marks outside of protected text as straight ones, and `&#39;` in a word as an
    apostrophe. A line with a prefix, phrases or a fuzzy match stays as it is."""

    def __init__(self, characters: Characters) -> None:
        self._characters = characters
        lacks_curly = any(characters.is_unknown(0, mark) for mark in "\u201c\u201d")
        self._writes_straight = lacks_curly and not characters.is_unknown(0, '"')

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if line.prefix or line.wording.phrases or line.match or not self._characters.may_change(line.text):
                continue
            text = line.seen.text
            apostrophes = {match.span() for match in _APOSTROPHE.finditer(text)}
            line.protected = [span for span in line.protected if span not in apostrophes]
            quoted = [match.span() for match in _CURLY.finditer(text)] if self._writes_straight else []
            parts = [((place, place + 1), '"') for begin, end in quoted for place in (begin, end - 1)]
            parts += [(span, "'") for span in apostrophes]
            _write(line, sorted(parts))


def _write(line: Line, parts: Sequence[tuple[Span, str]]) -> None:
    """Writes these parts of a line differently, unless they are in protected text."""
    begins = [begin for begin, _ in line.protected]
    parts = [
        (span, new)
        for span, new in parts
        if not (k := bisect_right(begins, span[0])) or line.protected[k - 1][1] <= span[0]
    ]
    if parts:
        text, end = line.seen.text, 0
        written: list[str] = []
        for (begin, stop), new in parts:
            written += [text[end:begin], new]
            end = stop
        ends = [stop for (_, stop), _ in parts]
        shifts = [0, *accumulate(len(new) - (stop - begin) for (begin, stop), new in parts)]
        line.seen = Masked.plain("".join([*written, text[end:]]))
        line.protected = [
            (begin + shifts[bisect_right(ends, begin)], stop + shifts[bisect_right(ends, stop)])
            for begin, stop in line.protected
        ]
