"""The description of the interface at /spec, in OpenAPI 3.1."""

from __future__ import annotations

from typing import get_args

from vtrans.documents.document import READERS
from vtrans.documents.files import FORMATS
from vtrans.keys import Key
from vtrans.server.deepl.spec import deepl_paths
from vtrans.server.limits import Limits
from vtrans.server.parameters import GLOSSARY_TERMS, MULTIPART, SEARCH_KEYS
from vtrans.server.schemas import (
    CODE,
    FORMS,
    TEXT,
    Schema,
    got,
    list_of,
    object_of,
    or_list_of,
    posted,
    with_path_parameters,
)
from vtrans.text.vocabulary import Formality

_KEY: Schema = {"type": "string", "description": "An API key, if the server needs one."}
_SOURCE: Schema = {"type": "string", "description": "The language of the text, or auto.", "examples": ["en", "auto"]}
_DETECTED: Schema = {
    "type": "object",
    "properties": {"confidence": {"type": "number", "minimum": 0, "maximum": 100}, "language": CODE},
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


def specification(version: str, limits: Limits) -> Schema:
    """Returns the description of the interface with these limits."""
    search = {name: _setting(key) for name, key in SEARCH_KEYS.items()}
    translate = _translate_request(limits, search)
    translated = object_of(
        {
            "translatedText": or_list_of(TEXT),
            "detectedLanguage": or_list_of(_DETECTED) | {"description": "If the source is auto."},
            "alternatives": or_list_of(list_of(TEXT)) | {"description": "If alternatives are asked for."},
            "alignments": or_list_of(list_of(_LINK)) | {"description": "If alignments are asked for."},
            "confidences": or_list_of(list_of(_RATED)) | {"description": "If confidence is asked for."},
        },
        ["translatedText"],
    )
    ending = f"The ending of its name tells the format: {', '.join(FORMATS)}."
    file = {"file": {"type": "string", "format": "binary", "description": ending}}
    posted_file = object_of(
        {**file, "source": _SOURCE, "target": CODE, "formality": _FORMALITY, **search, "api_key": _KEY},
        ["file", "source", "target"],
    )
    lists = {name: list_of(CODE) for name in ("targets", "formality", "confidence")}
    language = object_of({"code": CODE, "name": TEXT, **lists}, ["code", "name", *lists])
    detect = object_of({"q": TEXT, "api_key": _KEY}, ["q"])
    queue = {"type": "integer", "minimum": 0, "description": "The sentences that wait to be translated."}
    health = object_of({"status": {"const": "ok"}, "queue": queue}, ["status", "queue"])
    suggest = object_of(
        {
            "q": TEXT | {"description": "The text."},
            "s": TEXT | {"description": "Its right translation, which later requests get."},
            "source": CODE,
            "target": CODE,
            "api_key": _KEY,
        },
        ["q", "s", "source", "target"],
    )
    done = object_of({"success": {"const": True}}, ["success"])
    url = object_of({"translatedFileUrl": TEXT}, [])
    paths = {
        "/translate": {"post": posted("Translate text", dict.fromkeys(FORMS, translate), translated)},
        "/translate_file": {"post": posted("Translate a file", {MULTIPART: posted_file}, url)},
        "/download_file/{filename}": {"get": got("Fetch a translated file, for an hour")},
        "/detect": {"post": posted("Detect the language", dict.fromkeys(FORMS, detect), list_of(_DETECTED))},
        "/suggest": {"post": posted("Correct a translation", dict.fromkeys(FORMS, suggest), done)},
        "/languages": {"get": got("List the languages", list_of(language))},
        "/frontend/settings": {"get": got("Limits and defaults for a page", {"type": "object"})},
        "/health": {"get": got("Whether the server answers", health)},
        "/metrics": {"get": got("Figures in Prometheus' text format")},
        **deepl_paths(),
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "vtrans",
            "version": version,
            "description": "Translation, with LibreTranslate's and DeepL's interfaces.",
        },
        "paths": with_path_parameters(paths),
    }


def _translate_request(limits: Limits, search: Schema) -> Schema:
    """Returns the body of a request for /translate, with these settings of the search."""
    return object_of(
        {
            "q": or_list_of(TEXT, limits.texts)
            | {"description": f"The text or texts, at most {limits.characters:,} characters together."},
            "source": _SOURCE,
            "target": CODE,
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
                "additionalProperties": TEXT,
                "maxProperties": GLOSSARY_TERMS,
                "description": "Terms and their translations; | separates the forms of a translation. JSON only.",
            },
            **search,
            "api_key": _KEY,
        },
        ["q", "source", "target"],
    )


def _setting(key: Key) -> Schema:
    """The schema of a search setting. Without it, the model's setting holds."""
    if key.kind is bool:
        schema: Schema = {"type": "boolean"}
    elif key.kind is list:
        schema = list_of(TEXT) | {"maxItems": key.request}
    elif key.kind is str:
        schema = {"enum": list(key.choices or ())}
    else:
        schema = {"type": "integer" if key.kind is int else "number", "minimum": key.low, "maximum": key.high}
    return schema | {"description": key.described}
