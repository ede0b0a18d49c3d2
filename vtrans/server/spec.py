"""The description of the interface at /spec, in OpenAPI 3.1: openapi.json with the limits of this server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vtrans.keys import Key
from vtrans.server.limits import Limits
from vtrans.server.parameters import SEARCH_KEYS


def specification(version: str, limits: Limits) -> dict[str, Any]:
    """Returns the description of the interface with these limits."""
    made: dict[str, Any] = json.loads((Path(__file__).parent / "openapi.json").read_bytes())
    made["info"]["version"] = version
    schemas = made["components"]["schemas"]
    texts = schemas["TranslateRequest"]["properties"]["q"]
    texts["description"] = f"The text or texts, at most {limits.characters:,} characters together."
    texts["oneOf"][1]["maxItems"] = limits.texts
    for request in ("TranslateRequest", "FileRequest"):
        schemas[request]["properties"] |= {name: _setting(key) for name, key in SEARCH_KEYS.items()}
    return made


def _setting(key: Key) -> dict[str, Any]:
    """The schema of a search setting. Without it, the model's setting holds."""
    if key.kind is bool:
        schema: dict[str, Any] = {"type": "boolean"}
    elif key.kind is list:
        schema = {"type": "array", "items": {"type": "string"}, "maxItems": key.request}
    elif key.kind is str:
        schema = {"enum": list(key.choices or ())}
    else:
        schema = {"type": "integer" if key.kind is int else "number", "minimum": key.low, "maximum": key.high}
    return schema | {"description": key.described}
