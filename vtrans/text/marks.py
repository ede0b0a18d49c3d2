"""Number marks (decimal, group and percent): CLDR's marks for each locale, and rewriting a translation's numbers.

A source number is rewritten only if it is well-formed and unambiguous. These are left alone:

- a lone point or space before three digits, or a lone comma where it is the decimal mark: `1.500`, `1 500`;
- a decimal with a point after a capitalised word, which may be a version (`Python 3.11`), and others in its line;
- digits next to a cased letter, `_`, `/`, `:` or a hyphen: versions, times, dates, ranges, codes, URLs;
- `12.05.`, `(4,5)`, `2010,2011`, IP addresses, and text between backticks."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import regex

from vtrans.text.languages import base
from vtrans.text.values import in_ascii

_KINDS = ("[ \u00a0\u2009\u202f]", "['\u2019]")  # interchangeable marks
_PERCENT = "[%\u066a\uff05]"
_STOPS = "\uff0c\u3002\u3001\uff1a\uff1b\uff01\uff1f\u2026\u060c\u061b\u0964"  # no space needs to follow these
_OPEN = r"\s\p{Ps}\p{Pi}\p{Pf}\p{Sc}\"'"
_BEFORE = rf"(?<=(?:^|[{_OPEN}])[-+\u2212]|^|[{_OPEN}{_STOPS}\p{{Lo}}\p{{Lm}}~\u2248\xb1\u2264\u2265])(?<!\d[^\w\s])"
_AFTER = (
    rf"(?=[.,:;!?\"'\p{{Pe}}\p{{Pf}}]*(?:\s|$|[{_STOPS}\p{{Lo}}\p{{Lm}}\p{{Ps}}\p{{Pi}}\p{{Sc}}\xb0\u2030])"
    r"|['\u2019]\p{L}|\u2014(?!\d))"
)
_LABEL = r"(?<=(?:\p{Lu}[\p{L}\d.+#-]{0,30}|[;=>])\s)"  # may precede a version or a section
_NO_NUMBER = (
    r"(?:0[1-9]|[12]\d|3[01])\.(?:0[1-9]|1[0-2])\.|(?:(?:1?\d?\d|2[0-4]\d|25[0-5])(?:\.|(?![.,]?\d))){4}"
    rf"|[12]\d{{3}},[12]\d{{3}}(?!\d)|(?<=[(\[])\d,\d[)\]]"
    rf"|{_LABEL}\d+\.(?!\d{{3}}(?!\d))\d+(?![.,]?\d|{_KINDS[0]}?{_PERCENT})"
)
_DOTTED = regex.compile(r"\d+(?:\.\d+)+")
_ANY_NUMBER = rf"(?>\d+(?:(?:[.,'\u2019\u060c\u2e41]|(?<!\d{{4}}){_KINDS[0]}(?=\d{{3}}(?!\d)))\d+)*)"
_Number = tuple[str, str, bool]  # the digits before and after its decimal mark, and whether it has a percent sign


@dataclass(frozen=True)
class Marks:
    """The number format of one side."""

    decimal: str
    group: str
    minimum: int = 1  # minimum digits before the first group mark; with 2, numbers of four digits have none
    sizes: tuple[int, int] = (3, 3)  # the number of digits in the last group, and in each group before it
    percent: str = ""  # a percentage, such as "0 %"; if empty, percent signs are left alone
    zero: str = "0"  # the digit zero; if empty, digits stay, and numbers in non-ASCII digits are left alone

    def write(self, whole: str, fraction: str, grouped: bool) -> str:
        """Returns a number with these digits before and after its decimal mark."""
        last, other = self.sizes
        if grouped and len(whole) >= last + self.minimum:
            whole = regex.sub(rf"(?<=\d)(?=(?:\d{{{other}}})*\d{{{last}}}$)", self.group, whole)
        return whole + self.decimal + fraction if fraction else whole

    def in_digits(self, text: str) -> str:
        """Returns a text with this side's digits in place of ASCII digits."""
        return text.translate({ord("0") + i: ord(self.zero) + i for i in range(10)}) if self.zero else text


@cache
def _table() -> dict[str, dict[str, Any]]:
    rows = json.loads(Path(__file__).with_name("number_marks.json").read_text(encoding="utf-8"))["rows"]
    return {code: row for row in rows for code in row["locales"].split()}


