"""The numbers of a text, and whether a translation keeps those of its source.

A number is kept if the translation has the same digits, or the same value in another form: with other separators, as a
word, an ordinal or a time of day, or with `million` in place of zeros. It is missing otherwise; so is a time in the
other half of the day (8 pm: 8 Uhr) or said wrongly in words (half past three: halb drei), a number in thousands with
separators that change its value (1,299.99: 1,299,99), and one that lost its `million` ($5m: 5 Dollar). A number of the
translation in digits is invented if nothing in the source has its value, and repeated if it is there more often than in
the source. Words count in the languages of `WORDS`; elsewhere digits only.

In 1,036 lines with numbers of two news tests (WMT 2018 and 2019, English to German), no reference translation repeats a
number of its source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
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
LONGEST_BEFORE = 20  # characters of words before a number
LONGEST = 30  # digits of a number that has a value, besides its digits

Value = Decimal | str
"""A number, or a time of day on a dial of twelve hours, such as `2:30`."""

_NUMBER = re.compile(r"\d+(?:(?:[.,:/'\u2019\u00a0\u202f-]|[ ](?=\d{3}(?!\d)))\d+)*")
_DIGITS = re.compile(r"\d+")
_RANGE = r" (?:to|until|and|or|bis|und|oder) \d{1,2}(?:[:.]\d\d)?"
CURRENCY = ("$", "\u20ac", "\u00a3", "\u00a5")
_SIGN = re.compile(r"(?:^|[\s($\u20ac\u00a3])[-\u2212]$")
_CLOCK = re.compile(r"(\d{1,2})[:.](\d\d)")
_GROUPED = re.compile(r"\d{1,3}(?:(?P<mark>[.,'\u2019\s])\d{3})(?:(?P=mark)\d{3})*(?:(?!(?P=mark))[.,](?P<rest>\d+))?")


@dataclass(frozen=True)
class Words:
    """How a language writes numbers in words."""

    values: dict[str, Decimal]
    names: dict[str, Decimal]
    """Words that stand for a number by themselves, such as months."""
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
    def word(self) -> re.Pattern[str]:
        """A word of a number."""
        return re.compile(_any({**self.values, **self.scales}))

    @cached_property
    def number(self) -> re.Pattern[str]:
        """A number: its words without their ending, or its name."""
        word = self.word.pattern
        words = rf"({word}(?:(?:{self.glue}){word})*)(?:{self.ending})?"
        return re.compile(rf"(?<![^\W_])(?:{words}|({_any(self.names)}))(?![^\W_])")

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
        is_time = _CLOCK.fullmatch(number) or (_DIGITS.fullmatch(number) and self.after_hour.match(small, end))
        if not is_time or len(number) > len("23:59") or int(_DIGITS.findall(number)[0]) not in _HOURS[:-1]:
            return None
        if said := self.half_after.match(small, end):
            return said["late"] is not None
        hour, counts_to_24 = int(_DIGITS.findall(number)[0]), bool(self.late)
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
            return self.names[match[2]]
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
            return found | {_dial(60 * int(hour) + self.clock[before[1]]) for hour in hours}
        if before:
            return {-value for value in found if isinstance(value, Decimal)}
        if after := self.after_hour.match(small, end):
            found |= {_dial(60 * int(hour) + int(after[1] or 0)) for hour in hours}
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
        _values(
            "noon|midnight=12 january|jan=1 february|feb=2 march|mar=3 april|apr=4 may=5 june|jun=6 july|jul=7 "
            "august|aug=8 september|sept|sep=9 october|oct=10 november|nov=11 december|dec=12"
        ),
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
            "mittag|mitternacht=12 januar|jänner|jan=1 februar|feb=2 märz|mär=3 april|apr=4 mai=5 juni|jun=6 "
            "juli|jul=7 august|aug=8 september|sept|sep=9 oktober|okt=10 november|nov=11 dezember|dez=12"
        ),
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
    """Numbers of the source in digits, and times of day in words, that the translation lacks."""
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
    missing = dict.fromkeys(part.text for part in left if part.runs or (part.time and says_time))
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
    """Lets each amount remove the first that is the same from the free ones. Returns those that find none."""
    left = []
    for amount in given:
        found = next((k for k, other in enumerate(free) if same(amount, other)), None)
        if found is None:
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
    for match in _NUMBER.finditer(text):
        begin, end = match.span()
        if begin in taken:
            continue
        values, runs = set(_values_of(match[0], thousands)), _DIGITS.findall(match[0])
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
        yield Amount(sign + match[0], tuple(runs), frozenset(values), late, factor)
    if not words:
        return
    for match in words.number.finditer(small):
        if match.start() not in taken:
            yield Amount(match[0], (), frozenset(words.meanings({words.value(match)}, small, *match.span())))


def spelled(word: str) -> set[Decimal]:
    """Returns the numbers that a word is, in any language of `WORDS`."""
    found = ((words, words.number.fullmatch(word.lower())) for words in WORDS.values())
    return {words.value(match) for words, match in found if match}


def _values_of(number: str, thousands: str) -> Iterator[Value]:
    """Yields what a number in digits may mean. `thousands` is the separator of thousands; if it is not known, a number
    such as 1.234 may have one or a decimal point."""
    runs = _DIGITS.findall(number)
    if len(number) > LONGEST:
        return
    if clock := _CLOCK.fullmatch(number):
        yield _dial(60 * int(clock[1]) + int(clock[2]))
    if grouped := _GROUPED.fullmatch(number):
        rest = grouped["rest"]
        yield Decimal("".join(runs[:-1] if rest else runs) + "." + (rest or "0"))
    if len(runs) == 1:
        yield Decimal(number)
    elif len(runs) == 2 and (mark := number[len(runs[0])]) in ".," and not (mark == thousands and len(runs[1]) == 3):
        yield Decimal(".".join(runs))
    elif len(runs) == 2 and number[len(runs[0])] == "/" and int(runs[1]):
        yield Decimal(runs[0]) / Decimal(runs[1])


def _dial(minutes: int) -> str:
    """Returns a time of day on a dial of twelve hours."""
    return "{}:{:02}".format(*divmod(minutes % HALF_DAY, 60))
