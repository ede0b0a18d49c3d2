"""Reads the XML of word processor, presentation, spreadsheet and e-book files for translation. Everything except
translated text is written as it was read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from xml.sax.saxutils import escape

from vtrans.apps.documents.document import Document, Filling, MarkedDocument, Translated
from vtrans.apps.documents.formats.html import HtmlDocument, read_html
from vtrans.apps.documents.formats.markup import Item
from vtrans.apps.documents.formats.xml import Element, Tags, enclosed, parse, tagged_document
from vtrans.apps.documents.sentences import MARKED

_FORMS = ("http://schemas.openxmlformats.org/%s/2006/main", "http://purl.oclc.org/ooxml/%s/main")
_OFFICE = [form % name for name in ("wordprocessingml", "drawingml", "spreadsheetml") for form in _FORMS]
_TEXT = ("urn:oasis:names:tc:opendocument:xmlns:text:1.0",)
_CELL = {"si", "is"}
_PARAGRAPHS = {"p", "h", *_CELL}
# Elements that surround runs in a Word paragraph.
_AROUND_RUNS = {"hyperlink", "ins", "moveTo", "smartTag", "customXml", "sdt", "sdtContent", "dir", "bdo", "fldSimple"}
_AROUND_TEXT = {"span", "a", "meta", "meta-field"}  # in an OpenDocument paragraph
_RESULT_IS_TEXT = re.compile(r"\s*(?:HYPERLINK|REF|TOC)\b", re.IGNORECASE)  # of a field; a page number is not
# An image, formula, object or symbol, which takes a place in a line as a word does.
_WORDLIKE = re.compile(r"""<\w+:(?:inline|oMath|object|sym)\b|\btext:anchor-type=["']as-char""")
_CLOSED = re.compile(r"(<(?:title|script|style|textarea|iframe)\b[^<>]*/>)")
_STYLE = "\3"
_PARTS = re.compile("\3(?P<before>[^\4]*)\4(?P<after>[^\5]*)\5|(?P<end>\6)|\1(?P<text>[^\2]*)\2|(?P<xml>[^\1-\6]+)")

Inside = Callable[[Element], Iterator[Item]]
"""Yields the items of a child of a paragraph."""


def office_document(xml: str, language: str, filling: Filling = Filling(), *, kept: Container[str] = ()) -> Document:
    """Returns a part of a Word, PowerPoint or Excel file, such as word/document.xml, as a document. Cells whose text is
    in `kept` are not translated."""
    root = parse(xml, _OFFICE)
    todo = [root] if kept else []
    while todo:
        node = todo.pop()
        todo += node.children
        if node.name in _CELL and re.sub("<[^<>]*>", "", node.inside) in kept:
            node.name = "?"
    return RunDocument(list(_items(root, _word_child)), language, _text)


def epub_document(xml: str, language: str, filling: Filling = Filling()) -> Document:
    """Returns a page of an e-book, in XHTML, or its table of contents. HTML has no `<title/>`, so the
    HTML reader reads only the parts around such tags."""
    if "<ncx" in xml:
        return tagged_document(xml, language, Tags(), "sentences")
    parts = _CLOSED.split(xml)
    items = [read_html(part) if n % 2 == 0 else [Item("break", part)] for n, part in enumerate(parts)]
    quoted = partial(escape, entities={'"': "&quot;", "'": "&#39;"})
    document = HtmlDocument([*chain.from_iterable(items)], language, escape, escape_inner=quoted)
    document.target = filling.target
    return document


def odt_document(xml: str, language: str, filling: Filling = Filling()) -> Document:
    """Returns content.xml or styles.xml of an .odt file."""
    return MarkedDocument(list(_items(parse(xml, _TEXT), _text_child)), language, escape)


class RunDocument(MarkedDocument):
    """A document whose text is in runs, each with a style. Text is between `\\1` and `\\2`. A styled part is between
    `\\3` and `\\6`. It begins with the tags before its text, up to `\\4`, and the tags after its text, up to `\\5`. XML
    cannot contain these characters."""

    def joined(self, translations: Sequence[Translated]) -> str:
        parts, styles = list[tuple[tuple[str, str], str]](), [("", "")]
        for part in _PARTS.finditer(super().joined(translations)):
            if part["before"]:
                styles.append((part["before"], part["after"]))
            elif part["end"]:
                styles[1:] = styles[1:-1]
            elif part["text"]:
                parts.append((styles[-1], part["text"]))
            elif part["xml"]:
                parts.append((styles[0], part["xml"]))
        runs = groupby(parts, key=itemgetter(0))
        return "".join(before + "".join(text for _, text in run) + after for (before, after), run in runs)


def _text(text: str) -> str:
    """Returns text as a RunDocument marks it. Atoms are left outside the marks."""
    return MARKED.sub("\2\\g<0>\1", f"\1{escape(text)}\2") if text else ""


def _with_style(items: list[Item]) -> list[Item]:
    """Makes the prevailing style of a paragraph its default, so that only text in other styles is in elements."""
    lengths = Counter[str]()
    for item in items:
        lengths[item.name] += len(item.text) if item.name.startswith(_STYLE) else 0
    style = lengths.most_common(1)[0][0] if lengths.total() else ""
    tags = [item.raw for item in items if style and item.name == style and item.kind != "text"]
    others = [item for item in items if item.kind == "text" or not style or item.name != style]
    return [Item("break", tags[0]), *others, Item("break", tags[-1])] if tags else others


