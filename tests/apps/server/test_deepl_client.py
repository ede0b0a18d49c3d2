"""DeepL's own client for Python against the server: every method of the interface that the server has."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from services import DE_EN, EN_DE, Client, reversed_words, serving

from vtrans.apps.documents.document import Translated
from vtrans.apps.documents.memory import Memory
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.limits import Keys, Limits
from vtrans.system.errors import InputError
from vtrans.text.languages import Languages
from vtrans.translate.steps.line import Line

deepl: Any = pytest.importorskip("deepl", reason="deepl is not installed: pip install deepl")

EN_PT = Languages("en", "pt-BR")
TERMS = {"dog": "Hund", "cat | tom": "Katze"}


def with_glossary(lines: Sequence[Line], options: RequestOptions, ready: object) -> list[list[Translated]]:
    """Translates lines as their words in reverse order, with the terms of the glossary in their places and the form of
    address in front."""

    def changed(translated: Translated) -> Translated:
        text = translated.text
        for term, forms in options.glossary.pairs if options.glossary else ():
            text = text.replace(term, forms[0])
        return Translated(f"{options.formality}: {text}" if options.formality else text, translated.alignment)

    return [[changed(one) for one in nbest] for nbest in reversed_words(lines, options)]


def check(options: RequestOptions) -> None:
    if options.formality:
        raise InputError("`formality` needs another model.")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Client]:
    """A server that needs one of the keys "one" and "two"."""
    keys = tmp_path / "keys"
    keys.write_text("one\ntwo\n", encoding="utf-8")
    memory = Memory(tmp_path / "memory")
    pairs = (EN_DE, DE_EN, EN_PT)
    with serving(translate=with_glossary, check=check, pairs=pairs, memory=memory, keys=Keys(keys)) as client:
        yield client


@pytest.fixture
def client(server: Client) -> Iterator[Any]:
    with connected(server, "one") as made:
        yield made


@contextmanager
def connected(server: Client, key: str) -> Iterator[Any]:
    """Yields a client with a key."""
    client = deepl.DeepLClient(key, server_url=server.url)
    try:
        yield client
    finally:
        client.close()


def test_texts(client: Any) -> None:
    assert client.translate_text("one two", target_lang="DE").text == "two one"
    both = client.translate_text(["The dog sleeps here.", "The cat runs there."], source_lang="EN", target_lang="de")
    assert [one.text for one in both] == ["here. sleeps dog The", "there. runs cat The"]
    assert [one.billed_characters for one in both] == [20, 19]
    found = client.translate_text("Der kleine Hund läuft durch den Park.", target_lang="EN-US")
    assert found.detected_source_lang == "DE"
    assert found.text.startswith("Park. den")
    options = {"context": "A story.", "preserve_formatting": True, "model_type": "prefer_quality_optimized"}
    result = client.translate_text("a b", source_lang="EN", target_lang="PT-BR", formality="default", **options)
    assert (result.text, result.model_type_used) == ("b a", "quality_optimized")
    for split, text in (("0", "there dog. big A"), ("1", "dog. big A\nthere"), ("nonewlines", "dog. big A\nthere")):
        assert (
            client.translate_text("A big dog.\nthere", source_lang="EN", target_lang="DE", split_sentences=split).text
            == text
        )


def test_tags(client: Any) -> None:
    def translated(text: str, handling: str = "xml", **options: Any) -> str:
        return str(
            client.translate_text(text, source_lang="EN", target_lang="DE", tag_handling=handling, **options).text
        )

    assert translated("a <b>big &amp; c</b> dog") == "dog <b>c &amp; big</b> a"
    assert translated('see <x id="1"></x>', ignore_tags="x") == '<x id="1"></x> see'
    assert translated("<p>a b</p><p>c d</p>") == "<p>b a</p><p>d c</p>"
    assert translated("<p>a b</p><p>c d</p>", non_splitting_tags="p", outline_detection=False).count("<p>") == 2
    assert translated("a b<s/>c d", splitting_tags=["s", "t"]) == "b a<s/>d c"
    assert translated("a <b>big</b><br>c d", "html") == "<b>big</b> a<br>d c"
    assert translated("see <k>this one</k> dog", "html", ignore_tags=["k"]) == "dog <k>this one</k> see"
    with pytest.raises(deepl.DeepLException, match="XML"):
        translated("a < b")


def test_languages_and_usage(client: Any) -> None:
    assert [(one.code, one.name) for one in client.get_source_languages()] == [("EN", "English"), ("DE", "German")]
    targets = {one.code: one.supports_formality for one in client.get_target_languages()}
    assert targets == {"DE": False, "EN-GB": False, "EN-US": False, "PT-BR": False}
    pairs = [(pair.source_lang, pair.target_lang) for pair in client.get_glossary_languages()]
    assert pairs == [("en", "de"), ("de", "en"), ("en", "pt")]
    client.translate_text(["abc", "de"], source_lang="EN", target_lang="DE")
    usage = client.get_usage()
    assert (usage.character.count, usage.character.limit_reached) == (5, False)


def test_what_is_wrong_is_said(client: Any, server: Client) -> None:
    wrong: list[dict[str, Any]] = [
        {"target_lang": "PT-PT"},
        {"source_lang": "XX"},
        {"formality": "invalid"},
        {"formality": "more"},
        {"split_sentences": "2"},
        {"tag_handling": "json"},
        {"style_rule": "some"},
    ]
    for one in wrong:
        (name,) = one
        with pytest.raises(deepl.DeepLException, match=name.replace("rule", "id")) as raised:
            client.translate_text("a", **{"source_lang": "EN", "target_lang": "DE", **one})
        assert raised.value.http_status_code == 400
    assert client.translate_text("a b", source_lang="EN", target_lang="DE", formality="prefer_less").text == "b a"
    with connected(server, "wrong") as other, pytest.raises(deepl.AuthorizationException, match="key"):
        other.get_usage()
    with pytest.raises(deepl.DeepLException, match="Not found"):
        client.rephrase_text("a")


def test_a_quota_per_month(tmp_path: Path) -> None:
    for used in (0, 3):  # it is still known when the server starts again
        limits = Limits(month_characters=5)
        with serving(limits=limits, memory=Memory(tmp_path / "m")) as server, connected(server, "any") as client:
            assert client.get_usage().character.count == used
            assert client.get_usage().character.limit == 5
            if used:
                with pytest.raises(deepl.QuotaExceededException, match="at most 5"):
                    client.translate_text("abc", source_lang="EN", target_lang="DE")
                assert server.translate("abc").status == 456
            else:
                client.translate_text("abc", source_lang="EN", target_lang="DE")


def test_documents(client: Any, server: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text("one two", encoding="utf-8")
    status = client.translate_document_from_filepath(source, target, target_lang="DE", source_lang="EN")
    assert target.read_text(encoding="utf-8") == "two one"
    assert (status.done, status.billed_characters) == (True, 7)
    made = io.BytesIO()
    with source.open("rb") as opened:
        client.translate_document(opened, made, target_lang="DE")
    assert made.getvalue() == b"two one"
    glossary = client.create_glossary("animals", "EN", "DE", TERMS)
    options = {"source_lang": "EN", "target_lang": "DE", "glossary": glossary}
    handle = client.translate_document_upload("<p>the dog</p>", filename="a.html", **options)
    assert client.translate_document_wait_until_done(handle).done
    assert client.translate_document_get_status(handle).ok
    assert client.translate_document_download(handle).content == b"<p>Hund the</p>"
    with connected(server, "two") as other, pytest.raises(deepl.DeepLException, match="Not found"):
        other.translate_document_get_status(handle)
    wrong = deepl.DocumentHandle(handle.document_id, "0" * 64)
    with pytest.raises(deepl.DeepLException, match="Not found"):
        client.translate_document_get_status(wrong)
    for name, options in (("a.exe", {}), ("a.txt", {"output_format": "pdf"})):
        with pytest.raises(deepl.DeepLException, match="Bad request"):
            client.translate_document_upload("x", filename=name, target_lang="DE", **options)
    assert client.get_usage().character.count == 28


def test_a_document_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(lines: Sequence[Line], options: RequestOptions, ready: object) -> list[list[Translated]]:
        raise InputError("always")

    monkeypatch.setattr(deepl.http_client, "max_network_retries", 0)
    with serving(translate=failing) as server, connected(server, "any") as client:
        handle = client.translate_document_upload("a b", filename="a.txt", source_lang="EN", target_lang="DE")
        assert client.translate_document_wait_until_done(handle).error_message
        with pytest.raises(deepl.DeepLException, match="Not found"):
            client.translate_document_download(handle)


def test_glossaries(client: Any) -> None:
    made = client.create_glossary("animals", "EN", "DE", TERMS)
    assert (made.ready, made.entry_count, made.source_lang, made.target_lang) == (True, 2, "EN", "DE")
    table = '"a, b","A ""B"""\r\nc,C\r\n\r\n'
    other = client.create_glossary_from_csv("table", "EN", "PT-BR", table)
    assert client.get_glossary_entries(other) == {"a, b": 'A "B"', "c": "C"}
    assert client.get_glossary(made.glossary_id).name == "animals"
    assert [one.name for one in client.list_glossaries()] == ["animals", "table"]
    assert client.get_glossary_entries(made) == TERMS
    assert client.translate_text_with_glossary("the dog runs.", made).text == "runs. Hund the"
    assert client.translate_text("a dog", source_lang="EN", target_lang="DE", glossary=made).text == "Hund a"
    client.delete_glossary(made)
    assert [one.name for one in client.list_glossaries()] == ["table"]
    with pytest.raises(deepl.DeepLException, match="dictionary"):
        client.translate_text("a", source_lang="EN", target_lang="DE", glossary=other.glossary_id)


