"""Reads the strings of Android (`strings.xml`): the result is the same file in another language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.sax.saxutils import escape

from vtrans.documents.document import Document, FilledDocument, Slot
from vtrans.documents.markup import Item
from vtrans.documents.program_strings import ProgramString, format_flags, paired, slot_of
from vtrans.documents.xml import Element, inline_items, parse
from vtrans.errors import DocumentError

_HTML = "a annotation b big cite dfn em font i s small span strike strong sub sup tt u"
_TAGS = frozenset(_HTML.split())
_REFERENCE = re.compile(r"\s*[@?][\w:.]+/\S+\s*")  # to another resource
_QUOTES = re.compile(r'((?:[^"\\]|\\.)+)', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t"}
_WRITTEN = {"\\": "\\\\", '"': '\\"', "'": "\\'", "\n": "\\n", "\t": "\\t"}


def android_document(text: str, language: str, *, target: str = "", overwrite: bool = False) -> Document:
    """Returns a file of strings, arrays of strings and plural forms, which are slots unless they are not to be
    translated. Raises DocumentError for other XML."""
    root = parse(text, ("",), doctype=True).child("resources")
    if root is None:
        raise DocumentError("The root element of the file's XML must be resources, as in strings.xml of Android.")
    slots, left = list[Slot](), 0
    for element in _strings(root):
        if _decoded(element.inside) is None:
            left += 1
        elif not element.is_blank and not _REFERENCE.fullmatch(element.inside):
            string = _AndroidString(element, language)
            slots.append(slot_of(element.begin + len(element.opening), element.inside, [string]))
    return FilledDocument(text, slots, left=left)


def _strings(root: Element) -> Iterator[Element]:
    for element in root.children:
        parts = {"string": [element], "string-array": element.children, "plurals": element.children}
        if element.attributes.get("translatable") != "false":
            yield from (part for part in parts.get(element.name, ()) if part.name in ("string", "item"))


class _AndroidString(ProgramString):
    """A string. Elements other than tags of HTML, such as `<xliff:g>`, are atoms."""

    def __init__(self, element: Element, language: str) -> None:
        self._element = element
        super().__init__(element.inside, format_flags(element.inside, "java-printf-format"), language)

    def _items(self, text: str) -> list[Item]:
        return list(inline_items(self._element, self._words, _TAGS))

    def _words(self, text: str) -> Iterator[Item]:
        """Yields the items of text. Quotation marks, which keep the white space between them, stay."""
        for number, part in enumerate(_QUOTES.split(text)):
            if number % 2 == 0:
                yield from [Item("break", part)] if part else []
                continue
            words = part if '"' in text else re.sub(r"\s+", " ", part)
            for item in super()._items(_decoded(words) or ""):
                yield Item(item.kind, _written(item.raw), item.text, item.name)

    def _escaped(self, text: str) -> str:
        return _written(super()._escaped(text))

    def finished(self, text: str) -> str:
        """Returns the translation. An `@` or `?` at its beginning would refer to another resource."""
        text = super().finished(text)
        return f"\\{text}" if text[:1] in ("@", "?") else text


def _decoded(text: str) -> str | None:
    """Returns text without escapes, or None if it has half a character."""
    return paired(_ESCAPE.sub(lambda at: chr(int(at[1], 16)) if at[1] else _LETTERS.get(at[2], at[2]), text))


def _written(text: str) -> str:
    return escape("".join(_WRITTEN.get(sign, sign) for sign in text))
