"""Files of each format: opened as documents, and written with translations. Everything is done in memory."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath

from vtrans.apps.documents.document import Document, Filling
from vtrans.apps.documents.formats.app_strings.json_files import arb_languages, json_document
from vtrans.apps.documents.formats.app_strings.key_values import (
    properties_document,
    properties_encoding,
    strings_document,
    strings_encoding,
)
from vtrans.apps.documents.formats.app_strings.qt import ts_document, ts_encoding, ts_languages
from vtrans.apps.documents.formats.app_strings.xcstrings import xcstrings_document, xcstrings_languages
from vtrans.apps.documents.formats.app_strings.xml_files import android_document, resx_document
from vtrans.apps.documents.formats.flow import SubtitleDocument, text_document
from vtrans.apps.documents.formats.html import escape, html_document, html_encoding
from vtrans.apps.documents.formats.markdown import markdown_document
from vtrans.apps.documents.formats.office import epub_document, odt_document, office_document
from vtrans.apps.documents.formats.po import charset, po_document, po_languages
from vtrans.apps.documents.formats.tables import table_document
from vtrans.apps.documents.formats.xliff import XLIFF_ENDINGS, xliff_document, xliff_languages
from vtrans.apps.documents.formats.xml import check, encoding
from vtrans.system.errors import DocumentError, DocumentSizeError
from vtrans.text.languages import base
from vtrans.text.lines import converted, marked_encoding, unmarked_encoding

MOST_UNPACKED = 10  # maximum size of an unpacked zip file, in multiples of the size limit
MOST_TAGS = 10**6  # of the text in a zip file; each needs about 1 kB of memory
MOST_MEMBERS = 1000  # of a zip file
TABLES = (".csv", ".tsv")
ROOTS = {".xml": b"<resources", ".ts": b"<TS"}  # bytes that a file must contain if other formats share its ending
# Endings of files of strings, whose existing translations are completed.
COMPLETED = (".json", ".arb", ".xml", ".strings", ".properties", ".resx", ".po", ".pot", *XLIFF_ENDINGS, ".ts")
MARK = "\ufeff"  # the byte order mark
# The declaration of an encoding is read as ASCII, so the encoding must decode these bytes as ASCII does. `idna` and
# `unicode_escape`, which only Python has, do not.
ASCII = bytes(range(0x20, 0x7F)).replace(b"\\", b"\\u0041")
# Python's error handler for characters that a file's encoding lacks: HTML and XML get references such as `&#8364;`.
KINDS = {"text": "strict", "html": "xmlcharrefreplace", "xml": "xmlcharrefreplace"}

_WORD_PARTS = re.compile(r"word/(document|header\d*|footer\d*|footnotes|endnotes)\.xml")
_SLIDES = re.compile(r"ppt/(slides/slide|notesSlides/notesSlide|diagrams/data)\d+\.xml")
_CELLS = re.compile(r"xl/(sharedStrings|worksheets/sheet\d+)\.xml")
_COLUMN = re.compile(r"""<tableColumn\b[^<>]*?\sname="([^"]*)\"""")
_PAGES = re.compile(r".*\.(xhtml|html?|ncx)", re.IGNORECASE)
_ZIP_ERRORS = (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, OSError, zlib.error)


@dataclass(frozen=True)
class Opened:
    """The texts of a file, the reader of a text as a document, and the writer of the translated texts as a file."""

    texts: list[str]
    read: Callable[[str, str], Document]
    written: Callable[[list[str]], bytes]


Members = list[tuple[zipfile.ZipInfo, bytes]]
"""The members of a zip file, each with its content."""
Open = Callable[[bytes, int, Filling], Opened]
"""Opens a file, given its content, the maximum size when unpacked in bytes, and how entries are filled."""


def open_file(name: str, content: bytes, limit: int, filling: Filling = Filling()) -> Opened:
    """Opens a file in the format that its name's ending gives. `limit` is the maximum size in bytes.

    Raises DocumentError for an unknown ending, or an empty or damaged file, and DocumentSizeError for a file larger
    than the limit, or one that unpacks to more than MOST_UNPACKED times the limit.
    """
    ending = PurePath(name.lower()).suffix
    if ending not in FORMATS:
        raise DocumentError(f"The file name must end in one of {', '.join(FORMATS)}, got {name[-80:]!r}.")
    check_size(content, limit)
    return FORMATS[ending](content, limit * MOST_UNPACKED, filling)


def check_size(content: bytes, limit: int) -> None:
    """Raises DocumentError for an empty file, and DocumentSizeError for one of more than `limit` bytes."""
    if not content:
        raise DocumentError("The file is empty.")
    if len(content) > limit:
        raise DocumentSizeError(f"A file must have at most {limit:,} bytes, got {len(content):,}.")


def _text(
    read: Callable[..., Document],
    encoding: Callable[[bytes], str] = lambda content: "utf-8",
    kind: str = "text",
    *,
    named: Callable[[str], list[tuple[str, str]]] = lambda text: [],
    copies: bool = False,
) -> Open:
    """Returns the opener of a text file of one of the KINDS. `encoding` returns its encoding. The byte order mark and
    line ends stay. `named` returns the language pairs that the file names; an unnamed language is empty. An earlier
    translation must name the same languages; with `copies`, it names its own where the source file names the source."""

    def opened(content: bytes, most: int, filling: Filling) -> Opened:
        text, encoded = decoded(content, encoding(content), kind)
        for languages in named(text) if filling.source or filling.target else ():
            _check_languages(languages, filling)
        if filling.existing:
            earlier, encoded = decoded(filling.existing, encoding(filling.existing), kind)
            for languages in named(earlier) if filling.target else ():
                theirs = ("", languages[0]) if copies else languages
                _check_languages(theirs, filling, "existing translation")
            filling = replace(filling, earlier=earlier)
        return Opened([text], partial(read, filling=filling), lambda texts: encoded(texts[0]))

    return opened


def _check_languages(named: tuple[str, str], filling: Filling, what: str = "file") -> None:
    """Raises DocumentError if a file names other languages than the translations have."""
    ours = filling.source, filling.target
    both = [(base(theirs.replace("_", "-")), base(mine)) for theirs, mine in zip(named, ours, strict=True)]
    if any(theirs and mine and theirs != mine for theirs, mine in both):
        wanted, got = (" to ".join(filter(None, codes)) for codes in (ours, named))
        raise DocumentError(
            f"The {what} names {got}, but the translations are {wanted}; choose a model for the file's languages, or "
            "correct those that it names."
        )


def _zipped(is_text: Callable[[str], object], read: Callable[..., Document]) -> Open:
    """Returns the opener of a zip file with XML members. `is_text` says which members contain text."""
    return lambda content, most, filling: _packed(_members(content, most), is_text, partial(read, filling=filling))


def _xlsx(content: bytes, most: int, filling: Filling) -> Opened:
    """Opens an .xlsx file. The column names of its tables stay, because formulas use them."""
    members = _members(content, most)
    # Only read for names: a name that is not UTF-8 names no column.
    tables = (data.decode(errors="replace") for info, data in members if "/tables/" in info.filename)
    kept = {name for table in tables for name in _COLUMN.findall(table)}
    return _packed(members, _CELLS.fullmatch, partial(office_document, filling=filling, kept=kept))


def _packed(members: Members, is_text: Callable[[str], object], read: Callable[[str, str], Document]) -> Opened:
    """Opens the members that contain text, as `is_text` says."""
    named = [info.filename for info, _ in members if is_text(info.filename)]
    if not named:
        raise DocumentError("The file lacks the parts that hold the text in its format.")
    tags = sum(data.count(b"<") for info, data in members if info.filename in named)
    if tags > MOST_TAGS:
        raise DocumentSizeError(f"The file's text must have at most {MOST_TAGS:,} tags of XML, got {tags:,}.")
    parts = [decoded(data, encoding(data), "xml") for info, data in members if info.filename in named]

    def written(translated: list[str]) -> bytes:
        encoded = [encode(text) for (_, encode), text in zip(parts, translated, strict=True)]
        changed = dict(zip(named, encoded, strict=True))
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as file:
            for info, data in members:
                file.writestr(info, changed.get(info.filename, data), compress_type=info.compress_type)
        return made.getvalue()

    return Opened([text for text, _ in parts], read, written)


def _members(content: bytes, most: int) -> Members:
    """Returns the members of a zip file, in order. zipfile reads no more of a member than the directory states."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            infos = file.infolist()
            if len(infos) > MOST_MEMBERS:
                raise DocumentError(f"The file must have at most {MOST_MEMBERS:,} members, got {len(infos):,}.")
            ((name, times),) = Counter(info.filename for info in infos).most_common(1) or [("", 0)]
            if times > 1:
                raise DocumentError(f"The file must have each member once, got {name[:80]!r} {times:,} times.")
            if sum(info.file_size for info in infos) > most:
                raise DocumentSizeError(f"The file must have at most {most:,} bytes when it is unpacked.")
            return [(info, file.read(info)) for info in infos]
    except _ZIP_ERRORS:
        raise DocumentError("The file is damaged, or its content does not match its file name extension.") from None


