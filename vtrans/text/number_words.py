"""The words with which languages write numbers and times of day."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from vtrans.text.languages import Languages, base

NOTHING = r"(?!)"  # an expression that matches nothing
NOON = 12
HALF_DAY = NOON * 60  # minutes
_HOURS = range(25)
MILLION, BILLION, TRILLION = Decimal(10**6), Decimal(10**9), Decimal(10**12)
SUMS = {"k": Decimal(1000), "m": MILLION, "b": BILLION, "t": TRILLION}
"""Letters by which a sum of money before them is multiplied: $5m."""
CURRENCY = ("$", "\u20ac", "\u00a3", "\u00a5")
LONGEST_BEFORE = 20  # characters of words before a number

Value = Decimal | str
"""A number, or a time of day on a dial of twelve hours, such as `2:30`."""

DIGITS = re.compile(r"\d+")
CLOCK = re.compile(r"(\d{1,2})[:.](\d\d)")
_RANGE = r" (?:to|until|and|or|bis|und|oder) \d{1,2}(?:[:.]\d\d)?"


@dataclass(frozen=True)
class Words:
    """How a language writes numbers in words."""

    values: dict[str, Decimal]
    names: dict[str, Decimal]
    """Words that stand for a number by themselves, such as short names of months."""
    months: tuple[str, ...]
    days: tuple[str, ...]
    """How a day of a month may be written."""
    scales: dict[str, Decimal]
    """Words by which the number before them is multiplied."""
    written: dict[Decimal, str]
    """How such words are written after a number in digits."""
    glue: str
    """What may stand between the words of a number: a regular expression, like all that follow."""
    ending: str
    """What may follow the last word, as in ordinals."""
    negative: str
    """What stands before a negative number."""
    clock: dict[str, int]
    """Words before an hour, and the minutes that they add to it."""
    hours: tuple[str, ...]
    """The hours after such words, from one to twelve."""
    hour: str
    """What follows an hour."""
    halves: tuple[str, str]
    """What follows an hour before noon and one after noon; empty if hours count to 24."""
    late: str
    """What says in words that a time is after noon, if hours count to 24."""
    comma: bool
    """Whether a comma, and not a point, stands before decimals."""

    @cached_property
    def named(self) -> dict[str, Decimal]:
        """The words that stand for a number by themselves, with the months."""
        return self.names | {month.lower(): Decimal(k) for k, month in enumerate(self.months, 1)}

    @cached_property
    def _date(self) -> re.Pattern[str]:
        """A month beside a day or a year."""
        month, day = f"({'|'.join(self.months)})", r"(?<!\d)(\d\d?)"
        return re.compile(rf"{day}(?:st|nd|rd|th|\.)?\s(?:of\s)?{month}(?!\w)|(?<!\w){month}\s(?:{day}(?!\d)|(?=\d))")

    @cached_property
    def word(self) -> re.Pattern[str]:
        """A word of a number."""
        return re.compile(_any({**self.values, **self.scales}))

    @cached_property
    def number(self) -> re.Pattern[str]:
        """A number: its words without their ending, or its name."""
        word = self.word.pattern
        words = rf"({word}(?:(?:{self.glue}){word})*)(?:{self.ending})?"
        return re.compile(rf"(?<![^\W_])(?:{words}|({_any(self.named)}))(?![^\W_])")

    @cached_property
    def scaled(self) -> re.Pattern[str]:
        """What multiplies a number in digits."""
        return re.compile(rf"[ \u00a0-]?({_any(self.scales)})(?:{self.ending})?(?![^\W_])")

    @cached_property
    def before(self) -> re.Pattern[str]:
        """What changes a number after it."""
        return re.compile(rf"(?<!\w)(?:({_any(self.clock)})|(?:{self.negative}))\s$")

    @cached_property
    def half_after(self) -> re.Pattern[str]:
        """What says whether an hour before it is before or after noon."""
        early, late = (form or NOTHING for form in self.halves)
        return re.compile(rf"\s?(?:{early}|(?P<late>{late}))")

    @cached_property
    def after_hour(self) -> re.Pattern[str]:
        """What makes a number an hour, and the minutes after it. An hour may also begin a range: 8 to 10 pm."""
        return re.compile(rf"(?:{_RANGE})?\s?(?:{self.hour})(?:\s(\d\d)(?!\d))?")

    def dated(self, text: str) -> Iterator[tuple[int, int]]:
        """Yields where the months beside a day or a year begin, and such days, and which months they are."""
        for match in self._date.finditer(text):
            month = self.months.index(match[2] or match[3]) + 1
            yield from ((match.start(group), month) for group in range(1, 5) if match[group])

    def scale(self, small: str, begin: int, end: int) -> tuple[Decimal, int] | None:
        """Returns what multiplies the number in digits that stands there, and where it begins."""
        if match := self.scaled.match(small, end):
            return self.scales[match[1]], match.start(1)
        letter, after = small[end : end + 1], small[end + 1 : end + 2]
        is_sum = letter in SUMS and small[:begin].endswith(CURRENCY) and not after.isalnum()
        return (SUMS[letter], end) if is_sum else None

    def half(self, number: str, small: str, end: int, *, may_be_late: bool) -> bool | None:
        """Returns whether a time of day in digits, which ends there, is one after noon; None if that is not said or the
        number is no time."""
        is_time = CLOCK.fullmatch(number) or (DIGITS.fullmatch(number) and self.after_hour.match(small, end))
        if not is_time or len(number) > len("23:59") or int(DIGITS.findall(number)[0]) not in _HOURS[:-1]:
            return None
        if said := self.half_after.match(small, end):
            return said["late"] is not None
        hour, counts_to_24 = int(DIGITS.findall(number)[0]), bool(self.late)
        if hour > NOON or (hour == NOON and counts_to_24):
            return True
        return False if counts_to_24 and not may_be_late else None

    def spoken(self, time: str) -> Iterator[str]:
        """Yields how a time on a dial may be said, with the words of `clock`."""
        hour, minute = map(int, time.split(":"))
        for words, added in self.clock.items():
            if (minute - added) % 60 == 0:
                said = f"{words} {self.hours[(hour + (added < 0) - 1) % NOON]}"
                yield from (said, said.capitalize())

    def value(self, match: re.Match[str]) -> Decimal:
        """Returns the value of what matches `number`."""
        if match[2]:
            return self.named[match[2]]
        total = current = Decimal(0)
        for word in self.word.findall(match[1]):
            if (scale := self.scales.get(word)) is None:
                value = self.values[word]
                year = current % 100 >= 10 and value >= 10  # nineteen eighty-four
                one_half = current == 1 and value < 1
                current = value if one_half else current * 100 + value if year else current + value
            elif scale == 100:
                current = max(Decimal(1), current) * 100
            else:
                total += max(Decimal(1), current) * scale
                current = Decimal(0)
        return total + current

    def meanings(self, values: Iterable[Value], small: str, begin: int, end: int) -> set[Value]:
        """Returns the meanings of a number with these values between what stands before and after it."""
        found = set(values)
        hours = [value for value in found if isinstance(value, Decimal) and value in _HOURS]
        before = self.before.search(small[max(0, begin - LONGEST_BEFORE) : begin])
        if before and before[1]:
            return found | {dial(60 * int(hour) + self.clock[before[1]]) for hour in hours}
        if before:
            return {-value for value in found if isinstance(value, Decimal)}
        if after := self.after_hour.match(small, end):
            found |= {dial(60 * int(hour) + int(after[1] or 0)) for hour in hours}
        return found


def _any(words: Iterable[str]) -> str:
    return f"(?:{'|'.join(sorted(words, key=len, reverse=True))})"


def _values(words: str) -> dict[str, Decimal]:
    """Returns the values of words such as `one|first=1`."""
    pairs = (entry.split("=") for entry in words.split())
    return {word: Decimal(value) for alternatives, value in pairs for word in alternatives.split("|")}


SWAPPED_MARKS = str.maketrans(".,", ",.")
"""Writes a number of a language with decimal points as one with decimal commas does, and the other way round."""
WORDS = {
    "en": Words(
        _values(
            "zero=0 one|first=1 two|second=2 three|third=3 four=4 five|fif=5 six=6 seven=7 eight|eigh=8 nine|nin=9 "
            "ten=10 eleven=11 twelve|twelf=12 thirteen=13 fourteen=14 fifteen=15 sixteen=16 seventeen=17 "
            "eighteen=18 nineteen=19 twenty|twentie=20 thirty|thirtie=30 forty|fortie=40 fifty|fiftie=50 "
            "sixty|sixtie=60 seventy|seventie=70 eighty|eightie=80 ninety|ninetie=90 half=0.5 dozen=12"
        ),
        _values("noon|midnight=12 jan=1 feb=2 mar=3 apr=4 jun=6 jul=7 aug=8 sept|sep=9 oct=10 nov=11 dec=12"),
        (
            *("January", "February", "March", "April", "May", "June"),
            *("July", "August", "September", "October", "November", "December"),
        ),
        ("{day} {month}", "{month} {day}"),
        _values("hundred=100 thousand=1000 million|mln=1000000 billion|bn=1000000000 trillion|tn=1000000000000"),
        {MILLION: "million", BILLION: "billion", TRILLION: "trillion"},
        r"-| and | ",
        "ths?|s",
        "minus|negative",
        {"half past": 30, "quarter past": 15, "quarter after": 15, "quarter to": -15},
        ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
        r"a\.?m\b|p\.?m\b|o['\u2019]clock|hours?\b",
        (r"a\.?m\b", r"p\.?m\b"),
        "",
        comma=False,
    ),
    "de": Words(
        _values(
            "null=0 ein|eins|ers=1 zwei|zwo=2 drei|drit=3 vier=4 fünf=5 sechs=6 sieben|sieb=7 acht|ach=8 neun=9 "
            "zehn=10 elf=11 zwölf=12 dreizehn=13 vierzehn=14 fünfzehn=15 sechzehn=16 siebzehn=17 achtzehn=18 "
            "neunzehn=19 zwanzig=20 dreißig|dreissig=30 vierzig=40 fünfzig=50 sechzig=60 siebzig=70 achtzig=80 "
            "neunzig=90 halbe=0.5 dutzend=12"
        ),
        _values(
            "mittag|mitternacht=12 jänner|jan=1 feb=2 mär=3 apr=4 jun=6 jul=7 aug=8 sept|sep=9 okt=10 nov=11 dez=12"
        ),
        (
            *("Januar", "Februar", "März", "April", "Mai", "Juni"),
            *("Juli", "August", "September", "Oktober", "November", "Dezember"),
        ),
        ("{day}. {month}",),
        _values("hundert=100 tausend|tsd=1000 million|mio=1000000 milliarde|mrd|bn=1000000000 billion=1000000000000"),
        {MILLION: "Millionen", BILLION: "Milliarden", TRILLION: "Billionen"},
        r"und|(?:e[nrs]?)? (?=mi|mrd|bill|tau|tsd|hun)|",
        "s?te[nmrs]?|e[nmrs]?|[nrsm]",
        "minus",
        {"halb": -30, "viertel nach": 15, "viertel vor": -15, "dreiviertel": -15, "drei viertel": -15},
        ("eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"),
        r"uhr\b|h\b",
        ("", ""),
        r"(?:(?<!vor)mittag|abend|nacht)s?\b",
        comma=True,
    ),
}


def swaps_marks(languages: Languages) -> bool:
    """Returns whether one language is known to have decimal points and the other decimal commas."""
    src, tgt = (WORDS.get(base(code)) for code in languages)
    return src is not None and tgt is not None and src.comma != tgt.comma


def spelled(word: str) -> set[Decimal]:
    """Returns the numbers that a word is, in any language of `WORDS`."""
    found = ((words, words.number.fullmatch(word.lower())) for words in WORDS.values())
    return {words.value(match) for words, match in found if match}


def dial(minutes: int) -> str:
    """Returns a time of day on a dial of twelve hours."""
    return "{}:{:02}".format(*divmod(minutes % HALF_DAY, 60))
