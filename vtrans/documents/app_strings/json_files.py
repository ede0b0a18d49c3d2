"""Reads the strings of apps in JSON and ARB, the JSON of Flutter: the result is the same file in another language."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from vtrans.documents.document import Document, FilledDocument, Slot
from vtrans.documents.icu import IcuString, UnclearMessage, icu_strings
from vtrans.documents.placeholders import has_icu
from vtrans.documents.program_strings import ProgramString, format_flags, paired, slot_of
from vtrans.errors import DocumentError

DEEPEST = 200  # nested values

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]|[^\s{}\[\],:"]+')
# i18next refers to other texts with $t(key), and Vue with @:key. Vue separates plural forms with a bar.
_ATOMS = re.compile(r"\$t\([^()]*\)|@(?:\.\w+)?:(?:\([^()]*\)|[\w.]*\w)|\{\s*[\w.-]+\s*,[^{}]*\}")
_BAR = re.compile(r"(\s\|\s)")


@dataclass
class Node:
    """A value: where it is, its key if it is a member of an object, its text if it is a string, and its members."""

    begin: int
    end: int
    key: str = ""
    text: str = ""
    members: list[Node] = field(default_factory=list)

    def get(self, key: str) -> Node | None:
        """Returns the member with a key; of several the last one, as most programs do."""
        return next((member for member in reversed(self.members) if member.key == key), None)

    def strings(self) -> Iterator[Node]:
        """Yields the strings in this value."""
        yield from [self] if self.text else []
        for member in self.members:
            yield from member.strings()


def read_json(text: str) -> Node:
    """Returns the value of a JSON file. Raises DocumentError for what is not JSON, or nested too deeply."""
    try:
        json.loads(text, parse_int=str, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise DocumentError(f"the file's JSON cannot be parsed ({error.msg}).", error.lineno) from None
    except RecursionError:
        raise DocumentError(f"The file's JSON must be nested at most {DEEPEST} values deep.") from None
    root, key = Node(0, len(text)), None
    stack = [root]
    for match in _TOKEN.finditer(text):
        sign, parent = match.group(), stack[-1]
        if sign in "}]":
            stack.pop().end = match.end()
        elif key is None and parent is not root and text[parent.begin] == "{":
            key = json.loads(sign)
        else:
            node = Node(*match.span(), key or "", json.loads(sign) if sign[0] == '"' else "")
            parent.members.append(node)
            key = None
            if sign in "{[":
                stack.append(node)
        if len(stack) > DEEPEST:
            raise DocumentError(f"The file's JSON must be nested at most {DEEPEST} values deep.")
    return root.members[0]


def _refuse(constant: str) -> None:
    raise DocumentError(f"The file must be JSON, which has no {constant}.")


def json_document(
    text: str, language: str, *, target: str = "", overwrite: bool = False, arb: bool = False
) -> Document:
    """Returns a file with its strings as slots. Those of ARB are messages, and its locale becomes the target language,
    if that is known. Raises DocumentError with the line of what is not JSON."""
    root, left, slots = read_json(text), 0, list[Slot]()
    escaped = text.isascii() and "\\u" in text
    named = json.dumps(target.replace("-", "_"))
    for node in root.members if arb else root.strings():
        if arb and node.key[:1] == "@":
            if node.key == "@@locale" and target:
                slots.append(Slot(node.begin, node.end, [], lambda _: named))
        elif node.text.strip():
            try:
                parts, encoded = _parts(node.text, language, arb), partial(json.dumps, ensure_ascii=escaped)
                slots.append(slot_of(node.begin, text[node.begin : node.end], parts, encoded))
            except UnclearMessage:
                left += 1
    return FilledDocument(text, slots, left=left)


def arb_languages(text: str) -> list[tuple[str, str]]:
    """Returns the language of an ARB file, and that it names no target."""
    locale = read_json(text).get("@@locale")
    return [(locale.text if locale else "", "")]


def _parts(text: str, language: str, arb: bool) -> list[str | ProgramString]:
    """Returns the strings of a text, and what stays between them."""
    if paired(text) is None:
        raise UnclearMessage
    if arb or has_icu(text):
        return icu_strings(text, language)
    flags, parts = format_flags(text, "c-format"), enumerate(_BAR.split(text))
    return [part if n % 2 or not part else IcuString(part, flags, language, atoms=_ATOMS) for n, part in parts]
