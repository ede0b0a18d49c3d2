"""What models misread in English lines, and how it is written in German.

These are ranges of times (`8am-5pm`), of weekdays and of days (`May 5-9`), abbreviations, sums of money (`$2 million`,
`$14/hour`), the hour after midnight, and dates that are lines of their own (`May 12`) or subjects. A model knows most
other dates and times, and inflects the words around them.
"""

from __future__ import annotations

from collections.abc import Iterator

import regex

from vtrans.text.number_words import SWAPPED_MARKS, WORDS
from vtrans.wording.measures import NUMBER, SIGN, Measure

_BEFORE = r"(?<![\w.,:/$\u20ac\u00a3-])"
_HALF = r"\s?([ap])(?:m(?! I\b)|\.m\.(?=\s*[^\s\p{Lu}])|\.m)(?!\w)"
_HOUR = r"(1[0-2]|[1-9])"
_RANGE = regex.compile(rf"{_BEFORE}{_HOUR}(?:[:.](\d\d))?(?:{_HALF})?\s?[-\u2013]\s?{_HOUR}(?:[:.](\d\d))?{_HALF}")
_ABBREVIATIONS = {
    "approx.": "ca.", "Art.": "Art.", "BC": "v. Chr.", "BCE": "v. Chr.", "c.": "ca.", "e.g.": "z. B.",
    "et al.": "et al.", "etc": "usw", "etc.": "usw.", "ext.": "Durchwahl", "Fig.": "Abb.", "i.e.": "d. h.",
    "incl.": "inkl.", "max.": "max.", "no.": "Nr.", "No.": "Nr.", "p.": "S.", "pp.": "S.", "Qty": "Menge",
    "P.O. Box": "Postfach", "PO Box": "Postfach", "Tel": "Tel", "UK": "UK", "US": "US", "VAT": "MwSt.", "Vol.": "Bd.",
    "vs": "vs.", "vs.": "vs.",
}  # fmt: skip
_OF_STATES = (  # nouns, as in the US economy
    r"(?:ambassador|arm(?:y|ies)|bank|border|citizen|compan(?:y|ies)|dollar|econom(?:y|ist)|election|embassy|government"
    r"|industry|law|market|military|navy|official|president|senator|soldier|troop|visa)s?\b"
)
_ABBREVIATION = regex.compile(
    r"(?<![\w.])(?:(?<!\b(?:said|say|says|or|is|was|answered) )no\.(?=\s?\d)|(?:Art|ext|Fig|No|pp?|Vol)\.(?=\s?\d)"
    r"|(?<=(?:\d|century)\s)BCE?|c\.(?=\s\d{3,4}(?!\w))|max\.(?=\s?\d)|VAT(?=[\s:.,)])|Qty(?=:)"
    rf"|P(?:\.O\.|O) Box(?=\s?\d)|U[SK](?= {_OF_STATES})"
    r"|(?:approx|e\.g|et al|i\.e|incl|vs)\.|etc\.(?!\s*\p{Lu})|etc(?=\.)|vs|Tel(?=[.:]))(?![\w-])"
)
_CURRENCIES = {"$": "Dollar", "US$": "US-Dollar", "\u20ac": "Euro", "\u00a3": "Pfund"}
_SCALES = {"m": ("Mio.", "Million", "en"), "b": ("Mrd.", "Milliarde", "n"), "t": ("Bio.", "Billion", "en")}
"""A million and more: its abbreviation, its name, and the ending of the plural."""
_UNITS = {
    "h": "Std.", "hr": "Stunde", "hour": "Stunde", "day": "Tag", "night": "Nacht", "week": "Woche", "mo": "Monat",
    "month": "Monat", "yr": "Jahr", "year": "Jahr", "person": "Person", "kg": "kg", "l": "l", "litre": "Liter",
}  # fmt: skip
_SUM = regex.compile(
    rf"(?<![\w.,])(?<minus>-)?(?<sign>US\$|\$|{SIGN})\s?(?<number>{NUMBER})(?:(?<thousands>[kK])"
    r"|(?<letter>[mMbBtT])n?|[\s-](?<word>[mbt])r?illion)?(?:/(?<unit>\p{Ll}+))?(?![\w+-]|[.,]\d)"
)
MONTHS = dict(zip(WORDS["en"].months, WORDS["de"].months, strict=True))
_WEEKDAYS = {"Mon": "Mo", "Tue": "Di", "Wed": "Mi", "Thu": "Do", "Fri": "Fr", "Sat": "Sa", "Sun": "So"}
_MONTH = rf"({'|'.join(MONTHS)})"
_DAY = r"(3[01]|[12]\d|[1-9])(?:st|nd|rd|th)?(?!\w)"
_DATE = regex.compile(rf"^(?:{_MONTH}\s{_DAY}|{_DAY}\s{_MONTH})(?:,?\s(\d{{4}}))?(?=\s(?:is|was|will)\b|(\.?$))")
WEEKDAY = r"(Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)"
_DAYS_OF_MONTH = regex.compile(
    rf"(?<![\w.,/-])(?:{_MONTH}\s(?<first>\d\d?)\s?[-\u2013]\s?(?<last>\d\d?)(?:,?\s(?<year>\d{{4}}))?"
    rf"|(?<first>\d\d?)\s?[-\u2013]\s?(?<last>\d\d?)\s{_MONTH}(?:\s(?<year>\d{{4}}))?)(?![\w%-]|[.,:]\d)"
)
_QUANTITIES = {  # what models rarely see after a number, and its form; that after 1 is without the ending in brackets
    "Swiss franc": "Schweizer Franken", "acre": "Acre(s)", "cubic meter": "Kubikmeter", "dirham": "Dirham",
    "forint": "Forint", "franc": "Franken", "gallon": "Gallone(n)", "gigabyte": "Gigabyte", "gigawatt": "Gigawatt",
    "gram": "Gramm", "hectare": "Hektar", "horsepower": "PS", "hp": "PS", "kilobyte": "Kilobyte",
    "kilowatt": "Kilowatt", "kr": "Kronen", "kroner": "Kronen", "kronor": "Kronen", "light year": "Lichtjahr(e)",
    "megabyte": "Megabyte", "megawatt": "Megawatt", "microgram": "Mikrogramm", "micrometer": "Mikrometer",
    "milligram": "Milligramm", "milliliter": "Milliliter", "millimeter": "Millimeter", "nanometer": "Nanometer",
    "pence": "Pence", "peso": "Peso(s)", "reais": "Reais", "rouble": "Rubel", "ruble": "Rubel", "rupee": "Rupie(n)",
    "shekel": "Schekel", "sq ft": "Quadratfu\u00df", "sq m": "m\u00b2", "sqm": "m\u00b2",
    "square feet": "Quadratfu\u00df", "square kilometer": "Quadratkilometer", "square meter": "Quadratmeter",
    "square mile": "Quadratmeile(n)", "terabyte": "Terabyte", "yard": "Yard(s)", "yen": "Yen", "yuan": "Yuan",
    "zloty": "Zloty",
}  # fmt: skip
_WORDS = "|".join(_QUANTITIES).replace(" ", "[ -]").replace("ter", "t(?:er|re)")
_QUANTITY = regex.compile(rf"(?<![\w.,/$\u20ac\u00a3])({NUMBER})\s({_WORDS})s?(?![\w-])")
_PENCE = regex.compile(r"(?<![\w.,:/])(\d\d?)p(?!\w)")
_PLAIN = r"\d++(?:,\d{3})*+(?:\.\d++)?+"
_LIST = regex.compile(
    rf"(?<![\w.,:/-])(?<!\b(?:{'|'.join(MONTHS)}) )(?:{_PLAIN}, )+{_PLAIN},? (and|or) {_PLAIN}(?![\w%/:-]|[.,]\d)"
)
_NO_NOUN = (
    r"(?:a|all|am|an|and|as|at|but|by|every|for|from|in|is|last|now|of|on|one|or|per|pm|the|this|to|today|was|were|when|with"
    r"|yesterday)\b"
)
_SHARE = regex.compile(  # `1 in 10,000` and `9 out of 10`
    rf"(?<![\w.,:/$\u20ac\u00a3-])(?:(1) in(?! (?:1[5-9]|20)\d\d(?!\d))|({NUMBER}) out of) ({NUMBER})"
    r"(?![\w:/%-]|[.,]\d)"
)
_UP_TO = regex.compile(  # `8 to 16 characters`
    rf"(?<![\w.,:/$\u20ac\u00a3-])(?<!\bfrom )(\d+) to (\d+)(?= (?!{_NO_NOUN})\p{{Ll}}{{2}})"
)
_DATE_IN_DIGITS = regex.compile(r"(?<![\w./,-])(\d{1,2})/(\d{1,2})/(\d{4})(?![\w/])")
_AFTER_MIDNIGHT = regex.compile(r"(?<![\w.,:/-])12(:[0-5]\d)?\s?a(?:m(?! I\b)|\.m\.(?=\s*[^\s\p{Lu}])|\.m)(?!\w)")
_ERA = regex.compile(r"(?<![\w.,])(?:AD\s(\d{1,4})|(\d{1,4})\s(?:AD|CE))(?!\w)")
_DIGITS = r"\d{1,4}[/.-]\d{1,2}[/.-]\d{2,4}(?!\d)"
"""A date."""
_BEFORE_NOUN = regex.compile(
    r"(?<![\w-])(?<!\d )(?!AD\b|[AP]M\b)([A-Z]{2,6}|[A-Z]{1,6}-?\d{1,3}) (?!and\b|for\b|the\b)\p{Ll}{3,}"
)
_DAYS = regex.compile(rf"(?<![\w.,/-]){WEEKDAY}\.?\s?[-\u2013]\s?{WEEKDAY}(?!\w)(?:\.(?=\s*[^\s\p{{Lu}}]))?")


