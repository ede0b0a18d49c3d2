"""Reads translation sources of Qt Linguist (`.ts`), and fills the translations of their messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from vtrans.documents.document import Document, FilledDocument, Paired, Slot
from vtrans.documents.program_strings import XmlString
from vtrans.documents.xml import Element, encoding, parse
from vtrans.errors import DocumentError
from vtrans.text.languages import Languages


def ts_encoding(content: bytes) -> str:
    """Returns the encoding of a Qt file. Raises DocumentError for a program or a video, whose names end like its."""
    if b"<TS" not in content.replace(b"\0", b""):
        raise DocumentError("The file must be XML of Qt Linguist, with the root element TS, not TypeScript or a video.")
    return encoding(content)


def ts_document(text: str, language: str, *, target: str = "", overwrite: bool = False) -> Document:
    """Returns a Qt file with its untranslated messages as slots, with `overwrite` all of them. A new translation is
    unfinished, one from a memory is finished. Raises DocumentError for a file that is no XML of Qt Linguist."""
    messages = list(_messages(_root(text)))
    empty = [message for message in messages if overwrite or all(form.is_blank for _, form in message[1])]
    return FilledDocument(text, [_slot(*message, language) for message in empty], "xml")


def ts_pairs(text: str, languages: Languages) -> Iterator[Paired]:
    """Yields the translated messages of a Qt file. Raises DocumentError for a file that is no XML of Qt Linguist."""
    for translation, pairs in _messages(_root(text)):
        for sides in pairs:
            if sides[1].is_blank:
                yield "untranslated"
            elif translation.attributes.get("type"):
                yield "unchecked"
            else:
                src, tgt = (XmlString(side, language) for side, language in zip(sides, languages, strict=True))
                yield src.document, tgt.document


def ts_languages(text: str) -> tuple[str, str]:
    """Returns the languages of a Qt file: the source is English if it names no other."""
    names = _root(text).attributes
    return names.get("sourcelanguage") or "en", names.get("language", "")


def _root(text: str) -> Element:
    root = parse(text, ("",), doctype=True).child("TS")
    if root is None:
        raise DocumentError("The root element of the file's XML must be TS.")
    return root


def _messages(element: Element) -> Iterator[tuple[Element, list[tuple[Element, Element]]]]:
    """Yields the translations that are in use, each with its forms and what these translate."""
    for child in element.children:
        source, translation = child.child("source"), child.child("translation")
        if child.name == "context":
            yield from _messages(child)
        elif source and translation and translation.attributes.get("type") not in ("vanished", "obsolete"):
            forms = [form for form in translation.children if form.name == "numerusform"]
            # Of `%n file(s)`, the first of several forms is for one file.
            endings = ["" if number == 0 and len(forms) > 1 else "s" for number in range(len(forms))]
            sources = [_with_ending(source, ending) for ending in endings] or [source]
            yield translation, list(zip(sources, forms or [translation], strict=True))


def _with_ending(source: Element, ending: str) -> Element:
    return replace(source, children=[replace(part, text=part.text.replace("(s)", ending)) for part in source.children])


def _slot(translation: Element, pairs: list[tuple[Element, Element]], language: str) -> Slot:
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