def decoded(content: bytes, codec: str, kind: str = "text") -> tuple[str, Callable[[str], bytes]]:
    """Returns the text of a file without its byte order mark, and the encoder of the translated text, which checks that
    XML is still well-formed. A UTF-16 byte order mark overrides `codec`. Raises DocumentError if the text would not
    encode to the same bytes."""
    codec = marked_encoding(content) or codec
    try:
        if b"\0" not in content and ASCII.decode(codec, "replace") != ASCII.decode():
            raise LookupError
        text = content.decode(codec)
        if text.encode(codec) != content:
            raise ValueError
    except UnicodeDecodeError as error:
        if not marked_encoding(content) and (likely := unmarked_encoding(content)):
            raise DocumentError(f"The file must be UTF-8, but looks like {converted(likely)}.") from None
        line, at = content.count(b"\n", 0, error.start) + 1, error.start
        wrong = f"got byte 0x{content[at]:02x} at byte offset {at}; convert it to UTF-8"
        raise DocumentError(f"the text must be {codec.upper()}, {wrong}.", line) from None
    except (LookupError, ValueError):
        raise DocumentError(
            f"The file must be UTF-8, but says that its encoding is {codec[:40]}, which is not supported; convert it."
        ) from None
    if "\0" in text and (likely := unmarked_encoding(content)):
        raise DocumentError(f"The file must be UTF-8, but looks like {converted(likely)}.")
    if "\0" in text:
        raise DocumentError("the text must not contain the NUL character.", text.count("\n", 0, text.index("\0")) + 1)
    mark = MARK if text.startswith(MARK) else ""

    def encoded(changed: str) -> bytes:
        if kind == "xml":
            check(changed)
        try:
            return (mark + changed).encode(codec, KINDS[kind])
        except UnicodeEncodeError as error:
            sign = error.object[error.start]
            raise DocumentError(f"{codec} has no {sign!r}, which a translation needs; convert it to UTF-8.") from None

    return text.removeprefix(MARK), encoded


