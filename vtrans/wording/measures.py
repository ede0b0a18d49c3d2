"""Measures such as 12 cm, and amounts of money: where a line has them, and how a translation has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import regex

NUMBER = r"\d++(?:[.,]\d++)*+"
SCALED = r"[\s-](?:thousand|[mbtr]+illion)"
_MINUS = r"(?:(?<![^\s(])[-\u2212+])?"
_MEASURE = regex.compile(
    rf"(?<![\w.,/$\u20ac\u00a3-])({_MINUS}(?:\d{{1,3}}/)?{NUMBER})\s?"
    r"([cdkm]?m[\u00b2\u00b3]|[cdkm]m|(?<=\s)[glmVW]|km/h|m/s\u00b2?|[\u00b5km]g(?:/[dmk]?[lLg])?|[cdhm]l"
    r"|[kMGT]B|[kMG]Hz|k[WJ]|[kM]Wh?|kcal|mAh|\u00b0[CF]|mph|[fm]ps|[MG]bps|[kMG]bit/s|rpm|dpi|lbs?|oz|ft|ha|psi|mmHg|(?<=\d)(?:h|min)|(?<=\d\d)g)(?![\w/])"
)
_DURATION = regex.compile(r"(?<![\w.,])(\d{1,3})\s?h\s?(\d{1,2})(?:\s?m(?:in)?)?(?![\w/]|[.,]\d)")
_SIZE = regex.compile(
    rf"(?<![\w.,])(?:{NUMBER}\s?[x\u00d7]\s?){{1,3}}+{NUMBER}(?:\s?(?:[ckm]?m|in|ft|px|[cm]?l|m?g|kg))?(?![\w/])"
)
_CODE = (
    r"(?:AED|AUD|BGN|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|IDR|ILS|INR|ISK|JPY|KRW|MXN|MYR|NOK|NZD|PHP|PLN|RON|RUB"
    r"|SAR|SEK|SGD|THB|TRY|UAH|USD|ZAR)"
)
SIGN = r"(?:[\u20ac\u00a3\u00a5\u20a9\u20aa\u20b9\u20ba\u20bd]|(?!US)[A-Z]{1,2}\$)"
_AMOUNT = regex.compile(
    rf"(?<![\w.,])(?:{_MINUS}(?:(?<sign>{SIGN})\s?|(?<code>{_CODE})\s)(?<number>{NUMBER})(?<scale>bn|[kmKMB])?"
    rf"|(?<dollars>[-\u2212]\$)(?<number>{NUMBER})|(?<number>{NUMBER})\s(?<code>{_CODE})|{NUMBER}\+)(?![\w+]|{SCALED})"
)
_RANGE = regex.compile(
    rf"(?<![\w.,])(?:(?<sign>[$]|{SIGN})\s?(?<first>{NUMBER})\s?[-\u2013]\s?(?:(?P=sign)\s?)?(?<last>{NUMBER})"
    rf"|(?<code>{_CODE})\s(?<first>{NUMBER})\s?[-\u2013]\s?(?<last>{NUMBER}))(?![\w%]|[.,]\d|{SCALED})"
)
_ALONE = regex.compile(r"(?<![\w.,:/])([-+]?\d{1,3}(?:,\d{3})++(?:\.\d++)?+|[-+]?\d++\.\d++)(\s?%)?(?![\w:/]|[.,]\d)")
"""A number with a mark in a line without letters."""

Measure = tuple[int, int, str]
"""Where it is in a line, and its form."""


def measures(line: str, marks: Mapping[int, int]) -> Iterator[Measure]:
    """Yields the measures of a line, numbers before a plus sign, amounts of money except those with $ that a model
    knows, and numbers of lines without letters. `marks` replace those of numbers, if the target language has others;
    then the currency stands after the number."""
    if not any(map(str.isdigit, line)):
        return
    if marks and not any(map(str.isalpha, line)):
        for match in _ALONE.finditer(line):
            yield match.start(), match.end(), match[1].translate(marks) + (" %" if match[2] else "")
    for match in _DURATION.finditer(line):
        yield match.start(), match.end(), f"{match[1]} h {match[2]} min"
    for match in _SIZE.finditer(line):
        yield match.start(), match.end(), match[0].translate(marks)
    for match in _MEASURE.finditer(line):
        yield match.start(), match.end(), f"{match[1].translate(marks)} {match[2]}"
    for match in _RANGE.finditer(line):
        currency = match["sign"] or match["code"]
        form = f"{match['first']}\u2013{match['last']} {currency}".translate(marks)
        yield match.start(), match.end(), form if marks else match[0]
    for match in _AMOUNT.finditer(line):
        currency, minus = match["sign"] or match["code"] or "$", match[0][:1] if match[0][0] in "-\u2212+" else ""
        after = marks and match["number"] and not match["scale"]
        form = f"{minus}{match['number']} {currency}" if after else match[0]
        yield match.start(), match.end(), form.translate(marks)
