"""Reads PO files, the catalogues of gettext, and fills their empty entries.

polib escapes and unescapes strings. Its parser is not used here: it gives no offsets, opens a file if the text happens
to be a file name, and ends lines at U+2028. Tests compare with it.
"""

from __future__ import annotations

import gettext
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from textwrap import TextWrapper

from polib import escape, unescape

from vtrans.apps.documents.document import Document, FilledDocument, Filling, Paired, Slot, filled_slot
from vtrans.apps.documents.inline import UNKNOWN, has_icu, placeholders
from vtrans.apps.documents.program_strings import Message, ProgramString, UnclearMessage, icu_strings, message_pairs
from vtrans.system.errors import DocumentError
from vtrans.text.languages import Languages

MOST_THINGS = 1000  # numbers for which a plural formula is tried, as in msgfmt

# Lines as gettext wraps them.
_WRAPPER = TextWrapper(77, expand_tabs=False, replace_whitespace=False, drop_whitespace=False)
_WRAPPER.break_long_words = _WRAPPER.break_on_hyphens = False
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# A comment, strings in some lines after a keyword, or a blank line.
_PART = re.compile(
    r"[ \t]*(?:(?P<comment>#[^\n]*)|(?P<name>msgctxt|msgid|msgid_plural|msgstr(?:\[\d{1,2}\])?)[ \t]+"
    rf"(?P<strings>{_STRING.pattern}(?:\s*{_STRING.pattern})*))?[ \t\r\f\v]*(?:\n|\Z)"
)
_OTHER_ESCAPE = re.compile(r'(?<!\\)(?:\\\\)*\\[^\\ntrvbf"]')  # unknown to polib, such as \101
_CHARSET = re.compile(rb'^"Content-Type:[^"\n]*charset=([\w-]+)', re.MULTILINE)
_PLURAL = re.compile(r"^Plural-Forms:.*?\bplural=([^;\n]+)", re.MULTILINE)
_LANGUAGE = re.compile(r"^Language:[ \t]*([a-z]{2,3}(?:_[A-Za-z]+)*)(?![A-Za-z])", re.MULTILINE)
_NO_LANGUAGE = re.compile(r"(?<=\bLanguage:)[ \t]*(?=\\n)")


@dataclass
class String:
    """A string of an entry: where it is, and its text."""

    begin: int
    end: int
    parts: list[str]

    @property
    def text(self) -> str:
        return str(unescape("".join(self.parts)))


@dataclass(frozen=True)
class OneThing:
    """The index of the plural form for 1, and whether no other number uses this form."""

    number: int = 0
    alone: bool = True


@dataclass
class Entry:
    """An entry: its line number, its flags, and its strings by keyword. Offsets: `first` with comments, `flagged` of
    the flags, and `begin` of the lines after the comments."""

    line: int
    first: int | None = None
    flags: list[str] = field(default_factory=list)
    flagged: int | None = None
    begin: int | None = None
    strings: dict[str, String] = field(default_factory=dict)

    @property
    def is_header(self) -> bool:
        return not self.strings["msgid"].text and "msgctxt" not in self.strings

    @property
    def key(self) -> tuple[str | None, ...]:
        """The identity of an entry: its context and its source strings."""
        names = "msgctxt", "msgid", "msgid_plural"
        return tuple(self.strings[name].text if name in self.strings else None for name in names)

    @property
    def end(self) -> int:
        return max(string.end for string in self.strings.values())

    @property
    def targets(self) -> dict[str, String]:
        return {name: string for name, string in self.strings.items() if name.startswith("msgstr")}

    def source(self, name: str, form: OneThing) -> str:
        """Returns the source text of the target with this name. The plural form for 1 translates the singular, unless
        other numbers also use it and the singular does not show the number: "one file" is wrong for 21."""
        one = self.strings["msgid"].text
        if name == "msgstr":
            return one
        many = self.strings["msgid_plural"].text
        shown = placeholders(one)
        if name != f"msgstr[{form.number}]" or len(self.targets) == 1:
            return many
        return one if form.alone or (shown and shown == placeholders(many)) else many