def cldr_marks(code: str) -> Marks | None:
    """Returns the marks of a locale such as `es-MX`, or else of its language; None if CLDR has neither."""
    _, *rest = code.lower().replace("_", "-").split("-")
    names = ("-".join([base(code), *parts]) for parts in (rest, rest[:-1], rest[-1:], []))
    if (row := next(filter(None, map(_table().get, names)), None)) is None:
        return None
    zero = "" if "native" in row else "0"  # a language with native digits is written with either kind
    return Marks(row["decimal"], row["group"], row["minimum"], tuple(row["sizes"]), row["percent"], zero)


def localized(src: str, tgt: str, source: Marks, target: Marks) -> str:
    """Returns a translation with the source's numbers rewritten in the target's marks. Marks come from `cldr_marks` or
    from training text. Numbers are matched by their digits."""
    if source == target or not any(map(str.isdecimal, tgt)):
        return tgt
    found = list(_numbers(src, source))
    has_versions = any(number is None and _DOTTED.fullmatch(text) for text, number in found)
    meanings = defaultdict[str, set[_Number | None]](set)
    for text, number in found:
        forms = [target.write(*number[:2], grouped) for grouped in (True, False)] if number else []
        is_version = has_versions and number and number[1] and not number[2] and _DOTTED.fullmatch(text)
        for form in (text, *forms):
            meanings[_runs(form)].add(None if is_version else number)
    changed, end = "", 0
    for match in _in_text(_ANY_NUMBER).finditer(in_ascii(tgt)):
        number, *others = meanings.get(_runs(match["number"] or ""), (None,))
        if number and not others:
            changed += tgt[end : match.start()] + _rewritten(match, tgt, number, target)
            end = match.end()
    return changed + tgt[end:]


def _runs(text: str) -> str:
    return " ".join(regex.findall(r"\d+", text))


@cache
def _in_text(number: str) -> regex.Pattern[str]:
    """Returns a pattern for text in backticks and for digits; its group `number` is set if they may be a number."""
    sides = rf"(?P<lead>(?:{_PERCENT}{_KINDS[0]}?)?)(?P<number>{number})(?P<trail>(?:{_KINDS[0]}?{_PERCENT})?)"
    return regex.compile(rf"`[^`]*`|{_BEFORE}(?!{_NO_NUMBER}){sides}{_AFTER}|\d+(?:[^\w\s]\d+)*")


def _numbers(src: str, marks: Marks) -> Iterator[tuple[str, _Number | None]]:
    """Yields each match of `_in_text` in a source, and its number, or None if that is uncertain."""
    both = [in_ascii(mark) for mark in (marks.decimal, marks.group)]
    decimal, group = (next((kind for kind in _KINDS if mark in kind), regex.escape(mark)) for mark in both)
    unsure = rf"[1-9]\d{{0,2}}[. {',' * (marks.decimal == ',')}]\d{{3}}(?!{decimal}?\d|{group}\d)"
    last, other = marks.sizes
    grouped = rf"[1-9]\d{{0,{other - 1}}}(?P<mark>{group})(?:\d{{{other}}}(?P=mark)){{0,9}}\d{{{last}}}"
    number = rf"(?!{unsure})(?<!\d{group})(?P<whole>{grouped}|\d{{1,30}})(?:{decimal}(?P<fraction>\d+))?(?!{group}?\d)"
    for match in _in_text(number).finditer(in_ascii(src)):
        if not match["number"] or (match["lead"] and not marks.percent.startswith("%")):  # such as %1, a placeholder
            yield match[0], None
        else:
            whole = _runs(match["whole"]).replace(" ", "")
            yield match["number"], (whole, match["fraction"] or "", bool(match["lead"] or match["trail"]))


def _rewritten(match: regex.Match[str], tgt: str, number: _Number, target: Marks) -> str:
    whole, fraction, is_percent = number
    text, lead, trail = (tgt[slice(*match.span(name))] for name in ("number", "lead", "trail"))
    if not target.zero and text != match["number"]:
        return lead + text + trail
    text = target.in_digits(target.write(whole, fraction, grouped=len(_runs(text).split()) > 1 + bool(fraction)))
    if is_percent and target.percent and bool(lead) != bool(trail):
        return target.percent.replace("%", (lead + trail).strip()).replace("0", text)
    return lead + text + trail
