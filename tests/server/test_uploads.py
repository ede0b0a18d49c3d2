"""Files: each format is translated and otherwise unchanged, and hostile ones are refused."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from urllib.parse import unquote, urlsplit

import pytest
from office_files import docx, member, zipped
from services import Client, Reply, serving

from vtrans.documents.document import Translated
from vtrans.errors import InputError
from vtrans.lines.line import Line
from vtrans.server.batching import RequestOptions
from vtrans.server.files import KEPT_SECONDS, MOST_KEPT, Results, safe_name
from vtrans.server.limits import Limits

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


def test_the_language_of_a_file_is_detected(client: Client) -> None:
    content = "The little dog runs through the park."
    assert translated(client, "a.txt", content.encode(), "auto") == b"park. the through runs dog little The"
    german = "Der kleine Hund läuft durch den Park."
    assert translated(client, "a.txt", german.encode(), "auto") == german.encode()


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


def test_a_file_of_the_largest_size_is_accepted_and_no_larger_one() -> None:
    with serving(limits=Limits(file_bytes=2000)) as served:
        assert [send(served, "a.txt", b"a" * size).status for size in (2000, 2001)] == [200, 413]


@pytest.mark.parametrize("name", ["日本語 Übung.txt", "日本語\u3000Übung.en.txt", "C:\\日本語 \u202eÜbung.txt"])
def test_a_result_has_the_name_of_its_file_with_the_target_language(client: Client, name: str) -> None:
    path = urlsplit(send(client, name, b"a b").json["translatedFileUrl"]).path
    assert path.isascii()
    header = client.get(path).headers["Content-Disposition"]
    parts = dict(part.strip().split("=", 1) for part in header.split(";")[1:])
    assert parts["filename"].isascii()
    encoding, _, encoded = parts["filename*"].split("'")
    assert (encoding, unquote(encoded, errors="strict")) == ("UTF-8", "日本語 Übung.de.txt")


def test_the_address_of_a_result_does_not_depend_on_what_the_client_says() -> None:
    for url, base in ((None, "http://127.0.0.1:{}"), ("https://a.example/x/", "https://a.example/x")):
        with serving(public_url=url, host="0.0.0.0") as served:
            reply = send(served, "a.txt", b"a b", Host="evil.example", X_Forwarded_Host="evil.example")
            assert reply.json["translatedFileUrl"].startswith(base.format(served.port) + "/download_file/")


def test_an_html_file(client: Client) -> None:
    page = b"<!doctype html>\n<title>a b</title><p>The <b>big</b> dog</p><script>x y</script>\n"
    assert translated(client, "A.HTML", page) == (
        b"<!doctype html>\n<title>b a</title><p>dog <b>big</b> The</p><script>x y</script>\n"
    )


@pytest.mark.parametrize("content", ["no times\n", "1\n00:00:01 -> 00:00:02\na b\n", "a --> b\nc d\n"])
def test_subtitles_without_times_are_refused(client: Client, content: str) -> None:
    for source in ("en", "auto"):
        reply = send(client, "a.srt", content.encode(), source)
        assert reply.status == 400
        assert "-->" in reply.json["error"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_a_zip_file_has_twice_is_named(client: Client) -> None:
    stream = io.BytesIO(docx("<w:p/>"))
    with zipfile.ZipFile(stream, "a") as file:
        file.writestr("word/media/a.png", b"")
    reply = send(client, "a.docx", stream.getvalue())
    assert reply.status == 400
    assert "word/media/a.png" in reply.json["error"]


def test_cells_without_letters_stay_as_they_are(client: Client) -> None:
    cells = "".join(f"<w:tc><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:tc>" for text in ("1 2", "100 %", "a b"))
    made = translated(client, "a.docx", docx(f"<w:tbl><w:tr>{cells}</w:tr></w:tbl>"))
    texts = re.findall("<w:t[^>]*>([^<]*)</w:t>", member(made, "word/document.xml"))
    assert texts == ["1 2", "100 %", "b a"]


BOMB = "<w:p>" + "<w:r><w:t>a</w:t></w:r>" * 100_000 + "</w:p>"
ENTITIES = '<!DOCTYPE a [<!ENTITY b "cccccccccc"><!ENTITY d "&b;&b;&b;&b;&b;&b;&b;&b;">]>'
HOSTILE = {
    "no zip": ("a.docx", b"hello", 400),
    "half of a zip": ("a.docx", docx("")[:60], 400),
    "a zip without text": ("a.docx", zipped(other_xml="<a/>"), 400),
    "a zip bomb": ("a.docx", docx(BOMB), 413),
    "a zip bomb beside the text": ("a.docx", docx("", bomb=b"\0" * 5_000_000), 413),
    "many members": ("a.docx", docx("", **{f"m{i}": b"" for i in range(1001)}), 400),
    "no XML": ("a.docx", zipped(word__document_xml="hello"), 400),
    "half of XML": ("a.docx", zipped(word__document_xml="<a><b></a>"), 400),
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
    assert 10 < len(reply.json["error"]) < 200


@pytest.mark.parametrize(
    "name", ["../../etc/passwd.txt", "..\\..\\a.txt", "/abs.txt", "a\u202etxt.txt", "a;b$(c).txt", "." * 99 + "txt"]
)
def test_a_name_is_never_a_path(client: Client, name: str) -> None:
    assert set(safe_name(name)).isdisjoint("/\\:;$()")
    assert ".." not in safe_name(name)
    assert not safe_name(name).startswith(".")
    for path in (f"/download_file/{name}", "/download_file/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/download_file/"):
        assert client.send("GET", path.encode("ascii", "ignore").decode()).status == 404


def test_results_are_kept_for_an_hour_and_within_a_size() -> None:
    now = [0.0]
    results = Results(lambda: now[0])
    keys = [results.add("a.txt", bytes(MOST_KEPT // 2)) for _ in range(3)]
    assert [results.get(key) is None for key in keys] == [True, False, False]
    assert len(set(keys)) == 3
    now[0] = KEPT_SECONDS + 1
    assert [results.get(key) for key in keys] == [None] * 3
