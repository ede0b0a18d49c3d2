"""The description at /spec: it has every endpoint, and says what these answer."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from services import EN_DE, JSON, Client, Reply, serving
from starlette.routing import Route

from vtrans.apps.documents.memory import Memory
from vtrans.apps.server.app import make_app
from vtrans.apps.server.batching import Worker
from vtrans.apps.server.deepl.endpoints import TextRequest
from vtrans.apps.server.deepl.glossaries import Change, NewGlossary3
from vtrans.apps.server.endpoints import Endpoint
from vtrans.apps.server.libretranslate import TranslateRequest
from vtrans.apps.server.limits import Limits, is_deepl
from vtrans.apps.server.requests import Fields
from vtrans.apps.server.service import Service

APP = make_app(Service({EN_DE: Worker(lambda *_: [], nbest=4)}), Limits(texts=17), version="9.9")
SPEC = APP.state.description


ENDPOINTS: dict[tuple[str, str], Endpoint] = {(one.method, one.path): one for one in APP.state.endpoints}
TERMS = {"source_lang": "en", "target_lang": "de", "entries": "dog\tHund"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving(memory=Memory(tmp_path_factory.mktemp("spec") / "m")) as served:
        yield served


def test_the_description_has_every_endpoint_and_the_limits() -> None:
    described = {(method.upper(), path) for path, operations in SPEC["paths"].items() for method in operations}
    routes = [route for route in APP.routes if isinstance(route, Route)]
    served = {(method, route.path) for route in routes for method in (route.methods or set()) - {"HEAD"}}
    pages = {("GET", path) for path in ("/", "/page.css", "/page.js", "/icon.svg", "/spec")}
    assert served - pages == described == set(ENDPOINTS)
    assert "17 texts" in SPEC["info"]["description"]
    schemas = SPEC["components"]["schemas"]
    assert set(re.findall(r"#/components/schemas/(\w+)", json.dumps(SPEC))) == set(schemas)
    fields = schemas["TranslateRequest"]["properties"]
    assert fields["formality"]["anyOf"][0]["enum"] == ["more", "less"]


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_an_endpoint_is_there_and_its_errors_are_sentences(client: Client, method: str, path: str) -> None:
    endpoint, reply = ENDPOINTS[method, path], send(client, method, path, "x")
    assert SPEC["paths"][path][method.lower()]["summary"]
    assert reply.status != 405
    if reply.status >= 400:
        assert reply.json["message" if is_deepl(path) else "error"]
        assert endpoint.asks or "{" in path
    else:
        check(endpoint, reply)


def test_answers_are_those_that_are_described(client: Client) -> None:
    q: dict[str, Any] = {"q": "a b", "source": "en", "target": "de"}
    ask(client, "POST", "/translate", **q, alternatives=1, alignments=True)
    ask(client, "POST", "/translate", **{**q, "q": ["a", "b"], "source": "auto"})
    ask(client, "POST", "/detect", q="a b")
    ask(client, "POST", "/suggest", **q, s="c")
    texts: dict[str, Any] = {"text": ["a"], "target_lang": "DE", "show_billed_characters": True, "model_type": "x"}
    ask(client, "POST", "/v2/translate", **texts)
    glossary = ask(client, "POST", "/v2/glossaries", name="a", **TERMS)
    ask(client, "GET", "/v2/glossaries")
    ask(client, "GET", "/v2/glossaries/{id}", glossary["glossary_id"])
    ask(client, "DELETE", "/v2/glossaries/{id}", glossary["glossary_id"])
    id = ask(client, "POST", "/v3/glossaries", name="a", dictionaries=[TERMS])["glossary_id"]
    ask(client, "PATCH", "/v3/glossaries/{id}", id, name="b")
    ask(client, "PUT", "/v3/glossaries/{id}/dictionaries", id, **TERMS)
    ask(client, "GET", "/v3/glossaries/{id}/entries", id, query="?source_lang=en&target_lang=de")
    ask(client, "DELETE", "/v3/glossaries/{id}/dictionaries", id, query="?source_lang=en&target_lang=de")


def send(client: Client, method: str, path: str, id: str = "", query: str = "", **fields: Any) -> Reply:
    body = json.dumps(fields).encode() if fields else b""
    headers = {"Authorization": "DeepL-Auth-Key x"}
    return client.send(method, path.format(id=id, filename=id) + query, body, JSON if fields else "", **headers)


def ask(client: Client, method: str, path: str, id: str = "", query: str = "", **fields: Any) -> Any:
    """Sends a request whose fields are described. Returns its answer, which is as it is described."""
    endpoint = ENDPOINTS[method, path]
    assert not fields or (endpoint.asks and set(fields) <= set(endpoint.asks.model_fields))
    reply = send(client, method, path, id, query, **fields)
    assert reply.status < 300, reply.body
    return check(endpoint, reply)


def check(endpoint: Endpoint, reply: Reply) -> Any:
    """Returns an answer in JSON, which must have the described type."""
    assert str(reply.status) in SPEC["paths"][endpoint.path][endpoint.method.lower()]["responses"]
    if endpoint.schema is None:
        return None
    assert reply.headers.get_content_type() == JSON
    TypeAdapter(endpoint.schema).validate_json(reply.body, strict=True)
    return reply.json


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