FORMATS: dict[str, Open] = {
    ".txt": _text(text_document),
    **dict.fromkeys((".html", ".htm"), _text(html_document, html_encoding, "html")),
    ".srt": _text(SubtitleDocument),
    ".vtt": _text(partial(SubtitleDocument, escape=escape)),
    ".docx": _zipped(_WORD_PARTS.fullmatch, office_document),
    ".pptx": _zipped(_SLIDES.fullmatch, office_document),
    ".xlsx": _xlsx,
    ".epub": _zipped(_PAGES.fullmatch, epub_document),
    ".odt": _zipped({"content.xml", "styles.xml"}.__contains__, odt_document),
    # A PO file names no source language.
    **dict.fromkeys((".po", ".pot"), _text(po_document, charset, named=lambda text: [("", po_languages(text)[1])])),
    **dict.fromkeys(XLIFF_ENDINGS, _text(xliff_document, encoding, "xml", named=xliff_languages)),
    ".csv": _text(partial(table_document, separators=",;\t")),
    ".tsv": _text(partial(table_document, separators="\t")),
    **dict.fromkeys((".md", ".markdown", ".mdx"), _text(markdown_document)),
    ".json": _text(json_document),
    ".arb": _text(partial(json_document, arb=True), named=arb_languages, copies=True),
    ".xml": _text(android_document, encoding, "xml"),
    ".strings": _text(strings_document, strings_encoding),
    ".properties": _text(properties_document, properties_encoding),
    ".resx": _text(resx_document, encoding, "xml"),
    ".ts": _text(ts_document, ts_encoding, "xml", named=lambda text: [ts_languages(text)]),
    ".xcstrings": _text(xcstrings_document, named=lambda text: [(xcstrings_languages(text)[0], "")]),
}
