"""The header of a safetensors file, and its tensors, read from disk a part at a time.

The file is not mapped into memory. A process that reads a mapped file ends with SIGBUS, without a message, if another
program has cut the file or if its disk fails. Here, both raise FileError.
"""

from __future__ import annotations

import json
import math
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vtrans.errors import FileError
from vtrans.files import reason

# The most bytes of a header. A state of 2,000 layers has 26 MB; parsing 100 MB of JSON may take 2.6 GB of memory.
MOST_HEADER = 1 << 25

NUMPY = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,  # NumPy lacks the type
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


class ColumnFile:
    """An open safetensors file. It stays readable after it was renamed or removed.

    `metadata` is that of the file; `columns` are its tensors, flattened. Raises OSError if the file cannot be opened,
    ValueError if it is truncated or not a safetensors file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb", buffering=0)
        weakref.finalize(self, self._file.close)
        self._lock = threading.Lock()
        size = path.stat().st_size
        length = int.from_bytes(self._file.read(8), "little")
        if not 2 <= length <= min(size - 8, MOST_HEADER):
            raise ValueError("its header has an impossible length")
        header = json.loads(self.read(8, length))
        if not isinstance(header, dict):
            raise ValueError("its header is not a JSON object")
        self.metadata = header.pop("__metadata__", None) or {}
        self._first = 8 + length
        self.columns: dict[str, Column] = {}
        for name, entry in header.items():
            if (column := self._column(entry, size - self._first)) is not None:
                self.columns[name] = column

    def _column(self, entry: Any, available: int) -> Column | None:
        try:
            shape, (begin, end), dtype = list(entry["shape"]), entry["data_offsets"], np.dtype(NUMPY[entry["dtype"]])
        except (KeyError, TypeError, ValueError):
            return None
        if not all(type(number) is int for number in (*shape, begin, end)) or not 0 <= begin <= end:
            return None
        if end > available:
            raise ValueError("its tensors are longer than the file")
        column = Column(self, dtype, self._first + begin, tuple(shape))
        return column if end - begin == column.nbytes else None

    def read(self, place: int, size: int) -> bytes:
        """Returns `size` bytes of the file. Raises FileError if they are not there any more."""
        try:
            raw = self._read(place, size)
        except OSError as error:
            why = reason(error)
        else:
            if len(raw) == size:
                return raw
            why = "it has become shorter while it was in use"
        raise FileError(
            f"{self.path} cannot be read: {why}; restore it and run the same command again, which resumes a training "
            "from its last checkpoint."
        )

    def _read(self, place: int, size: int) -> bytes:
        if hasattr(os, "pread"):  # a fork of this process, which shares the position in the file, may read too
            return os.pread(self._file.fileno(), size, place)
        with self._lock:  # two threads may read
            self._file.seek(place)
            return self._file.read(size)


class Column:
    """A flattened tensor in a file. Slices of it, without a step or negative numbers, are read from disk."""

    def __init__(self, file: ColumnFile, dtype: np.dtype[Any], place: int, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape, self._file, self._size = dtype, shape, file, dtype.itemsize
        self._place, self._elements = place, math.prod(shape)

    def __len__(self) -> int:
        return self._elements

    @property
    def nbytes(self) -> int:
        """Its size in the file."""
        return self._elements * self._size

    def __getitem__(self, part: slice) -> NDArray[Any]:
        start, stop = part.start, min(part.stop, self._elements)
        return np.frombuffer(self._file.read(self._place + start * self._size, (stop - start) * self._size), self.dtype)
