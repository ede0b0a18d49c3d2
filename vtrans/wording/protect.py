"""Text that is copied from a line to its translation, such as addresses and placeholders.

Protected text is replaced by a code such as `A1`, which models place well, and the codes of the translation are
replaced by the text again. The search requires each code as often as it occurs in the source. Where it cannot, or if
the length limit ended the translation, missing text is put at the end, so that it is never lost.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from vtrans.errors import InputError
from vtrans.text.words import codes_for
from vtrans.wording.patterns import EVERYDAY_PATTERNS, HINT, PATTERNS
from vtrans.wording.phrases import has_spaces

_CODE = re.compile(r"[A-Z]\d{1,5}")
_MARKUP = re.compile(r"[\W_]+|</?[A-Za-z].*>|&.*;")
"""Text that keeps the spacing of the source."""
_GAP = (" ", "")
_OPENING = re.compile(r"""(?:^|\s)["'\u2018\u201a\u201c\u201e\xab\xbb([{#*]+ $""")  # a bracket or a quotation mark


@dataclass(frozen=True)
class Protection:
    """Regular expressions for protected text, besides PATTERNS. Raises InputError for one that is not valid."""

    more: tuple[str, ...] = ()
    hint: str = ""
    """What any line with protected text has: others, which are most, need no other search."""

    def __post_init__(self) -> None:
        for pattern in self.more:
            try:
                re.compile(pattern)
            except re.error as error:
                raise InputError(
                    f"`protect_patterns` must be regular expressions of Python, got {pattern!r}: {error.msg}."
                ) from None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(f"(?:{pattern})" for pattern in (*self.more, *PATTERNS.values())))

    def spans(self, line: str) -> Iterator[Span]:
        """Yields where a line has protected text."""
        if not re.search(self.hint, line):
            return iter(())
        return (match.span() for match in self._pattern.finditer(line) if match.group().strip())

    def masked(self, line: str) -> Masked:
        """Returns a line with codes for its protected text."""
        return masked(line, self.spans(line))


EVERYDAY = Protection(tuple(EVERYDAY_PATTERNS.values()), HINT)
"""What models that have learned codes copy by default."""


Span = tuple[int, int]
"""Where a part of a line begins and ends."""


def masked(line: str, spans: Iterable[Span], known: Mapping[str, str] | None = None) -> Masked:
    """Returns a line with codes for the text in these spans, which are in order and do not overlap. `known` are texts
    that have codes already."""
    code_of, parts, end = dict(known or {}), list[Part](), 0
    codes = codes_for(" ".join((line, *code_of.values())))
    for begin, stop in spans:
        text = line[begin:stop]
        if text not in code_of:
            code_of[text] = next(codes)
        before = line[end:begin]
        parts.append((before, before))
        # A code stands apart from the words and codes beside it. A code before a letter has a space already.
        follows = begin == end > 0
        if (follows or line[:begin][-1:].isalnum()) and not (follows and line[begin].isalnum()):
            parts.append(_GAP)
        parts.append((code_of[text], text))
        if line[stop : stop + 1].isalnum():
            parts.append(_GAP)
        end = stop
    return Masked([*parts, (line[end:], line[end:])], {code: text for text, code in code_of.items()})


def coded_pair(src: str, tgt: str, protection: Protection) -> tuple[str, str] | None:
    """Returns a pair with the same codes for the same protected text; None if the sides differ in it."""
    read = protection.masked(src)
    answer = masked(tgt, protection.spans(tgt), {text: code for code, text in read.texts.items()})
    return (read.masked, answer.masked) if read.counts() == answer.counts() else None


def _edge(word: str, at: int) -> str:
    """Returns a word, or only its first or last character if that is of a script without spaces."""
    return word if has_spaces(word[at : at + 1 or None]) else word[at]


def _touches(side: str, other: str) -> bool:
    """Returns whether markup that touches `side` in the source touches `other` in the translation."""
    return bool(side.strip()) and has_spaces(side) and (side.isalnum() or not other.isalnum())


Part = tuple[str, str]
"""A part of a text, with codes and as it is."""


