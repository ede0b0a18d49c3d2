"""Reads `.properties` files of Java: a translation is a copy in another language."""

from __future__ import annotations

import re
from functools import partial

from vtrans.apps.documents.document import Document, Filling, Slot
from vtrans.apps.documents.formats.app_strings.copies import Node, copy_document
from vtrans.apps.documents.program_strings import ProgramString, format_flags, slot_of, unescaped
from vtrans.text.lines import is_utf8

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
    return "utf-8" if is_utf8(content) else "latin-1"


def properties_document(text: str, language: str, filling: Filling = Filling()) -> Document:
    """Returns a `.properties` file, or its existing translation, with the values to translate as slots."""

    def read(text: str) -> Node:
        root, before = Node(0, len(text)), 0
        for pair in _PAIR.finditer(text):
            value = unescaped(pair["value"], _ESCAPE, _LETTERS)
            node = Node(*pair.span("pair"), pair["key"], value or pair["value"], before=before)
            if value is None or value.strip():
                node.slot = partial(_slot, pair, value, language, text.isascii())
            root.members.append(node)
            before = pair.end()
        return root

    return copy_document(read, text, filling.earlier)


def _slot(pair: re.Match[str], value: str | None, language: str, is_ascii: bool) -> Slot | None:
    is_message = value is not None and _ARGUMENT.search(value) is not None
    if value is None or (is_message and _QUOTE.search(value)):
        return None
    source = value.replace("''", "'") if is_message else value
    string = ProgramString(source, format_flags(source, "java-printf-format"), language)

    def encoded(made: str) -> str:
        made = (made.replace("'", "''") if is_message else made).translate(_WRITTEN)
        made = f"\\{made}" if made[:1] == " " else made
        if not is_ascii:
            return made
        units = made.encode("utf-16-be")
        codes = (int.from_bytes(units[n : n + 2]) for n in range(0, len(units), 2))
        return "".join(chr(code) if code < 128 else f"\\u{code:04X}" for code in codes)

    return slot_of(pair.start("value"), pair["value"], [string], encoded)
