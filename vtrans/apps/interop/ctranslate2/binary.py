"""Reads `model.bin`, the variables of a CTranslate2 model, in every version that CTranslate2 4 reads (1 to 6).

The file has its version, the name and revision of the model's specification, the variables and their aliases, in
little-endian byte order. The writer is `_serialize` in CTranslate2's `python/ctranslate2/specs/model_spec.py`; the
reader, which knows the older versions, is `Model::load` in its `src/models/model.cc`.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtrans.apps.interop.foreign_files import AGAIN
from vtrans.system.errors import FileError
from vtrans.system.files import reason

VERSION = 6  # the newest one
MOST_VARIABLES = 200_000  # a Transformer of a thousand layers has 50,000
# By type id. NumPy lacks bfloat16, which is the upper half of float32, and has the place of uint16 here.
TYPES = tuple(map(np.dtype, ("<f4", "<i1", "<i2", "<i4", "<f2", "<u2")))
TYPE_OF_WIDTH = {4: 0, 2: 2, 1: 1}  # versions 1 to 3 have the width of a value instead of its type
INT16_SCALE = 1000.0  # of int16 variables without one, as in version 1
SCALE = "_scale"  # a quantised variable's scale has its name and this
_NAME = re.compile(rb"[A-Za-z0-9_.:/]+\0")


class Binary:
    """The variables of a model.bin, whose values are read when they are used.

    The constructor reads the list of variables. Raises FileError unless it describes the whole file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._at = path, 0
        self.variables: dict[str, NDArray[Any]] = {}
        self.aliases: dict[str, str] = {}
        self.read = set[str]()  # the names of the numbers and texts that were asked for
        try:
            self._data = np.memmap(path, np.uint8, "r")
            self._read_list()
        except OSError as error:
            raise FileError(f"{path} cannot be read: {reason(error)}.") from None
        except ValueError as error:
            raise FileError(f"{path} is not a model of CTranslate2, or damaged: {error}; {AGAIN}.") from None

    def _read_list(self) -> None:
        self.version = self._number(4)
        if not 1 <= self.version <= VERSION:
            raise ValueError(f"the binary version must be from 1 to {VERSION}, got {self.version}")
        self.specification, self.revision = (self._name(), self._number(4)) if self.version >= 2 else ("", 1)
        for _ in range(min(self._number(4), MOST_VARIABLES)):
            name = self._name()
            if name in self.variables:
                raise ValueError(f"it has the variable {name[:80]} twice")
            self.variables[name] = self._variable(name)
        for _ in range(min(self._number(4), MOST_VARIABLES) if self.version >= 3 else 0):
            alias, name = self._name(), self._name()
            if alias in self.variables or name not in self.variables:
                raise ValueError(f"it has the alias {alias[:80]} of {name[:80]}")
            self.variables[alias], self.aliases[alias] = self.variables[name], name
        if self._at < len(self._data):
            raise ValueError(f"it has {len(self._data) - self._at:,} bytes after its last variable")

    def _bytes(self, length: int) -> bytes:
        data = self._data[self._at : self._at + length].tobytes()
        if len(data) < length:
            raise ValueError("it ends within its variables")
        self._at += length
        return data

    def _number(self, size: int) -> int:
        return int.from_bytes(self._bytes(size), "little")

    def _name(self) -> str:
        """Reads a name: the number of its bytes with a final NUL, and the bytes."""
        data = self._bytes(self._number(2))
        if not _NAME.fullmatch(data):
            raise ValueError(f"a name must be of letters, digits and _.:/, got {data[:80]!r}")
        return data[:-1].decode("ascii")

    def _variable(self, name: str) -> NDArray[Any]:
        shape = [self._number(4) for _ in range(self._number(1))]
        type_id, length = self._number(1), self._number(4)
        if self.version < 4:  # the width of a value, and the number of values
            type_id, length = TYPE_OF_WIDTH.get(type_id, len(TYPES)), length * type_id
        if type_id >= len(TYPES) or length != math.prod(shape) * TYPES[type_id].itemsize:
            raise ValueError(f"{name[:80]} has an unknown type, or {length:,} bytes, which do not fit its shape")
        values = np.frombuffer(self._data, TYPES[type_id], math.prod(shape), self._at).reshape(shape)
        self._at += length
        return values

    def number(self, name: str, default: float) -> float:
        """Returns the value of a variable that is one number, or `default` if there is no such variable."""
        self.read.add(name)
        values = self.variables.get(name)
        if values is None:
            return default
        value = float(values.item()) if values.size == 1 else math.nan
        if not math.isfinite(value):
            raise FileError(f"{self.path}: {name[:80]} must be one number; {AGAIN}.")
        return value

    def text(self, name: str, default: str) -> str:
        """Returns the value of a variable that is a text, or `default` if there is no such variable."""
        self.read.add(name)
        return self.variables[name].tobytes().decode(errors="replace") if name in self.variables else default

    def same(self, name: str, other: str) -> bool:
        """Returns whether two variables have equal values. Versions before 3 have no aliases, but write both."""
        one, two = self.variables[name], self.variables[other]
        return one is two or (one.shape == two.shape and torch.equal(self.weight(name), self.weight(other)))

    def weight(self, name: str) -> Tensor:
        """Returns a variable in float32, or int32 as it is; one in int8 or int16 is divided by its scale."""
        values = self.variables[name]
        if values.dtype == np.int32:
            return torch.from_numpy(values.copy())
        if values.dtype == np.uint16:
            values = (values.astype(np.uint32) << 16).view(np.float32)
        tensor = torch.from_numpy(values.astype(np.float32))
        if values.dtype not in (np.int8, np.int16):
            return tensor
        stored = f"{self.aliases.get(name, name)}{SCALE}"
        if stored not in self.variables and values.dtype == np.int16:
            return tensor / INT16_SCALE
        scale = self.variables.get(stored, np.zeros(0))  # one number, or one for each row of an int8 variable
        if scale.dtype.kind != "f" or scale.size not in (1, values.shape[0]):
            raise FileError(
                f"{self.path}: {stored[:80]} must be a number, or one for each row of {name[:80]}; {AGAIN}."
            )
        return tensor / self.weight(stored).reshape(-1, *[1] * (values.ndim - 1))
