"""Reads the strings of Android (`strings.xml`) and of .NET (`.resx`): a translation is a copy in another language."""

from __future__ import annotations

import html
import re
from functools import partial
from xml.sax.saxutils import escape

from vtrans.apps.documents.document import Document, Filling, Slot
from vtrans.apps.documents.formats.app_strings.copies import Node, copy_document
from vtrans.apps.documents.formats.xml import Element, is_text, root_of
from vtrans.apps.documents.inline import CONVERSION
from vtrans.apps.documents.program_strings import ProgramString, format_flags, slot_of, unescaped
from vtrans.apps.documents.sentences import trimmed

_PARTS = {"resources": ("string", "string-array", "plurals"), "string-array": ("item",), "plurals": ("item",)}
_NAMESPACE = re.compile(r"""\s+xmlns:([\w.-]+)\s*=\s*(?:"[^"]*"|'[^']*')""")
_REFERENCE = re.compile(r"\s*[@?][\w:.]+/\S+\s*")  # to another resource
# Android drops a space at the beginning or end of a string unless it is written in one of these ways.
_BLANK = re.compile(r"(?<!\\)(?:\\u0020|\\u00[aA]0|&#(?:32|160|x20|x[aA]0);)")
_LAST_BLANK, _LONGEST_BLANK = re.compile(rf"{_BLANK.pattern}\Z"), 6
_CDATA, _CDATA_END = "<![CDATA[", "]]>"
_TAG = re.compile(r"(</?[A-Za-z](?:[^<>\\]|\\.)*>)")
_XML = re.compile(r"""(<(?:"[^"]*"|'[^']*'|[^<>"'])*>)""")
# A tag, or an element that the app fills in, such as `<xliff:g>`.
_ATOMS = re.compile(rf"<(?P<name>[\w.-]+:[\w.-]+)\b[^<>]*>.{{0,1000}}?</(?P=name)>|{_TAG.pattern}", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_QUOTE = re.compile(r'(?:[^"\\]|\\.)*"', re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t"}
_WRITTEN = str.maketrans({"\\": "\\\\", '"': '\\"', "'": "\\'", "\n": "\\n", "\t": "\\t"})


def android_document(text: str, language: str, filling: Filling = Filling()) -> Document:
    """Returns a `strings.xml` file, or its existing translation, with the strings, array items and plural forms to
    translate as slots. Raises DocumentError for other XML."""

    def read(text: str) -> Node:
        return _tree(_root(text), language)

    existing = _with_namespaces(filling.earlier, _root(text)) if filling.earlier is not None else None
    return copy_document(read, text, existing)


def _root(text: str) -> Element:
    return root_of(text, "resources", "as in strings.xml of Android")


def _with_namespaces(translation: str, source: Element) -> str:
    """Adds the source's namespaces that the translation lacks."""
    root = _root(translation)
    declared = _NAMESPACE.finditer(source.opening) if root.children else ()
    lacking = "".join(match.group() for match in declared if f"xmlns:{match[1]}" not in root.opening)
    end = root.begin + len(root.opening) - 1
    return translation[:end] + lacking + translation[end:]


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
    """Returns the slot of a string; None for comments, sections of CDATA or quotation marks in a part of it."""
    raw = element.inside
    begin, end = trimmed(raw, 0, len(raw))
    is_cdata = raw.startswith(_CDATA, begin) and raw.endswith(_CDATA_END, begin, end)
    if is_cdata:
        begin, end = begin + len(_CDATA), end - len(_CDATA_END)
    while blank := _BLANK.match(raw, begin, end):
        begin = blank.end()
    while blank := _LAST_BLANK.search(raw, max(begin, end - _LONGEST_BLANK), end):
        end = blank.start()
    # Quotation marks around a string keep all white space in it.
    is_quoted = end - begin > 1 and raw[begin] == raw[end - 1] == '"'
    begin, end = begin + is_quoted, end - is_quoted
    if (_CDATA_END if is_cdata else "<!") in raw[begin:end]:
        return None
    parts = [raw[begin:end]] if is_cdata else _XML.split(raw[begin:end])
    tags = set(map(_unnumbered, parts[1::2]))
    texts = parts[::2] if is_cdata else list(map(html.unescape, parts[::2]))
    written = {_unnumbered(tag) for text in texts for tag in _TAG.findall(text)}
    if tags & written or not all(map(_TAG.fullmatch, parts[1::2])):
        return None
    flat = "".join(text + tag for text, tag in zip(texts, [*parts[1::2], ""], strict=True))
    decoded = _TAG.split(flat)
    for n, text in list(enumerate(decoded))[::2]:
        new = unescaped(text if is_quoted else re.sub(r"\s+", " ", text), _ESCAPE, _LETTERS)
        if new is None or _QUOTE.match(text):
            return None
        decoded[n] = new

    def encoded(made: str) -> str:
        pieces = _TAG.split(made)
        pieces[::2] = (text.translate(_WRITTEN) for text in pieces[::2])
        if not is_cdata:
            pieces = [part if _unnumbered(part) in tags else escape(part) for part in pieces]
        text = "".join(pieces)
        if is_cdata and _CDATA_END in text:
            return ""
        return raw[:begin] + ("\\" if text[:1] in ("@", "?") else "") + text + raw[end:]

    source = "".join(decoded)
    string = ProgramString(source, format_flags(source, "java-printf-format"), language, atoms=_ATOMS)
    return slot_of(element.begin + len(element.opening), raw, [string], encoded)


def _unnumbered(tag: str) -> str:
    """Returns a tag without the argument numbers of its conversions."""
    return CONVERSION.sub(r"%\g<rest>", tag)


def resx_document(text: str, language: str, filling: Filling = Filling()) -> Document:
    """Returns a file of resources, or its existing translation, with the texts to translate as slots. Raises
    DocumentError for other XML."""

    def read(text: str) -> Node:
        root = root_of(text, "root", "as in a .resx file of .NET")
        node, before = Node(root.begin, root.end), root.begin + len(root.opening)
        for data in root.children:
            value, name = data.child("value"), data.attributes.get("name", "")
            # Resources other than texts have a type; names of form properties begin with `>>` or `$this.`.
            is_other = {"type", "mimetype"} & data.attributes.keys() or name.startswith((">>", "$this."))
            if data.name == "data" and value and not is_other:
                member = Node(data.begin, data.end, name, value.inside.strip(), before=before)
                if not value.is_blank and all(map(is_text, value.children)):
                    member.slot = partial(_resx_slot, value, language)
                node.members.append(member)
            before = data.end if data.name else before
        return node

    return copy_document(read, text, filling.earlier)


def _resx_slot(value: Element, language: str) -> Slot:
    source = "".join(part.text for part in value.children)
    string = ProgramString(source, ("csharp-format",) if re.search(r"\{\d", source) else (), language)
    return slot_of(value.begin + len(value.opening), value.inside, [string], escape)
