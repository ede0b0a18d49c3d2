"""DeepL's interface over HTTP: what its clients do not send, who owns what is stored, and what survives a kill."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from services import DE_EN, EN_DE, FORM, JSON, Client, Reply, reversed_words, serving

from vtrans.apps.documents.database import Database
from vtrans.apps.documents.document import Translated
from vtrans.apps.documents.memory import Memory
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.deepl import glossaries
from vtrans.apps.server.deepl.glossaries import MOST_CHARACTERS, Glossaries, dictionary_of
from vtrans.apps.server.limits import Keys, Limits, Refusal
from vtrans.translate.steps.line import Line

ONE, TWO = "DeepL-Auth-Key one", "DeepL-Auth-Key two"
DICTIONARY = {"source_lang": "en", "target_lang": "de", "entries": "dog\tHund", "entries_format": "tsv"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A server that needs one of the keys "one" and "two"."""
    keys = tmp_path / "keys"
    keys.write_text("one\ntwo\n", encoding="utf-8")
    with serving(pairs=(EN_DE, DE_EN), memory=Memory(tmp_path / "m"), keys=Keys(keys)) as served:
        yield served


def call(client: Client, method: str, path: str, key: str = ONE, **fields: Any) -> Reply:
    """Sends a request with a body in JSON if there are fields."""
    body = json.dumps(fields).encode() if fields else b""
    return client.send(method, path, body, JSON if fields else "", Authorization=key)


def translated(client: Client, text: Any, **fields: Any) -> Reply:
    return call(client, "POST", "/v2/translate", **{"text": text, "target_lang": "DE", "source_lang": "EN", **fields})


def test_a_form_says_the_same_as_json(client: Client) -> None:
    body = b"text=a+b&text=c+d&target_lang=de&source_lang=EN&preserve_formatting=1&split_sentences=0&context=x"
    form = client.send("POST", "/v2/translate", body, FORM, Authorization=ONE)
    assert [one["text"] for one in form.json["translations"]] == ["b a", "d c"]
    assert translated(client, ["a b", "c d"]).json == form.json
    assert translated(client, "").json["translations"][0]["text"] == ""
    unquoted = "text=größer als&target_lang=DE&source_lang=EN".encode()
    assert (
        client.send("POST", "/v2/translate", unquoted, FORM, Authorization=ONE).json["translations"][0]["text"]
        == "als größer"
    )
    assert client.send("POST", "/v2/translate", b"text=\xff", FORM, Authorization=ONE).status == 400
    query = client.send("GET", "/v2/languages?type=target", Authorization=ONE).json
    assert query == client.send("GET", "/v2/languages", b"type=target", FORM, Authorization=ONE).json
    english = {"language": "EN-GB", "name": "English (GB)", "supports_formality": True}
    assert english in query


def test_the_key_is_in_the_header(client: Client) -> None:
    for header in ("", "one", "DeepL-Auth-Key ", "DeepL-Auth-Key three", "Bearer one"):
        reply = call(client, "GET", "/v2/usage", header)
        assert (reply.status, list(reply.json)) == (403, ["message"])
    with serving() as open_to_all:  # where any key will do, a page of another site can send none
        assert open_to_all.form("/v2/translate", {"text": "a", "target_lang": "DE"}).status == 403
        assert call(open_to_all, "GET", "/v2/usage", TWO).status == 200


def test_a_glossary_belongs_to_a_key(client: Client) -> None:
    id = call(client, "POST", "/v3/glossaries", name="n", dictionaries=[DICTIONARY]).json["glossary_id"]
    for method, path, fields in (
        ("GET", f"/v2/glossaries/{id}", {}),
        ("GET", f"/v2/glossaries/{id}/entries", {}),
        ("GET", f"/v3/glossaries/{id}/entries?source_lang=en&target_lang=de", {}),
        ("PATCH", f"/v3/glossaries/{id}", {"name": "mine"}),
        ("PUT", f"/v3/glossaries/{id}/dictionaries", DICTIONARY),
        ("DELETE", f"/v3/glossaries/{id}/dictionaries?source_lang=en&target_lang=de", {}),
        ("DELETE", f"/v2/glossaries/{id}", {}),
        ("POST", "/v2/translate", {"text": "a", "source_lang": "EN", "target_lang": "DE", "glossary_id": id}),
    ):
        assert call(client, method, path, TWO, **fields).status == 404
    for version in ("v2", "v3"):
        assert call(client, "GET", f"/{version}/glossaries", TWO).json == {"glossaries": []}
    entries = client.send("GET", f"/v2/glossaries/{id}/entries", Authorization=ONE, Accept="text/tab-separated-values")
    assert (entries.body, entries.headers["content-type"].partition(";")[0]) == (
        b"dog\tHund",
        "text/tab-separated-values",
    )


