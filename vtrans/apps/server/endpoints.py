"""Endpoints, and their OpenAPI description, which is derived from the type hints of the functions that answer."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from vtrans.apps.server.limits import Limits
from vtrans.apps.server.refusals import is_deepl
from vtrans.apps.server.requests import FORM, JSON, MULTIPART, Fields


@dataclass(frozen=True)
class Call:
    """An admitted request: its fields, its size in bytes, the client to limit, and the owner of the data it stores."""

    request: Request
    fields: dict[str, Any]
    size: int
    client: str
    owner: str

    @property
    def id(self) -> str:
        """The `id` in the path of the request."""
        return str(self.request.path_params["id"])


@dataclass(frozen=True)
class Endpoint:
    """A method and path, and the function that answers.

    `answer` receives a Call, and the checked fields if it has a parameter `asked`. It runs in a thread unless it is a
    coroutine function. The first line of its docstring is the summary. If `large`, a request may be as large as a file.
    An `open` endpoint needs no key; its `answer` receives the Request.
    """

    method: str
    path: str
    answer: Callable[..., Any]
    status: int = 200
    large: bool = False
    open: bool = False

    @cached_property
    def types(self) -> dict[str, Any]:
        return get_type_hints(self.answer, include_extras=True)

    @property
    def asks(self) -> type[Fields] | None:
        """The schema of the request's fields, or None."""
        return self.types.get("asked")

    @property
    def schema(self) -> Any:
        """The type of the answer in JSON; None if it is not JSON."""
        returned = self.types["return"]
        return None if returned in (Response, type(None)) else returned

    def response(self, answer: Any) -> Response:
        """Returns an answer as a response. Its JSON omits fields that are None."""
        if isinstance(answer, Response):
            return answer
        if answer is None:
            return Response(status_code=204)
        return Response(to_json(answer, exclude_none=True), self.status, media_type=JSON)


def description(endpoints: Sequence[Endpoint], version: str, limits: Limits) -> dict[str, Any]:
    """Returns the OpenAPI 3.1 description of the endpoints."""
    kinds = {(endpoint, "asks"): endpoint.asks for endpoint in endpoints}
    kinds |= {(endpoint, "answers"): endpoint.schema for endpoint in endpoints}
    schemas, parts = TypeAdapter.json_schemas(
        [(key, "validation", TypeAdapter(kind)) for key, kind in kinds.items() if kind is not None],
        ref_template="#/components/schemas/{model}",
    )
    made = {key: schema for (key, _), schema in schemas.items()}
    named = {"Error": _object("error"), "DeepLError": _object("message"), **parts.get("$defs", {})}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        asks, answers = made.get((endpoint, "asks"), {}), made.get((endpoint, "answers"))
        fields = named[asks["$ref"].rpartition("/")[2]] if "$ref" in asks else asks
        operation = {**_parameters(endpoint, asks, fields), "responses": _responses(endpoint, answers)}
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    about = (
        "Translation, with the APIs of LibreTranslate and DeepL. A request may have at most "
        f"{limits.texts:,} texts with {limits.characters:,} characters together."
    )
    info = {"title": "vtrans", "version": version, "description": about}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": named}}


def _object(name: str) -> dict[str, Any]:
    """Returns the schema of an object with one string."""
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


def _parameters(endpoint: Endpoint, asks: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the summary of an endpoint, and where a request has its fields: in the path, the query or the body."""
    properties = fields.get("properties", {})
    in_query = endpoint.method in ("GET", "DELETE")
    names = [(name, "path", {"type": "string"}) for name in re.findall(r"{(\w+)}", endpoint.path)]
    names += [(name, "query", schema) for name, schema in properties.items() if in_query]
    parameters = [
        {"name": name, "in": place, "required": place == "path" or name in fields.get("required", ()), "schema": schema}
        for name, place, schema in names
    ]
    made = {"summary": str(inspect.getdoc(endpoint.answer)).partition("\n")[0], "parameters": parameters}
    if not properties or in_query:
        return made
    kinds = [MULTIPART] if "file" in properties else [JSON, FORM, MULTIPART]
    return {**made, "requestBody": {"required": True, "content": {kind: {"schema": asks} for kind in kinds}}}


def _responses(endpoint: Endpoint, answers: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the OpenAPI responses of an endpoint by status."""
    answer: dict[str, Any] = {"description": "The answer."}
    if answers is not None:
        answer["content"] = {JSON: {"schema": answers}}
    status = 204 if endpoint.types["return"] is type(None) else endpoint.status
    error = {"$ref": f"#/components/schemas/{'DeepLError' if is_deepl(endpoint.path) else 'Error'}"}
    refusal = {"description": "Why there is no answer.", "content": {JSON: {"schema": error}}}
    return {str(status): answer, "4XX": refusal, "5XX": refusal}
