"""Reads the `.strings` files of iOS and macOS: the result is the same file in another language."""

from __future__ import annotations

import re

from vtrans.documents.document import Document, FilledDocument, Slot
from vtrans.documents.program_strings import ProgramString, format_flags, paired, slot_of
from vtrans.documents.xml import encoding
from vtrans.errors import DocumentError

_SPACE = r"(?:\s|/\*.*?\*/|//[^\n]*+)*+"
_STRING = r'(?:"[^"\\]*(?:\\.[^"\\]*)*+"|[\w.$:-]++)'
_PAIR = re.compile(rf"{_SPACE}(?:{_STRING}{_SPACE}(?:={_SPACE}(?P<value>{_STRING}){_SPACE})?;|\Z)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:U([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r"}
_WRITTEN = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def strings_encoding(content: bytes) -> str:
    """Returns the encoding of a `.strings` file: UTF-16 if it has a byte order mark or zero bytes, else UTF-8."""
    if content.startswith(b"bplist00"):
        raise DocumentError("The file must be text, but is a binary property list; convert it with plutil.")
    zeros = {content[:1]: "utf-16-be", content[1:2]: "utf-16-le"}
    return zeros.get(b"\0") or encoding(content)


def strings_document(text: str, language: str, *, target: str = "", overwrite: bool = False) -> Document:
    """Returns a `.strings` file with its values as slots. Raises DocumentError with the line of what has another
    form."""
    slots, left, place = list[Slot](), 0, 0
    while place < len(text):
        pair = _PAIR.match(text, place)
        if pair is None:
            line = text.count("\n", 0, len(text) - len(text[place:].lstrip())) + 1
            raise DocumentError('a comment or a pair such as "key" = "value"; is needed.', line)
        raw, place = pair["value"] or "", pair.end()
        value = paired(_ESCAPE.sub(_character, raw[1:-1] if raw[:1] == '"' else raw))
        left += value is None
        if value and value.strip():
            string = ProgramString(value, format_flags(value, "objc-format"), language)
            slots.append(slot_of(pair.start("value"), raw, [string], _quoted))
    return FilledDocument(text, slots, left=left)


def _character(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else _LETTERS.get(escape[2], escape[2])


def _quoted(text: str) -> str:
    return '"{}"'.format("".join(_WRITTEN.get(sign, sign) for sign in text))
