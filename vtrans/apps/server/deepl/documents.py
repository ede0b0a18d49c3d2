"""Documents that are translated after their upload, until they are fetched; an hour at most."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from vtrans.apps.server.refusals import Refusal
from vtrans.apps.server.uploads import KEPT_SECONDS, Results

WAIT = 2.0  # seconds that a question about a document waits for its end, so that clients need not ask again


@dataclass(frozen=True)
class Document:
    """A document, which `task` translates; it returns the name of the result, or why there is none."""

    key: str
    owner: str
    characters: int
    since: float
    task: asyncio.Task[str | Refusal]


class Documents:
    """The documents by their names, with the content of those that are translated in memory."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._results = clock, Results()
        self._documents: dict[str, Document] = {}

    def add(self, owner: str, name: str, characters: int, work: Awaitable[bytes | Refusal]) -> tuple[str, str]:
        """Begins to translate a document of this file name. Returns the name of the document and its secret key."""
        now = self._clock()
        for id, document in list(self._documents.items()):
            if document.task.done() and now - document.since > KEPT_SECONDS:
                del self._documents[id]

        async def translated() -> str | Refusal:
            made = await work
            return made if isinstance(made, Refusal) else self._results.add(name, made)

        id, key = secrets.token_hex(16).upper(), secrets.token_hex(32).upper()
        task = asyncio.get_running_loop().create_task(translated())
        self._documents[id] = Document(key, owner, characters, now, task)
        return id, key

    def get(self, owner: str, id: str, key: object) -> Document:
        """Returns a document. Raises a Refusal unless it is there, belongs to the owner, and has this key."""
        document = self._documents.get(id)
        right = isinstance(key, str) and document and hmac.compare_digest(document.key.encode(), key.encode())
        if document is None or not right or document.owner != owner:
            raise Refusal(404, "Document not found.")
        return document

    async def failure(self, document: Document) -> Refusal | None:
        """Waits a moment for the end of the translation. Returns why it has failed, if it has."""
        await asyncio.wait([document.task], timeout=WAIT)
        made = document.task.result() if document.task.done() else ""
        return made if isinstance(made, Refusal) else None

    def result(self, document: Document) -> tuple[str, bytes]:
        """Returns the name and content of a translated document. Raises a Refusal if it is not there."""
        if not document.task.done():
            raise Refusal(503, "Document is not translated yet.")
        made = document.task.result()
        if isinstance(made, Refusal):
            raise Refusal(404, f"Document not found: {made.sentence}")
        if found := self._results.get(made):
            return found
        raise Refusal(404, "Document not found: results are removed after an hour.")

    async def close(self) -> None:
        """Ends all translations."""
        tasks = [document.task for document in self._documents.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
