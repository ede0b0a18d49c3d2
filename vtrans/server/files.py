"""Files that clients send to be translated."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from vtrans.documents.files import Filling, Opened, open_file
from vtrans.server.batching import RequestOptions
from vtrans.server.limits import Limits
from vtrans.server.parameters import Upload
from vtrans.server.refusals import Refusal
from vtrans.server.service import AUTO, Service


@dataclass(frozen=True)
class UploadedFile:
    """A file that was opened, and its languages."""

    opened: Opened
    source: str
    target: str

    @property
    def characters(self) -> int:
        return sum(map(len, self.opened.texts))

    async def translated(self, service: Service, options: RequestOptions, owner: str) -> bytes:
        """Returns the content of the translated file."""
        texts = self.opened.texts
        sources = [self.source] * len(texts)
        answers = await service.translate(texts, sources, self.target, self.opened.read, options, owner)
        return await asyncio.to_thread(self.opened.written, [answer.text for answer in answers])


async def uploaded_file(service: Service, limits: Limits, upload: Upload, source: str, target: str) -> UploadedFile:
    """Returns a file, whose source language may be `auto`. Raises a Refusal or DocumentError if it cannot be
    translated."""
    filling = Filling(target, source="" if source == AUTO else source)
    opened = await asyncio.to_thread(open_file, upload.name, upload.content, limits.file_bytes, filling)
    size = sum(map(len, opened.texts))
    if size > limits.file_characters:
        raise Refusal(413, f"A file must have at most {limits.file_characters:,} characters, got {size:,}.")
    if source == AUTO:
        detected = await service.sources(opened.texts, target, opened.read)
        longest = max(range(len(detected)), key=lambda i: len(opened.texts[i]))
        source = detected[longest].language
    return UploadedFile(opened, source, target)
