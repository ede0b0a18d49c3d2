"""Files: each format is translated and otherwise unchanged, and hostile ones are refused."""

import io
import zipfile
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import pytest
from office_files import BODY, docx, member, zipped
from services import Client, Reply, serving

from vtrans.apps.documents.document import Translated
from vtrans.apps.server import uploads
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.limits import Limits
from vtrans.apps.server.uploads import translated_name
from vtrans.system.errors import InputError
from vtrans.translate.steps.line import Line

LIMITS = Limits(file_bytes=100_000, file_characters=5000)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(limits=LIMITS) as served:
        yield served
        assert served.warnings == []


def send(
    client: Client, name: str, content: bytes, source: str = "en", *, formality: str = "", **headers: str
) -> Reply:
    fields = "".join(
        f'--x\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
        for key, value in (("source", source), ("target", "de"), ("formality", formality))
    )
    head = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    body = fields.encode() + head.encode() + content + b"\r\n--x--\r\n"
    return client.send("POST", "/translate_file", body, "multipart/form-data; boundary=x", **headers)


def translated(client: Client, name: str, content: bytes, source: str = "en", formality: str = "") -> bytes:
    reply = send(client, name, content, source, formality=formality)
    assert reply.status == 200, reply.body
    fetched = client.get(urlsplit(reply.json["translatedFileUrl"]).path)
    assert fetched.status == 200
    assert fetched.headers["Content-Disposition"].startswith("attachment")
    assert fetched.headers["Content-Type"] == "application/octet-stream"
    return fetched.body


def test_a_text_file_keeps_its_mark_and_line_ends(client: Client) -> None:
    assert translated(client, "a.txt", "\ufeffone two\r\n\r\nthree four.\r\n".encode()) == (
        "\ufefftwo one\r\n\r\nfour. three\r\n".encode()
    )


def test_a_file_may_have_a_form_of_address() -> None:
    def addressed(lines: Sequence[Line], options: RequestOptions, ready: object) -> list[list[Translated]]:
        return [[Translated(f"{options.formality} {line.text}")] for line in lines]

    def check(options: RequestOptions) -> None:
        if options.formality == "less":
            raise InputError("`formality` needs another model.")

    with serving(translate=addressed, check=check) as client:
        assert translated(client, "a.txt", b"one\ntwo", formality="more") == b"more one\nmore two"
        assert translated(client, "a.json", b'{"a": "one"}', formality="more") == b'{"a": "more one"}'
        assert translated(client, "a.txt", b"one") == b"None one"
        for wrong in ("less", "polite"):
            refused = send(client, "a.txt", b"one", formality=wrong)
            assert (refused.status, "formality" in refused.json["error"]) == (400, True)


def test_the_longest_part_of_a_file_tells_its_language(client: Client) -> None:
    text = "<w:p><w:r><w:t>%s</w:t></w:r></w:p>"
    header = BODY % (text % "Das ist nicht der Hund")
    body = "The house has a very large garden, and the dogs that live there like to run through it"
    made = translated(client, "a.docx", docx(text % body, word__header1_xml=header), "auto")
    assert "garden, large very a" in member(made, "word/document.xml")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_a_zip_file_has_twice_is_named(client: Client) -> None:
    stream = io.BytesIO(docx("<w:p/>"))
    with zipfile.ZipFile(stream, "a") as file:
        file.writestr("word/media/a.png", b"")
    reply = send(client, "a.docx", stream.getvalue())
    assert reply.status == 400
    assert "word/media/a.png" in reply.json["error"]


BOMB = "<w:p>" + "<w:r><w:t>a</w:t></w:r>" * 100_000 + "</w:p>"
ENTITIES = '<!DOCTYPE a [<!ENTITY b "cccccccccc"><!ENTITY d "&b;&b;&b;&b;&b;&b;&b;&b;">]>'
HOSTILE = {
    "no zip": ("a.docx", b"hello", 400),
    "a zip without text": ("a.docx", zipped(other_xml="<a/>"), 400),
    "a zip bomb": ("a.docx", docx(BOMB), 413),
    "a zip bomb beside the text": ("a.docx", docx("", bomb=b"\0" * 5_000_000), 413),
    "many members": ("a.docx", docx("", **{f"m{i}": b"" for i in range(1001)}), 400),
    "no XML": ("a.docx", zipped(word__document_xml="hello"), 400),
    "XML that is not UTF-8": ("a.docx", zipped(word__document_xml=b"<a>\xff</a>"), 400),
    "a billion laughs": ("a.docx", zipped(word__document_xml=ENTITIES + "<a>&d;</a>"), 400),
    "a file of the system": (
        "a.docx",
        zipped(word__document_xml='<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'),
        400,
    ),
    "deep XML": ("a.odt", zipped(content_xml="<a>" * 500 + "</a>" * 500), 400),
    "an unknown format": ("a.exe", b"MZ", 400),
    "no ending": ("docx", b"", 400),
    "an empty file": ("a.txt", b"", 400),
    "bytes that are not UTF-8": ("a.txt", b"\xff\xff", 400),
    "NUL": ("a.txt", b"a\0b", 400),
    "too many characters": ("a.txt", b"a " * 3000, 413),
    "too many bytes": ("a.txt", b"a" * 150_000, 413),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(client: Client, name: str) -> None:
    file, content, status = HOSTILE[name]
    reply = send(client, file, content)
    assert reply.status == status, reply.body
    assert 10 < len(reply.json["error"]) < 300


@pytest.mark.parametrize(
    "name", ["../../etc/passwd.txt", "..\\..\\a.txt", "/abs.txt", "a\u202etxt.txt", "a;b$(c).txt", "." * 99 + "txt"]
)
def test_a_name_is_never_a_path(client: Client, name: str) -> None:
    kept = translated_name(name, "en", "de")
    assert kept.isprintable()
    assert set(kept).isdisjoint("/\\")
    assert not kept.startswith(".")
    assert translated(client, kept, b"one two") == b"two one"
    for path in (f"/download_file/{name}", "/download_file/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/download_file/"):
        assert client.send("GET", path.encode("ascii", "ignore").decode()).status == 404


def test_results_are_kept_for_a_time_and_within_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(client: Client) -> str:
        return str(urlsplit(send(client, "a.txt", b"a" * 400).json["translatedFileUrl"]).path)

    monkeypatch.setattr(uploads, "MOST_KEPT", 1000)
    with serving() as client:
        paths = [sent(client) for _ in range(3)]
        assert len(set(paths)) == 3
        assert [client.get(path).status for path in paths] == [404, 200, 200]
        monkeypatch.setattr(uploads, "KEPT_SECONDS", 0.0)
        assert client.get(sent(client)).status == 404
