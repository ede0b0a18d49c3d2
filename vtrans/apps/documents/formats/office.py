"""Reads the XML of .docx and .odt files for translation; everything but translated text is written as it was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from xml.sax.saxutils import escape

from vtrans.apps.documents.document import Document, MarkedDocument
from vtrans.apps.documents.formats.markup import Item
from vtrans.apps.documents.formats.xml import Element, parse

_WORD = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
)
_TEXT = ("urn:oasis:names:tc:opendocument:xmlns:text:1.0",)
# Elements of a Word paragraph around runs, and those that only note what the spelling checker found.
_AROUND_RUNS, _NOTES = frozenset({"hyperlink", "ins", "smartTag", "sdt", "sdtContent", "fldSimple"}), {"proofErr"}


def docx_document(xml: str, language: str) -> Document:
    """Returns a part of a .docx file, such as word/document.xml. Text boxes inside a paragraph stay as they are."""
    items = _merged(_items(parse(xml, _WORD), {"p"}, _word_paragraph))
    return MarkedDocument(items, language, escape, cover=True)


def odt_document(xml: str, language: str) -> Document:
    """Returns content.xml of an .odt file. Notes and frames inside a paragraph stay as they are."""
    return MarkedDocument(list(_items(parse(xml, _TEXT), {"p", "h"}, _text_paragraph)), language, escape)


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
            tag = child.prefix + child.name
            # Without the attribute, Word drops white space at the ends of the text.
            yield Item("open", f'{opening}<{tag} xml:space="preserve">', name=name)
            yield Item("text", "".join(p.raw for p in child.children), "".join(p.text for p in child.children))
            yield Item("close", f"</{tag}>{run.closing}", name=name)
        elif child.name not in ("rPr", ""):
            space = child.name in ("tab", "br", "cr")
            yield Item("break" if space else "point", opening + child.raw + run.closing)


def _merged(items: Iterable[Item]) -> list[Item]:
    """Returns the items with neighbouring runs of the same properties as one. Word begins a new run at each edit."""
    merged: list[Item] = []
    for item in items:
        if item.kind == "open" and item.name and merged and merged[-1].kind == "close" and merged[-1].name == item.name:
            merged.pop()
        else:
            merged.append(item)
    return merged
