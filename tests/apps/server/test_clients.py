"""LibreTranslate's free clients, which others wrote, against the server. A client that is not installed is skipped."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from services import DE_EN, EN_DE, Client, serving

from vtrans.apps.server.limits import Keys, Limits

GERMAN = "Der kleine Hund läuft durch den Park."


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(pairs=(EN_DE, DE_EN)) as served:
        yield served


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Client]:
    """A server that needs the key "secret" and allows two requests per minute."""
    file = tmp_path / "keys"
    file.write_text("secret\n", encoding="utf-8")
    with serving(keys=Keys(file), limits=Limits(per_minute=2)) as served:
        yield served


def installed(name: str) -> Any:
    """Returns a package; without it, the test is skipped."""
    project = name.replace("_", "-")
    return pytest.importorskip(name, reason=f"{project} is not installed: pip install {project}")


def test_libretranslatepy(client: Client, guarded: Client) -> None:
    package = installed("libretranslatepy")
    api = package.LibreTranslateAPI(client.url)
    assert api.translate("große Hunde", "de", "en") == "Hunde große"
    assert api.detect(GERMAN)[0]["language"] == "de"
    assert [language["code"] for language in api.languages()] == ["en", "de"]
    assert package.LibreTranslateAPI(guarded.url, "secret").translate("a b", "en", "de") == "b a"
    with pytest.raises(HTTPError) as refused:
        package.LibreTranslateAPI(guarded.url, "wrong").translate("a b", "en", "de")
    assert refused.value.code == 403
    refused.value.close()


def test_deep_translator(client: Client, guarded: Client) -> None:
    package = installed("deep_translator")
    options = {"source": "en", "target": "de", "api_key": "any", "custom_url": f"{client.url}/"}
    translator = package.LibreTranslator(**options)
    assert translator.translate("one two & three") == "three & two one"
    assert translator.translate_batch(["a b", "c d"]) == ["b a", "d c"]
    wrong = package.LibreTranslator(**{**options, "custom_url": f"{guarded.url}/"})
    with pytest.raises(package.exceptions.AuthorizationException):
        wrong.translate("a b")


def test_the_client_of_npm(client: Client) -> None:
    """Sends what the package libretranslate 1.0.1 sends: `apiKey` instead of `api_key`, which a server ignores."""
    assert client.translate("a b", "auto", format="text", apiKey="").json["translatedText"] == "b a"
