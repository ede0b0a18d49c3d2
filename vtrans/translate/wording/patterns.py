"""Regular expressions for text to copy, by kind.

Patterns match structure, in any language. Words and numbers are ordinary text: numbers are checked after the search,
and a word with inner capitals, such as `iPhone` or isiXhosa, may have a translation.
"""

from __future__ import annotations

# Repetitions are bounded where hostile text could cause quadratic time.
PATTERNS = {
    "code": r"<(?:code|kbd)\b[^<>]*>.{0,500}?</(?:code|kbd)>"
    r"|(?<![\w`])`[^\s`](?:[^`]{0,200}[^\s`])?`(?![\w`])",
    "addresses": (
        r"(?:\b(?:https?|ftp)://|\bwww\.)(?:[^\s<>\"()]|\([^\s<>\"()]*\))+"
        r"(?<![.,;:!?\[\]'\u2018\u2019\u201c\u201d])"
    ),
    "e-mail": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+",
    "tags": r"</?[A-Za-z][^<>]*>|&lt;/?[A-Za-z][^<>&]*&gt;|&(?:[A-Za-z]+|#\d+|#x[0-9A-Fa-f]+);",
    "braces": (
        r"\{\w{1,40},\s?(?:plural|select|selectordinal),"  # an ICU message
        r"(?:[^{}]{1,200}\{[^{}]{0,300}(?:\{[^{}]{0,50}\}[^{}]{0,300}){0,5}\}){1,12}\s?\}"
        r"|\{\{[^{}]*\}\}|\$?\{[^{}\s]*(?:\{[^{}\s]*\}[^{}\s]*){0,5}\}|%\{\w+\}|\$\(\w+\)"
    ),
    "format": (
        r"%(?:\d{1,3}\$|\(\w+\))?[-+0#]{0,5}(?:\d{1,4}|\*(?:\d{1,3}\$)?)?(?:\.\d{1,4})?"
        r"(?:hh|h|ll|l|z)?[sdifgeuxXcpoE@](?![A-Za-z])"
    ),
}
"""Patterns of protected text, by kind; earlier kinds take precedence."""

# Letters, digits and underscores of ASCII between two marks, as in `%name%`, `$x$` and `:smile:`.
_PAIRS = (rf"(?<![\w{mark}])(?:{mark}\w+{mark})+(?![\w{mark}]|\.\d)" for mark in ("%", r"\$", ":", "@", "#"))
PAIRS = rf"(?a:{'|'.join(_PAIRS)})"
PLACEHOLDERS = (  # in programs whose format no flag declares; `100%`, `%50`, `50%n` and `$5` are text
    rf"{PAIRS}|(?a:%\d{{1,2}}:[-.\d]*[a-z](?![^\W_])|%<\w+>[\d.]*[sdfxi](?![^\W_])"
    r"|(?<![\w%])(?:%[A-Za-z](?:[-:/.](?=%[A-Za-z]))?)+(?![^\W_])"
    r"|(?<![\w$\\])\$[A-Za-z_]\w*|(?<![\w%])%[1-9](?!\w|[%$]|[.,]\d))|\[\[[^\[\]]{1,200}\]\]"
)
ARGUMENT = r"(?a:(?:%L?\d{1,2}|(?<![\w$\\])\$\d{1,2}(?![.,]\d))(?![\w$]|:[-.\d]*[a-z]))"
"""`%1` of Qt and KDE, and `$1`, which is a placeholder only in program strings."""
# A letter, digit or underscore, except of scripts without spaces: Thai, Lao, Myanmar, Khmer, Han and kana.
_W = r"[^\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
_BEGIN, _END = rf"(?<!{_W})(?<![@./\\$\u20ac\u00a3-])", rf"(?![-@]?{_W})"

