"""Requests per minute, API keys, and who may use the server."""

import re
from pathlib import Path
from typing import Any

import pytest

from vtrans.apps.server import limits
from vtrans.apps.server.access import Access
from vtrans.apps.server.limits import Keys, RateLimit
from vtrans.system.errors import FileError, InputError


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


def test_without_a_limit_nothing_is_counted() -> None:
    rate = RateLimit(0)
    assert [rate.take("a") for _ in range(100)] == [0.0] * 100


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


def test_keys_are_lines(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# comment\n\n  one  \ntwo\n", encoding="utf-8")
    keys = Keys(file)
    given = ("one", "two", "", "# comment", "on", "\ud800")
    assert [keys.owner(key) is not None for key in given] == [True, True, False, False, False, False]


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
        ({"cors": [""]}, "cors"),
        ({"cors": ["https://k\u00f6ter.example"]}, "https://xn--kter-5qa.example?"),
        ({"trusted_proxy": ["*"]}, "trusted_proxy"),
        ({"trusted_proxy": ["proxy.example"]}, "trusted_proxy"),
        ({"trusted_proxy": ["10.0.0.1/8"]}, "trusted_proxy"),
        ({"public_url": "example.com"}, "public_url"),
        ({"public_url": "https://example.com/?a=b"}, "public_url"),
        ({"public_url": "ftp://example.com"}, "public_url"),
        ({"allowed_hosts": ["https://example.com/"]}, "allowed_hosts"),
        ({"allowed_hosts": ["a.example", "example.com:80"]}, "allowed_hosts"),
        ({"allowed_hosts": ["k\u00f6ter.example"]}, "allowed_hosts"),
        ({"allowed_hosts": ["*"]}, "allowed_hosts"),
        ({"allowed_hosts": ["*.example.com"]}, "allowed_hosts"),
        ({"allowed_hosts": [""]}, "allowed_hosts"),
    ],
)
def test_what_cannot_work_is_refused(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=re.escape(named)):
        Access(**wrong)


def test_what_can_work_is_accepted() -> None:
    Access(None, ["*", "https://a.example:8443", "http://[::1]:5000"], ["10.0.0.0/8", "::1"], "https://a.example/x/")
    Access(allowed_hosts=["a.example", "A.example", "my_pc", "192.0.2.1", "[2001:db8::1]"])
