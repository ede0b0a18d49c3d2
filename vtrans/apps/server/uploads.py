"""Uploaded files, and translated files to download.

Client data is never written to the disk, and a client's file name is never used as a path.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from urllib.parse import quote

from starlette.responses import Response

from vtrans.apps.documents.document import Filling
from vtrans.apps.documents.files import Opened, open_file
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.limits import Limits, Refusal
from vtrans.apps.server.requests import Upload
from vtrans.apps.server.service import AUTO, Service, in_thread

NAME_CHARACTERS = 80  # a result's name keeps this many characters from its end
KEPT_SECONDS, MOST_KEPT = 3600.0, 256 << 20  # limits for stored results: their age and total bytes


def attachment(name: str, content: bytes) -> Response:
    """Returns a file as a download. Browsers never show it as a page of this server: it may contain scripts."""
    named = f"attachment; filename=\"{safe_name(name)}\"; filename*=UTF-8''{quote(name, safe='')}"  # RFC 6266
    return Response(content, media_type="application/octet-stream", headers={"Content-Disposition": named})


class Results:
    """Translated files, kept in memory for an hour at most; the oldest make room for new ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._files: dict[str, tuple[str, bytes, float]] = {}

    def add(self, name: str, content: bytes) -> str:
        """Stores a file, and returns the secret name for its download, which ends in `safe_name(name)`."""
        self._forget()
        key = f"{secrets.token_urlsafe(16)}.{safe_name(name)}"
        self._files[key] = name, content, self._clock()
        while sum(len(kept) for _, kept, _ in self._files.values()) > MOST_KEPT and len(self._files) > 1:
            del self._files[next(iter(self._files))]
        return key

    def get(self, key: str) -> tuple[str, bytes] | None:
        """Returns the name and content of a file, or None if it was never added or is gone."""
        self._forget()
        result = self._files.get(key)
        return result and result[:2]

    def _forget(self) -> None:
        now = self._clock()
        for key in [key for key, (_, _, since) in self._files.items() if now - since > KEPT_SECONDS]:
            del self._files[key]


def translated_name(name: str, source: str, target: str) -> str:
    """Returns the name of a translated file: the last part of the client's name, with the target language in it, and
    without invisible characters."""
    last = " ".join(re.split(r"[/\\]", name)[-1].split())
    path = PurePath("".join(character for character in last if character.isprintable()))
    stem = path.stem.removesuffix(f".{source}").lstrip(".")[-NAME_CHARACTERS:]
    return f"{stem or 'file'}.{target}{path.suffix}"


def safe_name(name: str) -> str:
    """Returns the end of a file name, reduced to ASCII letters, digits, `-`, `_` and single dots."""
    last = re.split(r"[/\\]", name)[-1][-NAME_CHARACTERS:]
    return re.sub(r"\.{2,}", ".", re.sub(r"[^A-Za-z0-9._-]", "_", last)).lstrip(".") or "file"


@dataclass(frozen=True)
class UploadedFile:
    """An uploaded file and its languages."""

    opened: Opened
    source: str
    target: str

    async def translated(self, service: Service, options: RequestOptions, owner: str) -> bytes:
        """Returns the content of the translated file."""
        texts = self.opened.texts
        sources, by_source = [self.source] * len(texts), {self.source: options}
        answers = await service.translate(texts, sources, self.target, self.opened.read, by_source, owner)
        return await in_thread(partial(self.opened.written, [answer.text for answer in answers]))


async def uploaded_file(service: Service, limits: Limits, upload: Upload, source: str, target: str) -> UploadedFile:
    """Opens an uploaded file, and detects its language if `source` is `auto`. Raises a Refusal or DocumentError if it
    cannot be translated."""
    filling = Filling(target, source="" if source == AUTO else source)
    opened = await in_thread(partial(open_file, upload.name, upload.content, limits.file_bytes, filling))
    size = sum(map(len, opened.texts))
    if size > limits.file_characters:
        raise Refusal(413, f"A file must have at most {limits.file_characters:,} characters, got {size:,}.")
    if source == AUTO:
        detected = await service.sources(AUTO, opened.texts, target, opened.read)
        longest = max(range(len(detected)), key=lambda i: len(opened.texts[i]))
        source = detected[longest].language
    return UploadedFile(opened, source, target)