# Letters before digits, few digits before a capital, or few capitals before a hyphen and digits. `5kg`, `20h15`, `3rd`
# and headings such as `ARTIKEL-2` are text.
_MIXED = r"(?:[A-Za-z]{1,30}\d[A-Za-z\d]{0,130}|\d{1,2}[A-Z](?![A-Za-z\d])|[A-Z]{1,3}-\d{1,30}(?![A-Za-z\d]))"
_HEX = r"[\da-fA-F]"
CODE = (
    rf"{_BEGIN}[A-Z]{{2}}\d{{2}}(?: [A-Z\d]{{4}}){{2,7}}(?: [A-Z\d]{{1,3}})?{_END}"
    rf"|{_BEGIN}(?:[A-Z\d]{{1,30}}[-./:]){{0,5}}{_MIXED}(?:[-./:]{{1,2}}(?:[A-Z\d]{{1,30}}(?![a-z])|{_MIXED})){{0,8}}{_END}"
    rf"|{_BEGIN}(?:{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}|0x{_HEX}{{1,60}}"
    rf"|(?=\w{{6}})\d{{1,60}}[a-fA-F]{{1,60}}\d{_HEX}{{0,130}}){_END}"
)
"""A word of ASCII letters and digits, such as A-17, mp3 or 4K, a hexadecimal number, or an account number."""
PATH = (
    rf"(?<!{_W})(?a:(?:[A-Za-z]:|%\w{{1,40}}%)\\[\w.~$\\-]{{0,200}}[\w\\]"
    rf"|(?<!\\)\\\\[\w.-]{{1,60}}(?:\\[\w.$-]{{1,60}}){{1,9}}(?<![.-])"
    rf"|(?<![./~-])(?:(?:~|\.{{1,2}})?(?:/[\w.+-]{{0,80}}\w){{2,30}}/?|(?:~|\.{{1,2}})/[\w.+-]{{0,80}}\w/?))(?!{_W})"
)
"""An absolute path, or a path that begins with `~` or a dot. `and/or` and `1/2` are text."""

EVERYDAY_PATTERNS = {
    "paths": PATH,
    "placeholders": PLACEHOLDERS,
    "domains and files": (
        rf"(?<!{_W})(?a:(?<![@./-])(?:[\w-]{{1,60}}/){{0,9}}(?:[\w-]{{1,60}}\.){{0,8}}(?!\d+\.)[\w-]{{1,60}}\.[a-z][a-z\d]{{1,11}}"
        rf"(?::\d{{2,5}})?(?:/[^\s<>\"()]{{0,200}}[\w/])?)(?!{_W})"
    ),
    "hashtags": rf"(?<!{_W})(?<![#&@./])#(?:(?!\d)(?:{_W}|[\u0300-\u036f\u0900-\u0dff]){{2,60}}|{_HEX}{{6}})(?!{_W})",
    "mentions": rf"(?<!{_W})(?<![@./+-])(?a:@[A-Za-z_]\w{{0,40}}(?:[.-]\w{{1,40}}){{0,3}})(?!{_W})",
    "options": r"(?<![^\s(\[|,=\"'\u201c])--[a-z][a-z\d]{0,30}(?:-[a-z\d]{1,30}){0,5}(?:=[\w./-]{0,60}\w)?(?![\w'-])",
    "identifiers": (
        rf"(?<!{_W})(?a:(?<![.$-])(?:(?:[A-Za-z_]\w{{0,40}}(?:\.|::|->)){{0,5}}[A-Za-z_]\w{{0,60}}\(\)|\w{{1,40}}(?:::\w{{1,40}}){{1,5}}"
        rf"|[a-z][a-z\d]{{0,40}}(?:_{{1,2}}[a-z\d]{{1,40}}){{1,8}}|[A-Z][A-Z\d]{{0,40}}(?:_{{1,2}}[A-Z\d]{{1,40}}){{1,8}}))(?!{_W})"
    ),
    "versions": rf"{_BEGIN}[vV]\d{{1,4}}(?:\.\d{{1,4}}){{1,4}}(?:[-+][A-Za-z\d.]{{1,30}}(?<!\.))?(?!{_W})",
    "codes": CODE,
}
"""Further patterns for models that have learned codes; earlier kinds take precedence."""

HINT = r"[\d@#/\\<&{$%`_\[]|:\S|--|\(\)|\.\S"
"""Marks; every line with protected text contains at least one."""
