"""The numbers of a text, and whether a translation keeps the numbers of its source.

Only digits are compared, in any script and with any marks between thousands and before decimals. A number is also kept
if it is

- a time of day twelve hours later or earlier (`2:30 pm`, `14:30`);
- written with a word for thousands or more in place of zeros (`3 million`, `3,000,000`);
- at most LARGEST_WORD and written as a word, so only where the other side has no number left to take its place.

A number of the translation is invented if the source has none with its digits, and repeated if the source has it less
often. No word of any language is known here.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Set
from dataclasses import dataclass

import regex

LARGEST_WORD = 12
FEWEST_ZEROS = 2  # that a word such as `thousand` stands for

# A blank separates thousands only, so not a year from the number after it.
_NUMBER = re.compile(r"\d+(?:(?:[.,:\uff1a/'\u2019\u066b\u066c\u00a0\u202f-]|(?<!\d{4})[ ](?=\d{3}(?!\d)))\d+)*")
_RUN = re.compile(r"\d+")
_ARABIC_MARKS = str.maketrans("\u066b\u066c", ".,")
_NUMERALS = regex.compile(r"[\p{Numeric_Type=Numeric}]+")  # such as \u4e09\u5341 and \u00bd


@dataclass(frozen=True, eq=False)
class Number:
    """A number of a text: as it is written, and its runs of digits, which are ASCII."""

    text: str
    runs: tuple[str, ...]
    words: bool | None = None
    """Whether many writers use words for it. None: if it is small."""

    @property
    def digits(self) -> str:
        return "".join(self.runs)

    @property
    def decimals(self) -> str:
        """The digits after the last mark, unless they may be thousands."""
        return self.runs[-1] if len(self.runs) > 1 and len(self.runs[-1]) != 3 else ""

    @property
    def may_be_word(self) -> bool:
        is_small = len(self.digits) < 3 and int(self.digits) <= LARGEST_WORD
        return is_small if self.words is None else self.words

    def written(self) -> Iterator[tuple[str, ...]]:
        """Yields the runs of digits with which a translation may write it: with other marks, or another half of the
        day."""
        yield self.runs
        yield (self.digits,)
        if _on_clock(self) is not None:
            hour, *minutes = self.runs
            yield (str(int(hour) + (-12 if int(hour) > 12 else 12)), *minutes)

    def parts(self) -> list[Number]:
        """Returns a number for each run of digits. One with marks of thousands stays whole."""
        if len(self.runs) == 1 or len(self.runs[-1]) == 3:
            return [self]
        is_decimal = len(self.runs) == 2 and self.text[len(self.runs[0])] in ".,"
        words = True if _on_clock(self) is not None else False if is_decimal else None
        return [Number(run, (run,), words) for run in self.runs]


@dataclass(frozen=True)
class Difference:
    """How the numbers of a translation differ from the numbers of its source."""

    missing: tuple[str, ...] = ()
    """Numbers of the source that the translation lacks, each as often as it lacks it."""
    invented: tuple[str, ...] = ()
    """Numbers of the translation that the source lacks."""
    repeated: tuple[str, ...] = ()
    """Numbers of the translation that the source has less often."""
    kept: tuple[str, ...] = ()
    """Numbers of the source that the translation has with the same digits."""

    def __len__(self) -> int:
        return len(self.missing) + len(self.invented) + len(self.repeated)


def numbers_of(text: str) -> list[Number]:
    """Returns the numbers of a text in digits, in their order."""
    if not any(map(str.isdecimal, text)):
        return []
    return [Number(match[0], tuple(map(in_ascii, _RUN.findall(match[0])))) for match in _NUMBER.finditer(text)]


def in_ascii(text: str) -> str:
    """Returns a text with ASCII digits in place of others."""
    if text.isascii():
        return text
    return "".join(str(unicodedata.digit(c)) if c.isdecimal() else c for c in text.translate(_ARABIC_MARKS))


def compare(src: str, tgt: str, asked: str = "") -> Difference:
    """Compares the numbers of a source with the numbers of its translation, which may also have those of the text
    `asked`.

    Each number of the source takes one of the translation: first one with the same digits, then one that is the same
    time of day, and then each of its runs of digits does, as in dates.
    """
    given, found = numbers_of(src), numbers_of(tgt)
    if not given and not found:
        return Difference()
    left, free = _unmatched(given, found, lambda number: (number.digits, number.decimals))
    kept = [number.text for number in given if number not in left]
    left, free = _unmatched(left, free, _on_clock)
    left, free = _unmatched(left, free, _without_zeros, _differ_in_zeros)
    left, free = ([part for number in side for part in number.parts()] for side in (left, free))
    left, free = _unmatched(left, free, _value)
    left, free = _unmatched(left, free, _on_clock)
    left, free = _unmatched(left, free, _without_zeros, _differ_in_zeros)
    _, free = _unmatched((part for number in numbers_of(asked) for part in number.parts()), free, _value)
    known = {part.digits for number in given for part in number.parts()}
    if not (left and free):  # otherwise one replaces the other
        left = [number for number in left if not number.may_be_word][len(_NUMERALS.findall(tgt)) :]
        free = [number for number in free if not (number.may_be_word or _is_round(number, known))]
    invented = dict.fromkeys(number.text for number in free if number.digits not in known)
    repeated = dict.fromkeys(number.text for number in free if number.digits in known)
    return Difference(tuple(number.text for number in left), tuple(invented), tuple(repeated), tuple(kept))


def _is_round(number: Number, known: Set[str]) -> bool:
    """Returns whether the source may have a word for a number that it does not have in digits, such as fifty."""
    return len(number.digits.rstrip("0")) < 2 and number.digits not in known


def _on_clock(number: Number) -> Hashable:
    """Returns a time on a clock of twelve hours; None for other numbers."""
    if len(number.runs) > 2 or len(number.runs[0]) > 2 or int(number.runs[0]) > 24:
        return None
    minutes = number.runs[1] if len(number.runs) > 1 else "00"
    return (int(number.runs[0]) % 12, minutes) if len(minutes) == 2 and minutes < "60" else None


def _value(number: Number) -> Hashable:
    """Returns the digits of a number; 05 of a date is 5."""
    return number.digits.removeprefix("0") if len(number.digits) == 2 else number.digits


def _without_zeros(number: Number) -> Hashable:
    return number.digits.rstrip("0") or None


def _differ_in_zeros(number: Number, other: Number) -> bool:
    shorter, longer = sorted((number, other), key=lambda each: len(each.digits))
    may_have_word = len(shorter.digits) < 4 or bool(shorter.decimals)
    return may_have_word and len(longer.digits) - len(shorter.digits) >= FEWEST_ZEROS


def _unmatched(
    given: Iterable[Number],
    free: list[Number],
    key: Callable[[Number], Hashable],
    fits: Callable[[Number, Number], bool] = lambda number, other: True,
) -> tuple[list[Number], list[Number]]:
    """Lets each number take the first of the free ones with an equal key. Returns the numbers left on each side."""
    with_key: dict[Hashable, list[Number]] = defaultdict(list)
    for number in reversed(free):
        with_key[key(number)].append(number)
    left, taken = list[Number](), set[Number]()
    for number in given:
        others = with_key.get(own) if (own := key(number)) is not None else None
        if others and fits(number, others[-1]):
            taken.add(others.pop())
        else:
            left.append(number)
    return left, [number for number in free if number not in taken]
