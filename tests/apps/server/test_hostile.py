"""Malformed and hostile requests: each gets a 4xx with a sentence, and the server goes on."""

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from services import FORM, JSON, Client, serving

from vtrans.apps.server import request_handler, running
from vtrans.apps.server.limits import Limits

LIMITS = Limits(characters=1000, texts=10, file_bytes=20_000)

MULTIPART = "multipart/form-data; boundary=x"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(limits=LIMITS) as served:
        yield served
        assert served.translate("still here").json == {"translatedText": "here still"}
        assert served.warnings == []


def as_json(**changes: object) -> bytes:
    fields = {"q": "a", "source": "en", "target": "de"} | changes
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


BODIES = {
    "an empty body": (b"", JSON, 400),
    "no JSON": (b"hello", JSON, 400),
    "a list": (b"[]", JSON, 400),
    "NaN": (as_json(alternatives=float("nan")), JSON, 400),
    "deep lists": (b'{"q":' + b"[" * 5000 + b"]" * 5000 + b"}", JSON, 400),
    "a number of 10,000 digits": (b'{"q": ' + b"9" * 10_000 + b"}", JSON, 400),
    "UTF-16": (as_json().decode().encode("utf-16"), JSON, 400),
    "bad UTF-8": (b'{"q": "\xff\xfe", "source": "en", "target": "de"}', JSON, 400),
    "a lone surrogate in a list": (as_json(q=["a", "\udfff"]), JSON, 400),
    "a surrogate as key": (as_json(api_key="\ud800", target="xx"), JSON, 400),
    "a form with bad UTF-8": (b"q=%ff%fe&source=en&target=de", FORM, 400),
    "a form of separators": (b"&" * 5000, FORM, 400),
    "a form of many fields": (b"a=1&" * 4000, FORM, 400),
    "two sources": (b"q=a&source=en&source=de&target=de", FORM, 400),
    "multipart without a boundary": (b"--x\r\n", MULTIPART.partition(";")[0], 400),
    "multipart without an end": (b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na', MULTIPART, 400),
    "multipart without a name": (b"--x\r\nContent-Disposition: form-data\r\n\r\na\r\n--x--\r\n", MULTIPART, 400),
    "multipart with noise": (b"noise\r\n" * 500, MULTIPART, 400),
    "multipart with a file for the text": (
        b'--x\r\nContent-Disposition: form-data; name="q"; filename="q.txt"\r\n\r\na\r\n--x--\r\n',
        MULTIPART,
        400,
    ),
    "a body of an unknown type": (as_json(), "text/plain", 400),
    "a body that is too large": (b" " * 100_000, JSON, 413),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_a_wrong_body_is_refused_with_a_sentence(client: Client, name: str) -> None:
    body, kind, status = BODIES[name]
    reply = client.send("POST", "/translate", body, kind)
    assert reply.status == status
    assert list(reply.json) == ["error"]
    assert 10 < len(reply.json["error"]) < 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/translate?q=a&source=en&target=de", 405),
        ("DELETE", "/languages", 405),
        ("GET", "/nothing", 404),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
        ("POST", "/translate?q=%ff&source=en&target=de", 400),
        ("POST", "/detect", 400),
        ("POST", "/translate/?q=a&source=en&target=de", 404),
        ("GET", "/languages/", 404),
    ],
)
def test_a_wrong_path_or_method_is_refused_with_a_sentence(client: Client, method: str, path: str, status: int) -> None:
    reply = client.send(method, path)
    assert reply.status == status
    assert reply.json["error"]
    assert "Location" not in reply.headers
    assert reply.headers["X-Content-Type-Options"] == "nosniff"


def raw(client: Client, *parts: bytes, pause: float = 0.0) -> bytes:
    """Sends bytes as they are, and returns everything that comes back until the server closes the connection."""
    answer = b""
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            while chunk := connection.recv(65536):
                answer += chunk
        except ConnectionError:
            pass
    return answer


@pytest.mark.parametrize(
    "head",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"y" * 100) for i in range(2000)) + b"\r\n",
    ],
)
def test_no_http_is_refused(client: Client, head: bytes) -> None:
    answer = raw(client, head)
    assert answer.startswith(b"HTTP/1.1 4"), answer[:80]
    assert answer.partition(b"\r\n\r\n")[2]


HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def test_a_slow_body_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_handler, "BODY_SECONDS", 0.5)
    assert raw(client, HEAD % 50, b" ", pause=0.3).startswith(b"HTTP/1.1 408")


def test_a_slow_head_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "HEAD_SECONDS", 0.2)
    with serving(limits=replace(LIMITS)) as client:
        assert raw(client, b"POST /translate HTTP/1.1\r\n", b"Host: a\r\n", pause=0.1) == b""


def test_a_client_that_goes_away_frees_its_place(client: Client) -> None:
    body = as_json(q="a b. " * 100)
    for sent in [body] * 20 + [body[:40]] * 20:
        with socket.create_connection(("127.0.0.1", client.port), timeout=20) as connection:
            connection.sendall(HEAD % len(body) + sent)
    assert client.translate("a b").json == {"translatedText": "b a"}
