"""markdown-it rules for the Markdown extensions of GitHub, MkDocs, Docusaurus, Jekyll and pandoc: the marks of
admonitions and tabs, footnotes, formulas, attributes and Liquid tags. Their contents are read as Markdown."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

MARKER = "marker_open"
"""The type of the token before the title in the line of a mark."""
INDENT = 4  # spaces before the text of an admonition or a footnote

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
    r"|(?P<after>\[\^[^\s\]]{1,100}\]|\{[#:.][^{}\n]*\})",
    re.DOTALL,
)
_QUOTES = ('""', "[]")


def _mark(state: StateBlock, begin_line: int, end_line: int, silent: bool) -> bool:
    """Reads the line of a mark, and the indented text that belongs to it."""
    begin = state.bMarks[begin_line] + state.tShift[begin_line]
    found = _MARK.match(state.src[begin : state.eMarks[begin_line]].rstrip())
    if not found or state.is_code_block(begin_line):
        return False
    if silent:
        return True
    title = (found["title"] or found["other"] or "").strip()
    if title[:1] + title[1:][-1:] in _QUOTES:
        title = title[1:-1]
    state.push(MARKER, "", 1)
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
        if not blank and not lazy and state.sCount[end] < kept[1] + INDENT:
            break
        end += 1
    state.lineMax, state.blkIndent, state.parentType = end, kept[1] + INDENT, "container"
    if first is not None:
        state.bMarks[line], state.tShift[line], state.sCount[line] = first, 0, state.blkIndent
    state.push("marked_open", "", 1)
    state.md.block.tokenize(state, line + (first is None), end)
    state.push("marked_close", "", -1)
    state.lineMax, state.blkIndent, state.bMarks[line], state.tShift[line], state.sCount[line], state.parentType = kept
    state.line = end


def _inline(state: StateInline, silent: bool) -> bool:
    """Reads a formula, a reference to a footnote, attributes, or a Liquid tag."""
    found = _INLINE.match(state.src, state.pos, state.posMax)
    if not found:
        return False
    if not silent:
        token = state.push("after" if found["after"] else "atom", "", 0)
        token.content = found.group()
    state.pos = found.end()
    return True


def add_syntax(parser: MarkdownIt) -> None:
    """Adds the rules to a parser."""
    parser.block.ruler.before("blockquote", "mark", _mark, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    parser.inline.ruler.before("link", "syntax", _inline)
