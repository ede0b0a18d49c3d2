"""Numbers of a translation get the marks of its language, and nothing else changes."""

import json
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import vtrans
from vtrans.text.marks import Marks, cldr_marks, localized

TABLE = Path(vtrans.__file__).parent / "text" / "number_marks.json"
ROWS = json.loads(TABLE.read_bytes())["rows"]
LOCALES = sorted(code for row in ROWS for code in row["locales"].split())
PLACES = ["%s", "(%s)", "a %s b.", "a %s, b", "一%s二", "a -%s", "€%s", "a %s€!", "a «%s»", "%s°"]


def marks_of(code: str, native_digits: bool = False) -> Marks:
    marks = cldr_marks(code)
    assert marks is not None
    native: dict[str, Any] = next((row.get("native", {}) for row in ROWS if code in row["locales"].split()), {})
    return replace(marks, **native) if native_digits else marks


def translated(pair: str, src: str, tgt: str, native_digits: bool = False) -> str:
    source, target = pair.split()
    return localized(src, tgt, marks_of(source), marks_of(target, native_digits))


def drawn(dice: random.Random, marks: Marks) -> tuple[str, str, bool]:
    """Returns a number in a form with one reading: a decimal without or with groups, or several groups."""
    whole = str(dice.randrange(1, 10 ** dice.randrange(1, 9)))
    fraction = "".join(dice.choices("0123456789", k=dice.choice((1, 2, 2, 4))))
    form = dice.randrange(3)
    if form == 0:
        return whole, fraction, False
    if form == 1:
        return f"{whole}{dice.randrange(10000):04}", fraction, True
    return f"{whole}{dice.randrange(1000000):06}", "", True


def test_numbers_copied_between_a_hundred_locales_are_rewritten_and_nothing_else_is() -> None:
    dice = random.Random(1)
    codes = dice.sample(LOCALES, 100)
    rewritten = total = 0
    for source_code in codes:
        for target_code in dice.sample(codes, 20):
            source, target = marks_of(source_code), marks_of(target_code)
            if source.sizes[0] > 99 or source == target:
                continue
            number = drawn(dice, source)
            src, wanted, place = source.write(*number), target.write(*number), dice.choice(PLACES)
            found = localized(place % src, place % src, source, target)
            total += src != wanted
            rewritten += src != wanted and found == place % wanted
            assert found in (place % wanted, place % src)
            assert localized(place % src, found, source, target) == found
            assert localized(place % src, place % wanted, source, target) == place % wanted
            assert localized(place % src, place % src, source, source) == place % src
    assert total > 800
    assert rewritten >= 0.99 * total


@pytest.mark.parametrize(
    ("pair", "src", "tgt", "wanted"),
    [
        ("en de", "It costs $1,234.50.", "Es kostet $1,234.50.", "Es kostet $1.234,50."),
        ("en fr", "1,234.50", "1,234.50", "1\u202f234,50"),
        ("en fr-CH", "1,234.50", "1 234.50", "1\u202f234,50"),
        ("en de-CH", "1,234.50", "1,234.50", "1\u2019234.50"),
        ("en es", "1,234.5 or 12,345.6", "1,234.5 o 12,345.6", "1234,5 o 12.345,6"),
        ("es en", "1234,5", "1.234,5", "1,234.5"),
        ("zh de", "共1,234.5公斤。", "Das sind 1,234.5 Kilo.", "Das sind 1.234,5 Kilo."),
        ("ar en", "١٬٢٣٤٫٥٠", "١٬٢٣٤٫٥٠", "1,234.50"),
        ("fa de", "۱۲٫۵ در ۱۳۹۹", "12.5 in ۱۳۹۹", "12,5 in 1399"),
        ("en ar", "1,234.50", "١٬٢٣٤٫٥٠", "١٬٢٣٤٫٥٠"),
        ("en de", "50% of 1.5%", "50% von 1.5%", "50\u00a0% von 1,5\u00a0%"),
        ("en tr", "Only 50%.", "Sadece 50%.", "Sadece %50."),
        ("tr en", "%12,5", "%12,5", "12.5%"),
        ("en de", "1234.50 or 0.125", "1234.50 oder 0.125", "1234,50 oder 0,125"),
        ("en de", "1,234.50", "1234,50", "1234,50"),
        ("de en", "1.234.567 am 12.05.2024", "1.234.567 on 12.05.2024", "1,234,567 on 12.05.2024"),
        ("en de", "Python 3.11 is 2.5% up", "Python 3.11 ist 2.5% vorn", "Python 3.11 ist 2,5\u00a0% vorn"),
    ],
)  # fmt: skip
def test_the_marks_become_those_of_the_target(pair: str, src: str, tgt: str, wanted: str) -> None:
    assert translated(pair, src, tgt) == wanted
    assert translated(pair, src, wanted) == wanted


