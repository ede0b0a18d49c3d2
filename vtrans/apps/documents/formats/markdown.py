"""Reads Markdown for translation: paragraphs, headings, list items and cells of tables. Code, HTML blocks, definitions
of links, and front matter except titles stay.

markdown-it-py parses it and gives the lines of each block. Its inline rules are wrapped here to record where each token
begins and ends. Rules at the end read the extensions of GitHub, MkDocs, Docusaurus, Jekyll and pandoc: admonitions and
tabs, footnotes, formulas, attributes and Liquid tags, whose marks stay. A translation that would parse to different
markup is not written.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, pairwise
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from vtrans.apps.documents.document import Document, FilledDocument, Filling, MarkedDocument, Slot
from vtrans.apps.documents.formats.html import VOID
from vtrans.apps.documents.formats.markup import Item

_LINE = re.compile(r"\r\n?|\n")
_FRONT_MATTER = re.compile(
    r"(?:---[ \t]*\r?\n.*?\n(?:---|\.\.\.)|\+\+\+[ \t]*\r?\n.*?\n\+\+\+)[ \t]*\r?(?=\n|\Z)", re.DOTALL
)
# A title or description in it, in YAML or TOML, without escapes.
_TITLE = re.compile(
    r"""^(?:title|subtitle|description|summary)[ \t]*[:=][ \t]*(?!.*[ \t]\#|'[^'\n]*'[^'\n]*')"""
    r"""(?P<quote>["']?)(?P<text>\w[^\\"\r\n]*?)(?P=quote)[ \t]*\r?$""",
    re.MULTILINE,
)
_IMAGE = re.compile(r"""(!\[)([^\[\]\\`*_<>&]*)(\]\([^\s"'()]*(?:\s+"(?=[^"\\&]*"\))|\)))([^"\\&]*)("\))?""")
_LINK_END = re.compile(r"""(\]\([^\s"'()]*\s+")([^"\\&]*)("\))""")
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)(?:\s[^<>]*)?(?<!/)>")
_TASK = re.compile(r"\[[ xX]\][ \t]+")
_UNMARKED = ("text", "text_special", "softbreak")

_MARKER = "marker_open"
"""The type of the token before the title in the line of a mark."""
_INDENT = 4  # spaces before the text of an admonition or a footnote

# `!!! note "A title"` and `=== "A tab"`, `[^1]: A note.`, `: A definition`, `import` and `export` of MDX,
# `::: note A title`, `[!NOTE]`, and `{% include a.md %}` and `{{% note %}}`.
_MARK = re.compile(
    r"(?P<indented>(?:!!!|\?\?\?\+?)[ \t]+[\w-]+(?:[ \t]+[\w-]+)*[ \t]*(?=\"|$)|===[!+]?[ \t]+(?=\"))(?P<title>.*)"
    r"|(?P<note>\[\^[^\s\]]+\]:[ \t]*|:[ \t]+(?=\S))"
    r"|(?P<code>import[ \t]+(?:[\w*{][^'\"]*[ \t]from[ \t]+)?['\"][^'\"]+['\"];?$"
    r"|export[ \t]+(?:const|let|var|default|(?:async[ \t]+)?function)\b.*$)"
    r"|(?::{3,}[ \t]*(?:\{[^{}]*\}|[\w.-]*)|\[![\w-]+\][-+]?)[ \t]*(?P<other>.*)"
    r"|(?:(?:\{%(?:[^%]|%(?!\}))*%\}|\{\{[%<].*?[%>]\}\})[ \t]*)+$"
)
# As in pandoc, no space follows the first `$` of a formula or precedes the last, and no digit follows: not `$5 and $6`.
_INLINE = re.compile(
    r"\$\$.{1,2000}?\$\$|\$(?=[^\s$])(?:[^$\\]|\\.){0,1000}(?<=\S)\$(?!\d)|\{%.{0,1000}?%\}|\{\{[%<].{0,1000}?[%>]\}\}"
    r"|(?P<after>\[\^[^\s\]]{1,100}\]|\{[#:.][^{}\n]*\})|==(?P<marked>(?=[^\s=]).{1,1000}?(?<=[^\s=]))==(?!=)",
    re.DOTALL,
)

