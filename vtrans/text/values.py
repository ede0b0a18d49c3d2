"""The numbers of a text, and whether a translation keeps those of its source.

A number is kept if the translation has the same digits, or the same value in another form: with other separators, as a
word, an ordinal or a time of day, or with `million` in place of zeros. It is missing otherwise; so is a time in the
other half of the day (8 pm: 8 Uhr) or said wrongly in words (half past three: halb drei), a number in thousands with
separators that change its value (1,299.99: 1,299,99), and one that lost its `million` ($5m: 5 Dollar). A number of the
translation in digits is invented if nothing in the source has its value, and repeated if it is there more often than in
the source. A month beside a number must be there too. Words count in the languages of `WORDS`; elsewhere digits only.

In 1,036 lines with numbers of two news tests (WMT 2018 and 2019, English to German), no reference translation repeats a
number of its source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from vtrans.text.languages import Languages, base
from vtrans.text.number_words import CLOCK, DIGITS, MILLION, NOON, WORDS, Value, dial

LONGEST = 30  # digits of a number that has a value, besides its digits

_NUMBER = re.compile(r"\d+(?:(?:[.,:/'\u2019\u00a0\u202f-]|[ ](?=\d{3}(?!\d)))\d+)*")
_SIGN = re.compile(r"(?:^|[\s($\u20ac\u00a3])[-\u2212]$")
_GROUPED = re.compile(r"\d{1,3}(?:(?P<mark>[.,'\u2019\s])\d{3})(?:(?P=mark)\d{3})*(?:(?!(?P=mark))[.,](?P<rest>\d+))?")


@dataclass(frozen=True, eq=False)
class Amount:
    """A number of a text: as it is written, and what it may mean."""

    text: str
    runs: tuple[str, ...]
    """Its runs of digits; none for words."""
    values: frozenset[Value]
    late: bool | None = None
    """Whether a time of day is one after noon."""
    scale: Decimal = Decimal(1)
    """What a word after it multiplies it by."""
    month: int = 0
    """The month that it names beside a number, or whose day it is."""

    @property
    def dials(self) -> set[str]:
        """The times on a dial that it may be."""
        return {value for value in self.values if isinstance(value, str)}

    @property
    def time(self) -> str:
        """A time with minutes that words say, such as `3:30` for `half past three`; empty for other numbers."""
        said = [dial for dial in self.dials if not dial.endswith(":00")] if len(self.runs) < 2 else []
        return said[0] if said else ""

    @property
    def is_whole(self) -> bool:
        """Whether its runs of digits mean nothing apart, as those of a time of day or of a number in thousands."""
        return ":" in self.text or self.late is not None or bool(self.time) or self.is_grouped or self.scale != 1

    @property
    def is_grouped(self) -> bool:
        """Whether it has separators of thousands."""
        return _GROUPED.fullmatch(self.text) is not None

    def to_24_hours(self) -> str:
        """Returns a time of day as it is written where hours count to 24; an empty string for other numbers."""
        if self.late is None:
            return ""
        hour, *minutes = self.runs
        return ":".join([str(int(hour) % NOON + NOON * self.late), *minutes])

    def written(self) -> Iterator[tuple[str, ...]]:
        """Yields the runs of digits with which a translation may write it: its own, and others that have its value."""
        yield self.runs
        for value in self.values:
            if isinstance(value, str):
                hour, minute = value.split(":")
                yield hour, minute
                yield str(int(hour) + NOON), minute
            elif value == value.to_integral_value() and abs(value) < MILLION:  # longer ones have marks
                yield (str(abs(int(value))),)

    def alone(self) -> list[Amount]:
        """Returns an amount for each run of digits."""
        if len(self.runs) < 2:
            return [self]
        return [Amount(self.text, (run,), frozenset({Decimal(run)})) for run in self.runs]


@dataclass(frozen=True)
class Difference:
    """How the numbers of a translation differ from those of its source."""

    missing: tuple[str, ...] = ()
    """Numbers of the source in digits, times of day in words and months beside a number that the translation lacks."""
    invented: tuple[str, ...] = ()
    """Numbers of the translation in digits that nothing in the source explains."""
    repeated: tuple[str, ...] = ()
    """Numbers of the translation in digits that are there more often than in the source."""
    kept: tuple[str, ...] = ()
    """Numbers of the source that the translation has with the same digits."""

    def __len__(self) -> int:
        return sum(self.rank)

    @property
    def rank(self) -> tuple[int, int]:
        """How bad it is: smaller is better."""
        return len(self.missing) + len(self.invented), len(self.repeated)


def compare(src: str, tgt: str, languages: Languages | None = None) -> Difference:
    """Compares the numbers of a source with those of its translation.

    Each number of the source takes one of the translation: one with the same digits if there is one, else one with the
    same value, else one for each of its runs of digits, as in dates.
    """
    src_lang, tgt_lang = languages or ("", "")
    says_time = base(tgt_lang) in WORDS and _says_time(src, src_lang)
    if not says_time and not any(map(str.isdigit, src + tgt)):
        return Difference()
    scales = base(src_lang) in WORDS and base(tgt_lang) in WORDS
    given, free = list(amounts(src, src_lang, scales=scales)), list(amounts(tgt, tgt_lang, scales=scales))
    given.sort(key=lambda amount: amount.late is not None)  # 4 of `4 pm on the 4th floor` is the floor's
    left = _untaken(given, free, _same_digits)
    kept = [amount.text for amount in given if amount not in left]
    left = _untaken(left, free, _same_words)  # the name of a month keeps that month, not a three
    left = _untaken(left, free, _same_value)
    free = [part for amount in free for part in amount.alone()]
    parts = [part for amount in left for part in ([amount] if amount.is_whole else amount.alone())]
    left = _untaken(parts, free, _same_value)
    _untaken((part for amount in left for part in (amount, *amount.alone())), free, _any_same_value)
    explained = {value for amount in given for part in (amount, *amount.alone()) for value in part.values}
    others = [part for part in free if part.runs]
    missing = dict.fromkeys(part.text for part in left if part.runs or part.month or (part.time and says_time))
    invented = dict.fromkeys(part.text for part in others if explained.isdisjoint(part.values))
    repeated = dict.fromkeys(part.text for part in others if part.text not in invented)
    return Difference(tuple(missing), tuple(invented), tuple(repeated), tuple(kept))


def _says_time(text: str, language: str) -> bool:
    """Returns whether a text may have a time of day in words, such as `half past three`."""
    words, small = WORDS.get(base(language)), text.lower()
    return words is not None and any(phrase in small for phrase in words.clock)


def _same_digits(amount: Amount, other: Amount) -> bool:
    if not amount.runs or sorted(amount.runs) != sorted(other.runs):
        return False
    if _sign(amount) != _sign(other) or amount.scale != other.scale:
        return False
    return _same_value(amount, other) if amount.is_grouped else _may_be_same_time(amount, other)


def _same_kind(amount: Amount, other: Amount) -> bool:
    return bool(amount.dials) == bool(other.dials)


def _same_words(amount: Amount, other: Amount) -> bool:
    return not amount.runs and not other.runs and _same_value(amount, other)


def _same_value(amount: Amount, other: Amount) -> bool:
    return _any_same_value(amount, other) and _may_be_same_time(amount, other)


def _any_same_value(amount: Amount, other: Amount) -> bool:
    return not amount.values.isdisjoint(other.values)


def _may_be_same_time(amount: Amount, other: Amount) -> bool:
    differ = amount.dials and other.dials and amount.dials.isdisjoint(other.dials)
    return not differ and (None in (amount.late, other.late) or amount.late == other.late)


def _sign(amount: Amount) -> bool:
    return amount.text.startswith(("-", "\u2212"))


def _untaken(given: Iterable[Amount], free: list[Amount], same: Callable[[Amount, Amount], bool]) -> list[Amount]:
    """Lets each amount remove the first that is the same from the free ones. Returns those that find none. A time of
    day takes another one, and any other number no time, unless nothing else is left: `3 pm`, `£15`: `15 Uhr`, `15 £`.
    """
    left = list(given)
    for any_kind in (False, True):
        asking, left, failed = left, [], set[object]()
        for amount in asking:
            key = (amount.text, amount.values, amount.late, amount.scale)  # what found none finds none later
            fits = (k for k, other in enumerate(free) if same(amount, other) if any_kind or _same_kind(amount, other))
            if key in failed or (found := next(fits, None)) is None:
                failed.add(key)
                left.append(amount)
            else:
                del free[found]
    return left


def amounts(text: str, language: str = "", *, scales: bool = True) -> Iterator[Amount]:
    """Yields the numbers of a text: those in digits, then those in words if the language has some in `WORDS`. The
    minutes in `17 Uhr 45` belong to its hour, and the word in `5 million` to its number, which may also mean 5 without
    `scales`, for a translation in whose language such words are not known."""
    small, words = text.lower(), WORDS.get(base(language))
    small = small if len(small) == len(text) else text  # some capitals have a longer small form
    may_be_late = bool(words and words.late and re.search(words.late, small))
    thousands = "" if not words else "." if words.comma else ","
    taken = set[int]()  # where a number begins that belongs to one before it
    months = dict(words.dated(text)) if words and scales else {}
    for match in _NUMBER.finditer(text):
        begin, end = match.span()
        if begin in taken:
            continue
        values, runs = set(_values_of(match[0], thousands)), DIGITS.findall(match[0])
        sign = text[begin - 1 : begin] if _SIGN.search(text[max(0, begin - 2) : begin]) else ""
        if sign:
            values = {-value for value in values if isinstance(value, Decimal)}
        elif words:
            values = words.meanings(values, small, begin, end)
            if len(runs) == 1 and (after := words.after_hour.match(small, end)) and after[1]:
                runs.append(after[1])
                taken.add(after.start(1))
        factor, word = (words and words.scale(small, begin, end)) or (Decimal(1), end)
        if factor != 1:
            taken.add(word)
            multiplied: set[Value] = {value * factor for value in values if isinstance(value, Decimal)}
            values, factor = (multiplied, factor) if scales else (values | multiplied, Decimal(1))
        late = words.half(match[0], small, end, may_be_late=may_be_late) if words and not sign else None
        yield Amount(sign + match[0], tuple(runs), frozenset(values), late, factor, months.get(begin, 0))
    if not words:
        return
    for match in words.number.finditer(small):
        if match.start() not in taken:
            values = words.meanings({words.value(match)}, small, *match.span())
            yield Amount(match[0], (), frozenset(values), month=months.get(match.start(), 0))


def _values_of(number: str, thousands: str) -> Iterator[Value]:
    """Yields what a number in digits may mean. `thousands` is the separator of thousands; if it is not known, a number
    such as 1.234 may have one or a decimal point."""
    runs = DIGITS.findall(number)
    if len(number) > LONGEST:
        return
    if clock := CLOCK.fullmatch(number):
        yield dial(60 * int(clock[1]) + int(clock[2]))
    if grouped := _GROUPED.fullmatch(number):
        rest = grouped["rest"]
        yield Decimal("".join(runs[:-1] if rest else runs) + "." + (rest or "0"))
    if len(runs) == 1:
        yield Decimal(number)
    elif len(runs) == 2 and (mark := number[len(runs[0])]) in ".," and not (mark == thousands and len(runs[1]) == 3):
        yield Decimal(".".join(runs))
    elif len(runs) == 2 and number[len(runs[0])] == "/" and int(runs[1]):
        yield Decimal(runs[0]) / Decimal(runs[1])