def german_forms(line: str) -> Iterator[Measure]:
    """Yields what an English line has of these, and the German forms."""
    for match in _ABBREVIATION.finditer(line):
        form = _ABBREVIATIONS[match[0]]
        yield match.start(), match.end(), form.removesuffix("." if line[match.end() :].startswith(".") else "")
    for match in _DAYS.finditer(line):
        first, last = (_WEEKDAYS[day[:3]] for day in match.groups())
        yield match.start(), match.end(), f"{first}\u2013{last}"
    if any(map(str.isdigit, line)):
        if date := _DATE.match(line):  # which is the line or its subject
            month, day, first_day, second_month, year, ends = date.groups()
            form = f"{day or first_day}. {MONTHS[month or second_month]}" + (f" {year}" if year else "")
            yield date.start(), date.end(), form if ends is not None else f"Der {form}"
        for match in _DAYS_OF_MONTH.finditer(line):
            month, year = MONTHS[match[1] or match[5]], f" {match['year']}" if match["year"] else ""
            yield match.start(), match.end(), f"{match['first']}.\u2013{match['last']}. {month}{year}"
        for match in _DATE_IN_DIGITS.finditer(line):
            lower, higher = sorted(map(int, match.groups()[:2]))
            if lower <= len(MONTHS) < higher:  # others mean different days in Britain and America
                yield match.start(), match.end(), f"{higher}.{lower}.{match[3]}"
        yield from _quantities(line)
        for match in _AFTER_MIDNIGHT.finditer(line):
            yield match.start(), match.end(), f"0{match[1] or ''} Uhr"
        for match in _ERA.finditer(line):
            yield match.start(), match.end(), f"{match[1] or match[2]} n. Chr."
        yield from _times(line)
        yield from _sums(line)


