"""Fuzzed readers of requests to the server and of documents."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from fuzzing import CUT, target
from office_files import zipped
from starlette.requests import Request

from vtrans.apps.documents.document import Translated
from vtrans.apps.documents.files import open_file
from vtrans.apps.documents.formats.flow import SubtitleDocument
from vtrans.apps.documents.formats.html import READERS, read_html
from vtrans.apps.documents.formats.office import odt_document, office_document
from vtrans.apps.server.libretranslate import FileRequest, TranslateRequest
from vtrans.apps.server.limits import Refusal
from vtrans.apps.server.requests import Upload, fields_of
from vtrans.system.errors import DocumentError

W, R = "http://schemas.openxmlformats.org/wordprocessingml/2006/main", "urn:oasis:names:tc:opendocument:xmlns:text:1.0"


def _translations(lines: Sequence[str]) -> list[Translated]:
    """The words of each line backwards, with and without an alignment in turn."""
    replies = []
    for number, line in enumerate(lines):
        words = line.split()[::-1]
        links = tuple((len(words) - 1 - i, i) for i in range(len(words))) if number % 2 else None
        replies.append(Translated(" ".join(words), links))
    return replies


def _requests() -> list[bytes]:
    form = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nA dog.\r\n--x--\r\n'
    return [
        CUT.join((b"multipart/form-data; boundary=x", b"source=en&target=de", form)),
        CUT.join((b"application/x-www-form-urlencoded", b"source=en&q=a", b"q=b&target=de&alternatives=2&format=html")),
        CUT.join((b"application/json", b"", b'{"q": ["a"], "source": "auto", "target": "de", "alignments": true}')),
    ]


@target(_requests, Refusal, DocumentError)
def request(parts: Sequence[bytes], folder: Path) -> None:
    """The content type, the query string and the body."""
    kind, query, body = parts[0], parts[1], CUT.join(parts[2:])
    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", kind)], "query_string": query, "app": None}
    fields = asyncio.run(fields_of(Request(scope), body))
    if isinstance(fields.get("file"), Upload):
        upload = FileRequest.of(fields).file
        open_file(upload.name, upload.content, 100_000)
    else:
        asked = TranslateRequest.of(fields)
        for given in asked.q if isinstance(asked.q, list) else [asked.q]:
            READERS[asked.format](given, asked.source)


@target(
    lambda: [b"<p>A <b>dog</b> runs.<br>It <i>is</i> &amp; <code>x</code></p><!-- c --><pre>a\nb</pre>"], DocumentError
)
def html(parts: Sequence[bytes], folder: Path) -> None:
    source = CUT.join(parts).decode(errors="replace").replace("\0", "")
    assert "".join(item.raw for item in read_html(source)) == source
    document = READERS["html"](source, "en")
    assert len(document.lines) == len(document.aligned)
    document.joined(_translations(document.lines))


@target(
    lambda: [b"1\n00:00:01,000 --> 00:00:02,000\nA <i>dog</i> runs.\nIt is fast.\n\n2\n0:1 --> 1\n- B\n<i>- C</i>\n"],
    DocumentError,
)
def srt(parts: Sequence[bytes], folder: Path) -> None:
    document = SubtitleDocument(CUT.join(parts).decode(errors="replace").replace("\0", ""), "en")
    document.joined(_translations(document.lines))


def _xml(namespace: str, body: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?><w:d xmlns:w="{namespace}">{body}</w:d>'.encode()


_DOCX = (
    "<w:p><w:pPr/><w:r><w:rPr><w:b/></w:rPr><w:t>A dog</w:t></w:r><w:hyperlink><w:r><w:t> runs.</w:t><w:tab/></w:r>"
    "</w:hyperlink></w:p>"
)
_ODT = "<w:p>A <w:span>dog</w:span><w:s/>runs.<w:tab/><w:note><w:p>x</w:p></w:note></w:p>"


@target(lambda: [b"\0" + _xml(W, _DOCX), b"\1" + _xml(R, _ODT)], DocumentError)
def office(parts: Sequence[bytes], folder: Path) -> None:
    """The first byte chooses .odt; what is read as XML is written as XML."""
    content = CUT.join(parts)
    read = odt_document if content[:1] == b"\1" else office_document
    document = read(content[1:].decode(errors="replace").replace("\0", ""), "en")
    read(document.joined(_translations(document.lines)), "en")


@target(
    lambda: [zipped(word__document_xml=_xml(W, _DOCX)), zipped(content_xml=_xml(R, _ODT))],
    DocumentError,
)
def upload(parts: Sequence[bytes], folder: Path) -> None:
    content = CUT.join(parts)
    opened = open_file("a.docx" if b"word/" in content else "a.odt", content, 10_000)
    documents = [opened.read(text, "en") for text in opened.texts]
    opened.written([document.joined(_translations(document.lines)) for document in documents])
