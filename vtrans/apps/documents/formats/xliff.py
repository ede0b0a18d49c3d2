"""Reads XLIFF 1.2 and 2.x, and fills the targets of their units."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from xml.sax.saxutils import escape, quoteattr

from vtrans.apps.documents.document import Document, FilledDocument, Filling, Paired, Slot, filled_slot
from vtrans.apps.documents.formats.xml import SPACE, Element, is_text, root_of
from vtrans.apps.documents.inline import has_icu
from vtrans.apps.documents.program_strings import Message, UnclearMessage, XmlString, icu_strings, message_pairs
from vtrans.apps.documents.sentences import MARKS
from vtrans.system.errors import DocumentError
from vtrans.text.languages import Languages

_NAMESPACES = ("", *(f"urn:oasis:names:tc:xliff:document:{version}" for version in ("1.1", "1.2", "2.0", "2.1", "2.2")))
XLIFF_ENDINGS = (".xlf", ".xliff", ".sdlxliff", ".mqxliff", ".mxliff")
"""The last three are from Trados, memoQ and Phrase."""
# The states of new segments in XLIFF 2.
_REVIEW, _MEMORY = ({"state": "translated", "subState": f"vtrans:{name}"} for name in ("review", "memory"))
_DONE = {"final", "signed-off"}  # states of targets that even `overwrite` leaves
_NEW = {"new", "needs-translation", "initial"}  # states of targets that may only repeat their source
_UNCHECKED = re.compile(r"new\Z|initial\Z|needs-")


def xliff_document(text: str, language: str, filling: Filling = Filling()) -> Document:
    """Returns an XLIFF file with its untranslated units as slots; with `filling.overwrite`, all that are not approved
    or final. Units that an earlier translation has, with the same source, are copied from it.

    A new target has the state `needs-review-translation`; one from a memory has the state `translated` and the
    qualifier `exact-match`. In XLIFF 2, the segment has the state `translated` and the substate `vtrans:review`, which
    an editor must change with the state, or `vtrans:memory`. Raises DocumentError if the file is not XLIFF.
    """
    root, second = _root(text)
    slots, left = list[Slot](), 0
    kept = _translated(filling.earlier) if filling.earlier is not None else {}
    for key, unit, keep_space in _units(root, second):
        source = _source(text, unit)
        if source.is_blank or not _is_open(unit, filling.overwrite):
            continue
        if old := kept.get((key, source.inside)):
            slots.append(filled_slot(unit.begin, unit.end, old))
            continue
        try:
            slots.append(_slot(text, unit, source, language, second, keep_space))
        except UnclearMessage:
            left += 1
    if slots and second and "trgLang" not in root.attributes:
        if not filling.target:
            raise DocumentError("The element xliff needs the attribute trgLang, as the target language is not known.")
        end = root.begin + len(root.opening) - 1
        slots.insert(0, filled_slot(end, end, f" trgLang={quoteattr(filling.target)}"))
    return FilledDocument(text, slots, "xml", left)


def _translated(text: str) -> dict[tuple[str, str], str]:
    """Returns the translated units of a file as written, by their path and source."""
    found = {}
    for key, unit, _ in _units(*_root(text)):
        if _translation(unit):
            found[key, _source(text, unit).inside] = unit.raw
    return found


def xliff_pairs(text: str, languages: Languages) -> Iterator[Paired]:
    """Yields the translated units of an XLIFF file. Raises DocumentError if the file is not XLIFF."""
    for _, unit, keep_space in _units(*_root(text)):
        source, target = _source(text, unit), unit.child("target")
        states = [part.attributes.get("state", "") for part in (unit, target) if part]
        if target is None or target.is_blank or source.is_blank:
            yield "untranslated"
        elif _REVIEW.items() <= unit.attributes.items() or any(map(_UNCHECKED.match, states)):
            yield "unchecked"
        else:
            read = partial(_message, keep_space, _tags(source))
            yield from message_pairs(read, (source, target), languages)


def _translation(unit: Element) -> Element | None:
    """Returns the target of a unit, if it has a translation. A new target may only repeat its source."""
    target = unit.child("target")
    if target is None or target.is_blank:
        return None
    is_new = _NEW & {part.attributes.get("state", "") for part in (unit, target)}
    sources = [part.inside for name in ("source", "seg-source") if (part := unit.child(name))]
    return None if is_new and target.inside in sources else target


def xliff_languages(text: str) -> list[tuple[str, str]]:
    """Returns the source and the target language that each part of an XLIFF file names, empty if it names none."""
    root, second = _root(text)
    if second:
        return [(root.attributes.get("srcLang", ""), root.attributes.get("trgLang", ""))]
    files = [child.attributes for child in root.children if child.name == "file"]
    return [(file.get("source-language", ""), file.get("target-language", "")) for file in files]


def _root(text: str) -> tuple[Element, bool]:
    """Returns the root element, and whether the file is XLIFF 2."""
    root = root_of(text, "xliff", namespaces=_NAMESPACES)
    return root, root.attributes.get("version", "").startswith("2")


def _units(
    element: Element, second: bool, keep_space: bool = False, translate: bool = True, path: str = ""
) -> Iterator[tuple[str, Element, bool]]:
    """Yields the path and the element of each unit to translate, and whether white space matters in it."""
    keep_space = element.attributes.get(SPACE, "preserve" if keep_space else "") == "preserve"
    translate = element.attributes.get("translate", "yes" if translate else "no") == "yes"
    path += "".join(f"/{element.attributes.get(name, '')}" for name in ("original", "id"))
    if element.name != ("segment" if second else "trans-unit"):
        for child in element.children:
            yield from _units(child, second, keep_space, translate, path)
    elif translate:
        yield path, element, keep_space


def _is_open(unit: Element, overwrite: bool) -> bool:
    """Returns whether a unit is to be filled."""
    done = _DONE & {part.attributes.get("state", "") for part in (unit, unit.child("target")) if part}
    return not done and unit.attributes.get("approved") != "yes" and (overwrite or not _translation(unit))


def _slot(text: str, unit: Element, source: Element, language: str, second: bool, keep_space: bool) -> Slot:
    """Returns the slot for a unit. Raises UnclearMessage for unclear branches of ICU."""
    target = unit.child("target")
    message = _message(keep_space, _tags(source), source, language)
    place = target.begin if target else source.end
    begin = unit.begin if second else place

    def written(texts: list[str], approved: bool = False) -> str | None:
        if not (text_there := message.finished(iter(texts))):
            return None
        states: dict[str, str | None] = {"state": "needs-review-translation", "state-qualifier": None}
        if approved:
            states = {"state": "translated", "state-qualifier": "exact-match"}
        tag = (target or Element("target", f"<{source.prefix}target>")).tag(**({} if second else states))
        before = "" if target else unit.space_before(unit.child("source") or source)
        opening = ""
        if second:
            opening = unit.tag(**(_MEMORY if approved else _REVIEW)) + text[begin + len(unit.opening) : place]
        return f"{opening}{before}{tag}{text_there}</{source.prefix}target>"

    return Slot(begin, target.end if target else place, message.documents, written, partial(written, approved=True))


def _tags(source: Element) -> dict[str, str]:
    """Returns the character that stands for each element, as written, of an ICU message."""
    raw = dict.fromkeys(node.raw for node in source.children if not is_text(node))
    # `_message` refuses a unit with more elements than characters.
    return dict(zip(raw, (mark for mark in MARKS if mark not in source.inside), strict=False))


def _message(keep_space: bool, tags: Mapping[str, str], part: Element, language: str) -> Message:
    """Returns a source or a target. Raises UnclearMessage if its ICU branches are unclear, or if it has branches and
    elements that surround text or are not in `tags`."""
    if not has_icu(part.inside):
        return Message([XmlString(part, language, keep_space)])
    if any(node.children or (not is_text(node) and node.raw not in tags) for node in part.children):
        raise UnclearMessage
    text = "".join(node.text if is_text(node) else tags[node.raw] for node in part.children)
    signs = {ord(mark): raw for raw, mark in tags.items()}
    text = text if keep_space else re.sub(r"\n[ \t]+", " ", text)
    strings = icu_strings(text, language, "".join(tags.values()))
    return Message(strings, lambda made: escape(made).translate(signs))


def _source(text: str, unit: Element) -> Element:
    """Returns the source of a unit. Raises DocumentError if there is none."""
    source = unit.child("seg-source", "source")
    if source is None:
        raise DocumentError(f"the {unit.name} has no source.", text.count("\n", 0, unit.begin) + 1)
    return source
