"""The tensors of a safetensors file, read from disk a part at a time.

The file is not mapped into memory. A process that reads a mapped file ends with SIGBUS, without a message, if another
program has cut the file or if its disk fails. Here, both raise FileError.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vtrans.errors import FileError
from vtrans.files import reason

MOST_HEADER = 1 << 20  # bytes; that of a token store has less than 1 kB

NUMPY = {"U8": np.uint8, "U16": np.uint16, "I32": np.int32, "I64": np.int64}


class ColumnFile:
    """An open safetensors file. It stays readable after it was renamed or removed.

    `metadata` is that of the file; `columns` are its tensors with one dimension and a type of a token store. Raises
    OSError if the file cannot be opened, ValueError if it is truncated or not a safetensors file.
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
            (elements,), (begin, end), dtype = entry["shape"], entry["data_offsets"], np.dtype(NUMPY[entry["dtype"]])
        except (KeyError, TypeError, ValueError):
            return None
        if not all(type(number) is int for number in (elements, begin, end)) or not 0 <= begin <= end:
            return None
        if end > available:
            raise ValueError("its tensors are longer than the file")
        return Column(self, dtype, self._first + begin, elements) if end - begin == elements * dtype.itemsize else None

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
    """A tensor with one dimension in a file. Slices of it, without a step or negative numbers, are read from disk."""

    def __init__(self, file: ColumnFile, dtype: np.dtype[Any], place: int, elements: int) -> None:
        self.dtype, self._file, self._size = dtype, file, dtype.itemsize
        self._place, self._elements = place, elements

    def __len__(self) -> int:
        return self._elements

    def __getitem__(self, part: slice) -> NDArray[Any]:
        start, stop = part.start, min(part.stop, self._elements)
        return np.frombuffer(self._file.read(self._place + start * self._size, (stop - start) * self._size), self.dtype)
