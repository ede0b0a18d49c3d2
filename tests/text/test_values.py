"""The numbers of a text: what keeps one, what loses one, and what nobody wrote."""

from __future__ import annotations

from decimal import Decimal

import pytest
from drawn import seeded

from vtrans.text.languages import Languages
from vtrans.text.values import amounts, compare

GERMAN = Languages("en", "de-AT")

KEPT = [
    ("2,000 books", "zweitausend Bücher"),
    ("June 24th", "vierundzwanzigsten Juni"),
    ("6:30", "halb sieben"),
    ("2:30 pm", "14:30"),
    ("half past six", "6.30 Uhr"),
    ("quarter to 3", "viertel vor drei"),
    ("$1,299.99", "1.299,99 $"),
    ("1,234,567 km", "1 234 567 km"),
    ("1.5 kg", "1,5 kg"),
    ("-12 degrees", "minus zwölf Grad"),
    ("10-12 people", "zehn bis zwölf Leute"),
    ("2 million people", "2 Mio. Menschen"),
    ("2.5 million people", "2.500.000 Menschen"),
    ("$1.2bn", "1,2 Milliarden Dollar"),
    ("£5m", "5 Millionen Pfund"),
    ("-5 million", "minus 5 Mio."),
    ("1 or 2 million", "1 oder 2 Millionen"),
    ("a 5m rope", "ein 5m langes Seil"),
    ("November 24, 2026", "24.11.2026"),
    ("born in nineteen eighty-four", "1984 geboren"),
    ("in 1964", "neunzehnhundertvierundsechzig"),
    ("the 3rd time, the 1990s", "das dritte Mal, die 1990er"),
    ("1/2 cup", "eine halbe Tasse"),
    ("a dozen eggs", "12 Eier"),
    ("ISBN 978-3-16-148410-0", "ISBN 978-3-16-148410-0"),
    ("3 dogs and 3 cats", "3 Hunde und drei Katzen"),
    ("before 2:30, a few things", "bis halb drei ein paar Dinge"),
    ("April fifth or sixth", "5. oder 6. April"),
    ("at 8 pm", "um 20 Uhr"),
    ("Come at 3 pm and pay £15.", "Komm um 15 Uhr und zahle 15 £."),
    ("You may come in May, on the 4th of July or on 4 August.", "Komm im Mai, am 4.7. oder 4. August."),
    ("It may begin at half past four.", "Es kann um halb fünf beginnen."),
    ("at 8 p.m.", "abends um 8 Uhr"),
    ("on Friday night at 8:30pm", "am Freitagabend um 8:30 Uhr"),
    ("12 pm", "12 Uhr"),
    ("12:30 am", "0:30 Uhr"),
    ("from 9am to 5pm", "von 9 bis 17 Uhr"),
    ("from 9 to 5 pm", "von 9 bis 17 Uhr"),
    ("on March 3rd", "am 3. 3."),
    ("half past three", "halb vier"),
    ("at half past 3", "um halb 4"),
    ("a quarter to one", "Viertel vor eins"),
    ("cut by a quarter to 3 million", "um ein Viertel auf 3 Millionen gekürzt"),
    ("a word", "dreißig Wörter"),  # the check is for digits
]
WRONG = [
    ("The temperature is -12 degrees.", "Die Temperatur ist 412 Grad.", ["-12"], ["412"]),
    ("-12 degrees", "12 Grad", ["-12"], ["12"]),
    ("at 17:45 from platform 12", "um 17.45 Uhr ab", ["12"], []),
    ("at 17:45 from platform 12", "um 17 Uhr ab.45 von Gleis 12", ["17:45"], []),
    ("Version 4.11.3 fixes 128 bugs.", "Version vier.", ["4.11.3", "128"], []),
    ("I have 3.", "Ich habe 3 und 7.", [], ["7"]),
    ("There are dogs.", "Es gibt 2 Hunde.", [], ["2"]),
    ("6:30", "halb acht", ["6:30"], []),
    ("at 8 pm", "um 8 Uhr", ["8"], []),
    ("at half past three", "um halb drei", ["three"], []),
    ("at half past 3", "um halb 3", ["3"], []),
    ("a quarter to one", "Viertel nach eins", ["one"], []),
    ("at 7:30 pm", "Das Abendessen ist um 7:30 Uhr.", ["7:30"], []),
    ("at 8 pm", "vormittags um 8 Uhr", ["8"], []),
    ("12 am", "12 Uhr", ["12"], []),
    ("$1,299.99", "1,299,99 Dollar", ["1,299.99"], []),
    ("$1,250,000", "1.250,00 Dollar", ["1,250,000"], []),
    ("more than 300,000 people", "mehr als 300.00 Menschen", ["300,000"], []),
    ("It costs $1.2bn.", "Es kostet 1,2 Dollar.", ["1.2"], []),
    ("the 110-million-year-old creature", "die 110-jährige Kreatur", ["110"], ["110"]),
    ("500 milliliters", "500 Millionen", ["500"], ["500"]),
    ("on Sunday, May 1, 2024", "am Sonntag, 1. 2024", ["may"], []),
]
REPEATED = [
    ("on the 5th", "am 5. 5.", ["5"]),
    ("5 dogs", "5 5 Hunde", ["5"]),
    ("a 35-year-old mother", "eine 35-jährige Mutter, eine 35-jährige Mutter", ["35"]),
    ("1,127 in 2011", "1.127 im Jahr 2011, 2011", ["2011"]),
    ("three of 3", "drei von 3 von 3", ["3"]),
    ("at 7:30", "um 7:30 Uhr 30", ["30"]),
]