def test_glossaries_of_several_languages(client: Any) -> None:
    entries = deepl.api_data.MultilingualGlossaryDictionaryEntries
    made = client.create_multilingual_glossary(
        "both", [entries("EN", "DE", TERMS), entries("DE", "EN", {"Hund": "dog"})]
    )
    assert client.list_glossaries() == []  # version 2 does not know it
    assert [(one.source_lang, one.entry_count) for one in made.dictionaries] == [("EN", 2), ("DE", 1)]
    assert client.get_multilingual_glossary(made.glossary_id).name == "both"
    id = made.glossary_id
    assert client.translate_text("a dog", source_lang="EN", target_lang="DE", glossary=made).text == "Hund a"
    client.update_multilingual_glossary_dictionary(id, entries("EN", "DE", {"dog": "Köter", "hen": "Huhn"}))
    client.update_multilingual_glossary_dictionary_from_csv(id, "EN", "DE", "pig,Schwein")
    found = client.get_multilingual_glossary_entries(id, "EN", "DE").dictionaries[0]
    assert found.entries.split("\n") == ["dog\tKöter", "cat | tom\tKatze", "hen\tHuhn", "pig\tSchwein"]
    assert client.translate_text("a dog", source_lang="EN", target_lang="DE", glossary=id).text == "Köter a"
    assert client.update_multilingual_glossary_name(id, "other").name == "other"
    assert client.replace_multilingual_glossary_dictionary(id, entries("EN", "DE", {"a": "A"})).entry_count == 1
    replaced = client.replace_multilingual_glossary_dictionary_from_csv(id, "EN", "PT", "a,b,en,pt\nc,d,en,pt")
    assert (replaced.target_lang, replaced.entry_count) == ("PT", 2)
    client.delete_multilingual_glossary_dictionary(id, source_lang="DE", target_lang="EN")
    client.delete_multilingual_glossary_dictionary(id, replaced)
    assert len(client.get_multilingual_glossary(id).dictionaries) == 1
    table = client.create_multilingual_glossary_from_csv("table", "EN", "DE", "a,b")
    assert [one.name for one in client.list_multilingual_glossaries()] == ["other", "table"]
    client.delete_multilingual_glossary(table)
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.get_multilingual_glossary(table.glossary_id)
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.delete_multilingual_glossary_dictionary(id, source_lang="DE", target_lang="EN")
