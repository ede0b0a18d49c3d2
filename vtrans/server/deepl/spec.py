"""The description of DeepL's interface at /spec. DeepL's own reference explains the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from vtrans.server.deepl.glossaries import FORMATS
from vtrans.server.deepl.parameters import FORMALITY, SPLITTING
from vtrans.server.parameters import MULTIPART
from vtrans.server.refusals import QUOTA_EXCEEDED
from vtrans.server.schemas import FORMS, TEXT, Schema, got, list_of, object_of, or_list_of, posted

_FLAG: Schema = {"type": "boolean", "default": False}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_SOURCE: Schema = {"type": "string", "description": "Without it, the language is detected.", "examples": ["EN"]}
_TARGET: Schema = {"type": "string", "examples": ["DE", "PT-BR"]}
_FILE: Schema = {"type": "string", "format": "binary", "description": "A file as for /translate_file."}
_LANGUAGES = {"source_lang": _SOURCE, "target_lang": _TARGET}
_ASKED = {**_LANGUAGES, "formality": {"enum": list(FORMALITY), "default": "default"}, "glossary_id": TEXT}
_TAGS = or_list_of(TEXT) | {"description": "Names of elements of XML or HTML."}
_ERRORS = {404: "There is no such glossary or document.", QUOTA_EXCEEDED: "The limit of characters is reached."}
_posted = partial(posted, error="message", errors=_ERRORS)


def deepl_paths() -> Schema:
    """Returns the paths of the interface. The API key is in the header `Authorization: DeepL-Auth-Key KEY`."""
    translate = {
        "text": or_list_of(TEXT),
        **_ASKED,
        "split_sentences": {"enum": list(SPLITTING)},
        "tag_handling": {"enum": ["xml", "html"]},
        "ignore_tags": _TAGS,
        "splitting_tags": _TAGS,
        "non_splitting_tags": _TAGS,
        "outline_detection": {"type": "boolean", "default": True},
        "show_billed_characters": _FLAG,
        "preserve_formatting": _FLAG | {"description": "Changes nothing."},
        "context": TEXT | {"description": "Changes nothing."},
        "model_type": TEXT | {"description": "Changes nothing."},
    }
    translation = {
        "detected_source_language": TEXT,
        "text": TEXT,
        "billed_characters": _COUNT,
        "model_type_used": TEXT,
    }
    translations = object_of({"translations": list_of(object_of(translation, ["detected_source_language", "text"]))})
    language = object_of({"language": TEXT, "name": TEXT, "supports_formality": _FLAG}, ["language", "name"])
    usage = {"character_count": _COUNT, "character_limit": _COUNT}
    document = {"document_id": TEXT, "document_key": TEXT}
    file = {"file": _FILE, "filename": TEXT, "output_format": TEXT, **_ASKED}
    status = {
        "document_id": TEXT,
        "status": {"enum": ["translating", "done", "error"]},
        "seconds_remaining": _COUNT,
        "billed_characters": _COUNT,
        "error_message": TEXT,
    }
    key = _bodies({"document_key": TEXT}, ["document_key"])
    kind = {"type": {"enum": ["source", "target"], "default": "source"}}
    uploaded = {MULTIPART: object_of(file, ["file", "target_lang"])}
    return {
        "/v2/translate": {"post": _posted("Translate", _bodies(translate, ["text", "target_lang"]), translations)},
        "/v2/languages": {"get": got("List the languages", list_of(language), query=kind)},
        "/v2/usage": {"get": got("How much was translated this month", object_of(usage, list(usage)))},
        "/v2/document": {"post": _posted("Translate a file", uploaded, object_of(document, list(document)))},
        "/v2/document/{id}": {"post": _posted("Whether a file is translated", key, object_of(status))},
        "/v2/document/{id}/result": {"post": _posted("Fetch a translated file, for an hour", key, None)},
        "/v2/glossary-language-pairs": {"get": got("List the languages of glossaries", _PAIRS)},
        **_glossary_paths(2),
        **_glossary_paths(3),
    }


_PAIRS = object_of({"supported_languages": list_of(object_of(_LANGUAGES, list(_LANGUAGES)))}, ["supported_languages"])


def _glossary_paths(version: int) -> Schema:
    """Returns the paths of glossaries, which have one dictionary in version 2, and several in version 3."""
    counted = {**_LANGUAGES, "entry_count": _COUNT}
    entries = {**_LANGUAGES, "entries": TEXT, "entries_format": {"enum": list(FORMATS), "default": "tsv"}}
    dictionary = object_of(entries, ["source_lang", "target_lang", "entries"])
    made = {"glossary_id": TEXT, "name": TEXT, "creation_time": {"type": "string", "format": "date-time"}}
    if version == 2:
        glossary = object_of({**made, "ready": {"const": True}, **counted}, [*made, *counted])
        body = {"name": TEXT, **entries}
        read = got("Fetch the entries, separated by tabs")
    else:
        glossary = object_of({**made, "dictionaries": list_of(object_of(counted, list(counted)))}, [*made])
        body = {"name": TEXT, "dictionaries": list_of(dictionary)}
        found = object_of({**counted, **entries}, list(counted))
        read = got("Fetch the entries", object_of({"dictionaries": list_of(found)}), query=_LANGUAGES)
    path = f"/v{version}/glossaries"
    one = {
        "get": got("Describe a glossary", glossary),
        "delete": got("Delete a glossary", status=204),
    }
    paths = {
        path: {
            "post": _posted("Make a glossary", _bodies(body, list(body)[:1]), glossary, 201),
            "get": got("List the glossaries", object_of({"glossaries": list_of(glossary)}, ["glossaries"])),
        },
        f"{path}/{{id}}": one,
        f"{path}/{{id}}/entries": {"get": read},
    }
    if version == 3:
        one["patch"] = _posted("Rename a glossary, or add entries", _bodies(body), glossary)
        put = _posted(
            "Replace a dictionary", _bodies(entries, dictionary["required"]), object_of(counted, list(counted))
        )
        delete = got("Delete a dictionary", query=_LANGUAGES, status=204)
        paths[f"{path}/{{id}}/dictionaries"] = {"put": put, "delete": delete}
    return paths


def _bodies(properties: Schema, required: Sequence[str] = ()) -> Schema:
    return dict.fromkeys(FORMS, object_of(properties, required))
