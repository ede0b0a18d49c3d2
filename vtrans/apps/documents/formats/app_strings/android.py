"""Reads the strings of Android (`strings.xml`): a translation is a copy in another language."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from xml.sax.saxutils import escape

from vtrans.apps.documents.document import Document, Filling, Slot
from vtrans.apps.documents.formats.app_strings.copies import Node, completed, copy_document
from vtrans.apps.documents.formats.markup import Item
from vtrans.apps.documents.formats.xml import Element, inline_items, is_text, parse, root_of
from vtrans.apps.documents.inline import Span
from vtrans.apps.documents.placeholders import CONVERSION
from vtrans.apps.documents.program_strings import ProgramString, format_flags, slot_of, unescaped

_HTML = "a annotation b big cite dfn em font i s small span strike strong sub sup tt u"
_TAGS = frozenset(_HTML.split())
_PARTS = {"resources": ("string", "string-array", "plurals"), "string-array": ("item",), "plurals": ("item",)}
_NAMESPACE = re.compile(r"""\s+xmlns:([\w.-]+)\s*=\s*(?:"[^"]*"|'[^']*')""")
_REFERENCE = re.compile(r"\s*[@?][\w:.]+/\S+\s*")  # to another resource
_TAG = r"</?[A-Za-z](?:[^<>\\]|\\.)*>"
_PIECES = re.compile(rf'(?P<mark>{_TAG}|")|(?:[^"\\<]|\\.?|(?!{_TAG})<)+', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_CDATA = "<![CDATA["
# Android drops a space at the beginning or end of a string unless it is written in one of these ways.
_EDGE, _BLANKS = re.compile(r"(\\u0020|\\u00[aA]0|&#(?:32|160|x20|x[aA]0);)"), " \u00a0"
_LETTERS = {"n": "\n", "t": "\t"}
_WRITTEN = str.maketrans({"\\": "\\\\", '"': '\\"', "'": "\\'", "\n": "\\n", "\t": "\\t"})


def android_document(text: str, language: str, filling: Filling = Filling()) -> Document:
    """Returns a `strings.xml` file, or its existing translation, with the strings, array items and plural forms to
    translate as slots. Raises DocumentError for other XML."""

    def read(text: str) -> Node:
        return _tree(_root(text), language)

    if (existing := filling.earlier) is not None:
        existing = _with_namespaces(existing, _root(text), completed(text, read(text), existing, read(existing))[0])
    return copy_document(read, text, existing, "android")


def _root(text: str) -> Element:
    return root_of(text, "resources", "as in strings.xml of Android")


def _with_namespaces(translation: str, source: Element, made: str) -> str:
    """Adds the source's namespaces that the translation lacks and that `made`, the completed translation, needs."""
    root = _root(translation)
    declared = [match for match in _NAMESPACE.finditer(source.opening) if f"{match[1]}:" in made]
    lacking = "".join(match.group() for match in declared if f"xmlns:{match[1]}" not in root.opening)
    end = root.begin + len(root.opening) - 1
    return translation[:end] + lacking + translation[end:] if root.children else translation


def _tree(element: Element, language: str, key: str = "", before: int = 0) -> Node:
    """Returns an element as a node, with its translatable parts as members."""
    text = element.inside if element.name in ("string", "item") and not element.is_blank else ""
    node, place = Node(element.begin, element.end, key, text, before=before), element.begin + len(element.opening)
    if text and not _REFERENCE.fullmatch(text):
        node.slot = partial(_slot, element, language)
    for child in element.children:
        if child.name in _PARTS.get(element.name, ()) and child.attributes.get("translatable") != "false":
            names = [child.name, *(child.attributes.get(name, "") for name in ("name", "product"))]
            child_key = child.attributes.get("quantity") or " ".join(names)
            node.members.append(_tree(child, language, child_key, place))
        place = child.end if child.name else place
    return node


def _slot(element: Element, language: str) -> Slot | None:
    if _decoded(element.inside) is None:
        return None
    return slot_of(element.begin + len(element.opening), element.inside, [_AndroidString(element, language)])


class _AndroidString(ProgramString):
    """A string of Android. Elements other than HTML tags, such as `<xliff:g>`, are atoms."""

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
        """Returns the counts of the placeholders and of the tags."""
        flat = _flat(text)
        tags = Counter(CONVERSION.sub(r"%\g<rest>", tag) for tag in re.findall(_TAG, flat))
        return *super()._counted(flat), tags

    def finished(self, text: str) -> str:
        """Returns the translation. An initial `@` or `?` is escaped, as it would refer to another resource."""
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
    """Returns the XML of a string, with its text in sections that begin with `cdata`, if given."""

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
    """Resolves the escapes in a text; None if a surrogate is unpaired."""
    return unescaped(text, _ESCAPE, _LETTERS)


def _written(text: str) -> str:
    return escape(text.translate(_WRITTEN))
