"""Uploaded files, and translated files to download.

Client data is never written to the disk, and a client's file name is never used as a path.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from urllib.parse import quote

from starlette.responses import Response

from vtrans.apps.documents.document import Filling
from vtrans.apps.documents.files import Opened, open_file
from vtrans.apps.server.batching import RequestOptions
from vtrans.apps.server.limits import Limits, Refusal, Usage
from vtrans.apps.server.requests import Upload
from vtrans.apps.server.service import AUTO, Service, in_thread

NAME_CHARACTERS = 80  # a result's name keeps this many characters from its end
KEPT_SECONDS, MOST_KEPT = 3600.0, 256 << 20  # limits for stored results: their age and total bytes


@dataclass(frozen=True)
class UploadedFile:
    """An uploaded file, its languages, and the name of its translation."""

    opened: Opened
    source: str
    target: str
    name: str


class Files:
    """Translates uploaded files. The results stay in memory for an hour at most; the oldest make room for new ones."""

    def __init__(self, service: Service, limits: Limits, usage: Usage) -> None:
        self._service, self._limits, self._usage = service, limits, usage
        self._results: dict[str, tuple[str, bytes]] = {}

    async def opened(self, upload: Upload, source: str, target: str) -> UploadedFile:
        """Opens an uploaded file, and detects its language if `source` is `auto`. Raises a Refusal or DocumentError if
        it cannot be translated."""
        filling = Filling(target, source="" if source == AUTO else source)
        opened = await in_thread(partial(open_file, upload.name, upload.content, self._limits.file_bytes, filling))
        size, most = sum(map(len, opened.texts)), self._limits.file_characters
        if size > most:
            raise Refusal(413, f"A file must have at most {most:,} characters, got {size:,}.")
        if source == AUTO:
            detected = await self._service.sources(AUTO, opened.texts, target, opened.read)
            longest = max(range(len(detected)), key=lambda i: len(opened.texts[i]))
            source = detected[longest].language
        return UploadedFile(opened, source, target, translated_name(upload.name, source, target))

    async def translated(self, file: UploadedFile, options: RequestOptions, owner: str) -> str:
        """Translates a file. Returns the secret key of the result."""
        opened, languages = file.opened, (file.source, file.target)
        with self._usage.counted(owner, opened.texts):
            _, answers = await self._service.translate(opened.texts, *languages, opened.read, options, owner)
            content = await in_thread(partial(opened.written, [answer.text for answer in answers]))
        return self.keep(file.name, content)

    def keep(self, name: str, content: bytes) -> str:
        """Stores a file, and returns the secret key for its download, which ends in its name."""
        key = f"{secrets.token_urlsafe(16)}.{name}"
        self._results[key] = name, content
        asyncio.get_running_loop().call_later(KEPT_SECONDS, self._results.pop, key, None)
        while sum(len(kept) for _, kept in self._results.values()) > MOST_KEPT and len(self._results) > 1:
            del self._results[next(iter(self._results))]
        return key

    def download(self, key: str) -> Response:
        """Returns a translated file as a download. Browsers never show it as a page of this server: it may contain
        scripts. Raises a Refusal if it was never stored or is gone."""
        if key not in self._results:
            raise Refusal(404, "There is no such file. Files are removed after an hour.")
        name, content = self._results[key]
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}  # RFC 6266
        return Response(content, media_type="application/octet-stream", headers=headers)


def translated_name(name: str, source: str, target: str) -> str:
    """Returns the name of a translated file: the last part of the client's name, with the target language in it, and
    without invisible characters."""
    last = " ".join(re.split(r"[/\\]", name)[-1].split())
    path = PurePath("".join(character for character in last if character.isprintable()))
    stem = path.stem.removesuffix(f".{source}").lstrip(".")[-NAME_CHARACTERS:]
    return f"{stem or 'file'}.{target}{path.suffix}"