Rule = Callable[[StateInline, bool], bool]


def _noted(rule: Rule) -> Rule:
    """Wraps an inline rule so that it records the span of each token in the block, as `meta["span"]`."""

    def run(state: StateInline, silent: bool) -> bool:
        begin, before, pending = state.pos, len(state.tokens), bool(state.pending)
        if not rule(state, silent):
            return False
        place, new = begin, [] if silent else state.tokens[before + pending :]
        is_link = state.src[begin] == "[" and any(token.type == "link_open" for token in new)
        end_of_label = state.md.helpers.parseLinkLabel(state, begin, True) if is_link else -1
        for token in new:
            if "span" in token.meta:
                continue
            if token.type == "text":  # delimiters of emphasis, which become tags later
                token.meta["span"] = place, place + len(token.content)
                place += len(token.content)
            elif end_of_label > 0 and token.type == "link_open":
                token.meta["span"] = begin, begin + 1
            elif end_of_label > 0 and token.type == "link_close":
                token.meta["span"] = end_of_label, state.pos
            else:
                token.meta["span"] = begin, state.pos
        return True

    return run


def markdown_document(text: str, language: str, filling: Filling = Filling()) -> Document:
    """Returns a Markdown file with its blocks of text as slots."""
    lines = [(line.start(), line[1]) for line in re.finditer(rf"([^\r\n]*)(?:{_LINE.pattern}|\Z)", text)]
    matter = _FRONT_MATTER.match(text)
    hidden = len(_LINE.findall(matter.group())) + 1 if matter else 0
    env: dict[str, Any] = {}
    tokens = _PARSER.parse("\n" * hidden + "\n".join(line for _, line in lines[hidden:]), env)
    slots, ends = list[Slot](), dict[int, int]()  # where the last cell in a line ends
    slots += [_title(text, title, language) for title in _TITLE.finditer(text, 0, matter.end() if matter else 0)]
    for opening, token in pairwise(tokens):
        if token.type == "inline" and token.map and token.content:
            places = _places(opening, token, lines, ends)
            if places is not None:
                slots.append(_slot(text, token, places, language, env))
    return FilledDocument(text, sorted(slots, key=lambda slot: slot.begin))


def _title(text: str, title: re.Match[str], language: str) -> Slot:
    """Returns the slot for a text in the front matter. Unquoted text gets quotation marks if YAML would
    misread it."""
    begin, end = title.span("text")
    document = MarkedDocument([Item("text", title["text"], title["text"])], language, str)

    def written(texts: list[str]) -> str | None:
        new = texts[0].replace("'", "''") if title["quote"] == "'" else texts[0]
        if title["quote"] != "'" and re.search(r'["\\]', new):
            return None
        return f'"{new}"' if not title["quote"] and re.search(r"^\W|: | #|:$", new) else new

    return Slot(begin, end, [document], written)


def _places(
    opening: Token, token: Token, lines: list[tuple[int, str]], ends: dict[int, int]
) -> list[tuple[int, int]] | None:
    """Returns the offset of each line of a block's content in the content and in the file, or None if unclear."""
    assert token.map
    first, places, place = token.map[0], list[tuple[int, int]](), 0
    for number, content in enumerate(token.content.split("\n"), first):
        begin, line = lines[number]
        if opening.type in ("th_open", "td_open"):
            at = line.find(content, ends.get(number, 0)) if ends.get(number, 0) >= 0 else -1
            ends[number] = at + len(content) if at >= 0 else -1
        elif opening.type == _MARKER:
            at = line.rfind(content)
        elif opening.type == "heading_open" and opening.markup.startswith("#"):
            at = line.find(content, line.index("#") + len(opening.markup))
        else:
            at = len(line.rstrip()) - len(content.rstrip()) if line.rstrip().endswith(content.rstrip()) else -1
        if at < 0:
            return None
        places.append((place, begin + at))
        place += len(content) + 1
    return places


