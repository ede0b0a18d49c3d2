"""Who gets an answer: limits per minute, keys, requests that do not arrive, and pages of other sites."""

import json
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from services import FORM, JSON, Blocked, Client, serving
from starlette.requests import Request

from vtrans.apps.documents.memory import Memory
from vtrans.apps.server import limits
from vtrans.apps.server.access import Access
from vtrans.apps.server.limits import Keys, Limits, RateLimit
from vtrans.apps.server.request_handler import UNFINISHED, WRONG_KEYS, client_of
from vtrans.system.errors import FileError, InputError

BODY = json.dumps({"q": "a b", "source": "en", "target": "de"}).encode()
PROXY, ADDRESS = ["127.0.0.1"], "203.0.113.1"


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    file = tmp_path / "keys"
    file.write_text("right\n", encoding="utf-8")
    return Keys(file)


@contextmanager
def unfinished(client: Client, number: int) -> Iterator[list[socket.socket]]:
    """Opens connections, each of which sends the head of a request. A proxy names the address of the client."""
    head = (
        f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\nX-Forwarded-For: {ADDRESS}\r\n"
        f"Expect: 100-continue\r\nContent-Length: {len(BODY)}\r\n\r\n"
    )
    with ExitStack() as stack:
        made = []
        for _ in range(number):
            made.append(stack.enter_context(socket.create_connection(("127.0.0.1", client.port), timeout=20)))
            made[-1].sendall(head.encode())
            assert b" 100 " in made[-1].recv(1000)  # the server reads the body now
        yield made


def finished(connection: socket.socket) -> int:
    """Sends the body. Returns the status of the answer."""
    connection.sendall(BODY)
    return int(connection.recv(1000).split()[1])


def test_requests_are_refused_while_too_many_of_their_client_have_not_arrived() -> None:
    with serving(trusted_proxy=PROXY) as client, unfinished(client, UNFINISHED) as waiting:
        mine = {"X_Forwarded_For": ADDRESS}
        assert client.send("POST", "/translate", BODY, JSON, **mine).status == 429
        assert client.translate("a b").json == {"translatedText": "b a"}
        assert [finished(connection) for connection in waiting] == [200] * UNFINISHED
        assert client.send("POST", "/translate", BODY, JSON, **mine).status == 200
        assert client.warnings == []


def test_a_request_that_finds_the_server_busy_does_not_count_and_a_search_ends_when_its_client_goes_away(
    keys: Keys,
) -> None:
    model = Blocked()
    limits = Limits(requests=1, per_minute=2)
    with serving(translate=model, keys=keys, limits=limits) as client, ThreadPoolExecutor() as pool:
        first = pool.submit(replace(client, timeout=1).translate, "never", api_key="right")
        assert model.busy.wait(30)
        assert [client.translate("a", api_key="right").status for _ in range(3)] == [503] * 3
        assert isinstance(first.exception(30), TimeoutError)
        assert model.ended.wait(30)
        assert client.translate("a", api_key="right").status == 200
        assert client.warnings == []


def test_wrong_keys_delay_the_client_that_sends_them(keys: Keys) -> None:
    def status(address: str, key: str) -> int:
        body = urlencode({"q": "a", "source": "en", "target": "de", "api_key": key}).encode()
        return client.send("POST", "/translate", body, FORM, X_Forwarded_For=address).status

    with serving(keys=keys, trusted_proxy=PROXY) as client:
        assert [status("203.0.113.1", "") for _ in range(WRONG_KEYS + 1)] == [403] * (WRONG_KEYS + 1)
        assert [status("203.0.113.1", f"wrong {i}") for i in range(WRONG_KEYS)] == [403] * WRONG_KEYS
        assert [status("203.0.113.1", key) for key in ("wrong", "right")] == [429, 429]
        assert [status("203.0.113.2", key) for key in ("right", "wrong")] == [200, 403]


@pytest.mark.parametrize(
    ("addresses", "clients"),
    [
        (["192.0.2.1", "192.0.2.2", "::ffff:192.0.2.1"], 2),
        (["2001:db8::1", "2001:db8::ffff:0:0:1", "2001:db8:0:1::1"], 2),
        (["fe80::1%eth0", "unknown", ""], 3),
    ],
)
def test_whom_limits_count(addresses: list[str], clients: int) -> None:
    requests = [Request({"type": "http", "client": (address, 1)}) for address in addresses]
    assert len({client_of(request) for request in requests}) == clients


LOCAL = ["localhost", "LOCALHOST:5000", "app.localhost:5000", "127.0.0.1:5000", "127.9.9.9", "[::1]:5000"]
FOREIGN = [
    "evil.example:5000", "localhost.evil.example", "evil.example.", "192.0.2.1", "[2001:db8::1]", "0.0.0.0:5000",
    "evil.example@localhost", "localhost/evil.example", "[::1]evil.example", "localhost:evil", "*", ".", ":5000",
]  # fmt: skip
OTHERS = {"host": "0.0.0.0"}
NAMED = {"allowed_hosts": ["Nice.example", "[2001:db8::1]"]}


