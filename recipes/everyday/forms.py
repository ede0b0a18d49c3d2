"""The forms that a value, such as a time or a price, may take in a translation, as regular expressions.

The expressions are for case-folded text, in which ß is ss.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

GERMAN = tomllib.loads(Path(__file__).with_name("german.toml").read_text(encoding="utf-8"))
NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"  # in English
FREE = ("word", "ordinal", "time", "date", "fraction", "decade", "million", "score")  # need not be in digits

# A number in digits has no letter, digit or minus sign before it, and no letter or digit after it but a unit.
BEFORE = r"(?<![^\W_])(?<!\d[.,:/])(?<!(?<!\w)[-−–])"
AFTER = rf"(?:(?=(?:{GERMAN['units']})(?![^\W_]))|(?![^\W_]|[.,:/]\d))"


def digits(text: str) -> str:
    """Returns an expression for an English number in digits, with the separators of any language."""
    whole, _, part = text.replace(",", "").partition(".")
    return "0?" + "[.,'’٬ ]?".join(f"{int(whole):,}".split(",")) + (f"[.,٫]{part}" if part else "")


def words(value: int) -> str:
    """Returns an expression for a German number word below a million, and an empty one for 0."""
    if value < 20:
        return str(GERMAN["ones"][value])
    if value < 100:
        ones = f"{words(value % 10)}und" if value % 10 else ""
        return f"{ones}{GERMAN['tens'][value // 10 - 2]}"
    if 1100 <= value < 2000:  # neunzehnhundert or eintausendneunhundert
        thousand = f"(?:ein)?tausend(?:und)?{words(value % 1000)}"
        return f"(?:{thousand}|{words(value // 100)}hundert(?:und)?{words(value % 100)}s?)"
    size, name = (100, "hundert") if value < 1000 else (1000, "tausend")
    head = words(value // size) if value >= 2 * size else "(?:ein)?"
    return f"{head}{name}(?:und)?{words(value % size)}s?"


def number(text: str | int) -> str:
    """Returns an expression for a number in digits or in German words."""
    whole, _, part = str(text).replace(",", "").partition(".")
    said = f"(?:{GERMAN['numbers'].get(whole, words(int(whole)))})(?:{GERMAN['compound']})?"
    if part:
        said = f"{words(int(whole)) or 'null'}s? komma " + "s? ?".join(words(int(digit)) for digit in part) + "s?"
    if part == "5":
        said += "|" + ("ein(?:und)?einhalb|anderthalb" if whole == "1" else f"{words(int(whole))}(?:und)?einhalb")
    return rf"(?:{BEFORE}{digits(str(text))}{AFTER}|(?<!\w)(?:{said})(?!\w))"


def ordinal(text: str | int) -> str:
    value = int(re.sub(r"\D", "", str(text)))
    stem = GERMAN["ordinals"].get(str(value), words(value) + ("s" if value >= 20 else ""))
    return rf"(?:{BEFORE}0?{value}(?:\.|-?s?te[nrms]?)?(?![^\W_])|(?<!\w){stem}te(?:[nrms]?|ns|nmal)(?!\w))"


def time(text: str) -> str:
    """Returns an expression for a time of the day, such as 14:30 or halb drei for 2:30 pm."""
    written, minutes, half = re.findall(r"^(\d+):?(\d\d)?\s*([ap]?)", text.casefold())[0]
    hours, minute = {int(written), int(written) % 12 or 12}, int(minutes or 0)
    if half == "p" or (not half and int(written) < 12 and not written.startswith("0")):
        hours.add(int(written) % 12 + 12)
    said = {"minute": number(minute), "left": number(60 - minute), "about": number(abs(minute - 30))}
    forms = []
    for hour in sorted(hours, reverse=True):
        said |= {"this": number(hour), "then": number(hour % 12 + 1)}
        for form in (*GERMAN["time"]["always"], *GERMAN["time"].get(str(minute), [])):
            forms.append(form.format(hour=hour, minutes=minutes or "00", **said))
    return rf"(?:{'|'.join(forms)})(?! ?p\.?m\b)"


def date(text: str) -> str:
    """Returns an expression for a date, such as 24. Juni 1998 for June 24, 1998. A day in digits only is over 12."""
    numbers = [int(found) for found in re.findall(r"\d+", text)]
    year = max(numbers) if max(numbers) > 31 else 0
    rest = [value for value in numbers if value != year]
    named = [at for at, name in enumerate(GERMAN["english_months"], 1) if name in text]
    day, month = max(rest), named[0] if named else min(rest)
    when = rf"{ordinal(day)}\.?\s?(?:{GERMAN['months'][month - 1]}|0?{month}(?!\d)\.?|{ordinal(month)})"
    in_year = rf"\s?(?:{year}|{words(year)}|'?{year % 100:02})(?!\w)|{re.escape(text)}|0?{day}/0?{month}/{year}"
    return f"(?:{when}{in_year if year else ''})"


def expressions(kind: str, text: str, in_german: bool) -> list[str]:
    """Returns one expression for all German forms of a value, or one for each of its numbers in other languages."""
    numbers = re.findall(NUMBER, text)
    if not in_german:  # a number that may be written in words matches the end as well
        return [rf"(?<!\d){digits(each)}(?!\d)" + "|$" * (kind in FREE) for each in numbers]
    if kind in ("ordinal", "time", "date"):
        return [{"ordinal": ordinal, "time": time, "date": date}[kind](text)]
    said = [number(each) for each in numbers]
    whole, _, part = numbers[-1].partition(".")
    parts = {"money": GERMAN["currencies"].get(text.removesuffix(numbers[0])[-1:], ""), "cents": number(part or 0)}
    parts |= {"first": said[0].replace(AFTER, ""), "last": said[-1].replace(BEFORE, "")}
    names = {"million": text.split()[-1], "price": "cents" if part else "price", "fraction": text, "decade": text}
    return [str(GERMAN["forms"].get(names.get(kind, kind), "{0}")).format(*said, whole=number(whole), **parts)]
