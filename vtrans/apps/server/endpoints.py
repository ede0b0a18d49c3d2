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

from vtrans.apps.server.limits import Limits, is_deepl
from vtrans.apps.server.requests import FORM, JSON, MULTIPART, Fields


@dataclass(frozen=True)
class Call:
    """An admitted request, and the owner of the data that it stores."""

    request: Request
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
    schemas, paths = {"Error": _object("error"), "DeepLError": _object("message")}, dict[str, dict[str, Any]]()
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    about = (
        "Translation, with the APIs of LibreTranslate and DeepL. A request may have at most "
        f"{limits.texts:,} texts with {limits.characters:,} characters together."
    )
    info = {"title": "vtrans", "version": version, "description": about}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _object(name: str) -> dict[str, Any]:
    """Returns the schema of an object with one string."""
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a type. Adds the models that it refers to to `schemas`."""
    schema = TypeAdapter(kind).json_schema(ref_template=_reference("{model}")["$ref"])
    schemas.update(schema.pop("$defs", {}))
    return schema


def _operation(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    """Returns the description of an endpoint: its fields in the path, the query or the body, and its answers."""
    fields = _schema(endpoint.asks, schemas) if endpoint.asks else {}
    places = {name: ("path", {"type": "string"}) for name in re.findall(r"{(\w+)}", endpoint.path)}
    properties, required = fields.get("properties", {}), [*places, *fields.get("required", ())]
    operation: dict[str, Any] = {"summary": str(inspect.getdoc(endpoint.answer)).partition("\n")[0]}
    if endpoint.method in ("GET", "DELETE"):
        places |= {name: ("query", schema) for name, schema in properties.items()}
    elif endpoint.asks:
        name = endpoint.asks.__name__
        schemas[name], body = fields, {"schema": _reference(name)}
        kinds = [MULTIPART] if "file" in properties else [JSON, FORM, MULTIPART]
        operation["requestBody"] = {"required": True, "content": dict.fromkeys(kinds, body)}
    operation["parameters"] = [
        {"name": name, "in": place, "required": name in required, "schema": schema}
        for name, (place, schema) in places.items()
    ]
    answer: dict[str, Any] = {"description": "The answer."}
    if endpoint.schema is not None:
        answer["content"] = {JSON: {"schema": _schema(endpoint.schema, schemas)}}
    error = {"schema": _reference("DeepLError" if is_deepl(endpoint.path) else "Error")}
    refusal = {"description": "Why there is no answer.", "content": {JSON: error}}
    status = 204 if endpoint.types["return"] is type(None) else endpoint.status
    return {**operation, "responses": {str(status): answer, "4XX": refusal, "5XX": refusal}}
