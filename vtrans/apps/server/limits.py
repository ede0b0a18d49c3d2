"""Limits: request sizes, requests per minute, API keys, and characters per month; and refused requests.

`vtrans serve --help` imports this module, so it needs no extra.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from vtrans.apps.documents.database import Database
from vtrans.config.keys import number
from vtrans.system.errors import FileError, InputError
from vtrans.system.files import reason

if TYPE_CHECKING:
    from starlette.responses import JSONResponse

REMEMBERED = 10_000  # clients; those with all requests restored are forgotten first
CLOSE = {"Connection": "close"}  # the rest of the request is not read
QUOTA_EXCEEDED = 456  # DeepL's own status


def is_deepl(path: str) -> bool:
    """Returns whether a path belongs to DeepL's API."""
    return path.startswith(("/v2/", "/v3/"))


class Refusal(Exception):
    """A request that is refused with this status, sentence and headers."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})

    def response(self, path: str) -> JSONResponse:
        """Returns the error response in the format of the path's API."""
        from starlette.responses import JSONResponse

        return JSONResponse({"message" if is_deepl(path) else "error": self.sentence}, self.status, self.headers)


def retry_after(seconds: float) -> dict[str, str]:
    """Returns the headers that ask the client to try again after some seconds."""
    return {"Retry-After": str(max(1, round(seconds)))}


@dataclass(frozen=True)
class Limits:
    """The limits of the server, each an option of `vtrans serve`."""

    PANEL: ClassVar[str] = "Limits"

    characters: int = number(
        50_000, (1, 10**9), "Maximum number of characters in all texts of a request.", "characters", flag="--char-limit"
    )
    texts: int = number(1000, (1, 10**6), "Maximum number of texts in a request.", "texts", flag="--batch-limit")
    per_minute: int = number(
        0, (0, 10**9), "Maximum requests per client and minute; 0 means no limit.", "requests", flag="--req-limit"
    )
    requests: int = number(256, (1, 10**6), "Maximum number of concurrent requests.", "requests", flag="--max-requests")
    timeout: float = number(
        600, (0.01, 86_400.0), "Time limit for answering a request, in seconds.", "seconds", metavar="SECONDS"
    )
    file_bytes: int = number(10_000_000, (1, 10**9), "Maximum number of bytes in a file.", "bytes", flag="--file-limit")
    file_characters: int = number(
        1_000_000, (1, 10**9), "Maximum number of characters in a file's text.", "characters", flag="--file-char-limit"
    )
    month_characters: int = number(
        0,
        (0, 10**12),
        "Maximum number of characters per API key and calendar month, which --memory keeps; 0 means no limit.",
        "characters",
        flag="--month-limit",
    )

    @property
    def body_bytes(self) -> int:
        """The maximum body size without a file, in bytes. In JSON and in a form, a character takes up to 12 bytes."""
        return 12 * self.characters + 100 * self.texts + 10_000

    def check(self, texts: Sequence[str]) -> None:
        """Raises a Refusal if there are no texts, too many for a request, or too long ones."""
        if not texts:
            raise Refusal(400, "A request must have at least one text.")
        size = sum(map(len, texts))
        for count, most, unit in ((len(texts), self.texts, "texts"), (size, self.characters, "characters")):
            if count > most:
                raise Refusal(400, f"A request must have at most {most:,} {unit}, got {count:,}.")


class RateLimit:
    """Allows each client `per_minute` requests at once, and as many again per minute."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute, self._clock = per_minute, clock
        self._restored: dict[str, float] = {}  # when a client has all its requests again, roughly in this order

    def take(self, client: str) -> float:
        """Counts a request of this client. Returns 0, or the seconds to wait if it is one too many."""
        if not self.per_minute:
            return 0.0
        if seconds := self.seconds(client):
            return seconds
        now = self._clock()
        self._restored[client] = max(self._restored.pop(client, now), now) + 60 / self.per_minute
        for oldest in list(islice(self._restored, 2)):  # one was added, so two at a time keep it small
            if len(self._restored) > REMEMBERED or self._restored[oldest] <= now:
                del self._restored[oldest]
        return 0.0

    def seconds(self, client: str) -> float:
        """Returns the seconds until this client may send a request. There must be a limit."""
        now = self._clock()
        used = max(self._restored.get(client, now) - now, 0.0)  # seconds until all requests are restored
        return max(0.0, round(used + 60 / self.per_minute - 60, 6))


class Keys:
    """The API keys in a file, one per line. Blank lines and lines that begin with # are not keys.

    Raises FileError if the file cannot be read, and InputError if it has no key.
    """

    def __init__(self, path: Path) -> None:
        try:
            lines = [line.strip() for line in path.read_text(encoding="utf-8").split("\n")]
        except (OSError, ValueError) as error:
            why = reason(error) if isinstance(error, OSError) else "it is not UTF-8"
            raise FileError(f"{path} cannot be read: {why}.") from None
        self._owners = {_digest(line) for line in lines if line and not line.startswith("#")}
        if not self._owners:
            raise InputError(f"{path} has no API key; write one per line.")

    def owner(self, key: str) -> str | None:
        """Returns the owner that a key names, or None for a wrong key. Because digests are compared, the time that this
        takes tells nothing about the keys."""
        owner = _digest(key)
        return owner if owner in self._owners else None


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class Usage:
    """Counts each owner's characters in a file, and refuses requests above `limit` characters per month; 0 means no
    limit. `warn` is called when a count cannot be stored."""

    def __init__(self, file: Database, limit: int, warn: Callable[[str], None] = lambda text: None) -> None:
        self._file, self.limit, self._warn = file, limit, warn

    def count(self, owner: str) -> int:
        """Returns an owner's number of characters this month."""
        query = "SELECT CAST(number AS TEXT) FROM characters WHERE owner = ? AND month = ?"
        return sum(int(number) for (number,) in self._file.rows(query, owner, _month()))

    def check(self, owner: str, texts: Sequence[str]) -> int:
        """Returns the number of characters in texts. Raises a Refusal if they exceed what is left to the owner."""
        size = sum(map(len, texts))
        if self.limit and (used := self.count(owner)) + size > self.limit:
            raise Refusal(
                QUOTA_EXCEEDED,
                f"Quota exceeded: at most {self.limit:,} characters per month are allowed, {used:,} were used, and "
                f"the request has {size:,}.",
            )
        return size

    @contextmanager
    def counted(self, owner: str, texts: Sequence[str]) -> Iterator[None]:
        """Checks texts, and counts them once the block has translated them. If the count cannot be stored, as on a full
        disk, it only warns."""
        size = self.check(owner, texts)
        yield
        statement = (
            "INSERT INTO characters VALUES (?, ?, ?) "
            "ON CONFLICT (owner, month) DO UPDATE SET number = number + excluded.number"
        )
        try:
            self._file.change(statement, owner, _month(), size)
        except FileError as error:
            self._warn(str(error))


def _month() -> str:
    return datetime.now(UTC).strftime("%Y-%m")
