"""The parts of the description of the interface: schemas of values, and operations with their answers and errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vtrans.server.parameters import FORM, MULTIPART

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FORMS = ("application/json", FORM, MULTIPART)
CODE: Schema = {"type": "string", "examples": ["en", "pt-BR"]}

_VARIABLE = re.compile(r"\{(\w+)\}")
_ERRORS = {
    400: "A parameter is missing or wrong.",
    403: "The API key is missing or wrong, or the host or the page's origin is not allowed.",
    408: "The request took too long to arrive.",
    413: "The request or file is too large.",
    429: "The client has sent too many requests or wrong API keys; Retry-After says how long to wait.",
    500: "The server failed.",
    503: "The server is busy; Retry-After says how long to wait.",
    504: "The request took too long.",
}


def object_of(properties: Schema, required: Sequence[str] = ()) -> Schema:
    """Returns the schema of an object with these properties."""
    return {"type": "object", "properties": properties, "required": list(required)}


def list_of(items: Schema) -> Schema:
    """Returns the schema of a list."""
    return {"type": "array", "items": items}


def or_list_of(schema: Schema, most: int | None = None) -> Schema:
    """Returns the schema of a value or a list of at most so many values."""
    return {"oneOf": [schema, list_of(schema) | ({"maxItems": most} if most else {})]}


def posted(
    summary: str,
    bodies: Mapping[str, Schema],
    answer: Schema | None,
    status: int = 200,
    error: str = "error",
    errors: Mapping[int, str] | None = None,
) -> Schema:
    """Returns an operation with a body in one of several forms. The sentence of an error has the name `error`; `errors`
    are more than the usual ones."""
    content = {kind: {"schema": schema} for kind, schema in bodies.items()}
    sentence = {"application/json": {"schema": object_of({error: TEXT}, [error])}}
    all_errors = [*_ERRORS.items(), *(errors or {}).items()]
    refused = {str(code): {"description": words, "content": sentence} for code, words in all_errors}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": content},
        "responses": _answered(answer, status) | refused,
    }


def got(summary: str, answer: Schema | None = None, *, query: Schema | None = None, status: int = 200) -> Schema:
    """Returns an operation without a body, with these parameters in the query."""
    parameters = [{"name": name, "in": "query", "schema": schema} for name, schema in (query or {}).items()]
    given = {"parameters": parameters} if parameters else {}
    return {"summary": summary, **given, "responses": _answered(answer, status)}


def _answered(answer: Schema | None, status: int) -> Schema:
    content = {"content": {"application/json": {"schema": answer}}} if answer else {}
    return {str(status): {"description": "The answer.", **content}}


def with_path_parameters(paths: Schema) -> Schema:
    """Returns paths whose operations name the variable parts, such as the `id` of `/v2/document/{id}`."""
    named = {}
    for path, operations in paths.items():
        variable = [{"name": name, "in": "path", "required": True, "schema": TEXT} for name in _VARIABLE.findall(path)]
        named[path] = {
            method: {**operation, "parameters": [*variable, *operation.get("parameters", [])]}
            for method, operation in operations.items()
        }
    return named
