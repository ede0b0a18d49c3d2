"""The numbers of a text, and whether a translation keeps the numbers of its source.

Only digits are compared, in any script and with any marks between thousands and before decimals. A number is also kept
if it is

- an hour twelve hours later or earlier (`2:30 pm`, `14:30`);
- written with a word for thousands or more in place of zeros (`3 million`, `3,000,000`);
- written in numerals with a numeric value in Unicode, such as Chinese numerals;
- at most LARGEST_WORD, or one digit before zeros, and no number takes its place: the other side may spell it out.

A number of the translation is invented if the source lacks its digits, and repeated if the source contains it less
often. This module knows no words of any language.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, replace

import regex

LARGEST_WORD = 12
FEWEST_ZEROS = 2  # minimum number of zeros that a word such as `thousand` stands for

# A space separates only thousands, so that it does not join a year to the next number.
_NUMBER = re.compile(
    r"\d+(?:(?:[.,:\uff0e\uff1a/'\u2019\u060c\u066b\u066c\u00a0\u202f-]|(?<!\d{4})[ ](?=\d{3}(?!\d))"
    r"|(?<=[\uff10-\uff19])[\u3001\uff0c](?=[\uff10-\uff19]{3}(?!\d)))\d+)*"
)
_RUN = re.compile(r"\d+")
_PART = re.compile(r"(?<!\d)\d{1,3}(?:\D\d{2,3}){0,6}\D\d{3}(?!\d)|\d+")  # thousands, or one run of digits
_DECIMAL = re.compile(rf"({_PART.pattern})([.,\u060c])(\d+)")
_MARKS = str.maketrans("\u066b\u066c\uff0e", ".,.")
_NUMERALS = regex.compile(r"\p{Numeric_Type=Numeric}{1,30}")


@dataclass(frozen=True)
class Number:
    """A number as written in a text, and its runs of digits in ASCII."""

    text: str
    runs: tuple[str, ...]
    is_decimal: bool = False
    """Whether it certainly has decimals: it cannot be thousands, a time or a date."""

    def written(self) -> Iterator[tuple[str, ...]]:
        """Yields the runs of digits that a translation may use: the same, all in one, or the hour in the other half of
        the day."""
        yield self.runs
        yield ("".join(self.runs),)
        hour, *minutes = self.runs
        if _is_hour(hour) and [len(run) for run in minutes] in ([], [2]):
            yield (str(int(hour) + (-12 if int(hour) > 12 else 12)), *minutes)

    @property
    def digits(self) -> str:
        """The digits, with a point before decimals."""
        return f"{''.join(self.runs[:-1])}.{self.runs[-1]}" if self.is_decimal else "".join(self.runs)

    def as_decimal(self, known: Set[str]) -> Number:
        """Returns the number, marked as a decimal if its `digits` are in `known`."""
        decimal = replace(self, is_decimal=True)
        return decimal if len(self.runs) > 1 and decimal.digits in known else self

    def parts(self) -> Iterator[Number]:
        """Returns the parts of the number that are compared: thousands with their marks, or each run of digits. A
        decimal is a single part."""
        return iter([self]) if self.is_decimal else map(_number, _PART.findall(self.text))


@dataclass(frozen=True)
class Difference:
    """Differences between the numbers of a source and of its translation."""

    missing: tuple[str, ...] = ()
    """Numbers of the source, or parts of them, that the translation lacks; one entry per missing occurrence."""
    invented: tuple[str, ...] = ()
    """Digits in the translation that the source lacks."""
    repeated: tuple[str, ...] = ()
    """Digits in the translation that occur less often in the source."""
    kept: tuple[str, ...] = ()
    """Numbers of the source whose digits the translation contains."""

    def __len__(self) -> int:
        return len(self.missing) + len(self.invented) + len(self.repeated)


def numbers_of(text: str) -> list[Number]:
    """Returns the numbers that a text writes in digits, in order."""
    found = _NUMBER.finditer(text)
    return [replace(_number(n[0]), is_decimal=_is_decimal(n[0], text[n.end() : n.end() + 1])) for n in found]


def in_ascii(text: str) -> str:
    """Returns a text with ASCII digits and marks in place of others."""
    if text.isascii():
        return text
    return "".join(str(unicodedata.digit(c)) if c.isdecimal() else c for c in text.translate(_MARKS))


def compare(src: str, tgt: str, asked: str = "") -> Difference:
    """Compares the numbers of a source and of its translation. Numbers in the text `asked` are never invented or
    repeated."""
    sides = numbers_of(src), numbers_of(tgt)
    decimals = {number.digits for side in sides for number in side if number.is_decimal}
    numbers, others = ([number.as_decimal(decimals) for number in side] for side in sides)
    written = {part.digits: part.text for number in numbers for part in number.parts()}
    given, found = _digits(numbers), _digits(others)
    missing, free = given - found, found - given
    kept = tuple(number.text for number in numbers if not missing.keys() & _digits([number]))
    free -= _digits(numbers_of(asked))
    for differing, text in ((missing, tgt), (free, src)):
        numerals = set(map(_value, _NUMERALS.findall(text)))
        for digits in [digits for digits in differing if digits.rstrip("0") in numerals]:
            del differing[digits]
    # 05 is also 5, and 14 also 2 o'clock.
    hours = {int(digits) % 12: digits for digits in free if _is_hour(digits)}
    for hour in filter(_is_hour, list(missing)):
        if other := hours.pop(int(hour) % 12, None):
            del missing[hour], free[other]
    lost, extra = list(missing.elements()), list(free)
    if not (lost and extra):  # otherwise one replaces the other
        lost = [digits for digits in lost if not _may_be_word(digits)]
        extra = [digits for digits in extra if not _may_be_word(digits)]
    elif _differ_in_zeros("".join(lost), "".join(free.elements())):
        lost, extra = [], []
    invented = tuple(digits for digits in extra if digits not in given)
    repeated = tuple(digits for digits in extra if digits in given)
    return Difference(tuple(written[digits] for digits in lost), invented, repeated, kept)


def _number(text: str) -> Number:
    return Number(text, tuple(_RUN.findall(in_ascii(text))))


def _digits(numbers: Iterable[Number]) -> Counter[str]:
    """Counts the parts of numbers by their digits."""
    return Counter(part.digits for number in numbers for part in number.parts())


def _value(numerals: str) -> str:
    """Returns the digits of a number in numerals, without the zeros at its end: `35` for \u4e09\u5341\u4e94."""
    whole = part = digits = 0
    for value in (int(unicodedata.numeric(numeral, 0)) for numeral in numerals):
        if value < 10:
            digits = 10 * digits + value
        elif value < 10_000:
            part, digits = part + (digits or 1) * value, 0
        else:
            whole, part, digits = whole + (part + digits or 1) * value, 0, 0
    return str(whole + part + digits).rstrip("0")


def _is_decimal(number: str, following: str) -> bool:
    """Returns whether a number has decimals, given the next character: `17.4`, but not `1.500`, `15.30` or `17.4.`."""
    match = _DECIMAL.fullmatch(in_ascii(number))
    if not match or _PART.fullmatch(number):
        return False
    whole, mark, decimals = match.groups()
    may_be_time = _is_hour(whole) and len(decimals) == 2 and decimals < "60"
    may_be_date = following == "." and len(whole) < 3 and int(whole) <= 31 and int(decimals) <= 12
    return mark not in whole and not may_be_time and not may_be_date


def _is_hour(digits: str) -> bool:
    return digits.isdecimal() and len(digits) < 3 and int(digits) <= 24


def _may_be_word(digits: str) -> bool:
    return len(digits.rstrip("0")) < 2 or (len(digits) == 2 and int(digits) <= LARGEST_WORD)


def _differ_in_zeros(one: str, other: str) -> bool:
    """Returns whether two numbers differ only in zeros that a word may stand for."""
    shorter, longer = sorted((one.replace(".", ""), other.replace(".", "")), key=len)
    are_equal = shorter.rstrip("0") == longer.rstrip("0")
    return are_equal and len(shorter) < 4 and len(longer) - len(shorter) >= FEWEST_ZEROS
