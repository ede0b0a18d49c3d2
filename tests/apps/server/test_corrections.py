"""Corrections: what /suggest stores, and what later requests get."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from cli_runner import Run
from corpora import snapshot
from services import DE_EN, EN_DE, FORM, Client, serving

from vtrans.apps.documents.document import Translated
from vtrans.apps.documents.memory import Memory
from vtrans.apps.documents.pairs import PairCollector
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.limits import Keys
from vtrans.system.errors import FileError
from vtrans.text.languages import Languages
from vtrans.translate.steps.line import Line


@contextmanager
def correcting(path: Path, **options: object) -> Iterator[Client]:
    with serving(memory=Memory(path), pairs=(EN_DE, DE_EN), **options) as client:  # type: ignore[arg-type]  # of serving
        yield client


def suggest(client: Client, q: str, s: str, **fields: str) -> int:
    return client.post("/suggest", **{"q": q, "s": s, "source": "en", "target": "de", **fields}).status


def text(client: Client, q: str, **fields: str) -> str:
    return str(client.translate(q, **fields).json["translatedText"])


def test_a_correction_is_what_the_next_request_returns(tmp_path: Path) -> None:
    with correcting(tmp_path / "m") as client:
        assert client.get("/frontend/settings").json["suggestions"]
        assert text(client, "A big dog.") == "dog. big A"
        assert suggest(client, "A big dog.", " Ein Hund. ") == 200
        assert text(client, "A big dog.") == "Ein Hund."
        assert text(client, "  A big dog.\n") == "  Ein Hund.\n"
        assert text(client, "A big dog. A cat.") == "Ein Hund. cat. A"
        assert text(client, "<p>A big dog.</p><b>A big</b> cat", format="html") == "<p>Ein Hund.</p>cat <b>big A</b>"
        assert text(client, "A big dog.", source="de", target="en") == "dog. big A"
        assert suggest(client, "A big dog.", "Ein großer Hund.") == 200
        assert text(client, "A big dog.") == "Ein großer Hund."
        assert suggest(client, "One. Two.\nThree.", "Eins!") == 200
        assert text(client, "One. Two.\nThree.") == "Eins!"
        assert suggest(client, "A cow. A hen.", "Eine Kuh. Ein Huhn.") == 200
        assert text(client, "A hen. A pig.") == "Ein Huhn. pig. A"
    with correcting(tmp_path / "m") as client:
        assert text(client, "A big dog.") == "Ein großer Hund."


def test_a_correction_is_text_and_no_markup(tmp_path: Path) -> None:
    with correcting(tmp_path / "m") as client:
        assert suggest(client, "Cats and dogs", "A & B <i>") == 200
        assert text(client, "Cats and dogs") == "A & B <i>"
        for markup in ("Cats and dogs", "<p>Cats and dogs</p>"):
            assert "A &amp; B &lt;i&gt;" in text(client, markup, format="html")


def with_matches(lines: Sequence[Line], options: RequestOptions, ready: object) -> list[list[Translated]]:
    """Translates a line as its match."""
    return [[Translated(line.match[0] if line.match else "none", ())] for line in lines]


def test_a_correction_is_a_match_for_the_next_request(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "m")
    memory.add(EN_DE, "a big dog runs", "ein Hund läuft")
    with correcting(tmp_path / "m", translate=with_matches, fuzzy=[EN_DE]) as client:
        assert text(client, "a big cat runs") == "ein Hund läuft"
        assert text(client, "a cat") == "none"
        assert suggest(client, "A big cat sleeps. See {x}.", "Eine Katze schläft. Siehe {x}.") == 200
        assert text(client, "a big cat") == "Eine Katze schläft."
        assert text(client, "a <b>big</b> cat", format="html").startswith("Eine Katze")
        assert text(client, "See {name}.") == "Siehe A1."
        assert text(client, "a big cat", source="de", target="en") == "none"


def test_without_a_memory_corrections_are_refused() -> None:
    with serving() as client:
        assert suggest(client, "a", "b") == 403
        assert not client.get("/frontend/settings").json["suggestions"]


def test_a_page_of_another_site_cannot_correct(tmp_path: Path) -> None:
    """A browser sends forms to other sites without asking them, and names the page's origin."""
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    form = {"q": "a", "s": "b", "source": "en", "target": "de"}
    with correcting(tmp_path / "m") as client:
        for origin in ("https://evil.example", "null"):
            assert client.send("POST", "/suggest", urlencode(form).encode(), FORM, Origin=origin).status == 403
            assert client.send("POST", f"/suggest?{urlencode(form)}", kind="text/plain", Origin=origin).status == 403
    with correcting(tmp_path / "m", keys=Keys(keys)) as client:
        assert client.form("/suggest", form).status == 403
        assert client.send("POST", "/suggest", urlencode({**form, "api_key": "secret"}).encode(), FORM).status == 200


@pytest.mark.parametrize(
    "words",
    [
        ["--host", "0.0.0.0"],
        ["--cors", "*"],
        ["--cors", "*", "--allowed-hosts", "a.example"],
        ["--trusted-proxy", "10.0.0.1"],
        ["--public-url", "https://a.example"],
    ],
)
def test_a_server_that_others_reach_needs_keys_for_a_memory(run_cli: Run, tmp_path: Path, words: list[str]) -> None:
    done = run_cli("serve", "--memory", tmp_path / "m", *words)
    assert done.code == 2
    assert "--api-keys" in done.err
    assert not (tmp_path / "m").exists()


def test_a_memory_becomes_training_text(run_cli: Run, tmp_path: Path) -> None:
    memory = Memory(tmp_path / "m")
    memory.add(EN_DE, 'a < b & "c"', "das\x01 & <")
    memory.add(EN_DE, "A dog.", "Ein Hund.")
    memory.add(DE_EN, "Eine Katze.", "A cat.")
    done = run_cli("memory", tmp_path / "m", "--output", tmp_path / "m.tmx")
    assert done.code == 0, done.err
    collector = PairCollector(Languages("en", "de"))
    collector.add("m.tmx", (tmp_path / "m.tmx").read_bytes(), 10**6)
    assert sorted(collector.pairs)[:1] == [("A cat.", "Eine Katze.")]
    assert ("A dog.", "Ein Hund.") in collector.pairs
    assert len(collector.pairs) == 3


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + bytes(500), "another database", None])
def test_a_file_that_is_no_memory_is_refused_and_left_alone(
    run_cli: Run, tmp_path: Path, content: bytes | str | None
) -> None:
    path = tmp_path / "m"
    if content is None:
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE mine (a)")
    before = snapshot(tmp_path)
    with pytest.raises(FileError, match=str(path)):
        Memory(path)
    done = run_cli("memory", path)
    assert (done.code, str(path) in done.err) == (2, True)
    assert snapshot(tmp_path) == before
