"""Reads texts with XML tags of any name, as programs send them for translation."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby
from xml.sax.saxutils import escape

from vtrans.apps.documents.document import Document, MarkedDocument
from vtrans.apps.documents.formats.markup import Item
from vtrans.apps.documents.formats.xml import Element, is_text, parse
from vtrans.apps.documents.sentences import Splitting

_DECLARED = ("<?xml", "<!DOCTYPE")
_ROOT = "<text>", "</text>"


@dataclass(frozen=True)
class Tags:
    """Names of elements that are read in a special way. `ignored` ones stay unchanged. `splitting` ones divide
    sentences; with `outline`, so do elements without text next to them. `joining` ones never divide sentences."""

    ignored: Collection[str] = ()
    splitting: Collection[str] = ()
    joining: Collection[str] = ()
    outline: bool = True

    def items(self, parent: Element) -> Iterator[Item]:
        """Yields the items inside an element."""
        structure = self.outline and not any(is_text(child) and child.text.strip() for child in parent.children)
        for is_words, nodes in groupby(parent.children, is_text):
            if is_words:
                words = list(nodes)
                yield Item("text", "".join(node.raw for node in words), "".join(node.text for node in words))
                continue
            for node in nodes:
                yield from self._element(node, structure)

    def _element(self, node: Element, structure: bool) -> Iterator[Item]:
        if node.name in self.ignored:
            yield Item("atom", node.raw)
        elif node.name in self.splitting or (structure and node.name and node.name not in self.joining):
            yield Item("break", node.opening)
            yield from self.items(node)
            yield Item("break", node.closing)
        elif not node.children:
            yield Item("point", node.raw)
        else:
            yield Item("open", node.opening, name=f"{node.begin}")
            yield from self.items(node)
            yield Item("close", node.closing, name=f"{node.begin}")


def tagged_document(text: str, language: str, tags: Tags, splitting: Splitting) -> Document:
    """Returns a text with tags, or a whole XML document. Raises DocumentError if it is not well-formed XML."""
    if text.lstrip().startswith(_DECLARED):
        content = parse(text, None, doctype=True)
    else:
        (content,) = parse(text.join(_ROOT), None).children
    return MarkedDocument(list(tags.items(content)), language, escape, splitting=splitting)