def charset(content: bytes) -> str:
    """Returns the encoding that a PO file declares; UTF-8 if it declares none."""
    match = _CHARSET.search(content)
    name = match[1].decode() if match else "CHARSET"
    return "utf-8" if name == "CHARSET" else name


def po_document(text: str, language: str, filling: Filling = Filling()) -> Document:
    """Returns a PO file with its untranslated entries as slots, or all entries with `filling.overwrite`. Filled
    entries get the flag `fuzzy`, except those filled from a memory. The header of a template is filled, too. Entries
    translated in an existing translation are copied from it; those missing from the file become obsolete. Raises
    DocumentError with the line of a syntax error."""
    form, left, existing = OneThing(), 0, filling.earlier
    earlier = list(read_po(existing)) if existing is not None else []
    kept = {entry.key: entry for entry in earlier if any(string.text for string in entry.targets.values())}
    entries, slots = list(read_po(text)), list[Slot]()
    for entry in entries:
        names = [name for name, string in entry.targets.items() if filling.overwrite or not string.text]
        if existing is not None and (entry.is_header or names) and (old := kept.get(entry.key)):
            form = _form_of_one(old) if entry.is_header else form
            slots.append(filled_slot(entry.first or 0, entry.end, existing[old.first or 0 : old.end]))
        elif entry.is_header:
            form = _form_of_one(entry)
            if header := _header_slot(text, entry, filling.target):
                slots.append(header)
        elif names:
            try:
                slots.append(_slot(text, entry, names, form, language))
            except UnclearMessage:
                left += 1
    if existing is not None and earlier and entries:
        known = {entry.key for entry in entries}
        obsolete = [existing[old.first or 0 : old.end] for key, old in kept.items() if key not in known]
        tail = existing[earlier[-1].end :] + "".join(map(_obsolete, obsolete))
        slots.append(filled_slot(entries[-1].end, len(text), tail))
    return FilledDocument(text, slots, left=left)


def _obsolete(entry: str) -> str:
    """Returns an entry as gettext writes obsolete ones."""
    lines = re.split(r"(?<=\n)", entry)
    return "\n" + "".join(line if line.startswith("#") else f"#~ {line}" for line in lines) + "\n"


def po_pairs(text: str, languages: Languages) -> Iterator[Paired]:
    """Yields the translated strings of a PO file. Raises DocumentError with the line of a syntax error."""
    form = OneThing()
    for entry in read_po(text):
        if entry.is_header:
            form = _form_of_one(entry)
        elif not any(string.text for string in entry.targets.values()):
            yield "untranslated"
        elif "fuzzy" in entry.flags:
            yield "unchecked"
        else:
            for name, string in entry.targets.items():
                if string.text:
                    sides = entry.source(name, form), string.text
                    yield from message_pairs(partial(_message, entry.flags), sides, languages)
                else:
                    yield "untranslated"


def po_languages(text: str) -> tuple[str, str]:
    """Returns the languages of a PO file: English, and the one that its header names."""
    header = next((entry for entry in read_po(text) if entry.is_header and "msgstr" in entry.strings), None)
    match = _LANGUAGE.search(header.strings["msgstr"].text) if header else None
    return "en", match[1].replace("_", "-") if match else ""


def read_po(text: str) -> Iterator[Entry]:
    """Yields the entries except obsolete ones. Raises DocumentError with the line of a syntax error."""
    entry, place, line = Entry(1), 0, 1
    while place < len(text):
        part = _PART.match(text, place)
        name, comment = (part["name"], part["comment"]) if part else (None, None)
        if (comment or name in ("msgctxt", "msgid")) and entry.targets:
            yield _checked(entry)
            entry = Entry(line)
        if part is None or name in entry.strings:
            raise DocumentError("a comment, a keyword with a string, or a string that continues one is needed.", line)
        if entry.first is None and (comment or name):
            entry.first = place
        if entry.begin is None and (name or (comment and comment[1:2] == "|")):
            entry.begin = place
        if comment and comment[1:2] == ",":
            entry.flags += [flag.strip() for flag in comment[2:].split(",")]
            entry.flagged = entry.flagged or part.start("comment") + 2
        if name:
            entry.strings[name] = String(*part.span("strings"), _STRING.findall(part["strings"]))
            entry.line = line if name == "msgid" else entry.line
        line += text.count("\n", place, part.end())
        place = part.end()
    if entry.strings:
        yield _checked(entry)


