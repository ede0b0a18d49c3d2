"""Reads HTML, a document or a part of one, for translation.

turbohtml tokenizes as the HTML standard says; everything but translated text is written as it was read. Scripts,
styles, code, form values, most attributes, and elements marked as not to be translated stay unchanged.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

import turbohtml

from vtrans.apps.documents.document import Document, Filling, MarkedDocument, PlainDocument, Translated
from vtrans.apps.documents.formats.markup import Item
from vtrans.apps.documents.formats.xml import encoding
from vtrans.apps.documents.sentences import Splitting
from vtrans.text.languages import is_right_to_left
from vtrans.text.lines import is_utf8

_PROTECTED = """
audio canvas code iframe kbd math noscript object plaintext pre samp script style svg template textarea tt var video xmp
"""
_BLOCKS = """
address article aside base blockquote body br button caption center col colgroup dd details dialog dir div dl dt
fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li link main
menu meta nav ol optgroup option p param search section select source summary table tbody td tfoot th thead title
tr track ul
"""
_VOID = "area base br col embed hr img input link meta param source track wbr"
_WORDLIKE = {"embed", "img", "input"}  # take a place in a line, as words do
_TEXTS = {"alt", "title", "placeholder", "aria-label"}  # attributes
_IS_TEXT = re.compile(r"(?:og:|twitter:)?(?:description|title)", re.IGNORECASE)  # names of <meta>
_ATTRIBUTE = re.compile(r"""(?P<name>[^\s"'<>/=]+)(?:\s*=\s*(?:(?P<text>"[^"]*"|'[^']*')|[^\s"'=<>`]+))?""")
PRESCAN = 1024  # bytes that must name the encoding
PROTECTED, BLOCKS, VOID = (frozenset(names.split()) for names in (_PROTECTED, _BLOCKS, _VOID))
_CHARSET = re.compile(rb"""<meta\b[^>]*?\bcharset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_LATIN = {"iso-8859-1", "iso8859-1", "latin1", "latin-1", "l1"}  # browsers read it as Windows-1252, which adds letters
_WINDOWS = re.compile(rb"[\x80-\x9f]")
_HTML = re.compile(r"""<html\b(?:"[^"]*"|'[^']*'|[^'">])*>""", re.IGNORECASE)
_LANGUAGE = re.compile(r"""(\s(?:xml:)?lang\s*=\s*["']?)[A-Za-z][\w-]*(["'\s/>])""", re.IGNORECASE)
_DIRECTION = re.compile(r"""\sdir\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>]*)""", re.IGNORECASE)
# The tokenizer counts lines by these, and reads each as \n, as the HTML standard says.
_LINE_END = re.compile("\r\n?|\n")
_DROPPED = r"</>|(?s:<[/?]?[A-Za-z].*)"  # the tokenizer drops an empty tag, and an unfinished one at the end

# A character reference, as html.unescape reads it, a line end, or a space that `escape` writes as a reference.
_SPELT = r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[^\t\n\f <&#;]{1,32};?)|\r\n?|\u00a0"


def html_encoding(content: bytes) -> str:
    """Returns the encoding that an HTML file declares, as browsers understand it, or UTF-8 if the content is UTF-8."""
    declared = _CHARSET.search(_COMMENT.sub(b"", content[:PRESCAN]))
    name = (declared[1].decode() if declared else encoding(content)).lower()
    if (not content.isascii() and is_utf8(content)) or (declared and name.startswith("utf")):
        return "utf-8"
    return "cp1252" if name in _LATIN and _WINDOWS.search(content) else name


def escape(text: str) -> str:
    """Returns text as HTML."""
    return html.escape(text, quote=False).replace("\u00a0", "&nbsp;")


def escape_value(text: str) -> str:
    """Returns text as HTML between quotation marks."""
    return escape(text).replace('"', "&quot;").replace("'", "&#39;")


class HtmlDocument(MarkedDocument):
    """HTML. The tag <html>, if any, gets the translation's text direction if it differs from the source's. Its
    attribute `lang`, if any, becomes the target language if known."""

    target = ""

    def joined(self, translations: Sequence[Translated]) -> str:
        page = super().joined(translations)
        texts = (self.lines, [translation.text for translation in translations])
        before, after = (is_right_to_left("".join(lines)) for lines in texts)
        if tag := _HTML.search(page):
            new = tag[0]
            if before != after:
                new = re.sub(r"^<\w+", rf'\g<0> dir="{"rtl" if after else "ltr"}"', _DIRECTION.sub("", new))
            new = _LANGUAGE.sub(rf"\g<1>{self.target}\2", new) if self.target else new
            page = page[: tag.start()] + new + page[tag.end() :]
        return page


def html_document(
    text: str,
    language: str,
    filling: Filling = Filling(),
    *,
    ignored: Collection[str] = (),
    splitting: Splitting = "sentences",
) -> Document:
    """Reads HTML, a document or a fragment. Elements whose lower-case names are `ignored` stay unchanged."""
    document = HtmlDocument(read_html(text, ignored), language, escape, splitting=splitting, escape_inner=escape_value)
    document.target = filling.target
    return document


READERS: dict[str, Callable[[str, str], Document]] = {"text": PlainDocument, "html": html_document}
"""The reader of each format, called with a text and its language."""


def read_html(document: str, ignored: Collection[str] = ()) -> list[Item]:
    """Returns the items of an HTML document. Their `raw` parts make up the document again. Elements whose lower-case
    names are `ignored` are atoms."""
    items: list[Item] = []
    guarded, depth = "", 0  # the open protected element, and how many of its name are open
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
        elif token is None or kind == turbohtml.TokenType.TEXT:
            items += _text(raw, (token and token.data) or "")
        elif name in BLOCKS or kind == turbohtml.TokenType.DOCTYPE:
            items.append(Item("break", raw, inner=_attributes(token, raw)))
        elif single or not (starts or ends):
            items.append(Item("atom" if name in _WORDLIKE else "point", raw, inner=_attributes(token, raw)))
        else:
            items.append(Item("open" if starts else "close", raw, name=name, inner=_attributes(token, raw)))
    return items


def _attributes(token: Any, raw: str) -> tuple[Item, ...]:
    """Returns the items of a tag if some of its attributes are text to translate, else ()."""
    attributes = dict(token.attrs or ()) if token.type == turbohtml.TokenType.START_TAG else {}
    meta = (attributes.get("name") or attributes.get("property") or "") if token.tag == "meta" else ""
    names = _TEXTS | ({"content"} if _IS_TEXT.fullmatch(meta) else set())
    items, place = list[Item](), 0
    for value in _ATTRIBUTE.finditer(raw) if names & attributes.keys() else ():
        if value["name"].lower() in names and value["text"]:
            begin, end = value.start("text") + 1, value.end("text") - 1
            items += [Item("break", raw[place:begin]), *_text(raw[begin:end], _read(raw[begin:end]))]
            place = end
    return (*items, Item("break", raw[place:])) if items else ()


def _is_protected(token: Any) -> bool:
    attributes = dict(token.attrs or ())
    classes = (attributes.get("class") or "").split()
    translate = attributes.get("translate")
    return token.tag in PROTECTED or (translate or "").strip().lower() == "no" or "notranslate" in classes


def _text(raw: str, data: str) -> Iterator[Item]:
    """Yields the items of text that the tokenizer reads as `data`. Text that can be written in several ways is a
    separate item."""
    dropped = _DROPPED if _read(raw) != data else "(?!)"
    parts = re.split(f"({dropped}|{_SPELT})", raw)
    texts = [_read(part) if number % 2 == 0 or part[0] != "<" else "" for number, part in enumerate(parts)]
    if "".join(texts) != data:
        yield Item("break", raw)
        return
    for part, text in zip(parts, texts, strict=True):
        if part:
            yield Item("text" if text else "point" if part == "</>" else "break", part, text)


def _read(text: str) -> str:
    return html.unescape(_LINE_END.sub("\n", text))


def _tokens(document: str) -> Iterator[tuple[Any, str]]:
    """Yields each token with its part of the document, up to the next token. Text that the tokenizer drops comes with
    None."""
    starts = [0, *(match.end() for match in _LINE_END.finditer(document))]
    tokens: list[tuple[int, Any]] = [
        (starts[token.line - 1] + token.col, token) for token in turbohtml.tokenize(document, capture_source=True)
    ]
    if not tokens or tokens[0][0] > 0:
        tokens.insert(0, (0, None))
    for (begin, token), (end, _) in pairwise([*tokens, (len(document), None)]):
        source = (token and token.source) or ""
        line_ends = islice(_LINE_END.finditer(document, begin, end), source.count("\n"))
        stop = begin + len(source) + sum(len(match.group()) - 1 for match in line_ends) if source else end
        yield token, document[begin : min(stop, end)]
        if stop < end:
            yield None, document[stop:end]
