"""The settings of other programs, checked when they are read. Every error names the file, the key and the value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from vtrans.config import ModelConfig, SearchConfig, section_from
from vtrans.errors import FileError, InputError

LARGEST_SIZE = 1 << 24  # of a dimension, a number of layers or a vocabulary
Section = TypeVar("Section", ModelConfig, SearchConfig)


def wrong(where: Path | str, what: str, allowed: str, value: Any, advice: str = "") -> FileError:
    """Returns the error for a value in a file; None stands for a missing one."""
    return FileError(f"{where}: {what} must be {allowed}, got {shown(value)}{'; ' if advice else ''}{advice}.")


def shown(value: Any) -> str:
    """Returns a value as JSON has it, shortened if it is long."""
    return str(value).lower() if isinstance(value, bool) else "nothing" if value is None else repr(value)[:80]


@dataclass(frozen=True)
class Settings:
    """The settings in a file, which errors call `name`. Keys that are missing have the default of each method."""

    values: Mapping[str, Any]
    name: str

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def check(self, expected: Mapping[str, Sequence[Any]], advice: str = "") -> None:
        """Raises FileError unless each key has one of these values, of which the first is the default."""
        for key, allowed in expected.items():
            if self.get(key, allowed[0]) not in allowed:
                raise self.wrong(key, " or ".join(map(shown, allowed)) + " for vtrans to import the model", advice)

    def wrong(self, key: str, allowed: str, advice: str = "") -> FileError:
        """Returns the error for the value of a key."""
        return wrong(self.name, key, allowed, self.get(key), advice)

    def size(self, key: str, default: int | None = None, *, least: int = 1, largest: int = LARGEST_SIZE) -> int:
        """Returns a whole number: a dimension, a count or an id."""
        value = self.get(key, default)
        if type(value) is not int or not least <= value <= largest:
            raise self.wrong(key, f"a whole number from {least} to {largest:,}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.get(key, default)
        if type(value) not in (int, float):
            raise self.wrong(key, "a number")
        return float(value)

    def flag(self, key: str) -> bool:
        value = self.get(key, False)
        if type(value) is not bool:
            raise self.wrong(key, "true or false")
        return value

    def text(self, key: str, default: str) -> str:
        return str(self.get(key, default))

    def texts(self, key: str) -> list[str]:
        """Returns a list; [] if the key is missing."""
        return [str(value) for value in self._listed(key)]

    def sizes(self, key: str) -> list[int]:
        return [Settings({key: value}, self.name).size(key) for value in self._listed(key)]

    def _listed(self, key: str) -> list[Any]:
        value = self.get(key)
        return value if isinstance(value, list) else [] if value is None else [value]

    def section(self, kind: type[Section], values: Mapping[str, Any]) -> Section:
        """Returns the architecture or the search with these values. Raises FileError for one that vtrans lacks."""
        try:
            return section_from(kind, "model" if kind is ModelConfig else "search", values, self.name)
        except InputError as error:
            raise FileError(str(error)) from None
