"""Reads HTML, a document or a part of one, for translation.

turbohtml tokenizes as the HTML standard says; everything but translated text is written as it was read. Scripts,
styles, code, form values, attributes and elements that are marked as not to be translated are left unchanged.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Any

import turbohtml

from vtrans.documents.markup import Item
from vtrans.documents.xml import encoding

_PROTECTED = """
audio canvas code iframe kbd math noscript object plaintext samp script style svg template textarea tt var video xmp
"""
_BLOCKS = """
address article aside base blockquote body br button caption center col colgroup dd details dialog dir div dl dt
fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li link main
menu meta nav ol optgroup option p param pre search section select source summary table tbody td tfoot th thead title
tr track ul
"""
_VOID = "area base br col embed hr img input link meta param source track wbr"
PRESCAN = 1024  # bytes that must name the encoding
PROTECTED, BLOCKS, VOID = (frozenset(names.split()) for names in (_PROTECTED, _BLOCKS, _VOID))
_CHARSET = re.compile(rb"""<meta\b[^>]*?\bcharset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_LATIN = {"iso-8859-1", "iso8859-1", "latin1", "latin-1", "l1"}  # browsers read it as Windows-1252, which has more
_WINDOWS = re.compile(rb"[\x80-\x9f]")
# The tokenizer counts lines by these, and reads each as \n, as the HTML standard says.
_LINE_END = re.compile("\r\n?|\n")


def html_encoding(content: bytes) -> str:
    """Returns the encoding that an HTML file says it has, as browsers read it; UTF-8 if it is UTF-8 in fact."""
    declared = _CHARSET.search(_COMMENT.sub(b"", content[:PRESCAN]))
    name = (declared[1].decode() if declared else encoding(content)).lower()
    is_utf8 = not content.isascii() and content.decode(errors="ignore").encode() == content
    if is_utf8 or (declared and name.startswith("utf")):
        return "utf-8"
    return "cp1252" if name in _LATIN and _WINDOWS.search(content) else name


def escape(text: str) -> str:
    """Returns text as HTML."""
    return html.escape(text, quote=False).replace("\u00a0", "&nbsp;")


def read_html(document: str, ignored: Collection[str] = ()) -> list[Item]:
    """Returns the items of an HTML document. Their `raw` parts make up the document again. Elements of the ignored
    names, in small letters, are atoms."""
    items: list[Item] = []
    guarded, depth, pre = "", 0, 0  # the protected element that is open, those of its name inside it
    for token, raw in _tokens(document):
        kind = token.type if token is not None else None
        name = (token.tag or "") if token is not None else ""
        starts, ends = kind == turbohtml.TokenType.START_TAG, kind == turbohtml.TokenType.END_TAG
        single = name in VOID or (starts and token.self_closing)
        if guarded:
            depth += (starts and name == guarded and not single) - (ends and name == guarded)
            items[-1] = Item(items[-1].kind, items[-1].raw + raw)
            guarded = guarded if depth else ""
        elif starts and (name in ignored or (not single and _is_protected(token))):
            items.append(Item("atom" if name in ignored else "break", raw))
            guarded, depth = ("", 0) if single else (name, 1)
        elif kind == turbohtml.TokenType.TEXT:
            items += _text(raw, token.data or "", pre > 0)
        elif name in BLOCKS or kind is None or kind == turbohtml.TokenType.DOCTYPE:
            items.append(Item("break", raw))
            pre = max(0, pre + (starts - ends) * (name == "pre"))
        elif single or not (starts or ends):
            items.append(Item("point", raw))
        else:
            items.append(Item("open" if starts else "close", raw, name=name))
    return items


def _is_protected(token: Any) -> bool:
    attributes = dict(token.attrs or ())
    classes = (attributes.get("class") or "").split()
    translate = attributes.get("translate")
    return token.tag in PROTECTED or (translate or "").strip().lower() == "no" or "notranslate" in classes


def _text(raw: str, data: str, pre: bool) -> list[Item]:
    """Returns the items of text. In <pre>, each line is a segment. `data` is what the tokenizer reads; if it has
    dropped something, such as half a tag at the end, the text stays as it is."""
    if html.unescape(_LINE_END.sub("\n", raw)) != data:
        return [Item("break", raw)]
    if not pre:
        return [Item("text", raw, data)]
    return [
        Item("text", part, html.unescape(part)) if number % 2 == 0 else Item("break", part)
        for number, part in enumerate(re.split(f"({_LINE_END.pattern})", raw))
    ]


def _tokens(document: str) -> Iterator[tuple[Any, str]]:
    """Yields each token with the part of the document from its beginning to that of the next one."""
    starts = [0, *(match.end() for match in _LINE_END.finditer(document))]
    tokens: list[tuple[int, Any]] = [
        (starts[token.line - 1] + token.col, token) for token in turbohtml.tokenize(document)
    ]
    if not tokens or tokens[0][0] > 0:
        tokens.insert(0, (0, None))
    for (begin, token), (end, _) in pairwise([*tokens, (len(document), None)]):
        yield token, document[begin:end]
