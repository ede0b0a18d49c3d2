"""Reads pairs of keys and values: `.strings` of iOS and macOS, and `.properties` of Java. A translation is a copy in
another language."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from vtrans.apps.documents.document import Document, Filling, Slot
from vtrans.apps.documents.formats.app_strings.copies import Node, copy_document
from vtrans.apps.documents.formats.xml import encoding
from vtrans.apps.documents.program_strings import ProgramString, format_flags, slot_of, unescaped
from vtrans.system.errors import DocumentError
from vtrans.text.lines import is_utf8

_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_WRITTEN: Mapping[str, str] = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}

_SPACE = r"(?:\s|/\*.*?\*/|//[^\n]*+)*+"
_STRING = r'(?:"[^"\\]*(?:\\.[^"\\]*)*+"|[\w.$:-]++)'
_APPLE_PAIR = re.compile(
    rf"{_SPACE}(?:(?P<pair>(?P<key>{_STRING}){_SPACE}(?:={_SPACE}(?P<value>{_STRING}){_SPACE})?;)|\Z)", re.DOTALL
)
_APPLE_ESCAPE = re.compile(r"\\(?:U([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_APPLE_WRITTEN = str.maketrans({**_WRITTEN, '"': '\\"'})

# A line of a comment begins with # or !, and a backslash at the end of a line continues the value on the next one.
_JAVA_PAIR = re.compile(
    r"^(?P<pair>[ \t\f]*(?P<key>(?:\\.|[^\s:=#!\\])(?:\\.|[^\s:=\\])*+)(?:[ \t\f]*+[:=][ \t\f]*+|[ \t\f]++)"
    r"(?P<value>(?:\\(?:\r\n|.)|[^\r\n\\])*+))",
    re.MULTILINE | re.DOTALL,
)
_JAVA_ESCAPE = re.compile(r"\\(?:(?:\r\n?|\n)[ \t\f]*|u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_JAVA_WRITTEN = str.maketrans({**_WRITTEN, "\f": "\\f"})
_ARGUMENT = re.compile(r"\{\d")  # of a MessageFormat, in which an apostrophe is written twice
_QUOTE = re.compile(r"(?<!')'(?!')")


def strings_encoding(content: bytes) -> str:
    """Returns the encoding of a `.strings` file: UTF-16 if it has a byte order mark or zero bytes, else UTF-8."""
    if content.startswith(b"bplist00"):
        raise DocumentError("The file must be text, but is a binary property list; convert it with plutil.")
    zeros = {content[:1]: "utf-16-be", content[1:2]: "utf-16-le"}
    return zeros.get(b"\0") or encoding(content)


def properties_encoding(content: bytes) -> str:
    """Returns UTF-8 if a file is UTF-8, else ISO-8859-1, as in older versions of Java."""
    return "utf-8" if is_utf8(content) else "latin-1"


def strings_document(text: str, language: str, filling: Filling = Filling()) -> Document:
    """Returns a `.strings` file, or its existing translation, with the values to translate as slots. Raises
    DocumentError with the line of a syntax error."""

    def value_of(raw: str) -> str | None:
        return unescaped(raw[1:-1] if raw[:1] == '"' else raw, _APPLE_ESCAPE, _LETTERS)

    def slot(pair: re.Match[str], value: str) -> Slot:
        string = ProgramString(value, format_flags(value, "objc-format"), language)
        return slot_of(pair.start("value"), pair["value"], [string], lambda made: f'"{made.translate(_APPLE_WRITTEN)}"')

    return copy_document(lambda text: _read(text, _apple_pairs(text), value_of, slot), text, filling.earlier)


def properties_document(text: str, language: str, filling: Filling = Filling()) -> Document:
    """Returns a `.properties` file, or its existing translation, with the values to translate as slots."""

    def value_of(raw: str) -> str | None:
        value = unescaped(raw, _JAVA_ESCAPE, _LETTERS)
        is_unclear = value and _ARGUMENT.search(value) and _QUOTE.search(value)
        return None if is_unclear else value

    def read(text: str) -> Node:
        slot = partial(_java_slot, language=language, is_ascii=text.isascii())
        return _read(text, _JAVA_PAIR.finditer(text), value_of, slot)

    return copy_document(read, text, filling.earlier)


def _read(
    text: str,
    pairs: Iterator[re.Match[str]],
    value_of: Callable[[str], str | None],
    slot: Callable[[re.Match[str], str], Slot],
) -> Node:
    """Returns the pairs of a file as members of a node. A value that `value_of` cannot decode is not translated."""
    root, before = Node(0, len(text)), 0
    for pair in pairs:
        raw = pair["value"] or ""
        value = value_of(raw)
        node = Node(*pair.span("pair"), pair["key"].strip('"'), raw if value is None else value, before=before)
        if node.text.strip():
            node.slot = partial(slot, pair, value) if value is not None else lambda: None
        root.members.append(node)
        before = pair.end()
    return root


def _apple_pairs(text: str) -> Iterator[re.Match[str]]:
    """Yields the pairs, each with the white space and the comments before it."""
    place = 0
    while place < len(text):
        pair = _APPLE_PAIR.match(text, place)
        if pair is None:
            line = text.count("\n", 0, len(text) - len(text[place:].lstrip())) + 1
            raise DocumentError('a comment or a pair such as "key" = "value"; is needed.', line)
        if pair["pair"]:
            yield pair
        place = pair.end()


def _java_slot(pair: re.Match[str], value: str, language: str, is_ascii: bool) -> Slot:
    is_message = _ARGUMENT.search(value) is not None
    source = value.replace("''", "'") if is_message else value
    string = ProgramString(source, format_flags(source, "java-printf-format"), language)

    def encoded(made: str) -> str:
        made = (made.replace("'", "''") if is_message else made).translate(_JAVA_WRITTEN)
        made = f"\\{made}" if made[:1] == " " else made
        if not is_ascii:
            return made
        units = made.encode("utf-16-be")
        codes = (int.from_bytes(units[n : n + 2]) for n in range(0, len(units), 2))
        return "".join(chr(code) if code < 128 else f"\\u{code:04X}" for code in codes)

    return slot_of(pair.start("value"), pair["value"], [string], encoded)
