"""Reads the `.strings` files of iOS and macOS: a translation is a copy in another language."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vtrans.apps.documents.document import Document
from vtrans.apps.documents.formats.app_strings.copies import Copy, Found, Node, completed
from vtrans.apps.documents.formats.xml import encoding
from vtrans.apps.documents.program_strings import ProgramString, format_flags, paired, slot_of
from vtrans.system.errors import DocumentError

_SPACE = r"(?:\s|/\*.*?\*/|//[^\n]*+)*+"
_STRING = r'(?:"[^"\\]*(?:\\.[^"\\]*)*+"|[\w.$:-]++)'
_PAIR = re.compile(
    rf"{_SPACE}(?:(?P<pair>(?P<key>{_STRING}){_SPACE}(?:={_SPACE}(?P<value>{_STRING}){_SPACE})?;)|\Z)", re.DOTALL
)
_ESCAPE = re.compile(r"\\(?:U([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r"}
_WRITTEN = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


def strings_encoding(content: bytes) -> str:
    """Returns the encoding of a `.strings` file: UTF-16 if it has a byte order mark or zero bytes, else UTF-8."""
    if content.startswith(b"bplist00"):
        raise DocumentError("The file must be text, but is a binary property list; convert it with plutil.")
    zeros = {content[:1]: "utf-16-be", content[1:2]: "utf-16-le"}
    return zeros.get(b"\0") or encoding(content)


def strings_document(text: str, language: str, *, target: str = "", existing: str | None = None) -> Document:
    """Returns a `.strings` file, or its existing translation, with the values that are to be translated as slots.
    Raises DocumentError with the line of what has another form."""
    copy = Copy(text)
    if existing is not None:
        copy = completed(text, _tree(text), existing, _tree(existing))
    return copy.document(_strings(copy.text, language))


def _strings(text: str, language: str) -> Iterator[Found]:
    for pair in _pairs(text):
        place, value = pair.start("value"), _value(pair)
        if value is None:
            yield place, None
        elif value.strip():
            string = ProgramString(value, format_flags(value, "objc-format"), language)
            yield place, slot_of(place, pair["value"], [string], lambda made: f'"{made.translate(_WRITTEN)}"')


def _tree(text: str) -> Node:
    """Returns the pairs as members of a group."""
    root = Node(0, len(text))
    for pair in _pairs(text):
        key, value = pair["key"].strip('"'), _value(pair)
        shown = pair["value"] if value is None else value
        root.members.append(Node(*pair.span("pair"), key, shown, before=pair.start()))
    return root


def _pairs(text: str) -> Iterator[re.Match[str]]:
    """Yields the pairs, each with the white space and the comments before it."""
    place = 0
    while place < len(text):
        pair = _PAIR.match(text, place)
        if pair is None:
            line = text.count("\n", 0, len(text) - len(text[place:].lstrip())) + 1
            raise DocumentError('a comment or a pair such as "key" = "value"; is needed.', line)
        if pair["pair"]:
            yield pair
        place = pair.end()


def _value(pair: re.Match[str]) -> str | None:
    """Returns the value of a pair, which is empty if it has only a key; None if it has half a character."""
    raw = pair["value"] or ""
    inside = raw[1:-1] if raw[:1] == '"' else raw
    return paired(_ESCAPE.sub(lambda at: chr(int(at[1], 16)) if at[1] else _LETTERS.get(at[2], at[2]), inside))
