"""Strings of programs: which parts are translated, and whether a translation keeps what the program needs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from html import unescape
from itertools import count
from typing import TypeVar
from xml.sax.saxutils import escape

from vtrans.apps.documents.document import MarkedDocument, Paired, Slot
from vtrans.apps.documents.formats.markup import Item
from vtrans.apps.documents.formats.xml import Element, inline_items
from vtrans.apps.documents.inline import (
    BRACE,
    BRACES,
    CONVERSION,
    NUMBERED,
    PRINTF,
    Span,
    items_of,
    marks,
    placeholders,
    without_accelerator,
)
from vtrans.text.languages import Languages
from vtrans.translate.wording.patterns import PAIRS, PATTERNS

T = TypeVar("T")

LONGEST = 5000  # characters of an ICU message

_CHOICE = re.compile(r"\{\s*[\w.-]+\s*,\s*(?:plural|select)\s*,\s*(?:offset:\s*\d+\s*)?")
_BRANCH = re.compile(r"\s*[\w=.-]+\s*\{")
_END = re.compile(r"\}\s*\}")
_BRACES = re.compile(r"''|'[{}#|][^']*'|[{}]")
_SIMPLE = re.compile(r"'[{}#|][^']*'|\{[^{}]*\}")  # quoted text, and arguments without branches
_ATOMS = re.compile(rf"{_SIMPLE.pattern}|#")
_CONVERTS, _PAIRED = re.compile(PATTERNS["format"]), re.compile(PAIRS)


def format_flags(text: str, name: str) -> tuple[str, ...]:
    """Returns the flag of a format if a text has one of its conversions. `100% sure` has none, and neither
    has `%i%`."""
    return (name,) if _CONVERTS.search(_PAIRED.sub("", text)) else ()


class ProgramString:
    """A string to translate, in these formats of gettext. Placeholders of the formats, such as `%s`, are atoms, and so
    are matches of the pattern `atoms`. Conversions without argument numbers are numbered until the translation shows
    their order. With `labels`, the string may have an accelerator."""

    def __init__(
        self,
        text: str,
        formats: Collection[str],
        language: str,
        *,
        atoms: re.Pattern[str] | None = None,
        labels: bool = False,
    ) -> None:
        self._text, self._printf = text, not PRINTF.isdisjoint(formats)
        self._atoms = atoms if BRACES.isdisjoint(formats) else BRACE
        conversions = CONVERSION.finditer(text) if not NUMBERED.isdisjoint(formats) else ()
        turns = [match["rest"] for match in conversions if not match["name"] and match["rest"] != "%"]
        self._numbered = len(turns) > 1 and "*" not in "".join(turns)
        self._numbers = count(1)
        plain, self._accelerator = without_accelerator(text) if labels else (text, None)
        label = text if self._accelerator else ""
        self.document = MarkedDocument(self._items(plain), language, self._escaped, label=label)

    def _items(self, text: str, more: Iterable[Span] = ()) -> list[Item]:
        """Returns the items of the string, or of a part of it, including `more`."""
        text = self._with_numbers(text)
        spans = list(more)
        for match in self._atoms.finditer(text) if self._atoms else ():
            spans.append((*match.span(), Item("atom", match.group())))
        for match in CONVERSION.finditer(text) if self._printf else ():
            raw = match.group()
            spans.append((*match.span(), Item("text", raw, "%") if match["rest"] == "%" else Item("atom", raw)))
        return items_of(text, spans)

    def _with_numbers(self, text: str) -> str:
        """Returns the string, or the next part of it, with numbers for its conversions until their order is known."""

        def numbered(match: re.Match[str]) -> str:
            has_number = match["name"] or match["rest"] == "%"
            return match.group() if has_number else f"%{next(self._numbers)}${match['rest']}"

        return CONVERSION.sub(numbered, text) if self._numbered else text

    def _escaped(self, text: str) -> str:
        return text.replace("%", "%%") if self._printf else text

    def _counted(self, text: str) -> tuple[Counter[str], ...]:
        """Returns the counts of the placeholders, the marks and the other atoms."""
        found = self._atoms.finditer(text) if self._atoms else ()
        atoms = Counter(CONVERSION.sub(r"%\g<rest>", match.group()) for match in found)
        return placeholders(text, printf=self._printf), marks(text), atoms

    def finished(self, text: str) -> str:
        """Returns the translation as the program needs it, or an empty string if it uses other arguments, or uses them
        in an order that the format does not allow."""
        if self._accelerator and text:
            text = self._accelerator.placed(text)
        if self._numbered:
            order = [int(match["name"][:-1]) for match in CONVERSION.finditer(text) if match["name"]]
            text = CONVERSION.sub(r"%\g<rest>", text) if order == sorted(order) else text
        return text if self._counted(text) == self._counted(self._text) else ""


def paired(text: str) -> str | None:
    """Combines the surrogate pairs in a text into characters; None if a surrogate is unpaired."""
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return None


def unescaped(text: str, escape: re.Pattern[str], letters: Mapping[str, str]) -> str | None:
    """Resolves the escapes in a text. Group 1 of `escape` is a UTF-16 code unit in hexadecimal, and group 2 a
    character, which `letters` may map to another. Returns None if a surrogate is unpaired."""
    return paired(escape.sub(lambda at: chr(int(at[1], 16)) if at[1] else letters.get(at[2], at[2]) or "", text))


class UnclearMessage(ValueError):
    """A string whose placeholders are not clear, or an ICU message that cannot be divided into whole sentences."""


class XmlString:
    """A string of XLIFF or Qt, which may be a label with an accelerator. With `keep_space`, white space matters."""

    def __init__(self, part: Element, language: str, keep_space: bool = True) -> None:
        self._inside = part.inside
        text = "".join(child.text for child in part.children)
        label, self._accelerator = without_accelerator(text)
        if self._accelerator is None or any(child.name for child in part.children):
            self._accelerator = None
            self.document = MarkedDocument(list(inline_items(part, keep_space)), language, escape)
        else:
            self.document = MarkedDocument(items_of(label), language, str, label=text)

    def finished(self, text: str) -> str:
        """Returns the translation with its accelerator, or an empty string if it has other placeholders."""
        text = escape(self._accelerator.placed(text)) if self._accelerator else text
        made, given = ((placeholders(side), marks(unescape(side))) for side in (text, self._inside))
        return text if text.strip() and made == given else ""


class Message:
    """A text of strings to translate and fixed parts between them. `encoded` encodes the text for the file."""

    def __init__(self, parts: Sequence[str | ProgramString | XmlString], encoded: Callable[[str], str] = str) -> None:
        self.fixed = [part.split() for part in parts if isinstance(part, str)]
        self.documents = [part.document for part in parts if not isinstance(part, str)]
        self._parts, self._encoded = parts, encoded

    def finished(self, texts: Iterator[str]) -> str:
        """Returns the text with the next translations, or an empty string if a string refuses its translation."""
        made = [part if isinstance(part, str) else part.finished(next(texts)) for part in self._parts]
        is_whole = all(text or text == part for text, part in zip(made, self._parts, strict=True))
        return self._encoded("".join(made)) if is_whole else ""


def slot_of(begin: int, raw: str, parts: Sequence[str | ProgramString], encoded: Callable[[str], str] = str) -> Slot:
    """Returns the slot for `raw`, which consists of strings and fixed parts. If each string is its own translation,
    `raw` stays unchanged."""
    message = Message(parts, encoded)

    def written(texts: list[str]) -> str | None:
        if texts == [document.unchanged() for document in message.documents]:
            return raw
        return message.finished(iter(texts)) or None

    return Slot(begin, begin + len(raw), message.documents, written)


# ICU messages. Word order differs between languages, so the text around the branches moves into each branch:
# `You have {n, plural, one {# file} other {# files}}.` becomes
# `{n, plural, one {You have # file.} other {You have # files.}}`.


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
    are_alike = src.fixed == tgt.fixed and len(src.documents) == len(tgt.documents)
    return [*zip(src.documents, tgt.documents, strict=True)] if are_alike else ["placeholders"]


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
