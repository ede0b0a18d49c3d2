"""Reads `model.bin`, the variables of a CTranslate2 model, in every version that CTranslate2 4 reads (1 to 6).

The file has its version, the name and revision of the model's specification, the variables and their aliases, in
little-endian byte order. The writer is `_serialize` in CTranslate2's `python/ctranslate2/specs/model_spec.py`; the
reader, which knows the older versions, is `Model::load` in its `src/models/model.cc`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtrans.errors import FileError
from vtrans.files import reason
from vtrans.interop.foreign_files import AGAIN, Facts, ForeignTensors, Stream
from vtrans.interop.settings import wrong

VERSION = 6  # the newest one
MOST_VARIABLES = 200_000  # a Transformer of a thousand layers has 50,000
MOST_DIMENSIONS = 4
FLOAT32, INT8, INT16, INT32, FLOAT16, BFLOAT16 = range(6)  # the type ids
TYPE_NAMES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
FLOATS = (FLOAT32, FLOAT16, BFLOAT16)
# numpy lacks bfloat16, which is the upper half of float32.
TYPES = {FLOAT32: "<f4", INT8: "<i1", INT16: "<i2", INT32: "<i4", FLOAT16: "<f2", BFLOAT16: "<u2"}
TYPE_OF_WIDTH = {4: FLOAT32, 2: INT16, 1: INT8}  # versions 1 to 3 have the width of a value instead of its type
INT16_SCALE = 1000.0  # of int16 variables without one, as in version 1
SCALE = "_scale"  # a quantised variable's scale has its name and this
_NAME = re.compile(rb"[A-Za-z0-9_.:/]+\0")


@dataclass(frozen=True)
class Variable:
    """The place, type and shape of a variable in the file. `stored` is its name there, even under an alias."""

    stored: str
    type_id: int
    shape: tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Binary:
    """The variables of a model.bin: `version`, `specification`, `revision`, and `variables` by name and by alias.

    The constructor reads only the list of variables. Raises FileError unless the list describes the whole file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.variables: dict[str, Variable] = {}
        self.read = set[str]()  # the names of the numbers and texts that were asked for
        try:
            with path.open("rb") as file:
                self._read_list(Stream(path, file))
        except OSError as error:
            raise FileError(f"{path} cannot be read: {reason(error)}.") from None

    def _read_list(self, stream: Stream) -> None:
        path = self.path
        self.version = stream.number("I")
        if not 1 <= self.version <= VERSION:
            advice = "give a folder that a converter of CTranslate2 wrote"
            raise wrong(path, "the binary version of CTranslate2", f"from 1 to {VERSION}", self.version, advice)
        self.specification = _name(stream) if self.version >= 2 else ""
        self.revision = stream.number("I") if self.version >= 2 else 1
        for _ in range(_count(stream, "variables")):
            name = self._new_name(stream)
            self.variables[name] = self._variable(name, stream)
        for _ in range(_count(stream, "aliases") if self.version >= 3 else 0):
            alias, name = self._new_name(stream), _name(stream)
            if name not in self.variables:
                raise FileError(f"{path} has the alias {alias} of {name}, which it lacks; {AGAIN}.")
            self.variables[alias] = self.variables[name]
        if stream.left:
            raise FileError(f"{path} has {stream.left:,} bytes after its last variable; {AGAIN}.")

    def _new_name(self, stream: Stream) -> str:
        name = _name(stream)
        if name in self.variables:
            raise FileError(f"{self.path} has the variable {name[:80]} twice; {AGAIN}.")
        return name

    def _variable(self, name: str, stream: Stream) -> Variable:
        """Reads the description of a variable and skips its values."""
        dimensions = stream.number("B")
        if dimensions > MOST_DIMENSIONS:
            what = f"the number of dimensions of {name[:80]}"
            raise wrong(self.path, what, f"at most {MOST_DIMENSIONS}", dimensions, AGAIN)
        shape = tuple(stream.number("I") for _ in range(dimensions))
        type_id, length = stream.number("B"), stream.number("I")
        if self.version < 4:  # the width of a value, and the number of values
            type_id, length = TYPE_OF_WIDTH.get(type_id, -1), length * type_id
        if type_id not in TYPES:
            raise FileError(f"{self.path}: {name[:80]} has an unknown type of values; {AGAIN}.")
        variable = Variable(name, type_id, shape, stream.tell())
        if length != variable.size * np.dtype(TYPES[type_id]).itemsize:
            raise FileError(f"{self.path}: {name[:80]} has {length:,} bytes, which do not fit its shape; {AGAIN}.")
        stream.skip(length)
        return variable

    @property
    def weight_type(self) -> str:
        """Returns the type of most weights: "int8"."""
        sizes = Counter(dict.fromkeys(TYPE_NAMES, 0))
        for variable in self.variables.values():
            sizes[TYPE_NAMES[variable.type_id]] += variable.size
        return sizes.most_common(1)[0][0]

    def rename(self, new_name: Callable[[str], str]) -> None:
        """Gives every variable another name. Raises FileError if two get the same."""
        renamed = {new_name(name): variable for name, variable in self.variables.items()}
        if len(renamed) < len(self.variables):
            raise FileError(f"{self.path} has two variables of one name; {AGAIN}.")
        self.variables = renamed

    def number(self, name: str, default: float) -> float:
        """Returns the value of a variable that is one number, or `default` if there is no such variable."""
        self.read.add(name)
        variable = self.variables.get(name)
        if variable is None:
            return default
        value = float(self._values(variable).item()) if variable.size == 1 else math.nan
        if not math.isfinite(value):
            raise wrong(self.path, name, "one number", f"{value} with the shape {list(variable.shape)}", AGAIN)
        return value

    def text(self, name: str, default: str) -> str:
        """Returns the value of a variable that is a text in UTF-8, or `default` if there is no such variable."""
        self.read.add(name)
        variable = self.variables.get(name)
        if variable is None:
            return default
        try:
            if variable.type_id != INT8:
                raise ValueError
            return self._values(variable).tobytes().decode()
        except ValueError:
            raise FileError(f"{self.path}: {name} must be a text in UTF-8; {AGAIN}.") from None

    def same(self, name: str, other: str) -> bool:
        """Returns whether two variables have equal values. Versions before 3 have no aliases, but write both."""
        one, two = self.variables[name], self.variables[other]
        if one.shape != two.shape:
            return False
        return one == two or torch.equal(self._tensor(name), self._tensor(other))

    def tensors(self) -> ForeignTensors:
        """Returns the variables as weights in float32; those in int8 or int16 are divided by their scale."""
        scales = {f"{name}{SCALE}" for name in self.variables}
        weights = {
            name: Facts(torch.int32 if variable.type_id == INT32 else torch.float32, variable.shape)
            for name, variable in self.variables.items()
            if variable.shape and name not in scales
        }
        return ForeignTensors(self.path, weights, self._tensor)

    def _tensor(self, name: str) -> Tensor:
        variable = self.variables[name]
        values = self._values(variable)
        if variable.type_id == BFLOAT16:
            values = (values.astype(np.uint32) << 16).view(np.float32)
        tensor = torch.from_numpy(values.astype(np.float32, copy=False))
        if variable.type_id in (INT8, INT16):
            tensor *= 1 / self._scale(name, variable)
        return tensor

    def _scale(self, name: str, variable: Variable) -> Tensor:
        """Returns the scale of a quantised variable: one number, or one for each row of an int8 variable."""
        names = (f"{name}{SCALE}", f"{variable.stored}{SCALE}")
        stored = next((name for name in names if name in self.variables), None)
        if stored is None:
            if variable.type_id == INT16:
                return torch.tensor(INT16_SCALE)
            raise FileError(f"{self.path} lacks {names[0]}, the scale of {name}; {AGAIN}.")
        scale = self.variables[stored]
        if scale.type_id not in FLOATS or scale.size not in (1, variable.shape[0]):
            wanted = f"one floating-point number, or one for each row of {name}"
            raise wrong(self.path, stored, wanted, scale.shape, AGAIN)
        return self._tensor(stored).reshape(-1, *[1] * (len(variable.shape) - 1))

    def _values(self, variable: Variable) -> NDArray[Any]:
        """Returns the values of a variable as they are in the file, bfloat16 as uint16."""
        with self.path.open("rb") as file:
            file.seek(variable.offset)
            values = np.fromfile(file, dtype=TYPES[variable.type_id], count=variable.size)
        if len(values) < variable.size:
            raise FileError(f"{self.path} became shorter while it was read; {AGAIN}.")
        return values.reshape(variable.shape)


def _count(stream: Stream, what: str) -> int:
    count = stream.number("I")
    if count > MOST_VARIABLES:
        raise wrong(stream.path, f"the number of {what}", f"at most {MOST_VARIABLES:,}", count, AGAIN)
    return count


def _name(stream: Stream) -> str:
    """Reads a name: the number of its bytes with a final NUL, and the bytes."""
    data = stream.bytes(stream.number("H"))
    if not _NAME.fullmatch(data):
        what = f"the name before byte {stream.tell():,}"
        raise wrong(stream.path, what, "letters, digits, _.:/ and a final NUL", data, AGAIN)
    return data[:-1].decode("ascii")
