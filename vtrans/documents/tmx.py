"""Reads TMX, the exchange format of translation memories, and adds the translations that are missing."""

from __future__ import annotations

from functools import partial
from xml.sax.saxutils import escape, quoteattr

from vtrans.documents.document import Document, FilledDocument, MarkedDocument, Slot
from vtrans.documents.xml import LANGUAGE, Element, inline_items, parse
from vtrans.errors import DocumentError


def tmx_document(text: str, language: str, *, target: str = "", overwrite: bool = False) -> Document:
    """Returns a TMX file with the units that lack a translation into the target language as slots, with `overwrite`
    all units that have text in the language. Raises DocumentError for a file that is no TMX."""
    root = parse(text, ("", "http://www.lisa.org/tmx14"), doctype=True).child("tmx")
    body = root.child("body") if root else None
    if body is None:
        raise DocumentError("The root element of the file's XML must be tmx, with a body.")
    if not target:
        raise DocumentError("A TMX file can be filled only if the target language is known.")
    slots = []
    for unit in body.children:
        variants = [child for child in unit.children if child.name == "tuv"]
        source, filled = _in(variants, language), _in(variants, target)
        segment = source.child("seg") if source else None
        old = filled.child("seg") if filled else None
        if segment is None or segment.is_blank or (old is not None and not old.is_blank and not overwrite):
            continue
        document = MarkedDocument(list(inline_items(segment, keep_space=True)), language, escape)
        begin, end = (old.begin, old.end) if old else (variants[-1].end, variants[-1].end)
        space = unit.space_before(variants[0])
        tags = "<seg>", "</seg>"
        if old is None:
            tags = f"{space}<tuv xml:lang={quoteattr(target)}><seg>", "</seg></tuv>"
        slots.append(Slot(begin, end, [document], partial(_written, tags)))
    return FilledDocument(text, slots)


def _written(tags: tuple[str, str], texts: list[str]) -> str | None:
    return texts[0].join(tags) if texts[0].strip() else None


def _in(variants: list[Element], language: str) -> Element | None:
    """Returns the variant in a language; the same region is best, and any region will do."""
    wanted = language.lower()
    codes = {(tuv.attributes.get(LANGUAGE) or tuv.attributes.get("lang", "")).lower(): tuv for tuv in variants}
    near = (tuv for code, tuv in codes.items() if code.partition("-")[0] == wanted.partition("-")[0])
    return codes.get(wanted) or next(near, None)