def test_a_key_has_room_for_so_many_glossaries(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    fields: dict[str, Any] = {"name": "n", "dictionaries": [DICTIONARY]}
    id = call(client, "POST", "/v3/glossaries", **fields).json["glossary_id"]
    monkeypatch.setattr(glossaries, "MOST_GLOSSARIES", 1)
    assert call(client, "POST", "/v3/glossaries", **fields).status == 456
    assert call(client, "POST", "/v3/glossaries", TWO, **fields).status == 201
    assert call(client, "PATCH", f"/v3/glossaries/{id}", name="m").status == 200
    monkeypatch.setattr(glossaries, "MOST_TEXT", 50)
    long = {**DICTIONARY, "entries": f"cat\t{'x' * 50}"}
    assert call(client, "PUT", f"/v3/glossaries/{id}/dictionaries", **long).status == 456
    assert call(client, "GET", f"/v3/glossaries/{id}").json["dictionaries"][0]["entry_count"] == 1


def test_other_threads_use_the_file_while_a_glossary_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Database(None)
    stored = Glossaries(file)
    stored.put("one", glossaries.StoredGlossary("id", "n", "now", {EN_DE: dictionary_of("dog\tHund", "tsv")}))
    read = glossaries._glossary

    def meanwhile(*row: str) -> glossaries.StoredGlossary:
        other = threading.Thread(target=file.rows, args=["SELECT owner FROM characters"], daemon=True)
        other.start()
        other.join(timeout=10)
        assert not other.is_alive()
        return read(*row)

    monkeypatch.setattr(glossaries, "_glossary", meanwhile)
    assert stored.get("one", "id") == stored.all_of("one")[0]


def test_entries() -> None:
    assert dictionary_of(" a b \t c|d \r\n\r\n'x\t\"y", "tsv").pairs == (("a b", ("c|d",)), ("'x", ('"y',)))
    assert dictionary_of('"a ""b"", c",d\n"e",f,en,de', "csv").pairs == (('a "b", c', ("d",)), ("e", ("f",)))
    long = "x" * (MOST_CHARACTERS + 1)
    for text in ("a", "a\t", "\tb", "a\tb\tc", "a\tb\na\tc", "a\x01\tb", f"{long}\tb", "\n"):
        with pytest.raises(Refusal, match="entries"):
            dictionary_of(text, "tsv")
    for text in ("a", "a,b,c", '"a,b', '"a"b,c', "a,"):
        with pytest.raises(Refusal, match="entries"):
            dictionary_of(text, "csv")


def test_a_correction_belongs_to_a_key(client: Client) -> None:
    correction = {"q": "A dog.", "s": "Ein Hund.", "source": "en", "target": "de", "api_key": "one"}
    assert client.post("/suggest", **correction).status == 200
    assert translated(client, "A dog.").json["translations"][0]["text"] == "Ein Hund."
    assert client.translate("A dog.", api_key="one").json["translatedText"] == "Ein Hund."
    assert client.translate("A dog.", api_key="two").json["translatedText"] == "dog. A"


def test_a_document_that_is_not_ready() -> None:
    go = threading.Event()

    def waiting(lines: Sequence[Line], options: RequestOptions, ready: object) -> list[list[Translated]]:
        assert go.wait(30)
        return reversed_words(lines, options)

    form = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\na b\r\n--x\r\n'
    form += b'Content-Disposition: form-data; name="target_lang"\r\n\r\nDE\r\n--x--\r\n'
    with serving(translate=waiting, limits=Limits(requests=3)) as client:
        kind = "multipart/form-data; boundary=x"
        upload = client.send("POST", "/v2/document", form, kind, Authorization=ONE).json
        path, key = f"/v2/document/{upload['document_id']}", {"document_key": upload["document_key"]}
        assert call(client, "POST", f"{path}/result", **key).status == 503
        status = call(client, "POST", path, **key).json
        assert (status["status"], status["seconds_remaining"] > 0) == ("translating", True)
        go.set()
        while call(client, "POST", path, **key).json["status"] != "done":
            pass
        result = call(client, "POST", f"{path}/result", **key)
        assert (result.body, "a.de.txt" in result.headers["content-disposition"]) == (b"b a", True)
        assert call(client, "POST", path).status == 404
        assert client.send("POST", "/v2/document", b"--x--\r\n", kind, Authorization=ONE).status == 400


def test_what_is_stored_survives_a_kill(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from vtrans.text.languages import Languages\n"
        "from vtrans.apps.documents.database import Database\n"
        "from vtrans.apps.documents.memory import Memory\n"
        "from vtrans.apps.server.deepl.glossaries import Glossaries, StoredGlossary\n"
        "from vtrans.apps.server.limits import Usage\n"
        "from vtrans.translate.wording.glossary import Glossary\n"
        "path, languages, n = Path(sys.argv[1]), Languages('en', 'de'), 0\n"
        "glossaries, usage = Glossaries(Database(path)), Usage(Database(path, durable=False), 0)\n"
        "memory = Memory(path)\n"
        "while True:\n"
        "    terms = Glossary(tuple((f't{i}', ('x',)) for i in range(n + 1)))\n"
        "    glossaries.put('me', StoredGlossary('id', f'{n}', 'now', {languages: terms}))\n"
        "    with usage.counted('me', ['x']): pass\n"
        "    memory.add(languages, f'{n}', f'x{n}')\n"
        "    n += 1; print(n, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "m")], stdout=subprocess.PIPE) as process:
        assert process.stdout
        for _ in range(20):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        done = 20 + len(process.stdout.read().split())
    file = Database(tmp_path / "m")
    (glossary,) = Glossaries(file).all_of("me")
    terms = glossary.dictionaries[EN_DE].pairs
    ((number,),) = file.rows("SELECT CAST(number AS TEXT) FROM characters")
    assert len(terms) == int(glossary.name) + 1
    assert len(terms) - done in (0, 1)
    assert int(number) - done in (0, 1)
    file.close()
    memory = Memory(tmp_path / "m")
    assert all(memory.get(EN_DE, f"{n}") == f"x{n}" for n in range(done))
    assert len(memory) - done in (0, 1)
    memory.close()
