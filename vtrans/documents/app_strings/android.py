"""Reads the strings of Android (`strings.xml`): a translation is a copy in another language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.sax.saxutils import escape

from vtrans.documents.app_strings.copies import Copy, Found, Node, completed
from vtrans.documents.document import Document
from vtrans.documents.markup import Item
from vtrans.documents.program_strings import ProgramString, format_flags, paired, slot_of
from vtrans.documents.xml import Element, inline_items, parse
from vtrans.errors import DocumentError

_HTML = "a annotation b big cite dfn em font i s small span strike strong sub sup tt u"
_TAGS = frozenset(_HTML.split())
_PARTS = {"resources": ("string", "string-array", "plurals"), "string-array": ("item",), "plurals": ("item",)}
_NAMESPACE = re.compile(r"""\s+xmlns:([\w.-]+)\s*=\s*(?:"[^"]*"|'[^']*')""")
_REFERENCE = re.compile(r"\s*[@?][\w:.]+/\S+\s*")  # to another resource
_QUOTES = re.compile(r'((?:[^"\\]|\\.)+)', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t"}
_WRITTEN = str.maketrans({"\\": "\\\\", '"': '\\"', "'": "\\'", "\n": "\\n", "\t": "\\t"})


def android_document(text: str, language: str, *, target: str = "", existing: str | None = None) -> Document:
    """Returns a file of strings, arrays of strings and plural forms, or its existing translation, in which those are
    slots that are to be translated. Raises DocumentError for other XML."""
    copy = Copy(text)
    if existing is not None:
        copy = _completed(text, existing)
    return copy.document(_strings(copy.text, language))


def _completed(text: str, existing: str) -> Copy:
    """Returns a translation with what it lacks, and with the namespaces that this has."""
    ours, theirs = _root(text), _root(existing)
    copy = completed(text, _tree(ours), existing, _tree(theirs))
    bounds = copy.bounds or []
    added = "".join(copy.text[begin:end] for begin, end in zip(bounds[::2], bounds[1::2], strict=True))
    declared = [match for match in _NAMESPACE.finditer(ours.opening) if f"{match[1]}:" in added]
    lacking = "".join(match.group() for match in declared if f"xmlns:{match[1]}" not in theirs.opening)
    if not lacking or not theirs.children:
        return copy
    end = theirs.begin + len(theirs.opening) - 1
    return _completed(text, existing[:end] + lacking + existing[end:])


def _strings(text: str, language: str) -> Iterator[Found]:
    for part in _parts(_root(text)):
        for string in [part] if part.name == "string" else _parts(part):
            begin = string.begin + len(string.opening)
            if _decoded(string.inside) is None:
                yield begin, None
            elif not string.is_blank and not _REFERENCE.fullmatch(string.inside):
                yield begin, slot_of(begin, string.inside, [_AndroidString(string, language)])


def _root(text: str) -> Element:
    root = parse(text, ("",), doctype=True).child("resources")
    if root is None:
        raise DocumentError("The root element of the file's XML must be resources, as in strings.xml of Android.")
    return root


def _parts(element: Element) -> list[Element]:
    """Returns the children of an element that are to be translated, or have children that are."""
    children = [child for child in element.children if child.name in _PARTS.get(element.name, ())]
    return [child for child in children if child.attributes.get("translatable") != "false"]


def _tree(element: Element, key: str = "", before: int = 0) -> Node:
    """Returns an element with its parts as members."""
    text = element.inside if element.name in ("string", "item") and not element.is_blank else ""
    node, place = Node(element.begin, element.end, key, text, before=before), element.begin + len(element.opening)
    parts = {part.begin for part in _parts(element)}
    for child in element.children:
        if child.name and child.begin in parts:
            names = [child.name, *(child.attributes.get(name, "") for name in ("name", "product"))]
            node.members.append(_tree(child, child.attributes.get("quantity") or " ".join(names), place))
        place = child.end if child.name else place
    return node


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
    return escape(text.translate(_WRITTEN))
