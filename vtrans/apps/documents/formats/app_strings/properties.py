"""Reads `.properties` files of Java: a translation is a copy in another language."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vtrans.apps.documents.document import Document
from vtrans.apps.documents.formats.app_strings.copies import Copy, Found, Node, completed
from vtrans.apps.documents.program_strings import ProgramString, format_flags, paired, slot_of

# A line of a comment begins with # or !, and a backslash at the end of a line continues the value on the next one.
_PAIR = re.compile(
    r"^(?P<pair>[ \t\f]*(?P<key>(?:\\.|[^\s:=#!\\])(?:\\.|[^\s:=\\])*+)(?:[ \t\f]*+[:=][ \t\f]*+|[ \t\f]++)"
    r"(?P<value>(?:\\(?:\r\n|.)|[^\r\n\\])*+))",
    re.MULTILINE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:(?:\r\n?|\n)[ \t\f]*|u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_WRITTEN = str.maketrans({"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\f": "\\f"})
_ARGUMENT = re.compile(r"\{\d")  # of a MessageFormat, in which an apostrophe is written twice
_QUOTE = re.compile(r"(?<!')'(?!')")


def properties_encoding(content: bytes) -> str:
    """Returns UTF-8 if a file is UTF-8, else ISO-8859-1, as in older versions of Java."""
    return "utf-8" if content.decode(errors="ignore").encode() == content else "latin-1"


def properties_document(text: str, language: str, *, target: str = "", existing: str | None = None) -> Document:
    """Returns a `.properties` file, or its existing translation, with the values that are to be translated as slots."""
    copy = Copy(text)
    if existing is not None:
        copy = completed(text, _tree(text), existing, _tree(existing))
    return copy.document(_strings(copy.text, language))


def _strings(text: str, language: str) -> Iterator[Found]:
    is_ascii = text.isascii()
    for pair in _PAIR.finditer(text):
        place, value = pair.start("value"), _value(pair)
        is_message = value is not None and _ARGUMENT.search(value) is not None
        if value is None or (is_message and _QUOTE.search(value)):
            yield place, None
        elif value.strip():
            source = value.replace("''", "'") if is_message else value
            string = ProgramString(source, format_flags(source, "java-printf-format"), language)

            def encoded(made: str, is_message: bool = is_message) -> str:
                made = (made.replace("'", "''") if is_message else made).translate(_WRITTEN)
                made = f"\\{made}" if made[:1] == " " else made
                units = made.encode("utf-16-be")
                codes = (int.from_bytes(units[n : n + 2]) for n in range(0, len(units), 2))
                return "".join(chr(code) if code < 128 else f"\\u{code:04X}" for code in codes) if is_ascii else made

            yield place, slot_of(place, pair["value"], [string], encoded)


def _tree(text: str) -> Node:
    """Returns the pairs as members of a group."""
    root, before = Node(0, len(text)), 0
    for pair in _PAIR.finditer(text):
        shown = _value(pair) or pair["value"]
        root.members.append(Node(*pair.span("pair"), pair["key"], shown, before=before))
        before = pair.end()
    return root


def _value(pair: re.Match[str]) -> str | None:
    """Returns the value of a pair; None if it has half a character."""
    return paired(
        _ESCAPE.sub(lambda at: chr(int(at[1], 16)) if at[1] else _LETTERS.get(at[2], at[2]) or "", pair["value"])
    )
