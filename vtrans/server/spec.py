"""The description of the interface at /spec, in OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from vtrans.documents.document import READERS
from vtrans.documents.files import FORMATS
from vtrans.keys import Key
from vtrans.server.limits import Limits
from vtrans.server.parameters import GLOSSARY_TERMS, SEARCH_KEYS
from vtrans.text.vocabulary import Formality

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_CODE: Schema = {"type": "string", "examples": ["en", "pt-BR"]}
_KEY: Schema = {"type": "string", "description": "An API key, if the server needs one."}
_SOURCE: Schema = {"type": "string", "description": "The language of the text, or auto.", "examples": ["en", "auto"]}
_DETECTED: Schema = {
    "type": "object",
    "properties": {"confidence": {"type": "number", "minimum": 0, "maximum": 100}, "language": _CODE},
    "required": ["confidence", "language"],
}
_LINK: Schema = {
    "type": "array",
    "items": {"type": "integer"},
    "minItems": 4,
    "maxItems": 4,
    "description": "Where a word begins and ends in the text, and where its translation does, in characters.",
}
_RATED: Schema = {
    "type": "array",
    "items": {"type": "number"},
    "minItems": 3,
    "maxItems": 3,
    "description": "Where a word of the translation begins and ends, in characters, and how probably it is right.",
}
_FORMALITY: Schema = {
    "enum": list(get_args(Formality)),
    "description": "The form of address, for a target under formality in /languages.",
}
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


def specification(version: str, limits: Limits) -> Schema:
    """Returns the description of the interface with these limits."""
    search = {name: _setting(key) for name, key in SEARCH_KEYS.items()}
    translate = _translate_request(limits, search)
    translated = _object(
        {
            "translatedText": _or_list(_TEXT),
            "detectedLanguage": _or_list(_DETECTED) | {"description": "If the source is auto."},
            "alternatives": _or_list(_list(_TEXT)) | {"description": "If alternatives are asked for."},
            "alignments": _or_list(_list(_LINK)) | {"description": "If alignments are asked for."},
            "confidences": _or_list(_list(_RATED)) | {"description": "If confidence is asked for."},
        },
        ["translatedText"],
    )
    ending = f"The ending of its name tells the format: {', '.join(FORMATS)}."
    file = {"file": {"type": "string", "format": "binary", "description": ending}}
    posted_file = _object(
        {**file, "source": _SOURCE, "target": _CODE, "formality": _FORMALITY, **search, "api_key": _KEY},
        ["file", "source", "target"],
    )
    lists = {name: _list(_CODE) for name in ("targets", "formality", "confidence")}
    language = _object({"code": _CODE, "name": _TEXT, **lists}, ["code", "name", *lists])
    detect = _object({"q": _TEXT, "api_key": _KEY}, ["q"])
    queue = {"type": "integer", "minimum": 0, "description": "The sentences that wait to be translated."}
    health = _object({"status": {"const": "ok"}, "queue": queue}, ["status", "queue"])
    suggest = _object(
        {
            "q": _TEXT | {"description": "The text."},
            "s": _TEXT | {"description": "Its right translation, which later requests get."},
            "source": _CODE,
            "target": _CODE,
            "api_key": _KEY,
        },
        ["q", "s", "source", "target"],
    )
    done = _object({"success": {"const": True}}, ["success"])
    url = _object({"translatedFileUrl": _TEXT}, [])
    forms = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    return {
        "openapi": "3.1.0",
        "info": {"title": "vtrans", "version": version, "description": "Translation, with LibreTranslate's interface."},
        "paths": {
            "/translate": {"post": _posted("Translate text", dict.fromkeys(forms, translate), translated)},
            "/translate_file": {"post": _posted("Translate a file", {"multipart/form-data": posted_file}, url)},
            "/download_file/{filename}": {"get": _got("Fetch a translated file, for an hour", path="filename")},
            "/detect": {"post": _posted("Detect the language", dict.fromkeys(forms, detect), _list(_DETECTED))},
            "/suggest": {"post": _posted("Correct a translation", dict.fromkeys(forms, suggest), done)},
            "/languages": {"get": _got("List the languages", _list(language))},
            "/frontend/settings": {"get": _got("Limits and defaults for a page", {"type": "object"})},
            "/health": {"get": _got("Whether the server answers", health)},
            "/metrics": {"get": _got("Figures in Prometheus' text format")},
        },
    }


def _translate_request(limits: Limits, search: Schema) -> Schema:
    """Returns the body of a request for /translate, with these settings of the search."""
    return _object(
        {
            "q": _or_list(_TEXT, limits.texts)
            | {"description": f"The text or texts, at most {limits.characters:,} characters together."},
            "source": _SOURCE,
            "target": _CODE,
            "format": {"enum": list(READERS), "default": "text"},
            "alternatives": {"type": "integer", "minimum": 0, "default": 0, "description": "The most alternatives."},
            "alignments": {"type": "boolean", "default": False, "description": "Whether to link words (text only)."},
            "confidence": {
                "type": "boolean",
                "default": False,
                "description": "Whether to rate words (text only), for a target under confidence in /languages.",
            },
            "formality": _FORMALITY,
            "glossary": {
                "type": "object",
                "additionalProperties": _TEXT,
                "maxProperties": GLOSSARY_TERMS,
                "description": "Terms and their translations; | separates the forms of a translation. JSON only.",
            },
            **search,
            "api_key": _KEY,
        },
        ["q", "source", "target"],
    )


def _object(properties: Schema, required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_list(schema: Schema, most: int | None = None) -> Schema:
    return {"oneOf": [schema, _list(schema) | ({"maxItems": most} if most else {})]}


def _posted(summary: str, bodies: Mapping[str, Schema], answer: Schema) -> Schema:
    content = {kind: {"schema": schema} for kind, schema in bodies.items()}
    error = {"application/json": {"schema": _object({"error": _TEXT}, ["error"])}}
    refused = {str(status): {"description": words, "content": error} for status, words in _ERRORS.items()}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": content},
        "responses": _answered(answer) | refused,
    }


def _got(summary: str, answer: Schema | None = None, path: str = "") -> Schema:
    named = {"parameters": [{"name": path, "in": "path", "required": True, "schema": _TEXT}]} if path else {}
    return {"summary": summary, **named, "responses": _answered(answer)}


def _answered(answer: Schema | None) -> Schema:
    content = {"content": {"application/json": {"schema": answer}}} if answer else {}
    return {"200": {"description": "The answer.", **content}}


def _setting(key: Key) -> Schema:
    """The schema of a search setting. Without it, the model's setting holds."""
    if key.kind is bool:
        schema: Schema = {"type": "boolean"}
    elif key.kind is list:
        schema = _list(_TEXT) | {"maxItems": key.request}
    elif key.kind is str:
        schema = {"enum": list(key.choices or ())}
    else:
        schema = {"type": "integer" if key.kind is int else "number", "minimum": key.low, "maximum": key.high}
    return schema | {"description": key.described}
