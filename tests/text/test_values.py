"""The numbers of a text: what keeps one, what loses one, and what was invented."""

import unicodedata

import pytest
from drawn import seeded

from vtrans.text.values import compare

NAMES = ("ZERO", "ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX", "SEVEN", "EIGHT", "NINE")
KEPT = [
    ("It costs 26.10.", "26,10 Euro"),  # and no date
    ("2:30 pm", "14:30"),
    ("at 8 pm", "um 20 Uhr"),
    ("at 17:45", "at 5:45 pm"),
    ("at 12:45 am", "um 0.45 Uhr"),
    ("at 3:00 pm", "\u00e0 15 h"),
    ("at 7:30", "7\u70b930\u5206"),
    ("from 9 to 5 pm", "von 9 bis 17 Uhr"),
    ("Come at 3 pm and pay \u00a315.", "Komm um 15 Uhr und zahle 15 \u00a3."),
    ("at 2:30", "um halb drei"),
    ("$1,299.99", "1.299,99 $"),
    ("1,234,567 km", "1 234 567 km"),
    ("12,34,567 rupees", "1,234,567 rupees"),
    ("1.5 kg", "1,5 kg"),
    ("3 million people", "3.000.000 Menschen"),
    ("$1.2bn", "1.200.000.000 Dollar"),
    ("26 million", "\uff12\uff16\uff10\uff10\u4e07"),
    ("10,000 yen", "1\u4e07\u5186"),
    ("30 students", "\u4e09\u5341\u540d\u5b66\u751f"),
    ("half a cup, 165 years", "\u534a\u676f\uff0c\u4e00\u767e\u516d\u5341\u4e94\u5e74"),
    ("November 24, 2026", "24.11.2026"),
    ("on 05/03", "am 5. 3."),
    ("the 3rd time, the 1990s", "das dritte Mal, die 1990er"),
    ("on 8 April", "le huit avril"),
    ("fifty people", "50 personnes"),
    ("2,000 books", "zweitausend B\u00fccher"),
    ("In 2019 300 people came.", "300 Menschen kamen 2019."),
    ("ISBN 978-3-16-148410-0", "ISBN 978-3-16-148410-0"),
    ("3 dogs and 3 cats", "3 Hunde und drei Katzen"),
    ("in 1999", "\u0661\u0669\u0669\u0669"),
    ("1,234.5 kg", "１，２３４．５キロ"),
    ("1,000 yen at 12:30", "１２：３０に１、０００円"),
    ("1.5 kg", "١،٥ كغ"),
    ("12,34,567 rupees", "१२,३४,५६७ रुपये"),
    ("六十五岁", "65 years old"),
    ("一九四一年十二月七日", "December 7, 1941"),
    ("一億五千万人", "150,000,000 people"),
    ("a word", "ein Wort"),
]
WRONG = [
    ("The temperature is 12 degrees.", "Die Temperatur ist 412 Grad.", ["12"], ["412"]),
    ("at 17:45 from platform 19", "um 17.45 Uhr ab", ["19"], []),
    ("Version 4.115.3 fixes 128 bugs.", "Version vier.", ["4.115", "128"], []),
    ("71.5 kg", "kg", ["71.5"], []),
    ("17.4 kg", "17 kg", ["17.4"], ["17"]),
    ("63.7 kg", "63 und 7 kg", ["63.7"], ["63", "7"]),
    ("I have 3.", "Ich habe 3 und 77.", [], ["77"]),
    ("There are dogs.", "Es gibt 27 Hunde.", [], ["27"]),
    ("There are 3 dogs.", "Es gibt 4 Hunde.", ["3"], ["4"]),
    ("There are 27 dogs.", "有一只狗。", ["27"], []),
    ("我们一起吃饭。", "We ate together in 1987.", [], ["1987"]),
    ("more than 300,000 people", "mehr als 30.000 Menschen", ["300,000"], ["30000"]),
    ("1,000,000 people", "1.000 Menschen", ["1,000,000"], ["1000"]),
    ("2.5 kg", "25 kg", ["2.5"], ["25"]),
    ("2,500 books", "B\u00fccher", ["2,500"], []),
    ("250 dogs and 250 cats", "Hunde und Katzen", ["250", "250"], []),
]
REPEATED = [
    ("on the 5th", "am 5. 5.", []),
    ("15 dogs", "15 15 Hunde", ["15"]),
    ("a 35-year-old mother", "eine 35-j\u00e4hrige Mutter, eine 35-j\u00e4hrige Mutter", ["35"]),
    ("1,127 in 2011", "1.127 im Jahr 2011, 2011", ["2011"]),
]


@pytest.mark.parametrize(("src", "tgt"), KEPT)
def test_numbers_that_are_kept_in_another_form(src: str, tgt: str) -> None:
    assert not compare(src, tgt)


def test_a_year_is_no_thousands_of_the_number_after_it() -> None:
    assert compare("In 2019 300 people came.", "300 Menschen kamen 2019.").kept == ("2019", "300")


@pytest.mark.parametrize(("src", "tgt", "missing", "invented"), WRONG)
def test_numbers_that_are_lost_or_invented(src: str, tgt: str, missing: list[str], invented: list[str]) -> None:
    difference = compare(src, tgt)
    assert (list(difference.missing), list(difference.invented)) == (missing, invented)


@pytest.mark.parametrize(("src", "tgt", "repeated"), REPEATED)
def test_numbers_that_occur_too_often(src: str, tgt: str, repeated: list[str]) -> None:
    difference = compare(src, tgt)
    assert list(difference.repeated) == repeated
    assert not difference.missing
    assert not difference.invented


def test_numbers_that_are_asked_for_may_be_added() -> None:
    assert compare("17 dogs", "1999 und 17 Hunde").invented == ("1999",)
    assert not compare("17 dogs", "1999 und 17 Hunde", "1999")
    assert not compare("1999 dogs", "1999 Hunde", "1999")
    assert compare("17 dogs", "1999, 1999 und 17 Hunde", "1999").invented == ("1999",)


@pytest.mark.parametrize("script", ["LATIN", "ARABIC-INDIC", "DEVANAGARI", "THAI", "FULLWIDTH"])
def test_one_changed_digit_is_noticed_in_every_script(script: str) -> None:
    prefix = "" if script == "LATIN" else f"{script} "
    digits = str.maketrans("0123456789", "".join(unicodedata.lookup(f"{prefix}DIGIT {name}") for name in NAMES))
    numbers = seeded(1)
    for _ in range(300):
        number = str(numbers.randrange(100, 10**6))
        place, how = numbers.randrange(len(number)), numbers.randrange(4)
        other = str((int(number[place]) + numbers.randrange(1, 10)) % 10)
        digit, after = number[place], number[place + 1 :]
        ways = other + after, after, digit + other + after, after[:1] + digit + after[1:]
        changed = number[:place] + ways[how]
        assert not compare(f"x {number} y", f"x {number.translate(digits)} y")
        if changed != number:
            assert compare(f"x {number} y", f"x {changed.translate(digits)} y"), (number, changed)


@pytest.mark.parametrize("text", ["1" * 100_000, "1," * 50_000, "\u4e00" * 20_000, "0 000" * 20_000, "\u0663\u0664"])
def test_hostile_texts_end(text: str) -> None:
    assert not compare(text, text)
    assert compare(text, text + " 77")
