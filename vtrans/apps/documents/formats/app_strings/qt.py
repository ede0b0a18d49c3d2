"""Reads translation sources of Qt Linguist (`.ts`), and fills the translations of their messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from vtrans.apps.documents.document import Document, FilledDocument, Filling, Paired, Slot, filled_slot
from vtrans.apps.documents.formats.xml import Element, encoding, root_of
from vtrans.apps.documents.program_strings import XmlString
from vtrans.system.errors import DocumentError
from vtrans.text.languages import Languages

_ENDING = re.compile(r"(?<=[^\W\d_])\(([^\W\d_]{1,3})\)")


def ts_encoding(content: bytes) -> str:
    """Returns the encoding of a Qt file. Raises DocumentError for TypeScript or a video, which also end in `.ts`."""
    if b"<TS" not in content.replace(b"\0", b""):
        raise DocumentError("The file must be XML of Qt Linguist, with the root element TS, not TypeScript or a video.")
    return encoding(content)


def ts_document(text: str, language: str, filling: Filling = Filling()) -> Document:
    """Returns a Qt file with its untranslated messages as slots, or all messages with `filling.overwrite`. New
    translations are marked as unfinished, those from a memory as finished. Translations of an earlier file are kept.
    Raises DocumentError if the file is not XML of Qt Linguist."""
    messages = _messages(root_of(filling.earlier, "TS")) if filling.earlier is not None else ()
    kept = {key: translation.raw for key, translation, pairs in messages if not _is_empty(pairs)}
    slots = []
    for key, translation, pairs in _messages(root_of(text, "TS")):
        if key in kept and _is_empty(pairs):
            slots.append(filled_slot(translation.begin, translation.end, kept[key]))
        elif filling.overwrite or _is_empty(pairs):
            slots.append(_slot(translation, pairs, language))
    return FilledDocument(text, slots, "xml")


def ts_pairs(text: str, languages: Languages) -> Iterator[Paired]:
    """Yields the translated messages of a Qt file. Raises DocumentError if the file is not XML of Qt Linguist."""
    for _, translation, pairs in _messages(root_of(text, "TS")):
        for sides in pairs:
            if sides[1].is_blank:
                yield "untranslated"
            elif translation.attributes.get("type"):
                yield "unchecked"
            else:
                src, tgt = (XmlString(side, language) for side, language in zip(sides, languages, strict=True))
                yield src.document, tgt.document


def ts_languages(text: str) -> tuple[str, str]:
    """Returns the languages of a Qt file. The source language is English if the file names none."""
    names = root_of(text, "TS").attributes
    return names.get("sourcelanguage") or "en", names.get("language", "")


Pairs = list[tuple[Element, Element]]
"""The source of a message with each of its translated forms."""


def _messages(element: Element, context: str = "") -> Iterator[tuple[tuple[str, ...], Element, Pairs]]:
    """Yields the key, the element and the forms of each translation in use."""
    for child in element.children:
        source, translation = child.child("source"), child.child("translation")
        if child.name == "context":
            yield from _messages(child, _inside(child, "name"))
        elif source and translation and translation.attributes.get("type") not in ("vanished", "obsolete"):
            forms = [form for form in translation.children if form.name == "numerusform"]
            # The first of several plural forms is the singular: `%n file(s)` becomes `%n file`.
            endings = ["" if number == 0 and len(forms) > 1 else r"\1" for number in range(len(forms))]
            sources = [_with_ending(source, ending) for ending in endings] or [source]
            key = context, child.attributes.get("id", ""), source.inside, _inside(child, "comment")
            yield key, translation, list(zip(sources, forms or [translation], strict=True))


def _inside(element: Element, name: str) -> str:
    child = element.child(name)
    return child.inside if child else ""


def _is_empty(pairs: Pairs) -> bool:
    return all(form.is_blank for _, form in pairs)


def _with_ending(source: Element, ending: str) -> Element:
    """Returns a source with `ending` in place of each word ending in parentheses, such as `(s)`."""
    parts = [replace(part, text=_ENDING.sub(ending, part.text)) for part in source.children]
    return replace(source, children=parts)


def _slot(translation: Element, pairs: Pairs, language: str) -> Slot:
    strings = [XmlString(source, language) for source, _ in pairs]

    def written(texts: list[str], kind: str | None = "unfinished") -> str | None:
        made = [string.finished(text) for string, text in zip(strings, texts, strict=True)]
        new = {form.begin: text for (_, form), text in zip(pairs, made, strict=True)}
        inside = new.get(translation.begin) or "".join(
            f"<numerusform>{new[part.begin]}</numerusform>" if part.begin in new else part.raw
            for part in translation.children
        )
        return f"{translation.tag(type=kind)}{inside}</translation>" if all(made) else None

    documents = [string.document for string in strings]
    return Slot(translation.begin, translation.end, documents, written, partial(written, kind=None))