@pytest.mark.parametrize(
    ("pair", "src", "tgt"),
    [
        ("en de", "Python 3.11 has 1.500 and 1.2.3, 3/4, 12.05. and 1.5-2.5 at 10:30 on 2024-05-12.", ""),
        ("de en", "1.500 am 12.05. um 10.30 Uhr, 1,500 und 12.05.2024", ""),
        ("de en", "10.20.30.40 und 192.168.100.200", ""),
        ("fr en", "1 500 et 1,500 et 12 1,5", ""),
        ("en de", "https://a.b/1.5 x1.5 1.5x 5.5kg v1.5 a_1.5 `x = 1.5` 1.5.2 1,23 %1.5 #1.5 1.5@2.5", ""),
        ("en de", "from version 1.0.5 to 4.5, a &gt;= 2.5 and 4.0 (&kde; 4.5)", ""),
        ("en de", "It costs 1.500.", ""),
        ("de en", "Es kostet 1.500 oder 1,500.", ""),
        ("fr en", "1 234 5678 ou 1\u00a0234 567,5", ""),
        ("fr en", "1\u00a0234 5678", ""),
        ("en de", "%12.50 and 3$1.5", ""),
        ("de en", "(4,5) und [0,0] von 2010,2011", ""),
        ("en de", "12,34,567.5 and 1,2345.6", ""),
        ("en de", "It is 12.50.", "Es sind 12:50 und 1250 und 12/50 und 12.5 und 112.50."),
        ("en de", "It is 1.5.", "Es ist `1.5` und x1.5 und 1.5.2 und Kapitel 1.5"),
        ("en de", "1,234 or 1.234", "1.234 oder 1,234"),
        ("en de", "12.30 at 12:30", "12.30 um 12.30"),
        ("en de", "It is 2.5.", "Es sind 3.5."),
    ],
)
def test_what_has_several_readings_or_is_no_number_is_left_alone(pair: str, src: str, tgt: str) -> None:
    assert translated(pair, src, tgt or src) == (tgt or src)


def test_native_digits_are_written_only_if_asked_for() -> None:
    text = "1,234,567.50 (2020)"
    assert translated("en hi", text, text) == "12,34,567.50 (2020)"
    assert translated("en hi", text, text, native_digits=True) == "१२,३४,५६७.५० (२०२०)"
    assert translated("en ar", text, text, native_digits=True) == "١٬٢٣٤٬٥٦٧٫٥٠ (٢٠٢٠)"
    assert translated("en fa", text, text, native_digits=True) == "۱٬۲۳۴٬۵۶۷٫۵۰ (۲۰۲۰)"
    assert translated("en de", text, text, native_digits=True) == "1.234.567,50 (2020)"


def test_counted_marks_replace_those_of_cldr() -> None:
    english, german = marks_of("en"), marks_of("de")
    counted = replace(german, group="\u00a0", minimum=2, percent="")
    assert localized("1,234.5 and 12,345.6 (5%)", "1,234.5 und 12,345.6 (5%)", english, counted) == (
        "1234,5 und 12\u00a0345,6 (5%)"
    )
    assert localized("1.5", "1.5", Marks(".", ","), Marks(",", ".")) == "1,5"


@pytest.mark.parametrize(
    ("code", "same"),
    [("de_Latn_AT", "de-AT"), ("deu_Latn", "de"), ("ES-mx", "es-419"), ("zh-Hant-TW", "zh"), ("pa-PK", "pa-Arab")],
)
def test_codes_of_one_locale_have_the_same_marks(code: str, same: str) -> None:
    assert cldr_marks(code) == marks_of(same)
    assert cldr_marks("xx") is None


@pytest.mark.parametrize("text", ["1" * 9000, "1," * 4000, "1 234 " * 500, "`1.5" * 501, "% 1 %" * 500])
def test_hostile_text_takes_no_time(text: str) -> None:
    started = time.perf_counter()
    translated("en fr", text, text)
    translated("fr en", text, text)
    assert time.perf_counter() - started < 5