def _quantities(line: str) -> Iterator[Measure]:
    """Yields quantities with words that models rarely see, lists of numbers, shares such as `1 in 10`, and ranges."""
    for match in _QUANTITY.finditer(line):
        form = _QUANTITIES[regex.sub("tre$", "ter", match[2].replace("-", " "))]
        form = form.partition("(")[0] if match[1] == "1" else form.replace("(", "").replace(")", "")
        yield match.start(), match.end(), f"{match[1].translate(SWAPPED_MARKS)} {form}"
    for match in _PENCE.finditer(line):
        yield match.start(), match.end(), f"{match[1]} Pence"
    for match in _LIST.finditer(line):
        form = regex.sub(NUMBER, lambda number: number[0].translate(SWAPPED_MARKS), match[0])
        yield match.start(), match.end(), regex.sub(",? (and|or) ", " und " if match[1] == "and" else " oder ", form)
    for match in _SHARE.finditer(line):
        form = " von ".join(number for number in match.groups() if number)
        yield match.start(), match.end(), form.translate(SWAPPED_MARKS)
    for match in _UP_TO.finditer(line):
        if int(match[1]) < int(match[2]):  # no score
            yield match.start(), match.end(), f"{match[1]} bis {match[2]}"


def corrected(source: str, text: str) -> str:
    """Returns a German text with hyphens in compounds that begin as in the source (`PDF files`, `PDF-Dateien`), with
    `am` before dates that have `on` there, with 12:30 Uhr for 12:30, and without `Uhr` after what is no time."""
    if "Uhr" in text:
        text = regex.sub(r"(?<![\d.,:])(?!(?:1?\d|2[0-4])(?:[.:][0-5]\d)?\s|\d{4}\s)(\d[\d.,:]*) Uhr\b", r"\1", text)
    for noon in regex.findall(r"(?<![\w:.])12:([0-5]\d)(?!\s?a\.?m)", source) if "12:" in source else ():
        text = regex.sub(rf"(?<![\d:.])0:{noon}(?= Uhr)", f"12:{noon}", text)
    if regex.search(rf"\bon {_DIGITS}", source):
        text = regex.sub(rf"\b(?:an|auf|bei) (?={_DIGITS})", "am ", text)
    for word in dict.fromkeys(_BEFORE_NOUN.findall(regex.sub(r"\bU\.([SK])\.", r"U\1", source))):
        text = regex.sub(rf"(?<![\w-]){regex.escape(word)} (?=\p{{Lu}}\p{{Ll}}{{2}})", f"{word}-", text)
    return text


