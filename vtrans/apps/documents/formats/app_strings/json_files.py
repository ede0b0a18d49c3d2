"""Reads the strings of apps in JSON and ARB, the JSON of Flutter: a translation is a copy in another language."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial

from vtrans.apps.documents.document import Document, Filling, Slot, filled_slot
from vtrans.apps.documents.formats.app_strings.copies import Node, copy_document
from vtrans.apps.documents.inline import has_icu
from vtrans.apps.documents.program_strings import (
    IcuString,
    ProgramString,
    UnclearMessage,
    format_flags,
    icu_strings,
    paired,
    slot_of,
)
from vtrans.system.errors import DocumentError

DEEPEST = 200  # nested values

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]|[^\s{}\[\],:"]+')
# i18next refers to other texts with $t(key), and Vue with @:key; browser extensions have $NAME$. Vue separates plural
# forms with a bar.
_ATOMS = re.compile(r"\$[A-Za-z_@][\w@]*\$|\$t\([^()]*\)|@(?:\.\w+)?:(?:\([^()]*\)|[\w.]*\w)|\{\s*[\w.-]+\s*,[^{}]*\}")
_BAR = re.compile(r"(\s\|\s)")


def read_json(text: str) -> Node:
    """Parses a JSON file. Raises DocumentError if it is not JSON, or nested more than DEEPEST values deep."""
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
        elif key is None and parent.kind == "{":
            key = json.loads(sign)
        else:
            before = parent.members[-1].end if parent.members else parent.begin + 1
            node = Node(*match.span(), key or "", json.loads(sign) if sign[0] == '"' else "", before=before)
            parent.members.append(node)
            key = None
            if sign in "{[":
                node.kind = sign
                stack.append(node)
        if len(stack) > DEEPEST:
            raise DocumentError(f"The file's JSON must be nested at most {DEEPEST} values deep.")
    return root.members[0]


def _refuse(constant: str) -> None:
    raise DocumentError(f"The file must be JSON, which has no {constant}.")


def json_document(text: str, language: str, filling: Filling = Filling(), *, arb: bool = False) -> Document:
    """Returns a JSON file, or its existing translation, with the strings to translate as slots. Strings of ARB are ICU
    messages, and its locale becomes the target language if known. Raises DocumentError with the line of a syntax
    error."""

    def read(text: str) -> Node:
        root, escaped = read_json(text), text.isascii() and "\\u" in text
        encoded = partial(json.dumps, ensure_ascii=escaped)
        for node in root.members if arb else _messages(root) or root.nodes():
            if arb and node.key == "@@locale" and filling.target:
                node.slot = partial(filled_slot, node.begin, node.end, encoded(filling.target.replace("-", "_")))
            elif arb and node.key[:1] == "@":
                node.describes = node.key[1:]
            elif node.text.strip():
                node.slot = partial(_slot, text, node, language, arb, encoded)
        return root

    return copy_document(read, text, filling.earlier)


def _slot(text: str, node: Node, language: str, arb: bool, encoded: Callable[[str], str]) -> Slot | None:
    try:
        return slot_of(node.begin, text[node.begin : node.end], _parts(node.text, language, arb), encoded)
    except UnclearMessage:
        return None


def _messages(root: Node) -> list[Node]:
    """Returns the messages of a browser extension, or nothing for other files. Descriptions and examples stay."""
    messages = [node.get("message") for node in root.members if node.kind == "{"]
    found = [message for message in messages if message and not message.kind]
    return found if len(found) == len(root.members) else []


def arb_languages(text: str) -> list[tuple[str, str]]:
    """Returns the language of an ARB file as the source. The target is empty: ARB does not name it."""
    locale = read_json(text).get("@@locale")
    return [(locale.text if locale else "", "")]


def _parts(text: str, language: str, arb: bool) -> list[str | ProgramString]:
    """Returns the strings of a text, and the fixed parts between them."""
    if paired(text) is None:
        raise UnclearMessage
    if arb or has_icu(text):
        return icu_strings(text, language)
    flags, parts = format_flags(text, "c-format"), enumerate(_BAR.split(text))
    return [part if n % 2 or not part else IcuString(part, flags, language, atoms=_ATOMS) for n, part in parts]