def _slot(text: str, token: Token, places: list[tuple[int, int]], language: str, env: dict[str, Any]) -> Slot:
    begins = [begin for begin, _ in places]

    def there(place: int) -> int:
        line, begin = places[bisect_right(begins, place) - 1]
        return begin + place - line

    content = token.content
    begin, end = places[0][1], there(len(content))
    # The text between two lines of the content in the file: a line end and, for example, `> `.
    first = content.find("\n")
    between = text[there(first) : places[1][1]] if first >= 0 else "\n"
    escaped = {
        child.content for child in token.children or () if child.type == "text_special" and child.info == "escape"
    }
    written_text = partial(_written, escaped, between)
    document = MarkedDocument(
        list(_items(token, text, there)),
        language,
        written_text,
        escape_inner=lambda inner: re.sub(r'([\[\]"])', r"\\\1", written_text(inner)),
    )
    marks = _marks(token)

    def written(texts: list[str]) -> str | None:
        new = texts[0].replace(between, "\n")
        if not new.strip() or _blocks(new) != _blocks(content):
            return None
        return texts[0] if _marks(_PARSER.parseInline(new, env)[0]) == marks else None

    return Slot(begin, end, [document], written)


def _written(escaped: set[str], between: str, text: str) -> str:
    """Returns text as Markdown. Characters that the source escapes are escaped."""
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text)
    text = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)
    return "".join(f"\\{sign}" if sign in escaped else sign for sign in text).replace("\n", between)


def _blocks(content: str) -> list[str]:
    """Returns the types of the block tokens of a text. Their contents are not parsed."""
    tokens: list[Token] = []
    _PARSER.block.parse(content, _PARSER, {}, tokens)
    return [token.type for token in tokens]


def _marks(token: Token) -> Counter[tuple[str, str, str, str]]:
    """Returns the markup in a block of text, without the texts and titles of images and links."""
    marks = Counter[tuple[str, str, str, str]]()
    for child in token.children or ():
        if child.type not in _UNMARKED:
            attributes = [value for name, value in child.attrs.items() if name not in ("alt", "title")]
            content = "" if child.type == "image" else child.content
            marks[child.type, child.markup, content, repr(attributes)] += 1
    return marks


def _inner(parts: re.Match[str] | None) -> tuple[Item, ...]:
    """Returns the items of an image or a link's end. Every second part is text."""
    groups = parts.groups(default="") if parts else ()
    return tuple(Item("text" if n % 2 else "break", part, part if n % 2 else "") for n, part in enumerate(groups))


def _items(token: Token, text: str, there: Callable[[int], int]) -> Iterator[Item]:
    """Yields the items of a block."""
    content, place, numbers, opened = token.content, 0, count(), list[str]()
    if task := _TASK.match(content):
        place = task.end()
        yield Item("break", task.group())
    auto = False
    for child in token.children or ():
        begin, end = child.meta.get("span", (-1, -1))
        if auto or child.type == "text" or begin < 0:
            auto = auto and child.type != "link_close"
            continue
        length = len(child.markup)
        if child.type in ("strong_open", "em_open", "s_open"):
            begin = end - length if child.type == "strong_open" else begin
        elif child.type in ("strong_close", "em_close", "s_close"):
            end = begin + length
        name = ""
        if child.nesting > 0:
            opened.append(name := f"{next(numbers)}")
        elif child.nesting < 0:
            name = opened.pop()
        if begin < place:
            continue
        if place < begin:
            yield Item("text", content[place:begin], content[place:begin])
        place, raw = end, text[there(begin) : there(end)]
        auto = child.type == "link_open" and child.markup == "autolink"
        tag = _TAG.fullmatch(raw) if child.type == "html_inline" else None
        if child.type == "softbreak":
            yield Item("text", raw, "\n")
        elif child.type == "hardbreak":
            yield Item("break", raw)
        elif child.type == "text_special":
            yield Item("text", raw, child.content)
        elif tag and tag[2].lower() not in VOID:
            yield Item("close" if tag[1] else "open", raw, name=f"<{tag[2]}>")
        elif child.nesting and not auto:
            inner = _inner(_LINK_END.fullmatch(raw)) if child.type == "link_close" else ()
            yield Item("open" if child.nesting > 0 else "close", raw, name=name, inner=inner)
        else:
            inner = _inner(_IMAGE.fullmatch(raw)) if child.type == "image" else ()
            yield Item("point" if child.type == "after" else "atom", raw, inner=inner)
    if place < len(content):
        yield Item("text", content[place:], content[place:])


