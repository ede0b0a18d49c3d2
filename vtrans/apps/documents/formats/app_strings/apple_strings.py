"""Reads the `.strings` files of iOS and macOS: a translation is a copy in another language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from vtrans.apps.documents.document import Document, Filling, Slot
from vtrans.apps.documents.formats.app_strings.copies import Node, copy_document
from vtrans.apps.documents.formats.xml import encoding
from vtrans.apps.documents.program_strings import ProgramString, format_flags, slot_of, unescaped
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


def strings_document(text: str, language: str, filling: Filling = Filling()) -> Document:
    """Returns a `.strings` file, or its existing translation, with the values to translate as slots. Raises
    DocumentError with the line of a syntax error."""

    def read(text: str) -> Node:
        root = Node(0, len(text))
        for pair in _pairs(text):
            raw = pair["value"] or ""
            value = unescaped(raw[1:-1] if raw[:1] == '"' else raw, _ESCAPE, _LETTERS)
            node = Node(
                *pair.span("pair"), pair["key"].strip('"'), raw if value is None else value, before=pair.start()
            )
            node.slot = partial(_slot, pair, value, language) if node.text.strip() else None
            root.members.append(node)
        return root

    return copy_document(read, text, filling.earlier)


def _slot(pair: re.Match[str], value: str | None, language: str) -> Slot | None:
    if value is None:
        return None
    string = ProgramString(value, format_flags(value, "objc-format"), language)
    return slot_of(pair.start("value"), pair["value"], [string], lambda made: f'"{made.translate(_WRITTEN)}"')


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
