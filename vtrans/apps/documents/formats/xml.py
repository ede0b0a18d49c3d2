"""Parses XML with Python's own parser, as a tree whose parts keep the original text, and reads texts with tags.

Entities that a document declares are refused: they could expand without bound.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise, takewhile
from typing import Literal
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from vtrans.apps.documents.document import Document, MarkedDocument
from vtrans.apps.documents.formats.markup import Item
from vtrans.apps.documents.inline import items_of
from vtrans.apps.documents.sentences import Splitting
from vtrans.system.errors import DocumentError

DEEPEST = 200  # nested elements
LANGUAGE, SPACE = (f"http://www.w3.org/XML/1998/namespace {name}" for name in ("lang", "space"))

_ENCODING = re.compile(rb"""\s*<\?xml[^>]*?encoding\s*=\s*["']([\w.-]+)""")
_PAIRS, _OPENING, _CLOSING = {"g", "mrk", "pc", "hi"}, {"bpt", "bx", "sc"}, {"ept", "ex", "ec"}

_HALF = re.compile(r"(START|CLOSE)_(\w+?)(?:_\d+)?")  # of a pair of tags, as Angular names them


@dataclass
class Element:
    """An element, with its tags as written and its children; or text, which has no name."""

    name: str
    opening: str
    text: str = ""
    closing: str = ""
    children: list[Element] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)
    begin: int = 0
    end: int = 0

    @property
    def raw(self) -> str:
        return self.opening + self.inside + self.closing

    @property
    def inside(self) -> str:
        return "".join(child.raw for child in self.children)

    def child(self, *names: str) -> Element | None:
        """Returns the first child with one of the names; earlier names take precedence."""
        return next((child for name in names for child in self.children if child.name == name), None)

    def space_before(self, child: Element) -> str:
        """Returns the white space before a child."""
        before = reversed(self.children[: self.children.index(child)])
        spaces = [node.raw for node in takewhile(lambda node: not node.name and node.text.isspace(), before)]
        return "".join(reversed(spaces))

    @property
    def is_blank(self) -> bool:
        """Whether the element contains nothing but white space and paired inline elements without text."""
        return all(
            child.is_blank if child.name in _PAIRS else not child.name and not child.text.strip()
            for child in self.children
        )

    def tag(self, **attributes: str | None) -> str:
        """Returns the opening tag with these attributes; None removes one."""
        tag = (self.opening or self.closing).removesuffix(">").removesuffix("/").rstrip()
        for name, value in attributes.items():
            tag = re.sub(rf"""\s+{name}\s*=\s*("[^"]*"|'[^']*')""", "", tag)
            tag += f" {name}={quoteattr(value)}" if value is not None else ""
        return f"{tag}>"

    @property
    def prefix(self) -> str:
        """The prefix of the name, such as `xlf:`, or an empty string."""
        match = re.match(r"<([^\s/>:]+:)", self.opening or self.closing)
        return match[1] if match else ""


def is_text(node: Element) -> bool:
    """Returns whether a node is text or a delimiter of a CDATA section."""
    return not node.name and (bool(node.text) or node.raw in ("<![CDATA[", "]]>"))


def encoding(content: bytes) -> str:
    """Returns the encoding that an XML file declares; UTF-8 if it declares none."""
    match = _ENCODING.match(content)
    return match[1].decode() if match else "utf-8"


def parse(xml: str, namespaces: Sequence[str] | None, *, doctype: bool = False) -> Element:
    """Returns the root of a document, without name and tags. Elements in the namespaces have local names, and others
    the name `?`; if `namespaces` is None, names are as written. A DOCTYPE is accepted only with `doctype`, and must not
    declare anything. Raises DocumentError if the text is not XML."""
    data = xml.encode()
    # Byte offset, kind, name or text, attributes. The parser gives the end of a DOCTYPE, but not its beginning.
    events: list[tuple[int, str, str, dict[str, str]]] = [(0, "other", "", {})]
    parser = expat.ParserCreate("utf-8", namespace_separator=None if namespaces is None else " ")

    def note(what: str, value: str = "", attributes: dict[str, str] | None = None) -> None:
        events.append((parser.CurrentByteIndex, what, value, attributes or {}))

    def named(name: str) -> str:
        if namespaces is None:
            return name
        namespace, _, local = name.rpartition(" ")
        return local if namespace in namespaces else "?"

    def declared(name: str, system: str | None, public: str | None, declares: int) -> None:
        if declares or not doctype:
            raise DocumentError("The XML must not have a DOCTYPE that declares entities.")

    parser.StartElementHandler = lambda name, attributes: note("start", named(name), attributes)
    parser.EndElementHandler = lambda name: note("end", named(name))
    parser.CharacterDataHandler = lambda text: note("text", text)
    parser.StartDoctypeDeclHandler = declared
    parser.DefaultHandler = lambda text: note("other")
    try:
        parser.Parse(data, True)
        return _tree(data, events)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise DocumentError(f"the XML cannot be parsed: {reason}.", error.lineno) from None
    except UnicodeError:
        raise DocumentError("The XML cannot be parsed.") from None