@dataclass(frozen=True)
class Masked:
    """A text whose protected text is represented by codes."""

    parts: Sequence[Part]
    texts: Mapping[str, str]
    """The text of each code."""

    @classmethod
    def plain(cls, text: str) -> Masked:
        """Returns a text without codes."""
        return cls([(text, text)], {})

    @property
    def masked(self) -> str:
        """The text with codes."""
        return "".join(code for code, _ in self.parts)

    @property
    def own(self) -> list[str]:
        """The text besides the protected text."""
        return [text for code, text in self.parts if code == text]

    @property
    def has_letters(self) -> bool:
        """Whether there are letters besides the protected text."""
        return any(character.isalpha() for text in self.own for character in text)

    @property
    def text(self) -> str:
        """The text as it is."""
        return "".join(text for _, text in self.parts)

    def counts(self) -> Counter[str]:
        """Returns how often each code occurs."""
        return Counter(code for code, text in self.parts if code in self.texts and code != text)

    def restored(self, translation: str) -> Masked:
        """Returns a translation of `masked`. Codes that occur too often are left out, and missing ones are added.

        Separates a code from a word that the model joined to it, unless the source has such a word.
        """
        if not self.texts:
            return Masked.plain(translation)
        left, parts, end, joined, glued = self.counts(), list[Part](), 0, self._joined(), self._glued()
        pairs = pairwise(part for part in self.parts if part[0])
        opened = {code for (_, before), (code, text) in pairs if code != text and _OPENING.search(f"{before} ")}
        opening = {code for code, _ in glued if unicodedata.category(self.texts.get(code, " ")[-1]) in ("Ps", "Pi")}
        closing = {code for _, code in glued if unicodedata.category(self.texts.get(code, " ")[0]) in ("Pe", "Pf")}
        triples = zip(self.parts, self.parts[1:], self.parts[2:], strict=False)
        listed = {(first, last) for (first, _), (mark, _), (last, _) in triples if mark == ", "}
        closed = False  # whether the text so far ends with protected text that a word must not touch
        before, right, sides = "", "", self._sides()  # the code before, and what touches it in the source
        for begin, code in (*self._codes_in(translation), (len(translation), "")):
            between, kept = translation[end:begin], left[code] > 0
            words = between.split()
            word = words[0] if words else code
            touches = before in opening or (before, _edge(word, 0)) in glued or _touches(right, word[:1])
            if between[:1] == " " and touches:
                parts.append(_GAP)
                between = between[1:]
            left_side, right = sides[code][-left[code]] if kept and code in sides else ("", "")
            glues = code in closing or (
                words and ((_edge(words[-1], -1), code) in glued or _touches(left_side, words[-1][-1]))
            )
            joins = bool(words) and (glues or (code in opened and _OPENING.search(between)))
            gap = between[-1:] == " " and joins
            between = between[:-1] if gap else between
            if closed and between[:1].isalnum():
                parts.append(("", " "))
            parts.append((between, ", " if between == " " and (before, code) in listed else between))
            closed = closed and not between
            if gap:
                parts.append(_GAP)
            if kept:
                closed = code not in joined
                if closed and between[-1:].isalnum():
                    parts.append(("", " "))
            parts.append((code, self.texts[code] if kept else ""))
            left[code] -= 1
            end, before = begin + len(code), code
        for code in self.texts:
            for _ in range(left[code]):
                parts.append(("", " " if any(text for _, text in parts) else ""))
                parts.append(("", self.texts[code]))
        return Masked(parts, self.texts)

    def _glued(self) -> set[tuple[str, str]]:
        """Returns the codes, and words beside them, that only `masked` has a space between."""
        parts = [part for part in self.parts if part[0]]
        gaps = (k for k, part in enumerate(parts) if part == _GAP)
        sides = ((parts[k - 1][0].split(), parts[k + 1][0].split()) for k in gaps)
        return {(_edge(before[-1], -1), _edge(after[0], 0)) for before, after in sides if before and after}

    def _sides(self) -> dict[str, list[tuple[str, str]]]:
        """Returns the characters before and after each occurrence of markup, but for spaces that only `masked` has."""
        sides: dict[str, list[tuple[str, str]]] = {}
        parts = [("", ""), *(part for part in self.parts if part[0] and part != _GAP), ("", "")]
        for (before, _), (code, text), (after, _) in zip(parts, parts[1:], parts[2:], strict=False):
            if code != text and _MARKUP.fullmatch(text):
                sides.setdefault(code, []).append((before[-1:], after[:1]))
        return sides

    def _joined(self) -> set[str]:
        """Returns the codes whose text touches a letter or digit in the source."""
        joined, place, whole = set(), 0, self.text
        for code, text in self.parts:
            end = place + len(text)
            if code != text and (whole[max(0, place - 1) : place].isalnum() or whole[end : end + 1].isalnum()):
                joined.add(code)
            place = end
        return joined

    def code_words(self) -> dict[str, list[int]]:
        """Returns the words of `masked` that have each code."""
        words: dict[str, list[int]] = {}
        for k, word in enumerate(self.masked.split()):
            for _, code in self._codes_in(word):
                words.setdefault(code, []).append(k)
        return words

    def _codes_in(self, text: str) -> Iterator[tuple[int, str]]:
        """Yields the codes in a text and where they are. Other digits may follow one."""
        for match in _CODE.finditer(text):
            code = match.group()
            while code and code not in self.texts:
                code = code[:-1]
            if code:
                yield match.start(), code

    def words(self) -> list[int]:
        """Returns, for each word of `masked`, the word of `text` that it stands for or is a part of."""
        begins = [match.start() for match in re.finditer(r"\S+", self.text)]
        places, there = list[int](), 0  # for each character of `masked`, where it is in `text`
        for code, text in self.parts:
            places += [there + (i if code == text else 0) for i in range(len(code))]
            there += len(text)
        words = (bisect_right(begins, places[match.start()]) - 1 for match in re.finditer(r"\S+", self.masked))
        return [max(0, word) for word in words]
