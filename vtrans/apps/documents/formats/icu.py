"""Reads ICU messages, such as `You have {n, plural, one {# file} other {# files}}.`, whose branches are translated.

Word order differs between languages, so the text around the branches moves into each branch:
`{n, plural, one {You have # file.} other {You have # files.}}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from vtrans.apps.documents.document import Paired
from vtrans.apps.documents.program_strings import Message, ProgramString
from vtrans.text.languages import Languages

T = TypeVar("T")

LONGEST = 5000  # characters of a message

_CHOICE = re.compile(r"\{\s*[\w.-]+\s*,\s*(?:plural|select)\s*,\s*(?:offset:\s*\d+\s*)?")
_BRANCH = re.compile(r"\s*[\w=.-]+\s*\{")
_END = re.compile(r"\}\s*\}")
_BRACES = re.compile(r"''|'[{}#|][^']*'|[{}]")
_SIMPLE = re.compile(r"'[{}#|][^']*'|\{[^{}]*\}")  # quoted text, and arguments without branches
_ATOMS = re.compile(rf"{_SIMPLE.pattern}|#")


class UnclearMessage(ValueError):
    """A message that is not valid ICU, or that cannot be divided into whole sentences."""


class IcuString(ProgramString):
    """A string in which an apostrophe before an argument is typographic, as a plain one would quote the argument."""

    def finished(self, text: str) -> str:
        """Returns the translation as the program needs it, or an empty string."""
        return super().finished(re.sub(r"(?<=\w)'(?=\{)", "\u2019", text))


def message_pairs(read: Callable[[T, str], Message], sides: tuple[T, T], languages: Languages) -> list[Paired]:
    """Returns the pairs of strings of a source and its translation, or the reason why there are none. `read` returns
    the message of a side in its language."""
    try:
        src, tgt = map(read, sides, languages)
    except UnclearMessage:
        return ["placeholders"]
    return src.pairs(tgt)


def icu_strings(text: str, language: str, tags: str = "") -> list[str | ProgramString]:
    """Returns the strings of a message, and the fixed parts between them. The characters `tags` stand for tags. Raises
    UnclearMessage for other syntax, for two arguments with branches in one sentence, and for ordinal numbers, whose
    endings differ between languages."""
    if len(text) > LONGEST:
        raise UnclearMessage
    atoms = re.compile(rf"{_ATOMS.pattern}|[{tags}]") if tags else _ATOMS
    # Two apostrophes are an escaped one; a typographic apostrophe needs no escape.
    return [
        IcuString(part.replace("''", "\u2019"), (), language, atoms=atoms) if is_text and part.strip() else part
        for part, is_text in _parts(text, "", "")
    ]


def _parts(text: str, before: str, after: str) -> Iterator[tuple[str, bool]]:
    """Yields the parts of a message, and whether each is translated. If it is a branch of another message, `before`
    and `after` are the text around that message's branches."""
    choice = _CHOICE.search(text)
    end = _closed(text, choice.start()) if choice else len(text)
    before, after = (before + text[: choice.start()], text[end:] + after) if choice else (before + text, after)
    # Two arguments with branches are unclear, and a `#` moved into a branch would refer to the wrong argument.
    if re.search("[{}#]" if choice else "[{}]", _SIMPLE.sub("", before + after)):
        raise UnclearMessage
    if choice is None:
        yield before + after, True
        return
    is_part = (before + after).strip() != ""
    around = (before, after) if is_part else ("", "")
    yield before if not is_part else "", False
    place, begin = choice.end(), choice.start()
    while branch := _BRANCH.match(text, place):
        stop = _closed(text, branch.end() - 1) - 1
        yield text[begin : branch.end()], False
        yield from _parts(text[branch.end() : stop], *around)
        begin, place = stop, stop + 1
    if not _END.fullmatch(text, begin, end):
        raise UnclearMessage
    yield text[begin:end] + ("" if is_part else after), False


def _closed(text: str, begin: int) -> int:
    """Returns the end of the braces that open at a place. Raises UnclearMessage if they are not closed."""
    depth = 0
    for brace in _BRACES.finditer(text, begin):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0 and brace.group() == "}":
            return brace.end()
    raise UnclearMessage
