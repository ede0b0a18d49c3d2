"""Reads the strings of Android (`strings.xml`): a translation is a copy in another language."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from xml.sax.saxutils import escape

from vtrans.apps.documents.document import Document
from vtrans.apps.documents.formats.app_strings.copies import Copy, Found, Node, completed
from vtrans.apps.documents.formats.inline import Span
from vtrans.apps.documents.formats.markup import Item
from vtrans.apps.documents.formats.xml import Element, inline_items, is_text, parse
from vtrans.apps.documents.placeholders import CONVERSION
from vtrans.apps.documents.program_strings import ProgramString, format_flags, paired, slot_of
from vtrans.system.errors import DocumentError

_HTML = "a annotation b big cite dfn em font i s small span strike strong sub sup tt u"
_TAGS = frozenset(_HTML.split())
_PARTS = {"resources": ("string", "string-array", "plurals"), "string-array": ("item",), "plurals": ("item",)}
_NAMESPACE = re.compile(r"""\s+xmlns:([\w.-]+)\s*=\s*(?:"[^"]*"|'[^']*')""")
_REFERENCE = re.compile(r"\s*[@?][\w:.]+/\S+\s*")  # to another resource
_TAG = r"</?[A-Za-z](?:[^<>\\]|\\.)*>"
_PIECES = re.compile(rf'(?P<mark>{_TAG}|")|(?:[^"\\<]|\\.?|(?!{_TAG})<)+', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_CDATA = "<![CDATA["
# Android drops a blank at an end that is not written in one of these ways.
_EDGE, _BLANKS = re.compile(r"(\\u0020|\\u00[aA]0|&#(?:32|160|x20|x[aA]0);)"), " \u00a0"
_LETTERS = {"n": "\n", "t": "\t"}
_WRITTEN = str.maketrans({"\\": "\\\\", '"': '\\"', "'": "\\'", "\n": "\\n", "\t": "\\t"})


def android_document(text: str, language: str, *, target: str = "", existing: str | None = None) -> Document:
    """Returns a file of strings, arrays of strings and plural forms, or its existing translation, in which those are
    slots that are to be translated. Raises DocumentError for other XML."""
    copy = Copy(text)
    if existing is not None:
        copy = _completed(text, existing)
    return copy.document(_strings(copy.text, language), "android")


def _completed(text: str, existing: str) -> Copy:
    """Returns a translation with what it lacks, and with the namespaces that this has."""
    ours, theirs = _root(text), _root(existing)
    copy = completed(text, _tree(ours), existing, _tree(theirs))
    bounds = copy.bounds or []
    added = "".join(copy.text[begin:end] for begin, end in zip(bounds[::2], bounds[1::2], strict=True))
    declared = [match for match in _NAMESPACE.finditer(ours.opening) if f"{match[1]}:" in added]
    lacking = "".join(match.group() for match in declared if f"xmlns:{match[1]}" not in theirs.opening)
    if not lacking or not theirs.children:
        return copy
    end = theirs.begin + len(theirs.opening) - 1
    return _completed(text, existing[:end] + lacking + existing[end:])


def _strings(text: str, language: str) -> Iterator[Found]:
    for part in _parts(_root(text)):
        for string in [part] if part.name == "string" else _parts(part):
            begin = string.begin + len(string.opening)
            if _decoded(string.inside) is None:
                yield begin, None
            elif not string.is_blank and not _REFERENCE.fullmatch(string.inside):
                yield begin, slot_of(begin, string.inside, [_AndroidString(string, language)])


def _root(text: str) -> Element:
    root = parse(text, ("",), doctype=True).child("resources")
    if root is None:
        raise DocumentError("The root element of the file's XML must be resources, as in strings.xml of Android.")
    return root


def _parts(element: Element) -> list[Element]:
    """Returns the children of an element that are to be translated, or have children that are."""
    children = [child for child in element.children if child.name in _PARTS.get(element.name, ())]
    return [child for child in children if child.attributes.get("translatable") != "false"]


def _tree(element: Element, key: str = "", before: int = 0) -> Node:
    """Returns an element with its parts as members."""
    text = element.inside if element.name in ("string", "item") and not element.is_blank else ""
    node, place = Node(element.begin, element.end, key, text, before=before), element.begin + len(element.opening)
    parts = {part.begin for part in _parts(element)}
    for child in element.children:
        if child.name and child.begin in parts:
            names = [child.name, *(child.attributes.get(name, "") for name in ("name", "product"))]
            node.members.append(_tree(child, child.attributes.get("quantity") or " ".join(names), place))
        place = child.end if child.name else place
    return node


class _AndroidString(ProgramString):
    """A string. Elements other than tags of HTML, such as `<xliff:g>`, are atoms."""

    def __init__(self, element: Element, language: str) -> None:
        self._element = element
        super().__init__(element.inside, format_flags(element.inside, "java-printf-format"), language)

    def _items(self, text: str, more: Iterable[Span] = ()) -> list[Item]:
        items = inline_items(self._element, self._words, _TAGS)
        return [Item(item.kind, self._with_numbers(item.raw), item.text, item.name) for item in items]

    def _words(self, text: str) -> Iterator[Item]:
        """Yields the items of text. Tags in it stay, and so do quotation marks, which keep the white space between
        them."""
        pieces, spans, decoded = list(_PIECES.finditer(self._with_numbers(text))), list[Span](), ""
        quoted = any(piece["mark"] == '"' for piece in pieces)
        for piece in pieces:
            begin, part, mark = len(decoded), piece.group(), piece["mark"]
            decoded += mark or _decoded(part if quoted else re.sub(r"\s+", " ", part)) or ""
            if mark:
                spans.append((begin, len(decoded), Item("break" if mark == '"' else "atom", mark)))
        marks = {item.raw for _, _, item in spans}
        for item in super()._items(decoded, spans):
            is_mark = item.kind != "text" and item.raw in marks
            yield Item(item.kind, escape(item.raw) if is_mark else _written(item.raw), item.text, item.name)

    def _escaped(self, text: str) -> str:
        return _written(super()._escaped(text))

    def _counted(self, text: str) -> tuple[Counter[str], ...]:
        """Returns how often each placeholder occurs, and each tag."""
        flat = _flat(text)
        tags = Counter(CONVERSION.sub(r"%\g<rest>", tag) for tag in re.findall(_TAG, flat))
        return *super()._counted(flat), tags

    def finished(self, text: str) -> str:
        """Returns the translation. An `@` or `?` at its beginning would refer to another resource."""
        text = super().finished(text)
        text = f"\\{text}" if text[:1] in ("@", "?") else text
        pieces = _EDGE.split(self._text)  # every second one is such a blank
        texts = [n for n in range(0, len(pieces), 2) if pieces[n]]
        if text and len(pieces) > 1 and texts:
            before, after = "".join(pieces[: texts[0]]), "".join(pieces[texts[-1] + 1 :])
            text = before + (text.lstrip(_BLANKS) if before else text)
            text = (text.rstrip(_BLANKS) if after else text) + after
        return _flat(text, _CDATA) if text and _CDATA in self._text else text


def _flat(xml: str, cdata: str = "") -> str:
    """Returns a string with its tags and with its text, which is in sections that begin with `cdata`."""

    def inside(element: Element) -> Iterator[str]:
        for is_words, nodes in groupby(element.children, is_text):
            if not is_words:
                for node in nodes:
                    yield from [node.opening, *inside(node), node.closing]
                continue
            text = "".join(node.text for node in nodes)
            # In an element, a section is used only if it is needed.
            is_section = cdata and (element.begin == 0 or escape(text) != text)
            yield f"{cdata}{text.replace(']]>', f']]]]>{cdata}>')}]]>" if is_section else text

    return "".join(inside(parse(f"<a>{xml}</a>", None).children[0]))


def _decoded(text: str) -> str | None:
    """Returns text without escapes, or None if it has half a character."""
    return paired(_ESCAPE.sub(lambda at: chr(int(at[1], 16)) if at[1] else _LETTERS.get(at[2], at[2]), text))


def _written(text: str) -> str:
    return escape(text.translate(_WRITTEN))
