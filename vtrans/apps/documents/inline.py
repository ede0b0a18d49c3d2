"""Parses the strings of programs and manuals: tags, markup of man pages, options, accelerators and placeholders, with
and without the format flags of gettext."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Literal

from vtrans.apps.documents.formats.markup import Item, other_halves
from vtrans.apps.documents.sentences import PROTECTION
from vtrans.translate.wording.patterns import ARGUMENT, PATTERNS, PLACEHOLDERS

Span = tuple[int, int, Item]
"""The begin and end of an item in a string, and the item."""

# Two spaces separate columns, except after a parenthesis in man pages.
# Man pages have B<bold> and I<italic>, whose text is translated, and characters such as E<lt>.
_PARTS = re.compile(
    r"(?P<break>[\n\r\t\v\f]+|(?<=[^\s)]) {2,}(?=\S))"
    r"|(?P<atom>E<[\w.][^<>]*>|C[BIRW]?<(?:[^<>]|E<\w+>)*>|<(?:[A-Za-z][^<>]*|\d+)/>"
    rf"|{ARGUMENT}"
    r"|:[a-z][\w:+.-]{0,60}:`[^`]+`|(?<![\w-])(?:--[a-z][\w-]*(?:=[\w./-]*\w)?|-\w(?![\w<-])))"
    r"|(?P<man>(?<![A-Z])[BCFILRSX]<(?!/))|(?P<end>>)"
    r"|<(?P<slash>/?)(?P<name>[A-Za-z][\w:.-]*|\d+)(?:\s[^<>]*)?>"
)
_ENTITY = re.compile(r"&(?:[A-Za-z]\w*|#\w+);")
# The mark stands before a word, or inside one such as E_xit.
_ACCELERATOR = re.compile(
    r"(?<![\w&])[_&](?=[^\W_])|(?<=\b[^\W\d_a-z])[_&](?=[^\W\dA-Z_])|(?<=\b[^\W\d_a-z][^\W\dA-Z_])[_&](?=[^\W\dA-Z_])"
)
LONGEST_LABEL = 80  # characters of a text that may have an accelerator

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


def items_of(text: str, more: Iterable[Span] = ()) -> list[Item]:
    """Returns the items of a string, including `more`. A line end, a tab or several spaces are a break. A tag without
    its other half is protected text, unless it is in `more`."""
    matches = list(_PARTS.finditer(text))
    spans = [*_pairs(matches), *more]
    for match in matches:
        if match["break"] or match["atom"]:
            spans.append((*match.span(), Item("break" if match["break"] else "atom", match.group())))
    items, place = list[Item](), 0
    for begin, end, item in [*sorted(spans, key=lambda span: (span[0], -span[1])), (len(text), len(text), None)]:
        if begin < place:
            continue  # inside another item
        if place < begin:
            items.append(Item("text", text[place:begin], text[place:begin]))
        if item:
            items.append(item)
        place = end
    return items


def _pairs(matches: Iterable[re.Match[str]]) -> Iterator[Span]:
    """Yields the tags whose other half is among the matches."""
    tags = [match for match in matches if match["man"] or match["end"] or match["name"]]
    halves = other_halves((n, tag["name"] or "", not (tag["end"] or tag["slash"])) for n, tag in enumerate(tags))
    for n, other in halves.items():
        kind: Literal["open", "close"] = "open" if n < other else "close"
        yield *tags[n].span(), Item(kind, tags[n].group(), name=f"pair {min(n, other)}")


@dataclass(frozen=True)
class Accelerator:
    """A label's keyboard accelerator: its mark, such as the `_` of `_File`, and the letter after it."""

    mark: str
    letter: str

    def placed(self, text: str) -> str:
        """Returns a label with the accelerator before the same letter, preferably at the beginning of a word, else
        before its first letter, else at its end as `(_F)`. A label that has one already, from a memory, stays."""
        own = without_accelerator(text)[1]
        if own and own.mark == self.mark:
            return text
        protected = {place for span in PROTECTION.spans(text) for place in range(*span)}
        letters = [place for place, sign in enumerate(text) if sign.isalnum() and place not in protected]
        same = [i for i in letters if text[i].lower() == self.letter.lower()]
        starts = [i for i in same if not text[:i][-1:].isalnum()]
        cased = [i for i in letters if text[i].lower() != text[i].upper()]
        if not (found := starts or same or cased):
            return f"{text}({self.mark}{self.letter.upper()})"
        return f"{text[: found[0]]}{self.mark}{text[found[0] :]}"


def without_accelerator(text: str) -> tuple[str, Accelerator | None]:
    """Returns a label without its accelerator, and that accelerator if there is one."""
    if len(text) > LONGEST_LABEL or "<" in text or _ENTITY.search(text):
        return text, None
    matches = list(_ACCELERATOR.finditer(text))
    if len(matches) != 1 or text.count(matches[0].group()) != 1:
        return text, None
    place = matches[0].start()
    return text[:place] + text[place + 1 :], Accelerator(text[place], text[place + 1])


def has_icu(text: str) -> bool:
    """Returns whether a text has an ICU message with branches, such as `{n, plural, one {# file} other {# files}}`."""
    return _ICU.search(text) is not None


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
