"""Reads the XML of .docx and .odt files for translation; everything but translated text is written as it was read.

Python's own XML parser reads it, so that nothing else is needed. Documents with a DOCTYPE are refused: no program
writes one into these files, and its entities could expand without bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from xml.parsers import expat
from xml.sax.saxutils import escape

from vtrans.documents.document import Document, MarkedDocument
from vtrans.documents.markup import Item
from vtrans.errors import DocumentError

DEEPEST = 200  # nested elements

_WORD = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
)
_TEXT = ("urn:oasis:names:tc:opendocument:xmlns:text:1.0",)
# Elements of a Word paragraph around runs, and those that only note what the spelling checker found.
_AROUND_RUNS, _NOTES = frozenset({"hyperlink", "ins", "smartTag", "sdt", "sdtContent", "fldSimple"}), {"proofErr"}


@dataclass
class Element:
    """An element: its tags as they were written and what is between them, or text, which has no name."""

    name: str
    opening: str
    text: str = ""
    closing: str = ""
    children: list[Element] = field(default_factory=list)

    @property
    def raw(self) -> str:
        return self.opening + "".join(child.raw for child in self.children) + self.closing


def docx_document(xml: str, language: str) -> Document:
    """Returns a part of a .docx file, such as word/document.xml. Text boxes inside a paragraph stay as they are."""
    items = _merged(_items(parse(xml, _WORD), {"p"}, _word_paragraph))
    return MarkedDocument(items, language, escape, cover=True)


def odt_document(xml: str, language: str) -> Document:
    """Returns content.xml of an .odt file. Notes and frames inside a paragraph stay as they are."""
    return MarkedDocument(list(_items(parse(xml, _TEXT), {"p", "h"}, _text_paragraph)), language, escape)


def parse(xml: str, namespaces: Sequence[str]) -> Element:
    """Returns the root of a document; it has no name and no tags. Names of elements in the namespaces are local, and
    other elements are called `?`. Raises DocumentError for what is not XML."""
    data = xml.encode()
    events: list[tuple[int, str, str]] = []  # where, what ("start", "end", "text", "other"), name or text
    parser = expat.ParserCreate("utf-8", namespace_separator=" ")

    def note(what: str, value: str = "") -> None:
        events.append((parser.CurrentByteIndex, what, value))

    def named(name: str) -> str:
        namespace, _, local = name.rpartition(" ")
        return local if namespace in namespaces else "?"

    def refuse(*_: object) -> None:
        raise DocumentError("The file's XML must not have a DOCTYPE.")

    parser.StartElementHandler = lambda name, attributes: note("start", named(name))
    parser.EndElementHandler = lambda name: note("end", named(name))
    parser.CharacterDataHandler = lambda text: note("text", text)
    parser.StartDoctypeDeclHandler = refuse
    parser.DefaultHandler = lambda text: note("other")
    try:
        parser.Parse(data, True)
        return _tree(data, events)
    except (expat.ExpatError, UnicodeError):
        raise DocumentError("The file's XML cannot be parsed.") from None


def _tree(data: bytes, events: Sequence[tuple[int, str, str]]) -> Element:
    root = Element("", "")
    stack = [root]
    for (begin, what, value), (end, _, _) in pairwise([*events, (len(data), "", "")]):
        raw = data[begin:end].decode()
        if what == "start":
            stack.append(Element(value, raw))
            stack[-2].children.append(stack[-1])
            if len(stack) > DEEPEST:
                raise DocumentError(f"The file's XML must be nested at most {DEEPEST} elements deep.")
        elif what == "end":
            stack.pop().closing = raw
        else:
            stack[-1].children.append(Element("", raw, value))
    return root


def _items(node: Element, paragraphs: set[str], inside: Callable[[Element], Iterator[Item]]) -> Iterator[Item]:
    """Yields the items of a document, whose paragraphs `inside` reads."""
    yield Item("break", node.opening)
    for child in node.children:
        yield from inside(child) if node.name in paragraphs else _items(child, paragraphs, inside)
    yield Item("break", node.closing)


def _text_paragraph(node: Element) -> Iterator[Item]:
    """Yields the items of a part of an OpenDocument paragraph."""
    if not node.name:
        yield Item("text", node.raw, node.text)
    elif node.name in ("span", "a"):
        yield Item("open", node.opening, name=node.name)
        for child in node.children:
            yield from _text_paragraph(child)
        yield Item("close", node.closing, name=node.name)
    elif node.name == "s":
        yield Item("text", node.raw, " ")
    else:
        yield Item("break" if node.name in ("tab", "line-break") else "point", node.raw)


def _word_paragraph(node: Element) -> Iterator[Item]:
    """Yields the items of a part of a Word paragraph."""
    if node.name == "r":
        yield from _run(node)
    elif node.name in _AROUND_RUNS:
        yield Item("open", node.opening, name=node.name)
        for child in node.children:
            yield from _word_paragraph(child)
        yield Item("close", node.closing, name=node.name)
    elif node.name not in _NOTES:
        yield Item("break" if node.name == "pPr" else "point", node.raw)


def _run(run: Element) -> Iterator[Item]:
    """Yields an element for each text of a run. Whatever else it has becomes a run of its own."""
    properties = "".join(child.raw for child in run.children if child.name == "rPr")
    opening, name = run.opening + properties, f"run {properties}"
    for child in run.children:
        if child.name == "t":
            tag = _tag(child.opening)
            # Without the attribute, Word drops white space at the ends of the text.
            yield Item("open", f'{opening}<{tag} xml:space="preserve">', name=name)
            yield Item("text", "".join(p.raw for p in child.children), "".join(p.text for p in child.children))
            yield Item("close", f"</{tag}>{run.closing}", name=name)
        elif child.name not in ("rPr", ""):
            space = child.name in ("tab", "br", "cr")
            yield Item("break" if space else "point", opening + child.raw + run.closing)


def _tag(opening: str) -> str:
    name = re.match(r"<([^\s/>]+)", opening)
    assert name is not None, opening
    return name[1]


def _merged(items: Iterable[Item]) -> list[Item]:
    """Returns the items with neighbouring runs of the same properties as one. Word begins a new run at each edit."""
    merged: list[Item] = []
    for item in items:
        if item.kind == "open" and item.name and merged and merged[-1].kind == "close" and merged[-1].name == item.name:
            merged.pop()
        else:
            merged.append(item)
    return merged
