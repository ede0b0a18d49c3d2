"""DeepL's API: the fields of requests and answers, and the endpoints, except for glossaries (glossaries.py)."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, Field
from starlette.responses import Response

from vtrans.apps.documents.document import PlainDocument
from vtrans.apps.documents.formats.html import html_document
from vtrans.apps.documents.formats.xml import Tags, tagged_document
from vtrans.apps.documents.sentences import Splitting
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.deepl.glossaries import Glossaries, GlossaryEndpoints, Source, Target, language
from vtrans.apps.server.endpoints import Call, Endpoint
from vtrans.apps.server.limits import Limits, Refusal, Usage
from vtrans.apps.server.request_handler import BUSY_SECONDS, RequestHandler
from vtrans.apps.server.requests import Fields, File, Text, Texts
from vtrans.apps.server.service import AUTO, Read, Service, in_thread
from vtrans.apps.server.uploads import KEPT_SECONDS, Files, UploadedFile
from vtrans.text.languages import Languages, base, language_name
from vtrans.text.vocabulary import Formality

UNLIMITED = 10**12  # the limit that DeepL reports if there is none
WAIT = 2.0  # seconds that a status request waits for a document, so that clients poll less often
_VARIANTS = {"en": ("en-GB", "en-US"), "pt": ("pt-BR", "pt-PT")}  # the variants that DeepL's clients expect
SPLITTING: dict[str, Splitting] = {"1": "lines", "nonewlines": "sentences", "0": "nothing"}
FORMALITY: dict[str, Formality] = {"more": "more", "less": "less", "prefer_more": "more", "prefer_less": "less"}


def _unsupported(value: Any) -> None:
    if value:
        raise ValueError("must be left out: this server has no such feature")


Unsupported = Annotated[Any, AfterValidator(_unsupported), Field(description="Not supported.")]
TagNames = Annotated[Text | Texts, Field(description="A list, or names that commas separate.")]


class LanguagesRequest(Fields):
    type: Literal["source", "target"] = "source"


class Asked(Fields):
    """The fields of texts and documents. Without a source language, it is detected."""

    target_lang: Target
    source_lang: Source | None = None
    formality: Literal["default", "more", "less", "prefer_more", "prefer_less"] = "default"
    glossary_id: Annotated[Text | None, Field(description="It needs source_lang.")] = None
    style_id: Unsupported = None
    custom_instructions: Unsupported = None
    translation_memory_id: Unsupported = None
    glossary_ids: Unsupported = None

    def languages(self, service: Service) -> tuple[str, str]:
        """Returns the served source language, or `auto` to detect it, and the served target language."""
        target = language("target_lang", self.target_lang, [pair.tgt for pair in service.pairs])
        if self.source_lang:
            return language("source_lang", self.source_lang, [pair.src for pair in service.pairs]), target
        if self.glossary_id:
            raise Refusal(400, "Parameter 'source_lang' not specified: a glossary needs it.")
        return AUTO, target


class TextRequest(Asked):
    MAY_BE_EMPTY: ClassVar = ("text",)
    text: Text | Texts
    split_sentences: Literal["1", "nonewlines", "0", 1, 0] | None = None
    tag_handling: Literal["xml", "html"] | None = None
    ignore_tags: TagNames = ""
    splitting_tags: TagNames = ""
    non_splitting_tags: TagNames = ""
    outline_detection: bool = True
    show_billed_characters: bool = False
    model_type: Text = ""

    @property
    def read(self) -> Read:
        """The function that makes documents of the texts."""
        usual = "nonewlines" if self.tag_handling == "html" else "1"
        splitting = SPLITTING[str(usual if self.split_sentences is None else self.split_sentences)]
        ignored, dividing, joining = map(_names, (self.ignore_tags, self.splitting_tags, self.non_splitting_tags))
        if self.tag_handling == "html":
            return partial(html_document, ignored=frozenset(map(str.lower, ignored)), splitting=splitting)
        if self.tag_handling == "xml":
            tags = Tags(ignored, dividing, joining, self.outline_detection)
            return partial(tagged_document, tags=tags, splitting=splitting)
        return partial(PlainDocument, splitting=splitting)


class DocumentRequest(Asked):
    file: File
    filename: Text | None = None
    output_format: Annotated[Text | None, Field(description="The ending of the file's name.")] = None


class DocumentKey(Fields):
    document_key: Text = ""


def _names(value: str | list[str]) -> frozenset[str]:
    """Returns the tag names in a list or in a comma-separated string."""
    texts = value if isinstance(value, list) else [value]
    return frozenset(name.strip() for text in texts for name in text.split(",")) - {""}


class Translation(BaseModel):
    detected_source_language: str
    text: str
    billed_characters: int | None = None
    model_type_used: str | None = None


class DeepLLanguage(BaseModel):
    language: str
    name: str
    supports_formality: bool | None = None


class DocumentStatus(BaseModel):
    document_id: str
    status: Literal["translating", "done", "error"]
    seconds_remaining: int | None = None
    billed_characters: int | None = None
    error_message: str | None = None


@dataclass(frozen=True)
class Document:
    """A document that `task` translates. The task returns the key of the result, or a Refusal if it fails."""

    key: str
    owner: str
    characters: int
    task: asyncio.Task[str | Refusal]


class DeepL:
    """DeepL's endpoints. They and LibreTranslate's use the same service, limits and queue."""

    def __init__(self, service: Service, limits: Limits, handler: RequestHandler, usage: Usage, files: Files) -> None:
        self._service, self._limits, self._handler, self._usage = service, limits, handler, usage
        self._files, self._documents = files, dict[str, Document]()
        self._glossaries = Glossaries(service.memory.file) if service.memory is not None else None

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("POST", "/v2/translate", self.translate),
            Endpoint("GET", "/v2/languages", self.languages),
            Endpoint("GET", "/v2/usage", self.usage),
            Endpoint("POST", "/v2/document", self.upload, large=True),
            Endpoint("POST", "/v2/document/{id}", self.document_status),
            Endpoint("POST", "/v2/document/{id}/result", self.document_result),
            *GlossaryEndpoints(self._service, self._glossaries).endpoints(),
        ]

    async def close(self) -> None:
        """Cancels the translations of documents."""
        tasks = [document.task for document in self._documents.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def translate(self, call: Call, asked: TextRequest) -> dict[Literal["translations"], list[Translation]]:
        """Translates texts."""
        texts = asked.text if isinstance(asked.text, list) else [asked.text]
        self._limits.check(texts)
        source, target = asked.languages(self._service)
        options = await self._options(call.owner, asked, target)
        with self._usage.counted(call.owner, texts):
            detected, answers = await self._service.translate(texts, source, target, asked.read, options, call.owner)
        return {
            "translations": [
                Translation(
                    detected_source_language=base(one.language).upper(),
                    text=answer.text,
                    billed_characters=len(text) if asked.show_billed_characters else None,
                    model_type_used=asked.model_type.removeprefix("prefer_") or None,
                )
                for one, text, answer in zip(detected, texts, answers, strict=True)
            ]
        }

    async def _options(self, owner: str, asked: Asked, target: str) -> RequestOptions:
        """Returns the options of a request, with its glossary. Raises a Refusal if the owner has no such glossary."""
        options = RequestOptions(
            formality=FORMALITY.get(asked.formality), preferred=asked.formality.startswith("prefer_")
        )
        if not asked.glossary_id or not asked.source_lang:
            return options
        if self._glossaries is None:
            raise Refusal(404, "Glossary not found.")
        stored = await in_thread(partial(self._glossaries.get, owner, asked.glossary_id))
        return replace(options, glossary=stored.dictionary(Languages(base(asked.source_lang), base(target))))

    async def languages(self, call: Call, asked: LanguagesRequest) -> list[DeepLLanguage]:
        """Lists the languages."""
        pairs = list(self._service.pairs)
        formal: dict[str, bool | None] = {}
        if asked.type == "source":
            formal = dict.fromkeys(base(pair.src) for pair in pairs)
        for pair in pairs if asked.type == "target" else ():
            for code in _VARIANTS.get(pair.tgt, (pair.tgt,)):
                able = self._service.supports(pair, RequestOptions(formality="more"))
                formal[code] = bool(formal.get(code)) or able
        return [
            DeepLLanguage(language=code.upper(), name=language_name(code), supports_formality=able)
            for code, able in formal.items()
        ]

    async def usage(self, call: Call) -> dict[Literal["character_count", "character_limit"], int]:
        """Tells how much was translated this month."""
        limit = self._usage.limit or UNLIMITED
        return {"character_count": self._usage.count(call.owner), "character_limit": limit}

    async def upload(self, call: Call, asked: DocumentRequest) -> dict[Literal["document_id", "document_key"], str]:
        """Translates a file, which keeps its format."""
        source, target = asked.languages(self._service)
        upload = replace(asked.file, name=asked.filename or asked.file.name)
        ending = PurePath(upload.name.lower()).suffix
        if asked.output_format not in (None, ending.removeprefix(".")):
            raise Refusal(400, f"Value for 'output_format' not supported: the file stays in the format {ending}.")
        file = await self._files.opened(upload, source, target)
        characters = self._usage.check(call.owner, file.opened.texts)
        options = await self._options(call.owner, asked, target)
        id, key = secrets.token_hex(16).upper(), secrets.token_hex(32).upper()
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._translated(file, options, call.owner))
        task.add_done_callback(lambda _: loop.call_later(KEPT_SECONDS, self._documents.pop, id, None))
        self._documents[id] = Document(key, call.owner, characters, task)
        return {"document_id": id, "document_key": key}

    async def _translated(self, file: UploadedFile, options: RequestOptions, owner: str) -> str | Refusal:
        """Translates a document. Returns the key of the result, or a Refusal for its owner if that fails."""
        with self._handler.counted():
            try:
                async with asyncio.timeout(self._limits.timeout) as timeout:
                    return await self._files.translated(file, options, owner)
            except Exception as error:
                return self._handler.refusal(error, timed_out=timeout.expired())

    def _document(self, call: Call, asked: DocumentKey) -> Document:
        """Returns a document. Raises a Refusal unless it exists, belongs to the caller, and has this key."""
        document = self._documents.get(call.id)
        if (
            document
            and document.owner == call.owner
            and secrets.compare_digest(document.key.encode(), asked.document_key.encode())
        ):
            return document
        raise Refusal(404, "Document not found.")

    async def document_status(self, call: Call, asked: DocumentKey) -> DocumentStatus:
        """Tells whether a file is translated."""
        document, status = self._document(call, asked), partial(DocumentStatus, document_id=call.id)
        await asyncio.wait([document.task], timeout=WAIT)
        if not document.task.done():
            return status(status="translating", seconds_remaining=BUSY_SECONDS)
        if isinstance(made := document.task.result(), Refusal):
            return status(status="error", error_message=made.sentence)
        return status(status="done", billed_characters=document.characters)

    async def document_result(self, call: Call, asked: DocumentKey) -> Response:
        """Sends a translated file, for an hour."""
        task = self._document(call, asked).task
        if not task.done():
            raise Refusal(503, "Document is not translated yet.")
        if isinstance(made := task.result(), Refusal):
            raise Refusal(404, f"Document not found: {made.sentence}")
        return self._files.download(made)
