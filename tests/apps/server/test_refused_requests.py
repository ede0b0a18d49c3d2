"""Wrong values in the fields of requests: each is refused with a sentence that names the field, and changes nothing."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from services import DE_EN, EN_DE, JSON, Client, serving

from vtrans.apps.documents.memory import Memory
from vtrans.apps.server.libretranslate import GLOSSARY_CHARACTERS, GLOSSARY_TERMS
from vtrans.apps.server.limits import Limits, is_deepl

KEY: dict[str, Any] = {"Authorization": "DeepL-Auth-Key one"}
DICTIONARY = {"source_lang": "en", "target_lang": "de", "entries": "dog\tHund", "entries_format": "tsv"}
RIGHT: dict[str, dict[str, Any]] = {
    "/translate": {"q": "a", "source": "en", "target": "de"},
    "/detect": {"q": "a"},
    "/suggest": {"q": "a", "s": "b", "source": "en", "target": "de"},
    "/v2/translate": {"text": "a", "source_lang": "EN", "target_lang": "DE"},
    "/v3/glossaries": {"name": "n", "dictionaries": [DICTIONARY]},
}
WRONG: dict[str, list[dict[str, Any]]] = {
    "/translate": [
        {"q": "a\0b"}, {"q": ["a", 7]}, {"target": 3}, {"target": "zz"}, {"target": "auto"}, {"format": "pdf"},
        {"target": "d\r\nX-Header: 1"}, {"alternatives": -1}, {"alternatives": 0.5}, {"confidence": "maybe"},
        {"formality": "polite"}, {"api_key": 5}, {"glossary": "dog"}, {"glossary": [["dog"]]},
        {"glossary": [["dog", 3]]}, {"glossary": {"dog": ""}}, {"glossary": {" ": "Hund"}},
        {"glossary": {"dog": "Hund||Hunde"}}, {"glossary": {"dog": "\0"}},
        {"glossary": {"dog": "x" * (GLOSSARY_CHARACTERS + 1)}}, {"glossary": [["dog", "Hund"], ["dog", "Hunde"]]},
        {"glossary": {f"t{i}": "x" for i in range(GLOSSARY_TERMS + 1)}},
    ],
    "/detect": [{"q": ["a"]}],
    "/suggest": [
        {"s": " "}, {"s": "x" * 1001}, {"source": "auto"}, {"target": "fr"}, {"target": "en"}, {"q": "\0"},
        {"q": "See {x}", "s": "Siehe {y}"}, {"q": "a", "s": "b %s"},
    ],
    "/v2/translate": [
        {"text": "\0"}, {"target_lang": 3}, {"target_lang": "D-E"}, {"source_lang": "d"}, {"tag_handling": 7},
        {"ignore_tags": [1]}, {"split_sentences": "none"}, {"outline_detection": "maybe"}, {"formality": ["more"]},
        {"glossary_id": "x", "source_lang": None}, {"glossary_ids": ["x"]}, {"translation_memory_id": "x"},
    ],
    "/v3/glossaries": [
        {"name": 3}, {"dictionaries": []}, {"dictionaries": [DICTIONARY] * 1001},
        {"dictionaries": "x"}, {"dictionaries": [3]},
        {"dictionaries": [DICTIONARY, DICTIONARY]}, {"dictionaries": [{**DICTIONARY, "target_lang": "en"}]},
        {"dictionaries": [{**DICTIONARY, "target_lang": "xx"}]}, {"dictionaries": [{**DICTIONARY, "entries": "a"}]},
        {"dictionaries": [{**DICTIONARY, "entries_format": "json"}]},
    ],
}  # fmt: skip
NAMED = {
    "source": ("supported",),
    "target": ("supported", "available"),
    "glossary_id": ("source_lang",),
    "dictionaries": ("entries", "target_lang", "en to en"),
}
"""Other words than its name that tell of a field."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    memory = Memory(tmp_path_factory.mktemp("refusals") / "m")
    with serving(pairs=(EN_DE, DE_EN), memory=memory, limits=Limits(characters=1000, texts=10)) as served:
        yield served
        assert len(memory) == 0
        assert served.send("GET", "/v3/glossaries", **KEY).json == {"glossaries": []}
        assert served.translate("still here").json == {"translatedText": "here still"}
        assert served.warnings == []


def sentence(client: Client, path: str, fields: dict[str, Any]) -> str:
    """Returns why a request is refused."""
    reply = client.send("POST", path, json.dumps(fields).encode(), JSON, **KEY)
    assert reply.status == 400, reply.body
    ((name, text),) = reply.json.items()
    assert name == ("message" if is_deepl(path) else "error")
    assert 10 < len(text) < 200
    return str(text)


@pytest.mark.parametrize("path", WRONG)
def test_a_wrong_value_is_refused_with_a_sentence_that_names_it(client: Client, path: str) -> None:
    for wrong in WRONG[path]:
        said = sentence(client, path, RIGHT[path] | wrong)
        words = [word for name in wrong for word in (name, *NAMED.get(name, ()))]
        assert any(word in said for word in words), (wrong, said)


@pytest.mark.parametrize("path", RIGHT)
def test_a_missing_or_empty_field_is_named(client: Client, path: str) -> None:
    for name in set(RIGHT[path]) - {"source_lang"}:
        missing = {other: value for other, value in RIGHT[path].items() if other != name}
        said = f"Invalid request: missing {name} parameter"  # as LibreTranslate says it
        assert sentence(client, path, missing) == sentence(client, path, missing | {name: None}) == said
        if name not in ("text", "dictionaries"):
            assert sentence(client, path, missing | {name: ""}) == said


def test_texts_are_limited(client: Client) -> None:
    for path, name in (("/translate", "q"), ("/v2/translate", "text")):
        for texts, word in (([], "one text"), (["a"] * 11, "10 texts"), (["a" * 300] * 4, "1,000 characters")):
            assert word in sentence(client, path, RIGHT[path] | {name: texts})