def _items(node: Element, inside: Inside) -> Iterator[Item]:
    """Yields the items of a document, whose paragraphs `inside` reads."""
    if node.name in _PARAGRAPHS:
        items = chain.from_iterable(map(inside, node.children))
        yield from enclosed(node, "break", _with_style(_merged(_with_fields(list(items)))))
    else:
        yield from enclosed(node, "break", chain.from_iterable(_items(child, inside) for child in node.children))


def _single(node: Element, inside: Inside, around: tuple[str, str] = ("", ""), *, is_word: bool = False) -> Item:
    """Returns an element inside a paragraph as one item, between the two tags `around`. Paragraphs in it, as in a note,
    are a text of their own."""
    raw = node.raw.join(around)
    inner = list(_items(node, inside)) if _has_paragraphs(node) else []
    parts = [Item("break", around[0]), *inner, Item("break", around[1])] if inner else []
    return Item("atom" if is_word or _WORDLIKE.search(node.raw) else "point", raw, inner=tuple(parts))


def _has_paragraphs(node: Element) -> bool:
    return any(child.name in _PARAGRAPHS or _has_paragraphs(child) for child in node.children)


def _text_child(node: Element) -> Iterator[Item]:
    """Yields the items of a part of an OpenDocument paragraph."""
    if not node.name:
        yield Item("text", node.raw, node.text)
    elif node.name in _AROUND_TEXT:
        yield from enclosed(node, "open", chain.from_iterable(map(_text_child, node.children)), node.name)
    elif node.name == "s":
        yield Item("text", node.raw, " ")
    elif node.name in ("tab", "line-break"):
        yield Item("break", node.raw)
    else:
        has_text = any(child.text.strip() for child in node.children)
        yield _single(node, _text_child, is_word=has_text and node.name != "?")


def _word_child(node: Element) -> Iterator[Item]:
    """Yields the items of a part of a Word paragraph."""
    code = _attribute(node, "instr")
    if node.name == "r":
        yield from _run(node)
    elif node.name == "t":
        yield from _text_of_run("", "", node, "")
    elif node.name in _AROUND_RUNS and (not code or _RESULT_IS_TEXT.match(code)):
        yield from enclosed(node, "open", chain.from_iterable(map(_word_child, node.children)), node.name)
    elif node.name == "pPr":
        yield Item("break", node.raw)
    elif node.name != "proofErr":  # a mark of the spelling checker
        yield _single(node, _word_child, is_word=bool(code) or node.name == "fld")


def _run(run: Element) -> Iterator[Item]:
    """Yields an element for each text of a run. Everything else in it becomes a run of its own."""
    properties = "".join(child.raw for child in run.children if child.name == "rPr")
    opening = run.opening + properties
    for child in run.children:
        if child.name == "t":
            yield from _text_of_run(opening, properties, child, run.closing)
        elif child.name in ("tab", "br", "cr"):
            yield Item("break", opening + child.raw + run.closing)
        elif child.name in ("fldChar", "instrText"):
            part = _attribute(child, "fldCharType") or f"code {''.join(part.text for part in child.children)}"
            yield Item("point", opening + child.raw + run.closing, name=part)
        elif child.name not in ("rPr", ""):
            yield _single(child, _word_child, (opening, run.closing))


def _text_of_run(before: str, properties: str, text: Element, after: str) -> Iterator[Item]:
    if not text.children:
        yield Item("point", before + text.raw + after)
        return
    tag = text.prefix + "t"
    # Without the attribute, Word and Excel drop white space at the ends of the text. PowerPoint has none.
    space = "" if tag == "a:t" else ' xml:space="preserve"'
    name = f"{_STYLE}{properties}"
    yield Item("open", f"{_STYLE}{before}<{tag}{space}>\4</{tag}>{after}\5", name=name)
    yield Item("text", f"\1{text.inside}\2", "".join(part.text for part in text.children), name)
    yield Item("close", "\6", name=name)


def _attribute(node: Element, name: str) -> str:
    return next((value for key, value in node.attributes.items() if key.endswith(f" {name}")), "")


def _with_fields(items: Sequence[Item]) -> Iterator[Item]:
    """Yields the items with each field, such as a page number, as an atom. The result of a link is text."""
    ends, place = _field_ends(items), 0
    while place < len(items):
        end = ends.get(place)
        if end is None:
            yield items[place]
            place += 1
            continue
        parts = [item.raw for item in items[place:end]]
        code = "".join(item.name.removeprefix("code ") for item in items[place:end] if item.name.startswith("code "))
        result = next((n for n in range(place, end) if items[n].name == "separate"), end - 1) + 1
        if result < end and _RESULT_IS_TEXT.match(code):
            yield Item("open", "".join(parts[: result - place]), name=f"field {place}")
            yield from items[result : end - 1]
            yield Item("close", parts[-1], name=f"field {place}")
        else:
            yield Item("atom", "".join(parts))
        place = end


def _field_ends(items: Sequence[Item]) -> dict[int, int]:
    """Returns the end of each field, by its begin, if it is in one paragraph and properly nested."""
    opened, ends = list[int](), dict[int, int]()
    for n, item in enumerate(items):
        if item.kind == "open" or item.name == "begin":
            opened.append(n)
        elif item.kind == "close" or item.name == "end":
            first = opened.pop() if opened else n
            if (item.kind == "close") != (items[first].kind == "open"):
                opened.clear()
            elif item.name == "end":
                ends[first] = n + 1
        elif item.kind == "break":
            opened.clear()
    return ends


def _merged(items: Iterable[Item]) -> list[Item]:
    """Merges neighbouring runs with the same properties. Word begins a new run at each edit."""
    merged: list[Item] = []
    for item in items:
        if item.kind == "open" and item.name.startswith(_STYLE) and merged and merged[-1].name == item.name:
            merged.pop()
        else:
            merged.append(item)
    return merged
