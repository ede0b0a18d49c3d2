"""LibreTranslate's API: the fields of requests and answers, and the endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from vtrans.apps.cleaning.detection import Detection
from vtrans.apps.documents.document import PlainDocument
from vtrans.apps.documents.files import FORMATS
from vtrans.apps.documents.formats.html import READERS
from vtrans.apps.documents.inline import placeholders
from vtrans.apps.server.access import Access, url_at
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.endpoints import Call, Endpoint
from vtrans.apps.server.limits import Limits, Refusal, Usage
from vtrans.apps.server.requests import Fields, File, Text, Texts
from vtrans.apps.server.service import AUTO, Service
from vtrans.apps.server.uploads import Files
from vtrans.text.languages import Languages, language_name
from vtrans.text.vocabulary import Formality
from vtrans.translate.wording.glossary import Glossary, pair_of

GLOSSARY_TERMS, GLOSSARY_CHARACTERS = 1000, 200  # of a request, and of a term or a translation


class Keyed(Fields):
    """The fields of any request."""

    api_key: Annotated[str, Field(description="An API key, if the server needs one.")] = ""


class Asked(Keyed):
    """The fields of texts and files."""

    source: Annotated[Text, Field(description="The language of the text, or auto.", examples=["en", "auto"])]
    target: Annotated[Text, Field(examples=["en", "pt-BR"])]
    formality: Annotated[Formality | None, Field(description="For a target under formality in /languages.")] = None


Term = Annotated[Text, Field(max_length=GLOSSARY_CHARACTERS)]
Terms = Annotated[
    list[tuple[Term, Term]],
    Field(max_length=GLOSSARY_TERMS, fail_fast=True),
    BeforeValidator(lambda value: list(value.items()) if isinstance(value, dict) else value),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": GLOSSARY_TERMS}),
]


class TranslateRequest(Asked):
    q: Text | Texts
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0, description="The most alternatives.")] = 0
    alignments: Annotated[bool, Field(description="Whether to link words (text only).")] = False
    confidence: Annotated[
        bool, Field(description="Whether to rate words (text only), for a target under confidence in /languages.")
    ] = False
    glossary: Annotated[
        Terms | None,
        Field(description="Terms and their translations; | separates the forms of a translation. JSON only."),
    ] = None

    @property
    def options(self) -> RequestOptions:
        return RequestOptions(
            1 + self.alternatives,
            glossary=_glossary(self.glossary or ()),
            formality=self.formality,
            confidence=self.confidence,
        )


def _glossary(terms: Sequence[tuple[str, str]]) -> Glossary | None:
    """Returns the glossary of a request. Raises a Refusal for blank or contradictory terms."""
    pairs: dict[str, tuple[str, ...]] = {}
    for given in terms:
        try:
            term, forms = pair_of(*given)
        except ValueError:
            raise Refusal(400, "glossary must have terms and translations that are not blank.") from None
        if pairs.setdefault(term, forms) != forms:
            raise Refusal(400, "glossary must have each term once; separate the forms of a translation by |.")
    return Glossary(tuple(pairs.items())) if pairs else None


class FileRequest(Asked):
    file: File


class DetectRequest(Keyed):
    q: Text


class Suggestion(Keyed):
    q: Text
    s: Text
    source: Text
    target: Text


Link = tuple[int, int, int, int]
WordConfidence = tuple[int, int, float]


class Translated(BaseModel):
    """A translation, or a list of each for a list of texts. What was not asked for is missing."""

    translatedText: str | list[str]
    detectedLanguage: Detection | list[Detection] | None = None
    alternatives: list[str] | list[list[str]] | None = None
    alignments: Annotated[
        list[Link] | list[list[Link]] | None,
        Field(description="Where a word begins and ends in the text, and where its translation does, in characters."),
    ] = None
    confidences: Annotated[
        list[WordConfidence] | list[list[WordConfidence]] | None,
        Field(description="Where a word begins and ends, in characters, and how probably it is right."),
    ] = None


class Language(BaseModel):
    """A source language; `formality` and `confidence` are the targets for which a request may have them."""

    code: str
    name: str
    targets: list[str] = []
    formality: list[str] = []
    confidence: list[str] = []


class Health(BaseModel):
    status: Literal["ok"] = "ok"
    queue: Annotated[int, Field(description="The sentences that wait to be translated.")]


class LibreTranslate:
    """LibreTranslate's endpoints."""

    def __init__(self, service: Service, limits: Limits, access: Access, usage: Usage, files: Files) -> None:
        self.service, self.limits, self.access = service, limits, access
        self._usage, self._files = usage, files

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("POST", "/translate", self.translate),
            Endpoint("POST", "/translate_file", self.translate_file, large=True),
            Endpoint("GET", "/download_file/{filename}", self.download_file, open=True),
            Endpoint("POST", "/detect", self.detect),
            Endpoint("POST", "/suggest", self.suggest),
            Endpoint("GET", "/languages", self.languages, open=True),
            Endpoint("GET", "/frontend/settings", self.settings, open=True),
            Endpoint("GET", "/health", self.health, open=True),
        ]

    async def translate(self, call: Call, asked: TranslateRequest) -> Translated:
        """Translates texts."""
        service, many = self.service, isinstance(asked.q, list)
        texts = asked.q if isinstance(asked.q, list) else [asked.q]
        self.limits.check(texts)
        linked = asked.alignments and asked.format == "text"
        read = partial(PlainDocument, aligned=True) if linked else READERS[asked.format]
        target = service.code(asked.target)
        with self._usage.counted(call.owner, texts):
            source = service.source(asked.source)
            detected, answers = await service.translate(texts, source, target, read, asked.options, call.owner)
        lists: dict[str, Any] = {
            "translatedText": [answer.text for answer in answers],
            "detectedLanguage": asked.source == AUTO and detected,
            "alternatives": asked.alternatives and [answer.alternatives for answer in answers],
            "alignments": asked.alignments and [answer.links for answer in answers],
            "confidences": asked.confidence and [answer.confidences for answer in answers],
        }
        return Translated.model_construct(**{k: v if many else v[0] for k, v in lists.items() if v})

    async def translate_file(self, call: Call, asked: FileRequest) -> dict[Literal["translatedFileUrl"], str]:
        """Translates a file."""
        languages = self.service.source(asked.source), self.service.code(asked.target)
        file = await self._files.opened(asked.file, *languages)
        options = RequestOptions(formality=asked.formality)
        key = await self._files.translated(file, options, call.owner)
        # The client's Host header is not used: this server would seem to vouch for links to other hosts.
        base = (self.access.public_url or url_at(*call.request.scope["server"])).rstrip("/")
        return {"translatedFileUrl": f"{base}/download_file/{quote(key)}"}

    async def download_file(self, request: Request) -> Response:
        """Sends a translated file, for an hour."""
        return self._files.download(request.path_params["filename"])

    async def detect(self, call: Call, asked: DetectRequest) -> list[Detection]:
        """Detects the language of a text."""
        return await self.service.detect(asked.q)

    async def suggest(self, call: Call, asked: Suggestion) -> dict[Literal["success"], bool]:
        """Corrects a translation."""
        if not self.access.allows_origin(call.request.headers):
            raise Refusal(403, "Pages of this site must not change translations; the option --cors allows it.")
        if self.service.memory is None:
            raise Refusal(403, "Suggestions are disabled on this server.")
        texts = asked.q, asked.s
        if max(map(len, texts)) > self.limits.characters:
            raise Refusal(400, f"q and s must have at most {self.limits.characters:,} characters each.")
        if not all(text.strip() for text in texts):
            raise Refusal(400, "q and s must not be blank.")
        ours, theirs = map(placeholders, texts)
        if different := [*(ours - theirs), *(theirs - ours)]:
            raise Refusal(400, f"q and s must have the same placeholders, but {different[0]} is not in both alike.")
        languages = Languages(self.service.code(asked.source), self.service.code(asked.target))
        self.service.worker(languages)
        await asyncio.to_thread(self.service.correct, languages, *texts, call.owner)
        return {"success": True}

    async def languages(self, request: Request) -> list[Language]:
        """Lists the languages."""
        able = self.service.able
        return [
            Language(
                code=code,
                name=language_name(code),
                targets=self.service.targets(code),
                formality=able(code, RequestOptions(formality="more")),
                confidence=able(code, RequestOptions(confidence=True)),
            )
            for code in self.service.codes
        ]

    async def settings(self, request: Request) -> dict[str, Any]:
        """Tells limits and defaults for a page."""
        first = next(iter(self.service.workers))
        return {
            "charLimit": self.limits.characters,
            "frontendTimeout": 500,
            "apiKeys": self.access.keys is not None,
            "keyRequired": self.access.keys is not None,
            "suggestions": self.service.memory is not None,
            "filesTranslation": True,
            "supportedFilesFormat": list(FORMATS),
            "language": {
                role: {"code": code, "name": language_name(code)}
                for role, code in zip(("source", "target"), first, strict=True)
            },
        }

    async def health(self, request: Request) -> Health:
        """Tells that the server answers, even if the queue is long: restarting a busy server would not help."""
        return Health(queue=sum(worker.waiting for worker in self.service.workers.values()))
