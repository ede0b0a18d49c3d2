"""Writes quotation marks as models know them best, and gives translations single ones where the line has them.

Models that have learned from text with straight double marks take others for rare symbols or for apostrophes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import regex

from vtrans.lines.line import Kept, Line, Stage
from vtrans.lines.unknowns import Characters
from vtrans.wording.protect import Masked, Span

_SINGLE = Kept[bool]()
"""Whether the quotation marks of a line are single."""

_INSIDE = r"(?:[^\"'\u2018\u2019\u201c-\u201f\xab\xbb]|(?<=\w)['\u2019](?=\w))+"
_CURLY = regex.compile(r"(?<!\w)\u201c(?=\S)[^\"\u201c-\u201f]+(?<=\S)\u201d(?!\w)")
# `rock 'n' roll` and `the '80s and '90s` have apostrophes.
_QUOTED = regex.compile(rf"(?<![\w'\u2019])['\u2018](?=\p{{L}}[^'\u2019]){_INSIDE}(?<=[^\s\d])['\u2019](?![\w'\u2019])")
_TO_SINGLE = str.maketrans('„“”«»"', "‚‘’‹›'")


class StraightQuotes(Stage):
    """Writes pairs of curly or single quotation marks outside of protected text as straight double ones, and those of
    the translations of single ones as single ones. A line with a prefix, phrases or a fuzzy match, which may have
    marks, is left as it is, and so are single marks beside double ones."""

    def __init__(self, characters: Characters) -> None:
        self._characters = characters

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            text = line.seen.text
            if line.prefix or line.wording.phrases or line.match or self._characters.is_unknown(0, '"'):
                continue
            curly = list(self._pairs(_CURLY, line))
            single = [] if curly or '"' in text else list(self._pairs(_QUOTED, line))
            places = {place for begin, end in curly or single for place in (begin, end - 1)}
            if places:
                line.seen = Masked.plain("".join('"' if k in places else c for k, c in enumerate(text)))
            if single:
                _SINGLE.put(line, True)

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if _SINGLE.get(line):
                line.translations = [replace(t, text=t.text.translate(_TO_SINGLE)) for t in line.translations]

    @staticmethod
    def _pairs(pattern: regex.Pattern[str], line: Line) -> Iterator[Span]:
        """Yields what has quotation marks around it that are not in protected text."""
        for match in pattern.finditer(line.seen.text):
            if not any(
                begin <= place < end for begin, end in line.protected for place in (match.start(), match.end() - 1)
            ):
                yield match.span()
