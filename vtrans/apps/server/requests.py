"""Reading requests within a size limit, and the types of their fields."""

from __future__ import annotations

import codecs
import math
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import parse_qsl

from pydantic import AfterValidator, BaseModel, Field, InstanceOf, ValidationError, WithJsonSchema, model_validator
from pydantic_core import from_json
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from vtrans.apps.server.limits import CLOSE, Refusal

JSON, FORM, MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
FORM_BYTES = 10_000  # maximum size of a form without its file


@dataclass(frozen=True)
class Upload:
    """A file in a form."""

    name: str
    content: bytes


class _InMemory(MultiPartParser):
    spool_max_size = sys.maxsize  # no file of a client is written to the disk


async def read_body(request: Request, limit: int) -> bytes:
    """Returns the body of a request. Raises a Refusal if it is larger than `limit` bytes.

    Receives and drops an oversized body, because a client reads the answer only after sending everything.
    """
    body, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            body += chunk
        else:
            body.clear()
    if size > limit:
        raise Refusal(413, f"The request must have at most {limit:,} bytes, got {size:,}.", CLOSE)
    return bytes(body)


async def fields_of(request: Request, body: bytes) -> dict[str, Any]:
    """Returns the fields of a JSON body, or of a form and the query string. A repeated field becomes a list."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == JSON or kind.endswith("+json"):
        return _json(body)
    pairs = _pairs(bytes(request.scope["query_string"]))
    if kind == FORM:
        pairs += _pairs(body)
    elif kind == MULTIPART:
        pairs += await _multipart(request, body)
    fields: dict[str, list[Any]] = {}
    for name, value in pairs:
        # Browsers send CRLF line ends in forms.
        fields.setdefault(name, []).append(value.replace("\r\n", "\n") if isinstance(value, str) else value)
    return {name: values if len(values) > 1 else values[0] for name, values in fields.items()}


def _json(body: bytes) -> dict[str, Any]:
    try:
        value = from_json(body.removeprefix(codecs.BOM_UTF8), allow_inf_nan=False)
    except ValueError as error:
        raise Refusal(400, f"Invalid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise Refusal(400, "Invalid JSON: the body must be an object.")
    return value


def _pairs(query: bytes) -> list[tuple[str, Any]]:
    try:
        text = query.decode()  # programs such as curl leave out the percent-encoding
        return list(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=None))
    except UnicodeDecodeError:
        raise Refusal(400, "Invalid form: the values must be UTF-8.") from None


async def _multipart(request: Request, body: bytes) -> list[tuple[str, Any]]:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    # The size of the body limits the number of fields.
    parser = _InMemory(request.headers, stream(), max_files=1, max_fields=math.inf, max_part_size=len(body))
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise Refusal(400, f"Invalid form: {error.message.rstrip('.')}.") from None
    pairs = [
        (name, value if isinstance(value, str) else Upload(value.filename or "", await value.read()))
        for name, value in form.multi_items()
    ]
    await form.close()
    return pairs


# Field types.


def _text(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not contain the NUL character")
    return value


Text = Annotated[str, AfterValidator(_text)]
Texts = Annotated[list[Text], Field(fail_fast=True)]
"""As in all lists of a request, only the first invalid item is reported: a client could send millions."""
File = Annotated[InstanceOf[Upload], WithJsonSchema({"type": "string", "format": "binary"})]


class Fields(BaseModel):
    """The fields of a request. An empty field counts as missing, and unknown ones are ignored."""

    MAY_BE_EMPTY: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _given(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        return {k: v for k, v in fields.items() if v is not None and (v != "" or k in cls.MAY_BE_EMPTY)}

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the checked fields. Raises a Refusal that names the first invalid field."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise Refusal(400, _sentence(error)) from None


def _sentence(error: ValidationError) -> str:
    """Returns the message for the first invalid field, about the most deeply nested error in its value. The message for
    a missing field is LibreTranslate's."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    name = errors[0]["loc"][0]
    worst = max((one for one in errors if one["loc"][0] == name), key=lambda one: len(one["loc"]))
    if worst["type"] == "missing" and isinstance(worst["loc"][-1], str):
        return f"Invalid request: missing {worst['loc'][-1]} parameter"
    message = re.sub("^[A-Z][a-z]+ should", "must", worst["msg"].removeprefix("Value error, "))
    message = re.sub(r" after validation| or instance of \w+", "", message)
    return f"{name} {message}."
