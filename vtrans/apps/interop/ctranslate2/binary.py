"""Reads `model.bin`, the variables of a CTranslate2 model, in every version that CTranslate2 4 reads (1 to 6).

The file contains its version, the name and revision of the model's specification, the variables and their aliases, in
little-endian byte order. In CTranslate2, `_serialize` in `python/ctranslate2/specs/model_spec.py` writes it, and
`Model::load` in `src/models/model.cc` reads all versions.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtrans.apps.interop.foreign_files import AGAIN, ForeignTensors, wrong
from vtrans.system.errors import FileError
from vtrans.system.files import reason

VERSION, REVISION = 6, 7  # the newest file version and specification revision
# Specifications of encoder-decoder Transformers, with the number of heads of models before revision 3.
SPECIFICATIONS = {"TransformerSpec": 8, "TransformerBase": 8, "TransformerBig": 16, "": 8}
# Revision 1 uses OpenNMT-tf's names. Each is replaced once, in this order.
OPENNMT_TF = {
    "transformer/": "", ":0": "", "w_embs": "embeddings/weight", "kernel": "weight", "LayerNorm": "layer_norm",
    "dense": "projection", "conv1d_": "linear_", "conv1d": "linear_0", "masked_multi_head": "self_attention",
}  # fmt: skip
# By type id. NumPy lacks bfloat16, the upper half of float32, so it is read as uint16.
TYPES = tuple(map(np.dtype, ("<f4", "<i1", "<i2", "<i4", "<f2", "<u2")))
TYPE_OF_WIDTH = {4: 0, 2: 2, 1: 1}  # versions 1 to 3 store the width of a value instead of its type
INT16_SCALE = 1000.0  # default scale of int16 variables; version 1 stores none
SCALE = "_scale"  # suffix of the name of a quantised variable's scale


class Binary(ForeignTensors):
    """The variables of a model.bin under the names of the newest revision. Values are read on use.

    Raises FileError for a damaged file, or a model that is not an encoder-decoder Transformer.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, {}, self.tensor)
        self.variables: dict[str, NDArray[Any]] = {}
        self.aliases: dict[str, str] = {}
        self._at = 0
        try:
            self._data = np.memmap(path, np.uint8, "r")
            self._read_list()
        except OSError as error:
            raise FileError(f"{path} cannot be read: {reason(error)}.") from None
        except (ValueError, struct.error) as error:
            raise FileError(f"{path} is not a model of CTranslate2, or damaged: {error}; {AGAIN}.") from None

    def _read_list(self) -> None:
        (self.version,) = self._take("I")
        if not 1 <= self.version <= VERSION:
            raise ValueError(f"the binary version must be from 1 to {VERSION}, got {self.version}")
        self.specification, self.revision = "", 1
        if self.version >= 2:
            self.specification = self._name()
            (self.revision,) = self._take("I")
        if self.specification not in SPECIFICATIONS:
            wanted = "TransformerSpec, a Transformer with encoder and decoder"
            raise wrong(self.path, "the specification", wanted, self.specification)
        if not 1 <= self.revision <= REVISION:
            advice = "convert the model with CTranslate2 4"
            raise wrong(self.path, "the revision", f"from 1 to {REVISION}", self.revision, advice)
        (count,) = self._take("I")
        for _ in range(count):
            name = self._renamed(self._name())
            self.add(name, self._values())
        (count,) = self._take("I") if self.version >= 3 else (0,)
        for _ in range(count):
            alias = self._renamed(self._name())
            name = self._renamed(self._name())
            if name not in self.variables:
                raise ValueError(f"it has the alias {alias[:80]} of {name[:80]}")
            self.add(alias, self.variables[name])
            self.aliases[alias] = name
        if self._at < len(self._data):
            raise ValueError(f"it has {len(self._data) - self._at:,} bytes after its last variable")

    def add(self, name: str, values: NDArray[Any]) -> None:
        """Adds a variable. Raises ValueError if the name exists."""
        if name in self.variables:
            raise ValueError(f"the name {name[:80]} occurs twice")
        self.variables[name] = values
        self.shapes[name] = values.shape

    def _take(self, format: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{format}", self._data.data, self._at)
        self._at += struct.calcsize(f"<{format}")
        return values

    def _name(self) -> str:
        """Reads a name: its length in bytes including a final NUL, then the bytes."""
        (length,) = self._take("H")
        (data,) = self._take(f"{length}s")
        return bytes(data).removesuffix(b"\0").decode("ascii", "backslashreplace")

    def _renamed(self, name: str) -> str:
        """Returns a variable's name in the newest revision. A single embedding has no number."""
        if self.revision > 1:
            return name.replace("encoder/embeddings_0/", "encoder/embeddings/", 1)
        for old, new in OPENNMT_TF.items():
            name = name.replace(old, new, 1)
        return name.replace("multi_head", "self_attention" if "encoder" in name else "attention", 1)

    def _values(self) -> NDArray[Any]:
        (rank,) = self._take("B")
        shape = self._take(f"{rank}I")
        type_id, length = self._take("BI")
        if self.version < 4:  # these are the width of a value and the number of values
            type_id, length = TYPE_OF_WIDTH.get(type_id, len(TYPES)), length * type_id
        if type_id >= len(TYPES) or length != math.prod(shape) * TYPES[type_id].itemsize:
            raise ValueError(f"a variable has an unknown type, or {length:,} bytes, which do not fit its shape")
        values = np.frombuffer(self._data, TYPES[type_id], math.prod(shape), self._at).reshape(shape)
        self._at += length
        return values

    def number(self, name: str, default: float) -> float:
        """Returns the value of a scalar, or `default` if it is missing. Raises FileError unless it is one number."""
        self.checked.add(name)
        values = self.variables.get(name, np.array(default))
        if values.size != 1 or not math.isfinite(values.item()):
            raise FileError(f"{self.path}: {name[:80]} must be one number; {AGAIN}.")
        return float(values.item())

    def text(self, name: str, default: str) -> str:
        """Returns the value of a string variable, or `default` if it is missing."""
        self.checked.add(name)
        return self.variables[name].tobytes().decode(errors="replace") if name in self.variables else default

    def same(self, name: str, other: str) -> bool:
        """Returns whether two variables are equal. Versions before 3 write tied variables twice, without aliases."""
        one, two = self.variables.get(name), self.variables.get(other)
        if one is None or two is None or one.shape != two.shape:
            return False
        return one is two or torch.equal(self.tensor(name), self.tensor(other))

    def tensor(self, name: str) -> Tensor:
        """Returns a variable as float32, or unchanged if it is int32. Divides int8 and int16 values by their scale."""
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
        scale = self.variables.get(stored, np.zeros(0))  # one number, or one per row of an int8 variable
        if scale.dtype.kind != "f" or scale.size not in (1, *values.shape[:1]):
            raise wrong(self.path, stored[:80], f"a number, or one for each row of {name[:80]}", scale.shape, AGAIN)
        return tensor / self.tensor(stored).reshape(-1, *[1] * (values.ndim - 1))