def _checked(entry: Entry) -> Entry:
    """Returns an entry. Raises DocumentError if it is incomplete."""
    names, plural = set(entry.strings), "msgid_plural" in entry.strings
    if "msgid" not in names or not entry.targets or plural == ("msgstr" in names):
        missing = "msgid" if "msgid" not in names else "msgstr[0]" if plural else "msgstr"
        raise DocumentError(f"the entry has no {missing}.", entry.line)
    return entry


def _form_of_one(header: Entry) -> OneThing:
    """Returns the plural form for 1. Raises DocumentError for an invalid formula."""
    match = _PLURAL.search(header.strings["msgstr"].text if "msgstr" in header.strings else "")
    if not match or match[1].strip() == "EXPRESSION":
        return OneThing()
    try:
        form_of = gettext.c2py(match[1].strip())
        number = form_of(1)
        return OneThing(number, all(form_of(n) != number for n in range(MOST_THINGS) if n != 1))
    except (ValueError, ArithmeticError, RecursionError):
        raise DocumentError("the header's Plural-Forms cannot be read.", header.line) from None


def _header_slot(text: str, header: Entry, target: str) -> Slot | None:
    """Returns the slot for the header of a template, or None for another header. Fields that describe the
    translator, and the plural forms, stay."""
    string = header.strings.get("msgstr", String(0, 0, []))
    filled = (old := text[string.begin : string.end]).replace("charset=CHARSET", "charset=UTF-8")
    if filled == old:
        return None
    if target:
        filled = _NO_LANGUAGE.sub(f" {target.replace('-', '_')}", filled)
    return filled_slot(string.begin, string.end, filled)


def _message(flags: Sequence[str], text: str, language: str) -> Message:
    """Returns a string of an entry. Raises UnclearMessage if its placeholders or ICU branches are unclear."""
    formats = {flag for flag in flags if flag.endswith("-format") and not flag.startswith("no-")}
    if not (has_icu(text) or formats & UNKNOWN):
        return Message([ProgramString(text, formats, language, labels=not formats)])
    if formats:
        raise UnclearMessage
    return Message(icu_strings(text, language))


def _slot(text: str, entry: Entry, names: Sequence[str], form: OneThing, language: str) -> Slot:
    """Returns the slot for these strings of an entry. Raises UnclearMessage for unclear ICU branches, and for
    escapes that only a C compiler knows."""
    if any(_OTHER_ESCAPE.search("".join(string.parts)) for string in entry.strings.values()):
        raise UnclearMessage
    newline, strings = "\r\n" if "\r\n" in text else "\n", entry.strings
    messages = [_message(entry.flags, entry.source(name, form), language) for name in names]
    wide = len(strings["msgid"].parts) > 1
    begin = strings[names[0]].begin
    if "fuzzy" not in entry.flags:
        begin = entry.begin or 0 if entry.flagged is None else entry.flagged

    def written(texts: list[str], approved: bool = False) -> str | None:
        rest = iter(texts)
        filled = [message.finished(rest) for message in messages]
        if not any(filled):
            return None
        flag = (
            "" if approved or "fuzzy" in entry.flags else f"#, fuzzy{newline}" if entry.flagged is None else " fuzzy,"
        )
        parts, place = [flag], begin
        for name, translation in zip(names, filled, strict=True):
            string = strings[name]
            new = string_of(translation, wide, newline) if translation else text[string.begin : string.end]
            parts += [text[place : string.begin], new]
            place = string.end
        return "".join(parts)

    documents = [document for message in messages for document in message.documents]
    return Slot(begin, strings[names[-1]].end, documents, written, partial(written, approved=True))


def string_of(text: str, wide: bool, newline: str) -> str:
    """Returns a text as a PO string. It has several lines if the text has, or if it is long and `wide` is true."""
    lines = [line for line in re.split(r"(?<=\n)", text) if line]
    if wide:
        lines = [part for line in lines for part in _WRAPPER.wrap(line)]
    quoted = [f'"{escape(line)}"' for line in lines]
    return newline.join(quoted if len(quoted) < 2 else ['""', *quoted])
