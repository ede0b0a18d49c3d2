"""Reads and writes files of other programs, and checks sizes, shapes and names before it allocates memory.

Nothing here executes code from a file. Every error is a FileError that names the file and, for a setting, the key and
the value.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vtrans.config import ModelConfig, SearchConfig, section_from
from vtrans.storage.tensors import TensorFile, mapped
from vtrans.system.errors import FileError, InputError
from vtrans.system.files import reason

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_SIZE = 1 << 24  # limit for dimensions, layer counts and vocabulary sizes
Section = TypeVar("Section", ModelConfig, SearchConfig)
AGAIN = "copy the folder again, or convert the model again"
LONGEST_JSON = 1 << 26  # bytes; a vocabulary of a million pieces is smaller


def file_in(folder: Path, name: Any) -> Path:
    """Returns the path of the file `name` in a folder. The name may come from an untrusted file.

    Raises FileError if it leads out of the folder, or if there is no such file.
    """
    if not isinstance(name, str) or name in ("", ".", "..") or set(name) & set("/\\") or not name.isprintable():
        raise FileError(f"{folder} names a file {str(name)[:80]!r}, which is not in the folder itself.")
    path = folder / name
    if not path.is_file():
        raise FileError(f"{folder} lacks the file {name}.")
    return path


def read_bytes(path: Path, limit: int = LONGEST_JSON) -> bytes:
    """Returns the content of a file. Raises FileError if it cannot be read or has more than `limit` bytes."""
    try:
        with path.open("rb") as file:
            is_longer = os.fstat(file.fileno()).st_size > limit
            data = b"" if is_longer else file.read(limit + 1)  # a device has no size
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read: {reason(error)}.") from None
    if is_longer or len(data) > limit:
        raise FileError(f"{path} must have at most {limit:,} bytes.")
    return data


def read_object(path: Path, kind: type[Any] = dict) -> Any:
    """Returns the value of a UTF-8 JSON file. Raises FileError unless it is of type `kind`, by default an object."""
    try:
        value = json.loads(read_bytes(path).decode("utf-8-sig"))
    except RecursionError:
        raise FileError(f"{path} is nested too deeply.") from None
    except ValueError as error:
        raise FileError(f"{path} is not JSON: {str(error).rstrip('.')}.") from None
    if not isinstance(value, kind):
        raise FileError(f"{path} must hold a JSON {kind.__name__}, got {type(value).__name__}.")
    return value


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes an indented JSON file in UTF-8."""
    path.write_bytes(json.dumps(value, ensure_ascii=False, indent=2).encode() + b"\n")


def ordered(ids: Mapping[str, Any], count: Any, name: object) -> list[str]:
    """Returns `count` pieces in the order of their ids, which count from 0 and may be strings.

    Raises FileError, which names the vocabulary `name`, for other ids and for a missing `<unk>` or `</s>`.
    """
    pieces = {str(place): piece for piece, place in ids.items()}
    if len(ids) != count or pieces.keys() != set(map(str, range(len(ids)))):
        raise FileError(f"{name} must give {str(count)[:80]} pieces the ids from 0 on, one each.")
    for piece in ("<unk>", "</s>"):
        if piece not in ids:
            raise FileError(f"{name} lacks the piece {piece}.")
    return [pieces[str(place)] for place in range(len(ids))]


def wrong(where: Path | str, what: str, allowed: str, value: Any, advice: str = "") -> FileError:
    """Returns the error for a value in a file; a `value` of None means that it is missing."""
    return FileError(f"{where}: {what} must be {allowed}, got {shown(value)}{'; ' if advice else ''}{advice}.")


def shown(value: Any) -> str:
    """Returns a value for an error message, truncated if it is long; None is "nothing"."""
    return str(value).lower() if isinstance(value, bool) else "nothing" if value is None else repr(value)[:80]


