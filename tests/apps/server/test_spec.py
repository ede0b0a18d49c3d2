"""The description at /spec: it has every endpoint, and says what these answer."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError
from services import EN_DE, JSON, Client, Reply, serving
from starlette.routing import Route

from vtrans.apps.documents.memory import Memory
from vtrans.apps.server.app import make_app
from vtrans.apps.server.batching import Worker
from vtrans.apps.server.deepl.endpoints import TextRequest
from vtrans.apps.server.deepl.glossaries import Change, NewGlossary3
from vtrans.apps.server.libretranslate import TranslateRequest
from vtrans.apps.server.limits import Limits, is_deepl
from vtrans.apps.server.requests import Fields
from vtrans.apps.server.service import Service

APP = make_app(Service({EN_DE: Worker(lambda *_: [], nbest=4)}), Limits(texts=17), version="9.9")
SPEC = APP.state.description


def resolved(part: Any) -> Any:
    """Returns a part of the description with what its references name."""
    if isinstance(part, list):
        return [resolved(one) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" not in part:
        return {name: resolved(one) for name, one in part.items()}
    found = SPEC
    for name in part["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    return resolved(found)


PATHS: dict[str, dict[str, Any]] = resolved(SPEC["paths"])
OPERATIONS = [(path, method) for path, operations in PATHS.items() for method in operations]
TERMS = {"source_lang": "en", "target_lang": "de", "entries": "dog\tHund"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving(memory=Memory(tmp_path_factory.mktemp("spec") / "m")) as served:
        yield served


def test_the_description_has_every_endpoint_and_the_limits() -> None:
    routes = [route for route in APP.routes if isinstance(route, Route)]
    served = {(route.path, method.lower()) for route in routes for method in (route.methods or set()) - {"HEAD"}}
    page = {"/", "/page.css", "/page.js", "/icon.svg", "/spec"}
    assert {(path, method) for path, method in served if path not in page} == set(OPERATIONS)
    assert "17 texts" in SPEC["info"]["description"]
    fields = PATHS["/translate"]["post"]["requestBody"]["content"][JSON]["schema"]["properties"]
    assert fields["beam"]["anyOf"][0] == {"type": "integer", "minimum": 1, "maximum": 16}
    assert fields["formality"]["anyOf"][0]["enum"] == ["more", "less"]


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_an_endpoint_is_there_and_its_errors_are_sentences(client: Client, path: str, method: str) -> None:
    reply = send(client, method, path, "x")
    operation = PATHS[path][method]
    assert operation["summary"]
    assert reply.status != 405
    if reply.status >= 400:
        assert reply.json["message" if is_deepl(path) else "error"]
        bodies = operation.get("requestBody", {}).get("content", {}).values()
        assert any("required" in body["schema"] for body in bodies) or "{" in path or reply.status == 400
    else:
        check(operation, reply)


def test_answers_are_those_that_are_described(client: Client) -> None:
    q: dict[str, Any] = {"q": "a b", "source": "en", "target": "de"}
    ask(client, "post", "/translate", **q, alternatives=1, alignments=True)
    ask(client, "post", "/translate", **{**q, "q": ["a", "b"], "source": "auto"})
    ask(client, "post", "/detect", q="a b")
    ask(client, "post", "/suggest", **q, s="c")
    texts: dict[str, Any] = {"text": ["a"], "target_lang": "DE", "show_billed_characters": True, "model_type": "x"}
    ask(client, "post", "/v2/translate", **texts)
    glossary = ask(client, "post", "/v2/glossaries", name="a", **TERMS)
    ask(client, "get", "/v2/glossaries")
    ask(client, "get", "/v2/glossaries/{id}", glossary["glossary_id"])
    ask(client, "delete", "/v2/glossaries/{id}", glossary["glossary_id"])
    id = ask(client, "post", "/v3/glossaries", name="a", dictionaries=[TERMS])["glossary_id"]
    ask(client, "patch", "/v3/glossaries/{id}", id, name="b")
    ask(client, "put", "/v3/glossaries/{id}/dictionaries", id, **TERMS)
    ask(client, "get", "/v3/glossaries/{id}/entries", id, query="?source_lang=en&target_lang=de")
    ask(client, "delete", "/v3/glossaries/{id}/dictionaries", id, query="?source_lang=en&target_lang=de")


def send(client: Client, method: str, path: str, id: str = "", query: str = "", **fields: Any) -> Reply:
    body = json.dumps(fields).encode() if fields else b""
    headers = {"Authorization": "DeepL-Auth-Key x"}
    return client.send(method.upper(), path.format(id=id, filename=id) + query, body, JSON if fields else "", **headers)


def ask(client: Client, method: str, path: str, id: str = "", query: str = "", **fields: Any) -> Any:
    """Sends a request whose parameters are described. Returns its answer, which is as it is described."""
    operation = PATHS[path][method]
    if fields:
        body = operation["requestBody"]["content"][JSON]["schema"]
        assert set(body.get("required", ())) <= set(fields) <= set(body["properties"])
    reply = send(client, method, path, id, query, **fields)
    assert reply.status < 300, reply.body
    return check(operation, reply)


def check(operation: Any, reply: Reply) -> Any:
    """Returns an answer in JSON, which must have the described schema."""
    content = operation["responses"][str(reply.status)].get("content")
    if content is None:
        return None
    assert reply.headers.get_content_type() in content
    assert fits(reply.json, content[JSON]["schema"]), reply.json
    return reply.json


def fits(value: Any, schema: Any) -> bool:
    """Returns whether a value has a schema of those in the description."""
    if "anyOf" in schema:
        return any(fits(value, one) for one in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return value in schema.get("enum", [schema.get("const")])
    if schema["type"] == "array":
        each = schema.get("prefixItems") or [schema["items"]] * len(value)
        return isinstance(value, list) and all(map(fits, value, each))
    if schema["type"] != "object":
        kinds: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool}
        return schema["type"] in kinds and isinstance(value, kinds[schema["type"]])
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    names = schema.get("propertyNames", {})
    if not isinstance(value, dict) or not set(schema.get("required", ())) <= set(value):
        return False
    return all(
        fits(one, known[name])
        if name in known
        else fits(name, names | {"type": "string"}) and fits(one, others)
        if isinstance(others, dict)
        else others is True
        for name, one in value.items()
    )


@pytest.mark.parametrize("schema", [TranslateRequest, TextRequest, NewGlossary3, Change], ids=lambda one: one.__name__)
def test_only_the_first_wrong_item_of_a_list_is_reported(schema: type[Fields]) -> None:
    """Millions of errors would take minutes."""
    lists = [name for name, field in schema.model_fields.items() if re.search(r"(list|tuple)\[", str(field.annotation))]
    assert lists
    for name in lists:
        wrong: list[Any] = [1, [], {}]
        for item in wrong:
            with pytest.raises(ValidationError) as raised:
                schema.model_validate({name: [item] * 50})
            assert raised.value.error_count() < 15, name