@pytest.mark.parametrize(("src", "tgt"), KEPT)
def test_numbers_that_are_kept_in_another_form(src: str, tgt: str) -> None:
    assert not compare(src, tgt, GERMAN)
    assert not compare(tgt, src, Languages("de", "en")) or "a word" in src


@pytest.mark.parametrize(("src", "tgt", "missing", "invented"), WRONG)
def test_numbers_that_are_lost_or_invented(src: str, tgt: str, missing: list[str], invented: list[str]) -> None:
    difference = compare(src, tgt, GERMAN)
    assert (list(difference.missing), list(difference.invented)) == (missing, invented)


@pytest.mark.parametrize(("src", "tgt", "repeated"), REPEATED)
def test_numbers_that_are_there_too_often(src: str, tgt: str, repeated: list[str]) -> None:
    difference = compare(src, tgt, GERMAN)
    assert list(difference.repeated) == repeated
    assert not difference.missing
    assert not difference.invented


def test_minutes_may_follow_the_word_after_an_hour() -> None:
    assert not compare("at 17:45", "um 17 Uhr 45", GERMAN)
    assert compare("at 17:45", "um 17 Uhr 54", GERMAN).missing == ("17:45",)
    assert not compare("from 17:45 to 18:45", "von 17 Uhr 45 bis 18 Uhr 45", GERMAN)


def test_only_digits_count_without_a_table() -> None:
    assert not compare("2,000.50 and 3", "3 und 2.000,50", Languages("eo", "eo"))
    assert compare("2,000 books", "zweitausend Bücher").missing == ("2,000",)
    french = Languages("en", "fr")
    assert not compare("half past three", "trois heures et demie", french)
    assert not compare("at half past 3, not 8 pm", "à 3 heures et demie, pas à 8 heures du soir", french)


def test_the_numbers_below_a_million_are_read_in_both_languages() -> None:
    german = ["null", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"]
    german += [f"{one}zehn" for one in ("drei", "vier", "fünf", "sech", "sieb", "acht", "neun")]
    english = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"]
    english += ["twelve", *(f"{one}teen" for one in ("thir", "four", "fif", "six", "seven", "eigh", "nine"))]
    tens = [("twenty", "zwanzig"), ("thirty", "dreißig"), ("forty", "vierzig"), ("fifty", "fünfzig")]
    tens += [("sixty", "sechzig"), ("seventy", "siebzig"), ("eighty", "achtzig"), ("ninety", "neunzig")]

    def words(n: int) -> tuple[str, str]:
        if n < 20:
            return english[n], german[n]
        if n < 100:
            (ten, zehn), one = tens[n // 10 - 2], n % 10
            return (f"{ten}-{english[one]}", f"{german[one]}und{zehn}") if one else (ten, zehn)
        unit, names = (100, (" hundred", "hundert")) if n < 1000 else (1000, (" thousand", "tausend"))
        many, rest = words(n // unit), words(n % unit) if n % unit else ("", "")
        return f"{many[0]}{names[0]} {rest[0]}".strip(), f"{many[1]}{names[1]}{rest[1]}"

    numbers = seeded(1)
    for n in [*range(100), *(numbers.randrange(100, 1_000_000) for _ in range(300))]:
        for text, language in zip(words(n), ("en", "de"), strict=True):
            assert [amount.values for amount in amounts(text, language)] == [{Decimal(n)}], text


@pytest.mark.parametrize(
    "text", ["1" * 100_000, "1," * 50_000, "eine" * 20_000, "one " * 20_000, "0 000" * 20_000, "٣٤"]
)
def test_hostile_texts_end(text: str) -> None:
    for languages in (GERMAN, Languages("de", "en"), None):
        assert not compare(text, text, languages)
