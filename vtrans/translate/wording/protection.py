"""Protected text, which is copied from a line to its translation, such as addresses and placeholders.

Protected text is replaced by a code such as `A1`, which models place well, and restored in the translation. The search
requires each code as often as it occurs in the source. If it cannot, or if the length limit ends the translation,
missing text is appended, so that it is never lost.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import regex

from vtrans.system.errors import InputError
from vtrans.text.words import CODE, WORD, codes_for, has_spaces, words_in
from vtrans.translate.wording.patterns import EVERYDAY_PATTERNS, HINT, PATTERNS

_MARKUP = re.compile(r"[\W_]+|</?[A-Za-z].*>|&.*;")
"""Protected text that keeps the spacing of the source."""
_GAP = (" ", "")
_OPENING = regex.compile(r"[\p{Ps}\p{Pi}\p{Pf}\"'#*]+")  # brackets and quotation marks


@dataclass(frozen=True)
class Protection:
    """Regular expressions for protected text, in addition to PATTERNS. Raises InputError for an invalid one."""

    more: tuple[str, ...] = ()
    hint: str = ""
    """A pattern that matches every line with protected text; other lines are skipped quickly."""

    def __post_init__(self) -> None:
        for pattern in self.more:
            try:
                re.compile(pattern)
            except re.error as error:
                raise InputError(
                    f"`protect_patterns` must be Python regular expressions, got {pattern!r}: {error.msg}."
                ) from None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(f"(?:{pattern})" for pattern in (*self.more, *PATTERNS.values())))

    def spans(self, line: str) -> Iterator[Span]:
        """Yields the spans of protected text in a line."""
        if not re.search(self.hint, line):
            return iter(())
        return (match.span() for match in self._pattern.finditer(line) if match.group().strip())

    def masked(self, line: str) -> Masked:
        """Returns a line with its protected text replaced by codes."""
        return masked(line, self.spans(line))


EVERYDAY = Protection(tuple(EVERYDAY_PATTERNS.values()), HINT)
"""The protection for models that have learned codes."""


Span = tuple[int, int]
"""The begin and end of a part of a line."""


def masked(
    line: str,
    spans: Iterable[Span],
    known: Mapping[str, str] | None = None,
    *,
    asked: str = "",
    within: Span | None = None,
) -> Masked:
    """Returns a line with codes for the text in these spans, which must be sorted and not overlap. `known` are texts
    that already have codes. No code occurs in `asked`, text that the translation may contain. Text outside the span
    `within` stays around the translation."""
    code_of, (end, last) = dict(known or {}), within or (0, len(line))
    codes, parts = codes_for(" ".join((line, asked, *code_of.values()))), [("", line[:end])]
    for begin, stop in spans:
        text = line[begin:stop]
        if text not in code_of:
            code_of[text] = next(codes)
        before = line[end:begin]
        parts.append((before, before))
        # Spaces surround a code. A code before a letter already has one.
        follows = not before and len(parts) > 2
        if (follows or line[:begin][-1:].isalnum()) and not (follows and line[begin].isalnum()):
            parts.append(_GAP)
        parts.append((code_of[text], text))
        if line[stop : stop + 1].isalnum():
            parts.append(_GAP)
        end = stop
    own = line[end:last]
    return Masked([*parts, (own, own), ("", line[last:])], {code: text for text, code in code_of.items()})


def _edge(word: str, at: int) -> str:
    """Returns a word, or only the character `at` 0 or -1 if its script has no spaces."""
    return word if has_spaces(word[at : at + 1 or None]) else word[at]


@dataclass(frozen=True)
class _Sides:
    """The words or codes adjacent to protected text in a line; "" at a space."""

    text: str
    before: str
    after: str

    def joint(self, beside: str, other: str, at: int) -> Part | None:
        """Returns the change of spacing between the text and its neighbour `other` in a translation, before the text if
        `at` is -1, after it if `at` is 0: removes the space if they touch in the line, and inserts one next to a letter
        that the model joined to the text, unless the text is inside a word in the line. `beside` is the adjacent
        character in the translation."""
        if beside == " " and other and self._touches(other, at):
            return _GAP
        is_inside_word = self.before[-1:].isalnum() or self.after[:1].isalnum()
        return ("", " ") if beside.isalnum() and not is_inside_word else None

    def _touches(self, other: str, at: int) -> bool:
        side, other = _edge(self.before if at else self.after, at), _edge(other, at)
        if not side or side == other:
            return bool(side)
        if _MARKUP.fullmatch(self.text):
            return has_spaces(side[at]) and (side[at].isalnum() or not other[at].isalnum())
        return at == -1 and all(map(_OPENING.fullmatch, (side[at], other)))


Part = tuple[str, str]
"""A part of a text: with codes, and without."""


@dataclass(frozen=True)
class Masked:
    """A text whose protected parts are represented by codes."""

    parts: Sequence[Part]
    """The first and the last part have no codes."""
    texts: Mapping[str, str]
    """The protected text of each code."""

    @property
    def model_input(self) -> str:
        """The text with codes."""
        return "".join(code for code, _ in self.parts)

    @property
    def own(self) -> list[str]:
        """The parts outside protected text."""
        return [text for code, text in self.parts if code == text]

    @property
    def text(self) -> str:
        """The text without codes."""
        return "".join(text for _, text in self.parts)

    def counts(self) -> Counter[str]:
        """Returns the number of occurrences of each code."""
        return Counter(code for code, text in self.parts if code in self.texts and code != text)

    def restored(self, translation: str) -> Masked:
        """Returns a translation of `model_input` with its codes corrected: surplus codes are removed, and missing ones
        appended.

        Codes keep the spacing of the source (`_Sides.joint`).
        """
        left, parts, end, sides = self.counts(), list[Part](), 0, self._sides()
        last: _Sides | None = None  # of the preceding code
        for begin, code in (*self._codes_in(translation), (len(translation), "")):
            between = translation[end:begin]
            own = sides[code][-left[code]] if left[code] > 0 else None
            words = between.split()
            opening = last.joint(between[:1], words[0] if words else code, 0) if last else None
            closing = own.joint(between[-1:], words[-1] if words else "", -1) if own else None
            between = between[opening is _GAP : len(between) - (closing is _GAP)]
            parts += [part for part in (opening, (between, between), closing) if part]
            parts.append((code, own.text if own else ""))
            left[code] -= 1
            end, last = begin + len(code), own or (None if between else last)
        for code in self.texts:
            for _ in range(left[code]):
                parts.append(("", " " if any(text for _, text in parts) else ""))
                parts.append(("", self.texts[code]))
        return Masked([self.parts[0], *parts, self.parts[-1]], self.texts)

    def _sides(self) -> dict[str, list[_Sides]]:
        """Returns the neighbours of each occurrence of protected text."""
        sides: dict[str, list[_Sides]] = {}
        parts = [("", ""), *(part for part in self.parts if part[0] and part != _GAP), ("", "")]
        for (before, _), (code, text), (after, _) in zip(parts, parts[1:], parts[2:], strict=False):
            if code != text:
                first = "" if before[-1:].isspace() else before.split()[-1] if before else ""
                last = "" if after[:1].isspace() else after.split()[0] if after else ""
                sides.setdefault(code, []).append(_Sides(text, first, last))
        return sides

    def words_around(self) -> tuple[int, int]:
        """Returns the numbers of words of `text` before and after `model_input`."""
        words = [word.span() for word in WORD.finditer(self.text)]
        first, last = len(self.parts[0][1]), len(self.text) - len(self.parts[-1][1])
        return sum(end <= first for _, end in words), sum(begin >= last for begin, _ in words)

    def code_words(self) -> dict[str, list[int]]:
        """Returns the words of `model_input` that contain each code."""
        words: dict[str, list[int]] = {}
        for k, word in enumerate(words_in(self.model_input)):
            for _, code in self._codes_in(word):
                words.setdefault(code, []).append(k)
        return words

    def _codes_in(self, text: str) -> Iterator[tuple[int, str]]:
        """Yields (begin, code) for the codes in a text. Other digits may follow a code."""
        for match in CODE.finditer(text):
            code = match.group()
            while code and code not in self.texts:
                code = code[:-1]
            if code:
                yield match.start(), code

    def words(self) -> list[int]:
        """Returns, for each word of `model_input`, the word of `text` that it represents or belongs to."""
        begins = [match.start() for match in WORD.finditer(self.text)]
        places, there = list[int](), 0  # for each character of `model_input`, where it is in `text`
        for code, text in self.parts:
            places += [there + (i if code == text else 0) for i in range(len(code))]
            there += len(text)
        words = (bisect_right(begins, places[match.start()]) - 1 for match in WORD.finditer(self.model_input))
        return [max(0, word) for word in words]
