"""Reads the resources of .NET (`.resx`): a translation is a copy in another language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.sax.saxutils import escape

from vtrans.apps.documents.document import Document
from vtrans.apps.documents.formats.app_strings.copies import Copy, Found, Node, completed
from vtrans.apps.documents.formats.xml import Element, is_text, parse
from vtrans.apps.documents.program_strings import ProgramString, slot_of
from vtrans.system.errors import DocumentError

_ARGUMENT = re.compile(r"\{\d")


def resx_document(text: str, language: str, *, target: str = "", existing: str | None = None) -> Document:
    """Returns a file of resources, or its existing translation, with the texts that are to be translated as slots.
    Raises DocumentError for other XML."""
    copy = Copy(text)
    if existing is not None:
        copy = completed(text, _tree(text), existing, _tree(existing))
    return copy.document(_strings(copy.text, language), "xml")


def _strings(text: str, language: str) -> Iterator[Found]:
    for _, value in _texts(_root(text)):
        begin, source = value.begin + len(value.opening), "".join(part.text for part in value.children)
        if not value.is_blank and all(map(is_text, value.children)):
            flags = ("csharp-format",) if _ARGUMENT.search(source) else ()
            yield begin, slot_of(begin, value.inside, [ProgramString(source, flags, language)], escape)


def _root(text: str) -> Element:
    root = parse(text, ("",), doctype=True).child("root")
    if root is None:
        raise DocumentError("The root element of the file's XML must be root, as in a .resx file of .NET.")
    return root


def _texts(root: Element) -> Iterator[tuple[Element, Element]]:
    """Yields the resources that are text, and their values. Others have a type, and those of forms begin with `>>`."""
    for data in root.children:
        value, given = data.child("value"), data.attributes
        is_other = {"type", "mimetype"} & given.keys() or given.get("name", "").startswith((">>", "$this."))
        if data.name == "data" and value and not is_other:
            yield data, value


def _tree(text: str) -> Node:
    """Returns the resources as members of a group."""
    root = _root(text)
    node, before = Node(root.begin, root.end), root.begin + len(root.opening)
    texts = {data.begin: value.inside.strip() for data, value in _texts(root)}
    for child in root.children:
        if child.begin in texts:
            name = child.attributes.get("name", "")
            node.members.append(Node(child.begin, child.end, name, texts[child.begin], before=before))
        before = child.end if child.name else before
    return node
