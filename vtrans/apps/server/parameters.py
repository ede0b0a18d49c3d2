"""Reads the parameters of a request: JSON, a form or the query string, within limits of size and time.

Nothing here trusts the client: each invalid value raises a Refusal that says what is wrong with it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import re
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast, get_args
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from vtrans.apps.documents.document import READERS
from vtrans.apps.server.limits import Limits
from vtrans.apps.server.refusals import Refusal, is_deepl
from vtrans.config import SearchConfig
from vtrans.config.keys import check_value, keys_of
from vtrans.system.errors import InputError
from vtrans.text.vocabulary import Formality
from vtrans.translate.wording.glossary import Glossary, pair_of

FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
FORM_BYTES = 10_000  # of a form besides its file
GLOSSARY_TERMS = 1000  # of a request
GLOSSARY_CHARACTERS = 200  # of a term or a translation
LONGEST_NAME = 4000  # bytes of the names in the header of a form's part, which python-multipart limits a little above
_LONG_NAMES = re.compile(rb"(?im)^content-disposition:([^\r\n]{%d,})" % (LONGEST_NAME + 1))
AUTHORIZATION = "DeepL-Auth-Key "
CLOSE = {"Connection": "close"}  # the rest of the request is not read

SEARCH_KEYS = {
    name: dataclasses.replace(key, high=min(key.high, key.request))
    for name, key in keys_of(SearchConfig).items()
    if key.request is not None
}
"""The search settings that a request may have, with the bounds for requests."""

T = TypeVar("T")


@dataclass(frozen=True)
class Upload:
    """A file in a form."""

    name: str
    content: bytes


async def read_body(request: Request, limit: int) -> bytes:
    """Returns the body of a request. Raises a Refusal if it is larger than `limit` bytes.

    What exceeds the limit is received and dropped, because a client reads the answer only after it has sent all.
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


def is_json(request: Request) -> bool:
    """Returns whether a request says that its body is JSON."""
    kind = _kind(request)
    return kind == "application/json" or kind.endswith("+json")


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def parameters(request: Request, body: bytes) -> dict[str, Any]:
    """Returns the parameters in a JSON body, or those of a form and the query string. A parameter that is repeated is
    a list."""
    if is_json(request):
        return _json(body)
    kind = _kind(request)
    pairs = _pairs(bytes(request.scope["query_string"]))
    if kind == FORM:
        pairs += _pairs(body)
    elif kind == MULTIPART:
        pairs += await _multipart(request, body)
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if isinstance(value, str):
            value = value.replace("\r\n", "\n")  # browsers send forms with these line ends
        if name not in fields:
            fields[name] = value
        elif isinstance(fields[name], list):
            fields[name].append(value)
        else:
            fields[name] = [fields[name], value]
    return fields


def _json(body: bytes) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        value = json.loads(body.decode("utf-8-sig"), parse_constant=refuse)
    except UnicodeDecodeError:
        raise Refusal(400, "Invalid JSON: the body must be UTF-8.") from None
    except (ValueError, RecursionError):
        raise Refusal(400, "Invalid JSON: the body cannot be parsed.") from None
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
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    fields: list[tuple[str, Any]] = []
    try:
        # The size of the body limits the number of fields.
        again = Request(request.scope, receive)
        async with again.form(max_files=1, max_fields=math.inf, max_part_size=len(body)) as form:
            for name, value in form.multi_items():
                if isinstance(value, str):
                    fields.append((name, value))
                else:
                    fields.append((name, Upload(value.filename or "", await value.read())))
    except HTTPException as error:
        reason = error.detail.rstrip(".")
        if longest := max(map(len, _LONG_NAMES.findall(body)), default=0):
            reason = f"the names of a part must have at most {LONGEST_NAME:,} bytes, got {longest:,}"
        raise Refusal(400, f"Invalid form: {reason}.") from None
    return fields


# Values.


@dataclass(frozen=True)
class TranslateRequest:
    """A request to /translate."""

    texts: list[str]
    many: bool  # whether the client sent a list
    source: str  # a code or "auto"
    target: str
    format: str
    alternatives: int
    alignments: bool
    confidence: bool
    glossary: Glossary | None
    formality: Formality | None
    search: tuple[tuple[str, Any], ...]  # settings that replace the model's, by name


def translate_request(fields: Mapping[str, Any], limits: Limits) -> TranslateRequest:
    """Returns the checked parameters of /translate. Raises a Refusal for one that is missing or wrong."""
    many = isinstance(fields.get("q"), list)
    texts = list(fields["q"]) if many else [required_text(fields, "q")]
    check_texts("q", texts, limits)
    source, target = required_text(fields, "source"), required_text(fields, "target")
    form = fields.get("format") or "text"
    if not isinstance(form, str) or form not in READERS:
        raise Refusal(400, f"format must be one of {', '.join(READERS)}.")
    return TranslateRequest(
        texts,
        many,
        source,
        target,
        form,
        alternatives=_count(fields.get("alternatives", 0)),
        alignments=flag(fields, "alignments"),
        confidence=flag(fields, "confidence"),
        glossary=_glossary(fields.get("glossary")),
        formality=form_of_address(fields),
        search=search_settings(fields),
    )


