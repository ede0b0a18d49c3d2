"""How many characters the owner of each API key has translated in a calendar month."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from vtrans.apps.documents.database import Database
from vtrans.apps.server.refusals import QUOTA_EXCEEDED, Refusal
from vtrans.system.errors import FileError


class Usage:
    """Counts characters in a file, and refuses requests above a limit per month; 0 means no limit. `warn` is called
    when something cannot be counted."""

    def __init__(self, file: Database, limit: int, warn: Callable[[str], None] = lambda text: None) -> None:
        self._file, self.limit, self._warn = file, limit, warn

    def count(self, owner: str) -> int:
        """Returns the number of characters in this month."""
        query = "SELECT CAST(number AS TEXT) FROM characters WHERE owner = ? AND month = ?"
        return sum(int(number) for (number,) in self._file.rows(query, owner, _month()))

    def check(self, owner: str, characters: int) -> None:
        """Raises a Refusal if an owner must not translate so many characters more."""
        if self.limit and (used := self.count(owner)) + characters > self.limit:
            raise Refusal(
                QUOTA_EXCEEDED,
                f"Quota exceeded: at most {self.limit:,} characters per month are allowed, {used:,} were used, and "
                f"the request has {characters:,}.",
            )

    def add(self, owner: str, characters: int) -> None:
        """Counts characters that were translated. If the disk is full, they are translated nonetheless."""
        statement = (
            "INSERT INTO characters VALUES (?, ?, ?) "
            "ON CONFLICT (owner, month) DO UPDATE SET number = number + excluded.number"
        )
        try:
            self._file.change(statement, owner, _month(), characters)
        except FileError as error:
            self._warn(str(error))


def _month() -> str:
    return datetime.now(UTC).strftime("%Y-%m")
