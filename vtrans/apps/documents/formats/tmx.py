"""Reads TMX, the exchange format of translation memories, and adds the translations that are missing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from xml.sax.saxutils import escape, quoteattr

from vtrans.apps.documents.document import Document, FilledDocument, Filling, MarkedDocument, Paired, Slot
from vtrans.apps.documents.formats.xml import LANGUAGE, Element, inline_items, root_of
from vtrans.system.errors import DocumentError
from vtrans.text.languages import Languages, base


def tmx_document(text: str, language: str, filling: Filling = Filling()) -> Document:
    """Returns a TMX file with the units that lack a translation into the target language as slots; with
    `filling.overwrite`, all units with text in the source language. Raises DocumentError if the file is not TMX, or the
    target language is unknown."""
    _, body = _parsed(text)
    target = filling.target
    if not target:
        raise DocumentError("A TMX file can be filled only if the target language is known.")
    slots = []
    for unit in body.children:
        variants = _variants(unit)
        source, filled = _in(variants, language), _in(variants, target)
        segment = source.child("seg") if source else None
        old = filled.child("seg") if filled else None
        if segment is None or segment.is_blank or (old is not None and not old.is_blank and not filling.overwrite):
            continue
        document = _document(segment, language)
        begin, end = (old.begin, old.end) if old else (variants[-1].end, variants[-1].end)
        space = unit.space_before(variants[0])
        tags = "<seg>", "</seg>"
        if old is None:
            tags = f"{space}<tuv xml:lang={quoteattr(target)}><seg>", "</seg></tuv>"
        slots.append(Slot(begin, end, [document], partial(_written, tags)))
    return FilledDocument(text, slots, "xml")


def tmx_pairs(text: str, languages: Languages) -> Iterator[Paired]:
    """Yields the units of a TMX file with text in both languages. Raises DocumentError if the file is not TMX."""
    for unit in _parsed(text)[1].children:
        if variants := _variants(unit):
            found = [tuv.child("seg") if (tuv := _in(variants, code)) else None for code in languages]
            texts = [segment for segment in found if segment and not segment.is_blank]
            if len(texts) < len(found):
                yield "untranslated"
            else:
                src, tgt = (_document(*side) for side in zip(texts, languages, strict=True))
                yield src, tgt


def tmx_languages(text: str) -> tuple[str, str]:
    """Returns the language of a TMX file's header and the other one, both empty unless there is just one."""
    root, body = _parsed(text)
    header = root.child("header")
    src = header.attributes.get("srclang", "") if header else ""
    codes = {base(code): code for unit in body.children for tuv in _variants(unit) if (code := _code(tuv))}
    others = [code for key, code in codes.items() if key != base(src)]
    return (src, others[0]) if len(others) == 1 and base(src) in codes else ("", "")


def _parsed(text: str) -> tuple[Element, Element]:
    """Returns the root of a TMX file, and its body."""
    root = root_of(text, "tmx", namespaces=("", "http://www.lisa.org/tmx14"))
    body = root.child("body")
    if body is None:
        raise DocumentError("The element tmx must have a body.")
    return root, body


def _document(segment: Element, language: str) -> MarkedDocument:
    return MarkedDocument(list(inline_items(segment)), language, escape)


def _variants(unit: Element) -> list[Element]:
    return [child for child in unit.children if child.name == "tuv"]


def _code(variant: Element) -> str:
    return variant.attributes.get(LANGUAGE) or variant.attributes.get("lang", "")


def _written(tags: tuple[str, str], texts: list[str]) -> str | None:
    return texts[0].join(tags) if texts[0].strip() else None


def _in(variants: list[Element], language: str) -> Element | None:
    """Returns the variant in a language; the same region is best, and any region will do."""
    codes = {_code(tuv).lower(): tuv for tuv in variants}
    near = (tuv for code, tuv in codes.items() if base(code) == base(language))
    return codes.get(language.lower()) or next(near, None)
