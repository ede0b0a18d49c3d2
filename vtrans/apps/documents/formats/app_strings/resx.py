"""Reads the resources of .NET (`.resx`): a translation is a copy in another language."""

from __future__ import annotations

import re
from functools import partial
from xml.sax.saxutils import escape

from vtrans.apps.documents.document import Document, Filling, Slot
from vtrans.apps.documents.formats.app_strings.copies import Node, copy_document
from vtrans.apps.documents.formats.xml import Element, is_text, root_of
from vtrans.apps.documents.program_strings import ProgramString, slot_of

_ARGUMENT = re.compile(r"\{\d")


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
                    member.slot = partial(_slot, value, language)
                node.members.append(member)
            before = data.end if data.name else before
        return node

    return copy_document(read, text, filling.earlier)


def _slot(value: Element, language: str) -> Slot:
    source = "".join(part.text for part in value.children)
    string = ProgramString(source, ("csharp-format",) if _ARGUMENT.search(source) else (), language)
    return slot_of(value.begin + len(value.opening), value.inside, [string], escape)