# Extensions.


def _mark(state: StateBlock, begin_line: int, end_line: int, silent: bool) -> bool:
    """Reads the line of a mark, and the indented text that belongs to it."""
    begin = state.bMarks[begin_line] + state.tShift[begin_line]
    found = _MARK.match(state.src[begin : state.eMarks[begin_line]].rstrip())
    if not found or state.is_code_block(begin_line):
        return False
    if silent:
        return True
    title = (found["title"] or found["other"] or "").strip()
    if title[:1] + title[1:][-1:] in ('""', "[]"):
        title = title[1:-1]
    state.push(_MARKER, "", 1)
    token = state.push("inline", "", 0)
    token.content, token.map, token.children = title, [begin_line, begin_line + 1], []
    state.push("marker_close", "", -1)
    state.line = begin_line + 1
    while found["code"] and state.line < end_line and not state.isEmpty(state.line):
        state.line += 1
    if found["indented"] or found["note"]:
        _read_indented(state, begin_line, end_line, begin + found.end() if found["note"] else None)
    return True


def _read_indented(state: StateBlock, line: int, end_line: int, first: int | None) -> None:
    """Reads the indented lines after a mark and, for a footnote, the rest of its own line, which begins at `first`."""
    kept = state.lineMax, state.blkIndent, state.bMarks[line], state.tShift[line], state.sCount[line], state.parentType
    end, lazy = line + 1, first is not None
    while end < end_line:
        blank = state.isEmpty(end)
        lazy = lazy and not blank
        if not blank and not lazy and state.sCount[end] < kept[1] + _INDENT:
            break
        end += 1
    state.lineMax, state.blkIndent, state.parentType = end, kept[1] + _INDENT, "container"
    if first is not None:
        state.bMarks[line], state.tShift[line], state.sCount[line] = first, 0, state.blkIndent
    state.push("marked_open", "", 1)
    state.md.block.tokenize(state, line + (first is None), end)
    state.push("marked_close", "", -1)
    state.lineMax, state.blkIndent, state.bMarks[line], state.tShift[line], state.sCount[line], state.parentType = kept
    state.line = end


def _inline(state: StateInline, silent: bool) -> bool:
    """Reads a formula, a reference to a footnote, attributes, a Liquid tag, or `==marked==` text."""
    found = _INLINE.match(state.src, state.pos, state.posMax)
    if not found:
        return False
    if not silent and found["marked"]:
        last = state.posMax
        state.push("mark_open", "mark", 1).meta["span"] = state.pos, found.start("marked")
        state.pos, state.posMax = found.span("marked")
        state.md.inline.tokenize(state)
        state.posMax = last
        state.push("mark_close", "mark", -1).meta["span"] = found.end("marked"), found.end()
    elif not silent:
        token = state.push("after" if found["after"] else "atom", "", 0)
        token.content = found.group()
    state.pos = found.end()
    return True


def parser() -> MarkdownIt:
    """Returns a parser that knows the extensions."""
    made = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    made.block.ruler.before("blockquote", "mark", _mark, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    made.inline.ruler.before("link", "syntax", _inline)
    return made


def _noting_parser() -> MarkdownIt:
    made = parser().disable("text_join")
    for name, rule in zip(made.inline.ruler.get_active_rules(), made.inline.ruler.getRules(""), strict=True):
        if name != "text":
            made.inline.ruler.at(name, _noted(rule))
    return made


_PARSER = _noting_parser()
