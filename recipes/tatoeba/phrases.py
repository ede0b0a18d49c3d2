"""Makes English and German pairs of ordinary words that Tatoeba lacks, with numbers, times, dates, prices and codes.

The templates are in `phrases.tsv`: English, a tab, and German, with slots such as <time>. A template with slots is
filled FILLS times, or as often as MORE says; the others are written PLAIN times, or SHORT times if they are short.
`<x>` and `<y>` become the codes by which vtrans represents text that it copies. The same templates give the same files.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

FILLS, PLAIN, SHORT = 8, 5, 40
SHORT_WORDS = 3
"""The most English words of a short template. What is typed first is short, and no other line teaches it."""
MORE = {
    "first": 80, "int2": 40, "time": 40, "clock": 40, "hours": 40, "day": 24, "price": 24, "int": 12, "org": 40,
    "label": 40, "said": 40,
}  # fmt: skip
"""How often a template with one of these slots is filled: they have many forms, which Tatoeba rarely has."""
SEED = 1

Filled = tuple[str, str]
"""The English and the German of a slot."""

Slot = Callable[[random.Random], Filled]
"""Draws a filler for a slot."""

SLOT = re.compile(r"<(\w+)>")
_BEFORE_VOWEL = re.compile(r"\b([Aa])(?= (?:8|11|18)\b)")
_TWO_FULL_STOPS = re.compile(r"(?<=\d)\.\.(?!\.)")

_TABLES = tomllib.loads(Path(__file__).with_name("phrases.toml").read_text("utf-8"))
CLOCK: list[list[str]] = _TABLES.pop("clock")
NAMES: dict[str, list[str]] = _TABLES.pop("names")
FIRST_WORDS: dict[str, list[str]] = _TABLES.pop("first_words")
WORDS: dict[str, dict[str, str]] = _TABLES


def same(value: Callable[[random.Random], object]) -> Slot:
    """Returns what fills a slot with the same text in both languages."""
    return lambda numbers: (str(text := value(numbers)), str(text))


def one_of(table: str) -> Slot:
    """Returns what fills a slot with the words of a table."""
    pairs = list(WORDS[table].items())
    return lambda numbers: numbers.choice(pairs)


first_name = same(lambda numbers: numbers.choice(NAMES["first"]))
name = same(lambda numbers: f"{numbers.choice(NAMES['first'])} {numbers.choice(NAMES['last'])}")
small = same(lambda numbers: numbers.randrange(2, 31))
year = same(lambda numbers: numbers.randrange(1500, 2040))
month = one_of("months")


def integer(numbers: random.Random) -> Filled:
    """A number of one to seven digits; from 1,000 on mostly with separators."""
    value = numbers.randrange(2, 10 ** numbers.choice([1, 2, 3, 4, 4, 5, 5, 6, 7, 8]) + 8)
    if value > 100 and numbers.random() < 0.4:  # 12,000 is more frequent than 12,345
        value -= value % 10 ** numbers.randrange(1, len(str(value)))
    if value < 10_000 and numbers.random() < 0.3:
        return str(value), str(value)
    return f"{value:,}", f"{value:,}".replace(",", ".")


def word(numbers: random.Random) -> Filled:
    """A number from two to ninety-nine in words."""
    tens, ones = divmod(numbers.randrange(2, 100), 10)
    if tens < 2:
        return list(WORDS["ones"].items())[10 * tens + ones - 1]
    english, german = list(WORDS["tens"].items())[tens - 2]
    if not ones:
        return english, german
    one, eins = list(WORDS["ones"].items())[ones - 1]
    return f"{english}-{one}", f"{eins.replace('eins', 'ein')}und{german}"


def decimal(numbers: random.Random) -> Filled:
    """A number with one or two decimal places."""
    whole, part = (numbers.randrange(1, 10 ** numbers.randrange(1, 3)) for _ in range(2))
    text = f"{whole}.{part}" if numbers.random() < 0.9 else f"0.{part}"
    return text, text.replace(".", ",")


def ordinal(numbers: random.Random) -> Filled:
    """An ordinal number in digits."""
    value = numbers.randrange(1, 40)
    return english_ordinal(value), f"{value}."


def english_ordinal(value: int) -> str:
    """Returns 1st for 1."""
    return f"{value}{'th' if value in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(value % 10, 'th')}"


def time(numbers: random.Random) -> Filled:
    """A time of the day: 9am, 9:30 PM, 14:30. Noon and midnight are 12:15 at least, as people disagree on 12 pm."""
    hour, minute = numbers.randrange(24), numbers.choice([0, 0, 5, 10, 15, 15, 20, 25, 30, 30, 40, 45, 50, 55])
    if hour % 12 == 0:
        minute = minute or 15
    german = f"{hour}:{minute:02} Uhr" if minute else f"{hour} Uhr"
    if numbers.random() < 0.3:
        return f"{hour:02}:{minute:02}" if numbers.random() < 0.5 else f"{hour}:{minute:02}", german
    half = numbers.choice(["am", " am", " a.m.", "AM", " AM"]).translate(str.maketrans("aA", "pP") if hour > 11 else {})
    clock = hour % 12 or 12
    return (f"{clock}:{minute:02}{half}" if minute else f"{clock}{half}"), german


def clock(numbers: random.Random) -> Filled:
    """A time of the day in words: half past three, which German calls half four."""
    hours = list(WORDS["ones"].items())[:12]
    index = numbers.randrange(12)
    (hour, stunde), (_, following) = hours[index], hours[(index + 1) % 12]
    minutes, minuten = numbers.choice([("five", "fünf"), ("ten", "zehn"), ("twenty", "zwanzig")])
    spoken = {"hour": hour, "stunde": stunde, "following": following, "minutes": minutes, "minuten": minuten}
    english, german = numbers.choice(CLOCK)
    return english.format(**spoken), german.format(**spoken, uhr="ein" if hour == "one" else stunde)


def hours(numbers: random.Random) -> Filled:
    """From one time to another: from 9 am to 5:30 pm, between 3 and 5 p.m."""
    begin = numbers.randrange(1, 22)
    end = numbers.randrange(begin + 1, 24)
    first, last = (numbers.choice(["", "", "", ":30", ":15"]) for _ in range(2))
    to, bis = numbers.choice([("from {} to {}", "von {} bis {} Uhr"), ("between {} and {}", "zwischen {} und {} Uhr")])
    german = bis.format(f"{begin}{first}", f"{end}{last}")
    if numbers.random() < 0.2:
        return to.format(f"{begin}{first or ':00'}", f"{end}{last or ':00'}"), german
    am, pm = numbers.choice([("am", "pm"), (" am", " pm"), (" a.m.", " p.m."), (" AM", " PM")])
    halves = [am if hour < 12 else pm for hour in (begin, end)]
    if halves[0] == halves[1] and begin != 12 and numbers.random() < 0.8:
        halves[0] = ""
    return to.format(
        f"{begin if begin < 13 else begin - 12}{first}{halves[0]}", f"{end if end < 13 else end - 12}{last}{halves[1]}"
    ), german


def date(numbers: random.Random) -> Filled:
    """A day of a month."""
    day, (english, german) = numbers.randrange(1, 29), month(numbers)
    th = english_ordinal(day)
    forms = [f"{english} {day}", f"{english} {th}", f"{day} {english}", f"the {th} of {english}"]
    return numbers.choice(forms), f"{day}. {german}"


def day(numbers: random.Random) -> Filled:
    """A day of a year. One in digits is copied."""
    if numbers.random() < 0.15:
        value = f"{numbers.randrange(13, 29)}/{numbers.randrange(1, 13):02}/{numbers.randrange(1990, 2031)}"
        return value, value
    (english, german), (number, _) = date(numbers), year(numbers)
    comma = "," if english[0].isalpha() else ""
    return f"{english}{comma} {number}", f"{german} {number}"


def price(numbers: random.Random) -> Filled:
    """An amount of money."""
    sign, name = one_of("currencies")(numbers)
    if numbers.random() < 0.6:
        english, german = integer(numbers)
    else:
        value = f"{numbers.randrange(1, 10 ** numbers.randrange(1, 5)):,}.{numbers.randrange(1, 100):02}"
        english, german = value, value.translate(str.maketrans(",.", ".,"))
    return f"{sign}{english}", f"{german} {name}"


def percent(numbers: random.Random) -> Filled:
    """A share."""
    english, german = small(numbers) if numbers.random() < 0.6 else decimal(numbers)
    return numbers.choice([(f"{english}%", f"{german} %"), (f"{english} percent", f"{german} Prozent")])


def measure(numbers: random.Random) -> Filled:
    """A number above one, or a decimal fraction, and a unit."""
    english, german = numbers.choice([small, decimal, integer])(numbers)
    unit, einheit = one_of("units")(numbers)
    joined = len(unit) < 3 and numbers.random() < 0.3
    return f"{english}{unit}" if joined else f"{english} {unit}", f"{german} {einheit}"


def decade(numbers: random.Random) -> Filled:
    """Ten years of a century."""
    value = f"{numbers.choice([18, 19, 19, 19, 20])}{numbers.randrange(10)}0"
    return f"{value}s", f"{value}er"


_MADE = (word, decimal, ordinal, time, clock, hours, date, day, decade, price, percent, measure)
SLOTS: dict[str, Slot] = {
    **{each.__name__: each for each in _MADE},
    "int": integer, "int2": integer, "year": year, "year2": year, "small": small, "first": first_name, "name": name,
    "month": month, "weekday": one_of("weekdays"), "city": one_of("cities"), "org": one_of("organizations"),
    "label": one_of("labels"), "label2": one_of("labels"), "said": one_of("sayings"),
    "x": lambda _: ("A1", "A1"), "y": lambda _: ("B2", "B2"),
}  # fmt: skip
"""Draws a filler, by the name of the slot."""


def templates() -> Iterator[Filled]:
    """Yields the English and the German of each template."""
    for row in Path(__file__).with_name("phrases.tsv").read_text("utf-8").splitlines():
        src, tgt = row.split("\t")
        yield src, tgt


def filled(english: str, german: str, numbers: random.Random) -> Filled:
    """Returns a pair of a template. Raises ValueError if its sides have other slots or a slot twice."""
    names = SLOT.findall(english)
    if sorted(names) != sorted(SLOT.findall(german)) or len(set(names)) < len(names) or not SLOTS.keys() >= set(names):
        raise ValueError(f"the slots of {english!r} and {german!r} differ, are unknown, or one is there twice")
    forms = {name: SLOTS[name](numbers) for name in names}
    src = SLOT.sub(lambda slot: forms[slot[1]][0], english)
    tgt = SLOT.sub(lambda slot: forms[slot[1]][1], german)
    return _BEFORE_VOWEL.sub(r"\1n", src).replace("m..", "m."), _TWO_FULL_STOPS.sub(".", tgt)


def pairs() -> list[Filled]:
    """Returns the pairs of all templates, in random order."""
    numbers, made = random.Random(SEED), list[Filled]()
    for template in templates():
        slots = SLOT.findall(template[0])
        plain = SHORT if len(template[0].split()) <= SHORT_WORDS else PLAIN
        times = max((MORE.get(slot, FILLS) for slot in slots), default=plain)
        made += [filled(*template, numbers) for _ in range(times)]
    numbers.shuffle(made)
    return made