def _sums(line: str) -> Iterator[Measure]:
    """Yields sums of money in thousands and millions, and those for a unit."""
    for match in _SUM.finditer(line):
        sign, unit, scale = match["sign"], match["unit"], match["letter"] or match["word"]
        if not (match["thousands"] or scale or unit) or (unit and unit not in _UNITS):
            continue
        number, whole = match["number"].translate(SWAPPED_MARKS), match["number"].replace(",", "")
        if match["thousands"]:
            number = f"{round(1000 * float(whole)):,}".translate(SWAPPED_MARKS) if whole.count(".") < 2 else number
        short, name, plural = _SCALES[scale.lower()] if scale else ("", "", "")
        if match["word"]:
            form = f"{number} {name}{plural if whole != '1' else ''} {_CURRENCIES.get(sign, sign)}"
        else:
            form = " ".join(filter(None, (number, short, sign)))
        yield match.start(), match.end(), (match["minus"] or "") + form + (f"/{_UNITS[unit]}" if unit else "")


def _times(line: str) -> Iterator[Measure]:
    """Yields ranges of times."""
    for match in _RANGE.finditer(line):
        first, first_minutes, first_half, last, last_minutes, last_half = match.groups()
        if not first_half:  # as in 9-11 am and 11-2 pm
            first_half = (
                last_half if _order(first, first_minutes) < _order(last, last_minutes) else "ap"[last_half == "a"]
            )
        times = [(_hour(first, first_half), first_minutes), (_hour(last, last_half), last_minutes)]
        full = not (first_minutes or last_minutes)
        written = (str(hour) if full else f"{hour}:{minutes or '00'}" for hour, minutes in times)
        yield match.start(), match.end(), "\u2013".join(written) + " Uhr"


def _order(hour: str, minutes: str | None) -> tuple[int, int]:
    """Returns what times in the same half of the day are ordered by."""
    return int(hour) % 12, int(minutes or 0)


def _hour(hour: str, half: str) -> int:
    """Returns an hour before or after noon as one of 24."""
    return int(hour) % 12 + 12 * (half == "p")