@pytest.mark.parametrize(
    ("access", "hosts", "status"),
    [
        ({}, LOCAL, 200),
        ({}, FOREIGN, 403),
        ({"host": "::1"}, FOREIGN, 403),
        ({"host": "localhost"}, FOREIGN, 403),
        ({"public_url": "https://Nice.example/x"}, ["nice.example", *LOCAL], 200),
        ({"public_url": "https://nice.example/x"}, FOREIGN, 403),
        (NAMED, ["nice.example", "NICE.example.:80", "[2001:DB8::1]:80", *LOCAL], 200),
        (NAMED, ["x.nice.example", "evil.example", "192.0.2.1"], 403),
        (OTHERS, [*LOCAL, *FOREIGN], 200),
        (OTHERS | NAMED, ["nice.example:5000", *LOCAL], 200),
        (OTHERS | NAMED, ["x.nice.example", "evil.example", "192.0.2.1"], 403),
    ],
)
def test_the_hosts_that_are_served(access: dict[str, Any], hosts: list[str], status: int) -> None:
    with serving(**access) as client:
        found = {host: client.send("GET", "/languages", Host=host).status for host in hosts}
        assert found == dict.fromkeys(hosts, status)
        posted = {host: client.send("POST", "/translate", BODY, JSON, Host=host).status for host in hosts[:2]}
        assert posted == dict.fromkeys(hosts[:2], status)


@pytest.mark.parametrize(
    ("access", "origin", "status"),
    [
        ({}, "http://localhost", 200),
        ({}, "http://localhost:81", 403),
        ({}, "https://evil.example", 403),
        ({}, "null", 403),
        ({"cors": ["https://nice.example"]}, "https://nice.example", 200),
        ({"cors": ["https://nice.example"]}, "https://evil.example", 403),
        ({"cors": ["*"]}, "https://evil.example", 200),
        ({"public_url": "https://nice.example:443/x"}, "https://nice.example", 200),
        ({"public_url": "https://nice.example/x"}, "https://x.nice.example", 403),
    ],
)
def test_the_origins_that_may_correct(tmp_path: Path, access: dict[str, Any], origin: str, status: int) -> None:
    body = json.dumps({"q": "a", "s": "b", "source": "en", "target": "de"}).encode()
    with serving(memory=Memory(tmp_path / "m"), **access) as client:
        assert client.send("POST", "/suggest", body, JSON, Host="localhost", Origin=origin).status == status
        assert client.translate("a").json == {"translatedText": "b" if status == 200 else "a"}
        assert client.send("POST", "/translate", BODY, JSON, Host="localhost", Origin=origin).status == 200


def test_a_client_gets_its_requests_per_minute() -> None:
    now = [100.0]
    rate = RateLimit(6, lambda: now[0])
    assert [rate.take("a") for _ in range(6)] == [0.0] * 6
    assert rate.take("a") == pytest.approx(10)
    assert rate.take("b") == 0
    now[0] += 10
    assert rate.take("a") == 0
    assert rate.take("a") == pytest.approx(10)
    now[0] += 60
    assert [rate.take("a") for _ in range(6)] == [0.0] * 6


def test_clients_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REMEMBERED", 10)
    now = [100.0]
    rate = RateLimit(60, lambda: now[0])
    for i in range(1000):
        now[0] += 0.001
        rate.take(f"client {i}")
        assert len(rate._restored) <= 10
    now[0] += 60
    for _ in range(10):
        rate.take("last")
    assert list(rate._restored) == ["last"]


def test_a_file_without_keys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        Keys(tmp_path / "missing")
    (tmp_path / "empty").write_text("# none\n", encoding="utf-8")
    with pytest.raises(InputError):
        Keys(tmp_path / "empty")


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"cors": ["example.com/"]}, "https://example.com?"),
        ({"cors": ["https://a.example", "https://Example.com:443"]}, "https://example.com?"),
        ({"cors": ["http://[::1]:80/x"]}, "http://[::1]?"),
        ({"cors": ["https://a.example:port"]}, "cors"),
        ({"cors": ["https://k\u00f6ter.example"]}, "https://xn--kter-5qa.example?"),
        ({"trusted_proxy": ["*"]}, "trusted_proxy"),
        ({"trusted_proxy": ["10.0.0.1/8"]}, "trusted_proxy"),
        ({"public_url": "example.com"}, "public_url"),
        ({"public_url": "https://example.com/?a=b"}, "public_url"),
        ({"public_url": "ftp://example.com"}, "public_url"),
        ({"allowed_hosts": ["https://example.com/"]}, "allowed_hosts"),
        ({"allowed_hosts": ["a.example", "example.com:80"]}, "allowed_hosts"),
        ({"allowed_hosts": ["k\u00f6ter.example"]}, "allowed_hosts"),
        ({"allowed_hosts": ["*"]}, "allowed_hosts"),
        ({"allowed_hosts": [""]}, "allowed_hosts"),
    ],
)
def test_what_cannot_work_is_refused(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=re.escape(named)):
        Access(**wrong)


def test_what_can_work_is_accepted() -> None:
    Access(None, ["*", "https://a.example:8443", "http://[::1]:5000"], ["10.0.0.0/8", "::1"], "https://a.example/x/")
    Access(allowed_hosts=["a.example", "A.example", "my_pc", "192.0.2.1", "[2001:db8::1]"])
