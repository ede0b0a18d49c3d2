"""Reads the parameters of DeepL's interface: languages, and what is asked of a translation.

Each invalid value raises a Refusal that says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from vtrans.apps.documents.document import PlainDocument, html_document
from vtrans.apps.documents.formats.tagged import Tags, tagged_document
from vtrans.apps.documents.sentences import Splitting
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.limits import Limits
from vtrans.apps.server.parameters import check_texts, flag, required_text
from vtrans.apps.server.refusals import Refusal
from vtrans.apps.server.service import Read, Service
from vtrans.text.languages import Languages, base
from vtrans.text.vocabulary import Formality

SPLITTING: dict[str, Splitting] = {"1": "lines", "nonewlines": "sentences", "0": "nothing"}
FORMALITY: dict[str, Formality | None] = {
    "default": None,
    "more": "more",
    "less": "less",
    "prefer_more": "more",
    "prefer_less": "less",
}
_UNSUPPORTED = ("style_id", "custom_instructions", "translation_memory_id", "glossary_ids")
_VARIANTS = {"en": ("en-GB", "en-US"), "pt": ("pt-BR", "pt-PT")}  # which DeepL's clients want to name


@dataclass(frozen=True)
class Asked:
    """Options of a translation request. Without a source language, it is detected."""

    source: str | None
    target: str
    formality: str
    glossary_id: str

    def options(self, service: Service, source: str) -> RequestOptions:
        """Returns the options of a request from this language. Raises a Refusal for a form of address that the model
        has not learned, unless it is only preferred."""
        options = RequestOptions(formality=FORMALITY[self.formality])
        languages = Languages(source, self.target)
        if options.formality and languages in service.workers and not service.supports(languages, options):
            if not self.formality.startswith("prefer_"):
                raise Refusal(
                    400,
                    f"Target language {self.target.upper()} does not support formality {self.formality!r}; use "
                    "'default', 'prefer_more' or 'prefer_less'.",
                )
            options = RequestOptions()
        return options


def asked_of(fields: Mapping[str, Any], service: Service) -> Asked:
    """Returns the parameters that texts and documents have in common."""
    for name in _UNSUPPORTED:
        if fields.get(name):
            raise Refusal(400, f"Value for '{name}' not supported: this server has no such feature.")
    target = language(fields, "target_lang", [pair.tgt for pair in service.workers])
    source = None
    if fields.get("source_lang"):
        source = language(fields, "source_lang", [pair.src for pair in service.workers])
    formality = choice(fields, "formality", FORMALITY, "default")
    glossary_id = fields.get("glossary_id") or ""
    if not isinstance(glossary_id, str):
        raise Refusal(400, "Value for 'glossary_id' not supported: it must be a string.")
    if glossary_id and source is None:
        raise Refusal(400, "Parameter 'source_lang' not specified: a glossary needs it.")
    return Asked(source, target, formality, glossary_id)


@dataclass(frozen=True)
class TextRequest:
    """A request to /v2/translate."""

    texts: list[str]
    read: Read
    asked: Asked
    billed: bool
    model_type: str | None


def text_request(fields: Mapping[str, Any], service: Service, limits: Limits) -> TextRequest:
    """Returns the checked parameters of /v2/translate. `context` and `preserve_formatting` change nothing."""
    texts = fields.get("text")
    texts = list(texts) if isinstance(texts, list) else [texts]
    check_texts("text", texts, limits)
    flag(fields, "preserve_formatting")
    model_type = fields.get("model_type")
    return TextRequest(
        texts,
        _reader(fields),
        asked_of(fields, service),
        flag(fields, "show_billed_characters"),
        str(model_type).removeprefix("prefer_") if model_type else None,
    )


def _reader(fields: Mapping[str, Any]) -> Read:
    """Returns how the texts of a request are read."""
    handling = choice(fields, "tag_handling", ("", "xml", "html"), "")
    split = choice(fields, "split_sentences", SPLITTING, "nonewlines" if handling == "html" else "1")
    splitting = SPLITTING[split]
    ignored = frozenset(_names(fields, "ignore_tags"))
    if handling == "html":
        return partial(html_document, ignored=frozenset(map(str.lower, ignored)), splitting=splitting)
    outline = "outline_detection" not in fields or flag(fields, "outline_detection")
    tags = Tags(
        ignored, frozenset(_names(fields, "splitting_tags")), frozenset(_names(fields, "non_splitting_tags")), outline
    )
    if handling == "xml":
        return partial(tagged_document, tags=tags, splitting=splitting)
    return partial(PlainDocument, splitting=splitting)


def _names(fields: Mapping[str, Any], name: str) -> Iterator[str]:
    """Yields the names of tags in a list, or in texts that separate them by commas."""
    value = fields.get(name) or []
    for part in value if isinstance(value, list) else [value]:
        if not isinstance(part, str):
            raise Refusal(400, f"Value for '{name}' not supported: it must be a list of strings.")
        yield from filter(None, map(str.strip, part.split(",")))


def choice(fields: Mapping[str, Any], name: str, allowed: Sequence[str] | Mapping[str, Any], default: str) -> str:
    """Returns a parameter that must be one of some texts; JSON may have a number."""
    value = fields.get(name)
    if value is None or value == "":
        return default
    text = str(int(value)) if isinstance(value, (bool, int)) else value
    if not isinstance(text, str) or text not in allowed:
        raise Refusal(400, f"Value for '{name}' not supported: it must be {', '.join(filter(None, allowed))}.")
    return text


# Languages.


def language(fields: Mapping[str, Any], name: str, codes: Sequence[str]) -> str:
    """Returns the first of some codes that a client means: the same one, or the same language if one of both names no
    region."""
    asked = required_text(fields, name).replace("_", "-").lower()
    for code in codes:
        if code.lower() == asked:
            return code
    for code in codes:
        if base(code) == base(asked) and (asked == base(asked) or code.lower() == base(code)):
            return code
    served = ", ".join(sorted({code.upper() for code in codes}))
    raise Refusal(400, f"Value for '{name}' not supported: it must be one of {served}, got {asked[:40].upper()!r}.")


def variants(code: str) -> tuple[str, ...]:
    """Returns the languages as which a target language is listed."""
    return _VARIANTS.get(code, (code,))
