"""LibreTranslate's interface over a real connection and a fake model, as clients call it that others wrote."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from services import DE_EN, EN_DE, FORM, JSON, Blocked, Client, serving

from vtrans.apps.documents.document import Translated
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.limits import Keys, Limits
from vtrans.system.errors import InputError
from vtrans.translate.steps.line import Line


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving() as served:
        yield served


@pytest.fixture(scope="module")
def both_ways() -> Iterator[Client]:
    with serving(pairs=(EN_DE, DE_EN)) as served:
        yield served


def test_json_forms_and_query_ask_for_the_same(client: Client) -> None:
    fields = {"q": "große Hunde", "source": "en", "target": "de", "format": "text", "alternatives": 1}
    query = "q=gro%C3%9Fe+Hunde&source=en&target=de&format=text&alternatives=1"
    parts = [f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{v}\r\n' for name, v in fields.items()]
    sent = [
        client.send("POST", "/translate", json.dumps(fields).encode(), JSON),
        client.send("POST", "/translate", json.dumps(fields).encode(), "application/json; charset=utf-8"),
        client.send("POST", "/translate", query.encode(), FORM),
        client.send("POST", f"/translate?{query}"),
        client.send("POST", "/translate", "".join([*parts, "--x--\r\n"]).encode(), "multipart/form-data; boundary=x"),
    ]
    for reply in sent:
        assert reply.status == 200
        assert reply.json == {"translatedText": "Hunde große", "alternatives": ["1 Hunde große"]}


@pytest.mark.parametrize(
    "text", ["1 2 3", "5 % - 7 %", "12. 30", "A-17 B-18", "{a} 5 {b}", "https://a.example 7", "☃ ☃ !"]
)
def test_text_without_words_stays_as_it_is(client: Client, text: str) -> None:
    assert client.translate(text).json == {"translatedText": text}
    words = f"The dog runs.\n{text}\nThe cat sleeps."
    reply = client.translate(words, alternatives=1, alignments=True).json
    assert reply["translatedText"] == f"runs. dog The\n{text}\nsleeps. cat The"
    assert {words[a:b] for a, b, _, _ in reply["alignments"]} == set(words.split())
    assert client.translate(f"<td>1 <b>2</b></td><td>{text}</td><td>a b</td>", format="html").json == {
        "translatedText": f"<td>1 <b>2</b></td><td>{text}</td><td>b a</td>"
    }


def test_a_language_is_detected_for_auto_only(both_ways: Client) -> None:
    german = both_ways.translate("Der kleine Hund läuft durch den Park.", source="auto", target="en").json
    assert german["detectedLanguage"]["language"] == "de"
    assert 50 < german["detectedLanguage"]["confidence"] <= 100
    assert german["translatedText"] == "Park. den durch läuft Hund kleine Der"
    assert "detectedLanguage" not in both_ways.translate("Der kleine Hund", source="de", target="en").json


def test_each_text_of_a_list_goes_to_the_model_of_its_language(both_ways: Client) -> None:
    texts = ["Der kleine Hund läuft durch den Park.", "The little dog runs through the park."]
    reply = both_ways.translate(texts, source="auto", target="en").json
    assert [detected["language"] for detected in reply["detectedLanguage"]] == ["de", "en"]
    assert reply["translatedText"] == ["Park. den durch läuft Hund kleine Der", texts[1]]


def test_languages(both_ways: Client) -> None:
    assert both_ways.get("/languages").json == [
        {"code": "en", "name": "English", "targets": ["de"], "formality": ["de"], "confidence": ["de"]},
        {"code": "de", "name": "German", "targets": ["en"], "formality": ["en"], "confidence": ["en"]},
    ]


def test_detect_returns_the_served_languages_best_first(both_ways: Client) -> None:
    detections = both_ways.post("/detect", q="The little dog runs through the park.").json
    assert [one["language"] for one in detections] == ["en", "de"]
    assert detections[0]["confidence"] > 50 > detections[1]["confidence"]
    assert both_ways.form("/detect", {"q": "12"}).json == [{"language": "en", "confidence": 0.0}]


def test_a_failure_answers_500_and_its_text_is_not_logged() -> None:
    def broken(lines: list[str], wanted: object, ready: object) -> None:
        raise ValueError(f"cannot translate {lines}")

    with serving(translate=broken) as client:
        reply = client.translate("a secret")
        assert reply.status == 500
        assert "secret" not in reply.body.decode()
        (warning,) = client.warnings
        assert "ValueError" in warning
        assert "secret" not in warning


def test_a_request_that_takes_too_long_is_refused_and_its_search_ends() -> None:
    model = Blocked()
    with serving(translate=model, limits=Limits(timeout=0.2)) as client:
        reply = client.translate("never")
        assert reply.status == 504
        assert "0.2" in reply.json["error"]
        assert model.ended.wait(30)
        assert client.translate("a b").json == {"translatedText": "b a"}
        assert client.warnings == []


def test_a_key_is_needed_if_the_server_has_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\n  first-key \n\nzweiter-schlüssel\n", encoding="utf-8")
    with serving(keys=Keys(file)) as client:
        for wrong in ("", "first-ke", "# ours"):
            assert client.translate("a b", api_key=wrong).status == 403
        assert client.translate("a b", api_key="first-key").json == {"translatedText": "b a"}
        assert client.translate("a b", api_key="zweiter-schlüssel").status == 200
        assert client.form("/detect", {"q": "a", "api_key": "wrong"}).status == 403
        assert client.get("/languages").status == 200
        assert client.get("/frontend/settings").json["keyRequired"] is True


def test_requests_are_limited_per_minute_and_address_which_only_a_trusted_proxy_may_send() -> None:
    def statuses(**access: Any) -> list[int]:
        with serving(limits=Limits(per_minute=1), **access) as client:
            body = json.dumps({"q": "a", "source": "en", "target": "de"}).encode()
            sent = (("X_Forwarded_For", address) for address in ("203.0.113.1", "203.0.113.2", "203.0.113.1"))
            replies = [client.send("POST", "/translate", body, JSON, **{name: value}) for name, value in sent]
            assert all(1 <= int(r.headers["Retry-After"]) <= 60 for r in replies if r.status == 429)
            return [reply.status for reply in replies]

    assert statuses() == [200, 429, 429]
    assert statuses(trusted_proxy=["192.0.2.1"]) == [200, 429, 429]
    assert statuses(trusted_proxy=["127.0.0.0/8"]) == [200, 200, 429]


def test_other_sites_may_call_only_if_asked_for() -> None:
    with serving() as client:
        assert (
            client.send("GET", "/languages", Origin="https://a.example").headers["Access-Control-Allow-Origin"] is None
        )
    with serving(cors=["https://a.example"]) as client:
        allowed = client.send("GET", "/languages", Origin="https://a.example").headers["Access-Control-Allow-Origin"]
        assert allowed == "https://a.example"
        other = client.send("GET", "/languages", Origin="https://b.example")
        assert other.headers["Access-Control-Allow-Origin"] is None


def test_metrics_count_requests_and_sentences_without_their_text(client: Client) -> None:
    client.translate("a secret. Another secret.")
    client.translate("x", target="zz")
    text = client.get("/metrics").body.decode()
    figures = dict(line.rsplit(" ", 1) for line in text.split("\n") if line and not line.startswith("#"))
    assert float(figures['vtrans_requests_total{path="/translate",status="400"}']) >= 1
    assert float(figures['vtrans_sentences_total{source="en",target="de"}']) >= 2
    count = figures['vtrans_request_seconds_count{path="/translate"}']
    assert figures['vtrans_request_seconds_bucket{path="/translate",le="+Inf"}'] == count
    assert float(figures['vtrans_request_seconds_bucket{path="/translate",le="30.0"}']) <= float(count)
    assert figures["vtrans_requests_in_progress"] == "0"
    assert "secret" not in text


def test_every_answer_forbids_guessing_its_type_and_json_may_have_a_byte_order_mark(client: Client) -> None:
    body = b'\xef\xbb\xbf{"q": "one two", "source": "en", "target": "de"}'
    reply = client.send("POST", "/translate", body, JSON)
    assert reply.json["translatedText"] == "two one"
    for answer in (reply, client.get("/"), client.get("/languages"), client.get("/metrics")):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def rated(lines: Sequence[Line], options: RequestOptions, ready: object) -> list[list[Translated]]:
    """Writes the form of address before the words, which get confidences of 0, 0.1, 0.2 and so on if asked for."""
    found = []
    for line in lines:
        text = f"{options.formality} {line.text}" if options.formality else line.text
        values = tuple(k / 10 for k in range(len(text.split()))) if options.confidence else None
        found.append([Translated(text, word_confidences=values)])
    return found


def test_words_get_a_confidence_if_a_request_asks_for_it() -> None:
    with serving(translate=rated) as client:
        text = "A \U0001f600 dog runs.  The cat.\n5\nOne"
        reply = client.translate(text, confidence=True).json
        assert reply["translatedText"] == text
        words = [(text[begin:end], value) for begin, end, value in reply["confidences"]]
        assert words == [
            *zip(["A", "😀", "dog", "runs.", "The", "cat.", "One"], [0, 0.1, 0.2, 0.3, 0, 0.1, 0], strict=True)
        ]
        assert "confidences" not in client.translate(text).json
        assert client.translate("<b>a b</b>", format="html", confidence=True).json["confidences"] == []


def test_what_a_model_cannot_do_is_refused_and_not_listed() -> None:
    def check(options: RequestOptions) -> None:
        if options.formality or options.confidence:
            raise InputError("not learned")

    with serving(check=check) as client:
        listed = client.get("/languages").json[0]
        assert (listed["formality"], listed["confidence"]) == ([], [])
        assert client.translate("dog", formality="more").status == 400
        assert client.translate("dog", confidence=True).status == 400


def test_text_on_the_page_has_its_own_direction(client: Client) -> None:
    fields = re.findall('<[^>]* class="text"[^>]*>', client.get("/").body.decode())
    assert len(fields) == 4
    assert all(' dir="auto"' in field for field in fields)


GERMAN = "Der kleine Hund läuft durch den Park."


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


def test_libretranslatepy(both_ways: Client, guarded: Client) -> None:
    package = installed("libretranslatepy")
    api = package.LibreTranslateAPI(both_ways.url)
    assert api.translate("große Hunde", "de", "en") == "Hunde große"
    assert api.detect(GERMAN)[0]["language"] == "de"
    assert [language["code"] for language in api.languages()] == ["en", "de"]
    assert package.LibreTranslateAPI(guarded.url, "secret").translate("a b", "en", "de") == "b a"
    with pytest.raises(HTTPError) as refused:
        package.LibreTranslateAPI(guarded.url, "wrong").translate("a b", "en", "de")
    assert refused.value.code == 403
    refused.value.close()


def test_deep_translator(both_ways: Client, guarded: Client) -> None:
    package = installed("deep_translator")
    options = {"source": "en", "target": "de", "api_key": "any", "custom_url": f"{both_ways.url}/"}
    translator = package.LibreTranslator(**options)
    assert translator.translate("one two & three") == "three & two one"
    assert translator.translate_batch(["a b", "c d"]) == ["b a", "d c"]
    wrong = package.LibreTranslator(**{**options, "custom_url": f"{guarded.url}/"})
    with pytest.raises(package.exceptions.AuthorizationException):
        wrong.translate("a b")


def test_the_client_of_npm(both_ways: Client) -> None:
    """Sends what the package libretranslate 1.0.1 sends: `apiKey` instead of `api_key`, which a server ignores."""
    assert both_ways.translate("a b", "auto", format="text", apiKey="").json["translatedText"] == "b a"
