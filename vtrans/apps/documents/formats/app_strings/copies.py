"""Monolingual files of strings: a translation is a copy of the source file. Strings of an earlier translation stay, and
only missing ones are added."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from vtrans.apps.documents.document import FilledDocument, Slot
from vtrans.system.errors import DocumentError

_FORM = re.compile("(.*_)?(?:zero|one|two|few|many)", re.DOTALL)  # of a plural, which always has `other`

Edit = tuple[int, int, str]
"""The begin and end of a part of a text, and its replacement."""


@dataclass
class Node:
    """A string, a group of values, or another value, with its place, its key, its text if it is a string, and its
    members. The separator before it begins at `before`. Only JSON groups have a `kind`, `{` or `[`. `slot` returns the
    slot of a string to translate, or None if it cannot be translated. A translation may lack this value if it has the
    key that this value `describes`."""

    begin: int
    end: int
    key: str = ""
    text: str = ""
    members: list[Node] = field(default_factory=list)
    before: int = 0
    kind: str = ""
    slot: Callable[[], Slot | None] | None = None
    describes: str | None = None

    def get(self, key: str) -> Node | None:
        """Returns the member with a key; the last one if the key is repeated, as most programs do."""
        return next((member for member in reversed(self.members) if member.key == key), None)

    def nodes(self) -> Iterator[Node]:
        """Yields this value and all values inside it."""
        yield self
        for member in self.members:
            yield from member.nodes()


def copy_document(read: Callable[[str], Node], source: str, translation: str | None) -> FilledDocument:
    """Returns a copy of the source as a document, or an earlier translation with only the missing strings as slots."""
    text, bounds = source, [0]
    if translation is not None:
        text, bounds = completed(source, read(source), translation, read(translation))
    nodes = (node for node in read(text).nodes() if bisect_right(bounds, node.begin) % 2)
    slots = [node.slot() for node in nodes if node.slot]
    return FilledDocument(text, [slot for slot in slots if slot], left=slots.count(None))


def completed(source: str, ours: Node, translation: str, theirs: Node) -> tuple[str, list[int]]:
    """Completes an earlier translation with the source's values that are missing or empty in it. Returns the text, and
    the begin and end of each added value in one flat list. `ours` and `theirs` are the roots of the source and the
    translation. Raises DocumentError if their kinds differ."""
    if (theirs.members or theirs.text) and ours.kind != theirs.kind:
        raise DocumentError("The existing translation has another form than the file; delete it, or name another file.")
    newline = "\r\n" if "\r\n" in translation else "\n"
    parts, bounds, place, length = list[str](), list[int](), 0, 0
    edits = _missing(source, Node(0, 0, members=[ours]), Node(0, 0, members=[theirs]))
    for begin, end, text in sorted(edits, key=lambda edit: edit[:2]):
        new = text.replace("\r\n", "\n").replace("\n", newline)
        length += begin - place
        bounds += [length, length + len(new)]
        parts += [translation[place:begin], new]
        length += len(new)
        place = end
    return "".join([*parts, translation[place:]]), bounds


def _missing(source: str, ours: Node, theirs: Node) -> Iterator[Edit]:
    """Yields the edits that add missing values to a group of the translation: each after the value that precedes it in
    the source, or else at the end of the group. A language may have fewer plural forms."""
    known, place = dict(_numbered(theirs)), theirs.members[-1].end
    for key, node in _numbered(ours):
        if not (other := known.get(key)):
            form = _FORM.fullmatch(key[0])
            if (form and (f"{form[1] or ''}other", 0) in known) or (node.describes, 0) in known:
                continue
            part = source[node.before : node.end]
            if ours.kind:
                part = part if part.lstrip()[0] == "," else f",{part}"
            yield place, place, part if part[0] in ", \r\n\t" else f"\n{part}"
            continue
        place = other.end
        if node.members and other.members and node.kind == other.kind:
            yield from _missing(source, node, other)
        elif node.members or (node.text.strip() and not other.text.strip()):
            yield other.begin, other.end, source[node.begin : node.end]


def _numbered(group: Node) -> Iterator[tuple[tuple[str, int], Node]]:
    """Yields the members, each with its key and a number that tells repetitions of the key apart."""
    seen = Counter[str]()
    for member in group.members:
        yield (member.key, seen[member.key]), member
        seen[member.key] += 1
