"""Reads files of other programs, and checks sizes, shapes, types and names before it allocates memory.

Nothing here executes code from a file. Every error is a FileError that names the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vtrans.errors import FileError
from vtrans.files import reason
from vtrans.storage.tensors import TensorFile, mapped

if TYPE_CHECKING:
    import torch
    from torch import Tensor

AGAIN = "copy the folder again, or convert the model again"
LONGEST_JSON = 1 << 26  # bytes; the vocabulary of a model with a million pieces has less

Read = Callable[[], "Tensor"]
"""Reads a weight when it is needed, so that only one of them is in memory twice."""


def file_in(folder: Path, name: Any) -> Path:
    """Returns the path of a file of this folder. `name` may come from a file, so it must not lead out of the folder.

    Raises FileError if it does, or if there is no such file.
    """
    if (
        not isinstance(name, str)
        or not name
        or name in (".", "..")
        or set(name) & set("/\\\0")
        or not name.isprintable()
    ):
        raise FileError(f"{folder} names a file {str(name)[:80]!r}, which is not in the folder itself.")
    path = folder / name
    if not path.is_file():
        raise FileError(f"{folder} lacks the file {name}.")
    return path


def read_bytes(path: Path, limit: int = LONGEST_JSON) -> bytes:
    """Returns the content of a file that has at most `limit` bytes."""
    try:
        with path.open("rb") as file:
            fits = os.fstat(file.fileno()).st_size <= limit
            data = file.read(limit + 1) if fits else b""
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read: {reason(error)}.") from None
    if not fits or len(data) > limit:
        raise FileError(f"{path} must have at most {limit:,} bytes.")
    return data


def read_json(path: Path) -> Any:
    """Returns the value of a JSON file in UTF-8. A name that occurs twice in an object is an error."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            raise ValueError("a name occurs twice")
        return members

    try:
        return json.loads(read_bytes(path).decode("utf-8-sig"), object_pairs_hook=once)
    except RecursionError:
        raise FileError(f"{path} is nested too deeply.") from None
    except ValueError as error:
        raise FileError(f"{path} is not JSON: {str(error).rstrip('.')}.") from None


def read_object(path: Path) -> dict[str, Any]:
    """Returns the object of a JSON file."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise FileError(f"{path} must hold a JSON object, got {type(value).__name__}.")
    return value


class Facts(NamedTuple):
    """The type and shape of a tensor in a file."""

    dtype: torch.dtype
    shape: tuple[int, ...]


class ForeignTensors:
    """The tensors of a file by name. `facts` has their types and shapes without reading them."""

    def __init__(self, path: Path, facts: Mapping[str, Facts], read: Callable[[str], Tensor]) -> None:
        """`read` is called at most once per name."""
        self.path, self.facts, self._read = path, facts, read
        self._asked: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.facts

    def get(self, name: str, *shape: int) -> Read:
        """Returns a function that reads a tensor in float32. Raises FileError if it is missing, or has another shape or
        a type other than a floating-point one."""
        self._asked.add(name)
        if name not in self.facts:
            raise FileError(f"{self.path} lacks the weight {name}.")
        dtype, stored = self.facts[name]
        if stored != shape:
            raise FileError(f"{self.path}: {name} must have the shape {list(shape)}, got {list(stored)}.")
        if not dtype.is_floating_point:
            raise FileError(f"{self.path}: {name} must have a floating-point type, got {dtype}.")
        return lambda: self._read(name).float()

    def raw(self, name: str) -> Tensor:
        """Returns a tensor of any type."""
        self._asked.add(name)
        return self._read(name)

    def refuse_others(self, ignored: Collection[str] = ()) -> None:
        """Raises FileError if a tensor was not asked for and is not `ignored`."""
        if others := sorted(self.facts.keys() - self._asked - set(ignored)):
            raise FileError(f"{self.path} has the weight {others[0][:80]!r}, which this architecture does not have.")


def open_safetensors(path: Path) -> ForeignTensors:
    """Returns the tensors of a safetensors file. Each reading maps the file again, so that its pages leave the memory
    with the tensor. Copy what the model keeps, so that it does not depend on the file."""
    file = TensorFile(path, mapped(path, "pt"))
    facts = facts_of({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118 - not a mapping

    def read(name: str) -> Tensor:
        tensor: Tensor = TensorFile(path, mapped(path, "pt")).get_tensor(name)
        return tensor

    return ForeignTensors(path, facts, read)


def facts_of(tensors: Mapping[str, Tensor]) -> dict[str, Facts]:
    """Returns the types and shapes of tensors."""
    return {name: Facts(tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