@dataclass(frozen=True)
class Settings:
    """The settings in a file, called `name` in errors. A missing key has the default of the method that reads it."""

    values: Mapping[str, Any]
    name: str

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def check(self, expected: Mapping[str, Sequence[Any]], advice: str = "") -> None:
        """Raises FileError unless each key has one of its allowed values; the first is the default."""
        for key, allowed in expected.items():
            if self.get(key, allowed[0]) not in allowed:
                raise self.wrong(key, " or ".join(map(shown, allowed)) + " for vtrans to import the model", advice)

    def wrong(self, key: str, allowed: str, advice: str = "") -> FileError:
        """Returns the error for the value of a key."""
        return wrong(self.name, key, allowed, self.get(key), advice)

    def size(self, key: str, default: int | None = None, *, least: int = 1, largest: int = LARGEST_SIZE) -> int:
        """Returns an integer from `least` to `largest`: a dimension, a count or an id."""
        value = self.get(key, default)
        if type(value) is not int or not least <= value <= largest:
            raise self.wrong(key, f"a whole number from {least} to {largest:,}")
        return value

    def number(self, key: str, default: float) -> float:
        if type(value := self.get(key, default)) not in (int, float):
            raise self.wrong(key, "a number")
        return float(value)

    def flag(self, key: str) -> bool:
        if type(value := self.get(key, False)) is not bool:
            raise self.wrong(key, "true or false")
        return bool(value)

    def text(self, key: str, default: str = "") -> str:
        return str(self.get(key, default))

    def listed(self, key: str) -> list[Any]:
        """Returns a list. A single value becomes a list of one; a missing key gives []."""
        value = self.get(key)
        return value if isinstance(value, list) else [] if value is None else [value]

    def section(self, kind: type[Section], values: Mapping[str, Any]) -> Section:
        """Returns the ModelConfig or SearchConfig with these values. Raises FileError for an unsupported value."""
        try:
            return section_from(kind, "model" if kind is ModelConfig else "search", values, self.name)
        except InputError as error:
            raise FileError(str(error)) from None


class ForeignTensors:
    """The tensors in a file by name. Their shapes are known without reading them."""

    def __init__(self, path: Path, shapes: Mapping[str, Sequence[int]], read: Callable[[str], Tensor]) -> None:
        """`read` is called at most once per name."""
        self.path, self.shapes, self.read = path, dict(shapes), read
        self.checked = set[str]()

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def check(self, name: str, *shape: int) -> None:
        """Raises FileError if a tensor is missing or has another shape."""
        self.checked.add(name)
        if name not in self.shapes:
            raise FileError(f"{self.path} lacks the weight {name}.")
        if tuple(self.shapes[name]) != shape:
            raise FileError(f"{self.path}: {name} must have the shape {list(shape)}, got {list(self.shapes[name])}.")

    def refuse_others(self, ignored: Collection[str]) -> None:
        """Raises FileError for a tensor that was neither checked nor is `ignored`."""
        if others := sorted(self.shapes.keys() - self.checked - set(ignored)):
            raise FileError(f"{self.path} has the weight {others[0][:80]!r}, which this architecture does not have.")

    def weight(self, name: str) -> Tensor:
        """Returns a tensor as float32. Raises FileError if its type is not floating-point."""
        tensor = self.read(name)
        if not tensor.is_floating_point():
            raise FileError(f"{self.path}: {name} must have a floating-point type, got {tensor.dtype}.")
        return tensor.float()


def open_safetensors(path: Path, files: Iterable[Path]) -> ForeignTensors:
    """Returns the tensors of safetensors files; errors name `path`. Each read maps a file again, so that its pages are
    freed with the tensor. Copy a tensor to keep it, because the file backs its memory."""
    shapes: dict[str, Sequence[int]] = {}
    places: dict[str, Path] = {}
    for each in files:
        file = TensorFile(each, mapped(each, "pt"))
        for name in file.keys():  # noqa: SIM118 - not a mapping
            shapes[name], places[name] = file.facts(name)[1], each

    def read(name: str) -> Tensor:
        tensor: Tensor = TensorFile(places[name], mapped(places[name], "pt")).get_tensor(name)
        return tensor

    return ForeignTensors(path, shapes, read)
