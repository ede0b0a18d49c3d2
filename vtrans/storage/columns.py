"""The tensors of a safetensors file, read from disk a part at a time.

The file is not memory-mapped: if another program truncates a mapped file, or its disk fails, SIGBUS kills the reading
process without a message. Here, both raise FileError.
"""

from __future__ import annotations

import json
import math
import os
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vtrans.storage.tensors import mapped
from vtrans.system.errors import FileError
from vtrans.system.files import reason

NUMPY = {"I64": np.int64, "I32": np.int32, "U16": np.uint16, "U8": np.uint8}
"""The NumPy types of columns, by name in safetensors."""


class ColumnFile:
    """An open safetensors file. It stays readable after it is renamed or removed.

    `metadata` is the file's metadata; `columns` are its tensors, flattened. Raises FileError if the file is missing,
    truncated or not a safetensors file, and KeyError for a tensor of another type.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with mapped(path):  # safetensors checks the header
            self._file = path.open("rb", buffering=0)
        weakref.finalize(self, self._file.close)
        self._lock = threading.Lock()
        length = int.from_bytes(self._file.read(8), "little")
        header = json.loads(self.read(8, length))
        self.metadata: Mapping[str, str] = header.pop("__metadata__", {})
        self.columns = {name: Column(self, 8 + length, **entry) for name, entry in header.items()}

    def read(self, place: int, size: int) -> bytes:
        """Returns `size` bytes of the file from offset `place`. Raises FileError if they cannot be read."""
        raw, why = b"", "it has become shorter while it was in use"
        try:
            raw = self._read(place, size)
        except OSError as error:
            why = reason(error)
        if len(raw) == size:
            return raw
        raise FileError(
            f"{self.path} cannot be read: {why}; restore it and run the same command again, which resumes a training "
            "from its last checkpoint."
        )

    def _read(self, place: int, size: int) -> bytes:
        if hasattr(os, "pread"):  # a fork of this process may read too, and has the same file position
            return os.pread(self._file.fileno(), size, place)
        with self._lock:  # two threads may read
            self._file.seek(place)
            return self._file.read(size)


class Column:
    """A flattened tensor in a file. Slicing, without a step or negative indices, reads from disk."""

    def __init__(self, file: ColumnFile, first: int, dtype: str, shape: list[int], data_offsets: list[int]) -> None:
        self.dtype: np.dtype[Any] = np.dtype(NUMPY[dtype])
        self.shape = tuple(shape)
        self._file, self._place = file, first + data_offsets[0]

    def __len__(self) -> int:
        return math.prod(self.shape)

    def __getitem__(self, part: slice) -> NDArray[Any]:
        size, start, stop = self.dtype.itemsize, part.start, min(part.stop, len(self))
        return np.frombuffer(self._file.read(self._place + start * size, (stop - start) * size), self.dtype)
