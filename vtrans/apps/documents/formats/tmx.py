"""Reads TMX, the exchange format of translation memories."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from vtrans.apps.documents.document import MarkedDocument, Paired
from vtrans.apps.documents.formats.xml import LANGUAGE, Element, inline_items, root_of
from vtrans.system.errors import DocumentError
from vtrans.text.languages import Languages, base


def tmx_pairs(text: str, languages: Languages) -> Iterator[Paired]:
    """Yields the units of a TMX file with text in both languages. Raises DocumentError if the file is not TMX."""
    for segments in _units(_root(text)):
        sides = [(_in(segments, code), code) for code in languages]
        documents = [MarkedDocument(list(inline_items(side)), code, escape) for side, code in sides if side]
        yield (documents[0], documents[1]) if len(documents) == len(sides) else "untranslated"


def tmx_languages(text: str) -> tuple[str, str]:
    """Returns the language of a TMX file's header and the other one, both empty unless there is just one."""
    root = _root(text)
    header = root.child("header")
    src = header.attributes.get("srclang", "") if header else ""
    codes = {base(code): code for segments in _units(root) for code in segments}
    others = [code for key, code in codes.items() if key != base(src)]
    return (src, others[0]) if len(others) == 1 and base(src) in codes else ("", "")


def _root(text: str) -> Element:
    return root_of(text, "tmx", namespaces=("", "http://www.lisa.org/tmx14"))


def _units(root: Element) -> Iterator[dict[str, Element]]:
    """Yields the texts of each unit by language."""
    body = root.child("body")
    if body is None:
        raise DocumentError("The element tmx must have a body.")
    for unit in body.children:
        texts = ((variant.attributes, variant.child("seg")) for variant in unit.children if variant.name == "tuv")
        segments = {given.get(LANGUAGE) or given.get("lang", ""): text for given, text in texts if text}
        if segments:
            yield {code: text for code, text in segments.items() if not text.is_blank}


def _in(segments: dict[str, Element], language: str) -> Element | None:
    """Returns the text in a language; the same region is best, and any region will do."""
    exact = (text for code, text in segments.items() if code.lower() == language.lower())
    near = (text for code, text in segments.items() if base(code) == base(language))
    return next(exact, None) or next(near, None)
