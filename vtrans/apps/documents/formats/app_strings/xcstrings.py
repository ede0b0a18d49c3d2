"""Reads string catalogues of Xcode (`.xcstrings`), and adds the translations that are missing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from vtrans.apps.documents.document import Document, FilledDocument, Filling, Paired, Slot
from vtrans.apps.documents.formats.app_strings.copies import Node
from vtrans.apps.documents.formats.app_strings.json_files import read_json
from vtrans.apps.documents.program_strings import ProgramString, format_flags, paired
from vtrans.system.errors import DocumentError
from vtrans.text.languages import Languages

_SUBSTITUTED = re.compile(r"%#@\w+@|%arg\b")

Value = dict[str, Any]
"""A JSON object."""


def xcstrings_document(text: str, language: str, filling: Filling = Filling()) -> Document:
    """Returns a catalogue with the entries that lack the target language as slots, or all with `filling.overwrite`.

    A new translation has the state `needs_review`, one from a memory the state `translated`. Entries that are not to be
    translated or not in use stay. Raises DocumentError if the file is not a catalogue, or the target is unknown.
    """
    if not filling.target:
        raise DocumentError("A string catalogue can be filled only if the target language is known.")
    source, entries = _catalogue(text)
    slots, left = list[Slot](), 0
    for node, entry in entries:
        old = _units(entry.get("localizations", {}).get(filling.target))
        done = any(unit["value"] and unit.get("state") != "new" for unit in old.values())
        in_use = entry.get("shouldTranslate") is not False and entry.get("extractionState") != "stale"
        localization = _source(node, entry, source)
        texts = "".join(unit["value"] for unit in _units(localization).values())
        if not texts.strip() or not in_use or (done and not filling.overwrite):
            continue
        if paired(texts) is None:
            left += 1
        else:
            slots.append(_slot(text, node, localization, filling.target, language))
    return FilledDocument(text, slots, left=left)


def xcstrings_pairs(text: str, languages: Languages) -> Iterator[Paired]:
    """Yields the translated strings of a catalogue. Raises DocumentError if the file is not a catalogue."""
    source, entries = _catalogue(text)
    for node, entry in entries:
        targets = _units(entry.get("localizations", {}).get(languages.tgt))
        for path, unit in _units(_source(node, entry, source)).items():
            made = targets.get(path, {"value": ""})
            if not made["value"]:
                yield "untranslated"
            elif made.get("state") != "translated":
                yield "unchecked"
            else:
                yield _string(unit, languages.src).document, _string(made, languages.tgt).document


def xcstrings_languages(text: str) -> tuple[str, str]:
    """Returns the source language of a catalogue and its target language, empty unless there is just one."""
    source, entries = _catalogue(text)
    others = {code for _, entry in entries for code in entry.get("localizations", {})} - {source}
    return source, others.pop() if len(others) == 1 else ""


def _catalogue(text: str) -> tuple[str, list[tuple[Node, Value]]]:
    """Returns the source language of a catalogue, and its entries."""
    root = read_json(text)
    source, strings = root.get("sourceLanguage"), root.get("strings")
    try:
        entries = [(node, json.loads(text[node.begin : node.end])) for node in strings.members] if strings else []
    except ValueError:  # a number of thousands of digits
        source, entries = None, []
    objects = [isinstance(entry, dict) and isinstance(entry.get("localizations", {}), dict) for _, entry in entries]
    if source is None or strings is None or not all(objects):
        raise DocumentError("The file's JSON must be a string catalogue, with sourceLanguage and strings.")
    return source.text, entries


def _source(node: Node, entry: Value, language: str) -> Value:
    """Returns the localization of an entry in the source language, by default its key."""
    found = entry.get("localizations", {}).get(language)
    return found if _units(found) else {"stringUnit": {"value": node.key}}


def _units(value: Any, path: str = "") -> dict[str, Value]:
    """Returns the string units of a localization by path. Plural forms, devices and substitutions have separate
    units."""
    found = dict[str, Value]()
    for key, member in value.items() if isinstance(value, dict) else ():
        if key == "stringUnit" and isinstance(member, dict) and isinstance(member.get("value"), str):
            found[path] = member
        else:
            found |= _units(member, f"{path}/{key}")
    return found


def _string(unit: Value, language: str) -> ProgramString:
    flags = format_flags(_SUBSTITUTED.sub("", unit["value"]), "objc-format")
    return ProgramString(unit["value"], flags, language, atoms=_SUBSTITUTED)


def _slot(text: str, node: Node, localization: Value, target: str, language: str) -> Slot:
    """Returns the slot for an entry. Its new localization has the structure of the source localization, and stands
    where Xcode, which sorts the members of an object, would write it."""
    units = list(_units(localization).values())
    strings = [_string(unit, language) for unit in units]
    localizations = node.get("localizations")
    parent, key = (localizations, target) if localizations else (node, "localizations")
    old = parent.get(key)
    before = [member.end for member in parent.members if member.key < key]
    begin = old.begin if old else before[-1] if before else parent.begin + bool(parent.members)
    end = old.end if old else begin if parent.members else parent.end
    line = "\n" + " " * (6 if localizations else 4) if "\n" in text else ""

    def written(texts: list[str], state: str = "needs_review") -> str | None:
        made = [string.finished(text) for string, text in zip(strings, texts, strict=True)]
        for unit, translation in zip(units, made, strict=True):
            unit.update(state=state, value=translation)
        value = localization if localizations else {target: localization}
        if not all(made):
            return None
        if old:
            return _dumped(value, line and f"{line}  ")
        member = _dumped({key: value}, line)
        if not parent.members:
            return member
        member = member[1:-1].rstrip()
        return f",{member}" if before else f"{member},"

    return Slot(begin, end, [string.document for string in strings], written, partial(written, state="translated"))


def _dumped(value: Value, line: str) -> str:
    """Returns an object as Xcode writes it. `line` is a line end with indentation; if empty, the result is one line."""
    form: Value = {"indent": 2, "separators": (",", " : ")} if line else {"separators": (",", ":")}
    return json.dumps(value, ensure_ascii=False, sort_keys=True, **form).replace("\n", line or "\n")