def root_of(xml: str, name: str, where: str = "", namespaces: Sequence[str] = ("",)) -> Element:
    """Returns the root element. Raises DocumentError if it has another name; `where` completes the error message."""
    root = parse(xml, namespaces, doctype=True).child(name)
    if root is None:
        raise DocumentError(f"The root element of the file's XML must be {name}{where and f', {where}'}.")
    return root


def check(xml: str) -> None:
    """Raises DocumentError if a translated document is no longer well-formed XML."""
    try:
        expat.ParserCreate("utf-8").Parse(xml.encode(), True)
    except (expat.ExpatError, UnicodeError) as error:
        raise DocumentError(
            f"The translated file would not be well-formed XML ({error}), so it is not written; please report the file."
        ) from None


def _tree(data: bytes, events: Sequence[tuple[int, str, str, dict[str, str]]]) -> Element:
    root, place = Element("", ""), 0
    stack = [root]
    for (begin, what, value, attributes), (end, *_) in pairwise([*events, (len(data), "", "", {})]):
        raw = data[begin:end].decode()
        if what == "start":
            stack.append(Element(value, raw, attributes=attributes, begin=place))
            stack[-2].children.append(stack[-1])
            if len(stack) > DEEPEST:
                raise DocumentError(f"The XML must be nested at most {DEEPEST} elements deep.")
        elif what == "end":
            stack[-1].closing, stack[-1].end = raw, place + len(raw)
            stack.pop()
        elif raw:
            stack[-1].children.append(Element("", raw, value, begin=place, end=place + len(raw)))
        place += len(raw)
    return root


def enclosed(node: Element, kind: Literal["open", "break"], inside: Iterable[Item], name: str = "") -> Iterator[Item]:
    """Yields the items inside an element between its tags."""
    yield Item(kind, node.opening, name=name)
    yield from inside
    yield Item("close" if kind == "open" else kind, node.closing, name=name)


def inline_items(element: Element, keep_space: bool = True) -> Iterator[Item]:
    """Yields the items of a translatable element. Without `keep_space`, line ends that only indent the file are
    spaces."""
    for is_words, nodes in groupby(element.children, is_text):
        if not is_words:
            for node in nodes:
                yield from _inline(node, keep_space)
            continue
        text = "".join(node.text for node in nodes)
        for item in items_of(text if keep_space else re.sub(r"\n[ \t]+", " ", text)):
            yield Item(item.kind, escape(item.raw), item.text, item.name)


def _inline(node: Element, keep_space: bool) -> Iterator[Item]:
    given = node.attributes
    if given.get("mtype") == "seg":
        yield from enclosed(node, "break", inline_items(node, keep_space))
    elif node.name in _PAIRS and node.opening and given.get("translate") != "no" and given.get("mtype") != "protected":
        yield from enclosed(node, "open", inline_items(node, keep_space), f"{node.begin}")
    elif half := _HALF.fullmatch(given.get("equiv") or given.get("id", "")):
        yield Item("open" if half[1] == "START" else "close", node.raw, name=f"half {half[2]}")
    elif node.name in _OPENING | _CLOSING:
        pair = given.get("startRef") or given.get("rid") or given.get("i") or given.get("id", "")
        yield Item("open" if node.name in _OPENING else "close", node.raw, name=f"pair {pair}")
    else:
        yield Item("point" if node.name in ("it", "") and not node.raw.startswith("&") else "atom", node.raw)


# Texts with tags of any name, as programs send them for translation.


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
            yield from enclosed(node, "break", self.items(node))
        elif not node.children:
            yield Item("point", node.raw)
        else:
            yield from enclosed(node, "open", self.items(node), f"{node.begin}")


def tagged_document(text: str, language: str, tags: Tags, splitting: Splitting) -> Document:
    """Returns a text with tags, or a whole XML document. Raises DocumentError if it is not well-formed XML."""
    if text.lstrip().startswith(("<?xml", "<!DOCTYPE")):
        content = parse(text, None, doctype=True)
    else:
        (content,) = parse(text.join(("<text>", "</text>")), None).children
    return MarkedDocument(list(tags.items(content)), language, escape, splitting=splitting)