def form_of_address(fields: Mapping[str, Any]) -> Formality | None:
    """Returns the form of address that a request asks for, if any."""
    value = fields.get("formality") or None
    if value is not None and value not in get_args(Formality):
        raise Refusal(400, f"formality must be one of {', '.join(get_args(Formality))}.")
    return cast("Formality | None", value)


def search_settings(fields: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Returns the search settings of a request, by name. Raises a Refusal for a value that is not allowed."""
    settings = []
    for name, key in SEARCH_KEYS.items():
        value = fields.get(name)
        if value is None or value == "":
            continue
        with suppress(ValueError):  # a form has numbers as text
            value = key.kind(value) if isinstance(value, str) and key.kind in (int, float) else value
        try:
            value = check_value(key, name, value)
        except InputError as error:
            raise Refusal(400, str(error)) from None
        if key.kind is list and len(value) > (most := key.request or 0):
            raise Refusal(400, f"{name} must have at most {most:g} texts, got {len(value):,}.")
        settings.append((name, value))
    return tuple(settings)


def _glossary(value: Any) -> Glossary | None:
    """Returns the glossary of a request: an object of terms and translations, or a list of such pairs."""
    if value is None:
        return None
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list):
        raise Refusal(400, "glossary must be an object of terms and translations, or a list of such pairs.")
    if len(pairs) > GLOSSARY_TERMS:
        raise Refusal(400, f"glossary must have at most {GLOSSARY_TERMS:,} terms, got {len(pairs):,}.")
    terms: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        if not (isinstance(pair, (list, tuple)) and len(pair) == 2 and all(isinstance(part, str) for part in pair)):
            raise Refusal(400, "glossary must have a term and a translation in each pair, both strings.")
        for part in pair:
            check_text("glossary", part)
            if len(part) > GLOSSARY_CHARACTERS:
                raise Refusal(
                    400, f"glossary must have terms and translations of at most {GLOSSARY_CHARACTERS} characters each."
                )
        try:
            term, forms = pair_of(*pair)
        except ValueError:
            raise Refusal(400, "glossary must have terms and translations that are not blank.") from None
        if terms.setdefault(term, forms) != forms:
            raise Refusal(400, "glossary must have each term once; separate the forms of a translation by |.")
    return Glossary(tuple(terms.items())) if terms else None


def file_request(fields: Mapping[str, Any]) -> tuple[Upload, str, str]:
    """Returns the file, the source and the target language that a client asks /translate_file for."""
    upload = fields.get("file")
    if not isinstance(upload, Upload):
        raise Refusal(400, "Invalid request: missing file parameter")
    return upload, required_text(fields, "source"), required_text(fields, "target")


def check_texts(name: str, texts: list[Any], limits: Limits) -> None:
    """Raises a Refusal unless these are texts that can be translated, and not too many or too long."""
    if not texts:
        raise Refusal(400, f"Invalid request: missing {name} parameter")
    if len(texts) > limits.texts:
        raise Refusal(400, f"A request must have at most {limits.texts:,} texts, got {len(texts):,}.")
    if not all(isinstance(text, str) for text in texts):
        raise Refusal(400, f"{name} must be a string or a list of strings.")
    for text in texts:
        check_text(name, text)
    size = sum(map(len, texts))
    if size > limits.characters:
        raise Refusal(400, f"A request must have at most {limits.characters:,} characters, got {size:,}.")


def required_text(fields: Mapping[str, Any], name: str) -> str:
    """Returns a parameter that must be a text. The sentence for a missing one is LibreTranslate's."""
    value = fields.get(name)
    if value is None or value == "":
        raise Refusal(400, f"Invalid request: missing {name} parameter")
    if not isinstance(value, str):
        raise Refusal(400, f"{name} must be a string.")
    check_text(name, value)
    return value


def check_text(name: str, text: str) -> None:
    """Raises a Refusal for NUL and unpaired surrogates."""
    if "\0" in text:
        raise Refusal(400, f"{name} must not contain the NUL character.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refusal(400, f"{name} must not contain an unpaired surrogate.") from None


def _count(value: Any) -> int:
    """Returns the number of alternatives. A form has it as text."""
    try:
        if isinstance(value, (bool, float)) or (number := int(value)) < 0:
            raise ValueError
    except (TypeError, ValueError):
        raise Refusal(400, "alternatives must be a whole number, 0 or more.") from None
    return number


def flag(fields: Mapping[str, Any], name: str) -> bool:
    """Returns a parameter that is true or false. A form has it as text."""
    value = fields.get(name)
    if value in (None, "", False, "false", "0"):
        return False
    if value not in (True, "true", "1"):
        raise Refusal(400, f"{name} must be true or false.")
    return True


def api_key(request: Request, fields: Mapping[str, Any]) -> str:
    """Returns the API key of a request, or an empty string. DeepL's interface has it in a header."""
    if is_deepl(request.url.path):
        header = request.headers.get("authorization", "")
        return header.removeprefix(AUTHORIZATION).strip() if header.startswith(AUTHORIZATION) else ""
    value = fields.get("api_key") or ""
    if not isinstance(value, str):
        raise Refusal(400, "api_key must be a string.")
    return value


# Waiting.


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """Returns the result of `work`, which is cancelled if the client goes away first. Then raises ClientDisconnect.

    The body must have been read.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
