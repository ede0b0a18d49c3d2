"""Placeholders in the strings of programs, with and without the format flags of gettext."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import count

from vtrans.translate.wording.patterns import ARGUMENT, PATTERNS, PLACEHOLDERS

_NUMBERED = "c gcc-internal java-printf objc perl php"  # allow `%2$s`
_LIKE_PRINTF = "awk d elisp gfc-internal go javascript librep lua modula2 object-pascal python ruby sh-printf tcl"
_BRACES = "c++ csharp java python-brace rust"
NUMBERED, PRINTF, BRACES = (
    {f"{name}-format" for name in names.split()} for names in (_NUMBERED, f"{_NUMBERED} {_LIKE_PRINTF}", _BRACES)
)
UNKNOWN = {"lisp-format", "scheme-format"}
"""Formats whose placeholders, such as `~a`, are not known."""
# `%1$*2$d` of C, `%(name)s` of Python, `%<name>s` of Ruby, `%0:s` of Pascal and `%[1]d` of Go name their arguments.
CONVERSION = re.compile(
    r"%(?P<name>\d+\$|\(\w+\)|<(?!PRI)\w+>(?! )|\d+:|\[\d+\])?"
    r"(?P<rest>[-+ #0']{0,6}(?:\d+|\*(?:\d+\$)?)?(?:\.(?:\d+|\*(?:\d+\$)?)?)?"
    r"(?:hh?|ll?|[qLjzZtw])?(?:[a-zA-Z%@]|<\w+>))"
)
BRACE = re.compile(r"\{(?:[^{}]|\{[^{}]*\})*\}")
_ICU = re.compile(r"\{\s*[\w.-]+\s*,\s*(?:plural|selectordinal|select|choice)\s*,")
# Placeholders of strings without a flag of printf. Those that name no argument take the next one.
_PLAIN = re.compile(
    rf"(?P<in_turn>\{{(?:[:!][^{{}}]*)?\}}|(?!%(?:\(|\d+\$))(?:{PATTERNS['format']}))"
    rf"|{PATTERNS['braces']}|{PATTERNS['format']}|{PLACEHOLDERS}|%L?\d{{1,2}}(?![\w$])"
)
_MARKS = re.compile(rf"{ARGUMENT}|[%${{}}]")


def has_icu(text: str) -> bool:
    """Returns whether a text has an ICU message with branches, such as `{n, plural, one {# file} other {# files}}`,
    which icu.py reads."""
    return _ICU.search(text) is not None


def formats_of(flags: Iterable[str]) -> set[str]:
    """Returns the flags that say which format an entry has."""
    return {flag for flag in flags if flag.endswith("-format") and not flag.startswith("no-")}


def placeholders(text: str, *, printf: bool = False) -> Counter[str]:
    """Counts the placeholders in a text, such as `{name}`, `%1` and `%s`, or only the conversions of printf. Those that
    take the next argument are numbered: `%s in %d` has the placeholders of `%2$d in %1$s`."""
    if printf:
        found = [(match.group(), not match["name"]) for match in CONVERSION.finditer(text) if match["rest"] != "%"]
    else:
        found = [(match.group(), match["in_turn"] is not None) for match in _PLAIN.finditer(text)]
    numbers = count(1)
    return Counter(f"%{next(numbers)}${text[1:]}" if in_turn else text for text, in_turn in found)


def marks(text: str) -> Counter[str]:
    """Counts the characters that mark placeholders, known or not, and arguments such as `$1`."""
    return Counter(_MARKS.findall(re.sub(r"%\d+\$", "%", text)))
