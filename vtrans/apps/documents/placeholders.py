"""Placeholders in the strings of programs, with and without the format flags of gettext."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count

from vtrans.translate.wording.patterns import ARGUMENT, PATTERNS, PLACEHOLDERS

_NUMBERED = "c gcc-internal java-printf objc perl php"  # allow `%2$s`
_LIKE_PRINTF = "awk d elisp gfc-internal go javascript librep lua modula2 object-pascal python ruby sh-printf tcl"
NUMBERED, PRINTF = (
    {f"{name}-format" for name in names.split()} for names in (_NUMBERED, f"{_NUMBERED} {_LIKE_PRINTF}")
)
# `%1$*2$d` of C, `%(name)s` of Python, `%<name>s` of Ruby, `%0:s` of Pascal and `%[1]d` of Go name their arguments.
CONVERSION = re.compile(
    r"%(?P<name>\d+\$|\(\w+\)|<(?!PRI)\w+>(?! )|\d+:|\[\d+\])?"
    r"(?P<rest>[-+ #0']{0,6}(?:\d+|\*(?:\d+\$)?)?(?:\.(?:\d+|\*(?:\d+\$)?)?)?"
    r"(?:hh?|ll?|[qLjzZtw])?(?:[a-zA-Z%@]|<\w+>))"
)
# Placeholders other than conversions of printf. Those of gcc and Ruby do not take the next argument.
_BRACES = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_TILDE = r"~(?:'.|[-+\d,#vV]){0,20}[:@]*[A-Za-z%&~|$*?()<>\[\]{};^/]"
_OTHERS = {
    "gcc-internal-format": r"%[<>']",
    "ruby-format": r"%\{\w+\}",
    "boost-format": r"%(?:\d+%|\|[^|\s]+\||\d+\$[-+#0 \d.]*[a-zA-Z])",
    "perl-brace-format": r"\{[A-Za-z_]\w*\}",
    "sh-format": r"\$(?:\w+|\{\w+\})",
    **dict.fromkeys((f"{name}-format" for name in ("c++", "csharp", "java", "python-brace", "rust")), _BRACES),
    **dict.fromkeys(("lisp-format", "scheme-format"), _TILDE),
    **dict.fromkeys(("qt-format", "qt-plural-format"), r"%L?(?:\d{1,2}|n)"),
    **dict.fromkeys(("kde-format", "kde-kuit-format", "smalltalk-format", "ycp-format"), r"%\d{1,2}"),
}
# Placeholders that take the next argument.
_IN_TURN = re.compile(rf"\{{(?:[:!](?:[^{{}}]|\{{[^{{}}]*\}})*)?\}}|(?!~[%&|~]){_TILDE}")
_ICU = re.compile(r"\{\s*[\w.-]+\s*,\s*(?:plural|selectordinal|select|choice)\s*,")
# Placeholders of strings without a flag.
_PLAIN = re.compile(
    rf"{PATTERNS['braces']}|(?P<in_turn>(?!%(?:\(|\d+\$)))?(?:{PATTERNS['format']})|{PLACEHOLDERS}|%L?\d{{1,2}}(?![\w$])"
)
_MARKS = re.compile(rf"{ARGUMENT}|[%${{}}]")


def has_icu(text: str) -> bool:
    """Returns whether a text has an ICU message with branches, such as `{n, plural, one {# file} other {# files}}`,
    which icu.py reads."""
    return _ICU.search(text) is not None


def placeholders(text: str) -> Counter[str]:
    """Counts the placeholders in a text, such as `{name}`, `%1` and `%s`. Those that take the next argument are
    numbered: `%s in %d` has the placeholders of `%2$d in %1$s`."""
    return _numbered((match.group(), match["in_turn"] is not None) for match in _PLAIN.finditer(text))


def marks(text: str) -> Counter[str]:
    """Counts the characters that mark placeholders, known or not, and arguments such as `$1`."""
    return Counter(_MARKS.findall(re.sub(r"%\d+\$", "%", text)))


def _numbered(found: Iterable[tuple[str, bool]]) -> Counter[str]:
    """Counts the placeholders. Those that take the next argument (True) are numbered."""
    numbers = count(1)
    return Counter(f"%{next(numbers)}${text[1:]}" if in_turn else text for text, in_turn in found)


class Format:
    """The placeholders of an entry with these flags."""

    def __init__(self, flags: Iterable[str]) -> None:
        flags = {flag for flag in flags if flag.endswith("-format")}
        self.names = {flag for flag in flags if not flag.startswith("no-")}
        """The flags that say which format the entry has."""
        self.printf, self.numbered = bool(self.names & PRINTF), bool(self.names & NUMBERED)
        others = [pattern for name, pattern in _OTHERS.items() if name in self.names]
        self._others = re.compile("|".join(others)) if others else None
        self._is_text = bool(flags - self.names)  # no program reads the string as a format

    def others(self, text: str) -> Iterator[re.Match[str]]:
        """Yields the placeholders that are not conversions of printf."""
        return self._others.finditer(text) if self._others else iter(())

    def counted(self, text: str) -> Counter[str]:
        """Counts the placeholders in a text, as `placeholders` does."""
        if not self.names and self._is_text:
            return Counter(match.group() for match in _PLAIN.finditer(text))
        if not self.names:
            return placeholders(text)
        found = [(match.group(), _IN_TURN.fullmatch(match.group()) is not None) for match in self.others(text)]
        conversions = [match for match in CONVERSION.finditer(text) if match["rest"] != "%"] if self.printf else []
        return _numbered([*found, *((match.group(), not match["name"]) for match in conversions)])
