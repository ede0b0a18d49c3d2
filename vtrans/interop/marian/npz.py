"""Reads `.npz` files: zip archives of NumPy arrays.

NumPy reads the arrays, without pickles. The archive and the headers are checked here first, because
`numpy.load` allocates what a header promises, whatever the file holds, evaluates headers as Python literals, and takes
the last of two arrays of one name.
"""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vtrans.errors import FileError
from vtrans.files import check_path, reason
from vtrans.interop.foreign_files import Facts, ForeignTensors

SUFFIX = ".npy"
TYPES = {
    "f2": torch.float16,
    "f4": torch.float32,
    "f8": torch.float64,
    "i1": torch.int8,
    "u1": torch.uint8,
}
# Trained weights hardly compress, and zeros compress a thousandfold. A file that grows by more is no model.
MOST_GROWTH = 20
MOST_ARRAYS, LONGEST_HEADER, MOST_DIMENSIONS = 10_000, 4096, 8
# What np.save and Marian write: "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 3), }".
_HEADER = re.compile(r"\{'descr': '[<|]([a-z]\d)', 'fortran_order': False, 'shape': \(((?:\d+, ?)*\d*)\),? ?\}\s*")
# What zipfile raises for damaged or unknown entries.
_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError)


class _Place(NamedTuple):
    """An array in the file."""

    facts: Facts
    entry: zipfile.ZipInfo


def open_npz(path: Path) -> ForeignTensors:
    """Returns the arrays of a file by name, without ".npy", after checking their headers.

    Raises FileError if the file is missing, damaged, too small for what it promises, or holds anything but arrays of
    numbers; reading an array raises it if the bytes do not match their checksum.
    """
    check_path(path)
    try:
        archive = zipfile.ZipFile(path)  # closed with the last reference to it
        size = path.stat().st_size
    except _ERRORS as error:
        raise FileError(f"{path} is truncated or not an .npz file: {reason(error)}.") from None
    places = {
        entry.filename.removesuffix(SUFFIX): _place(path, archive, entry) for entry in _entries(path, archive, size)
    }

    def read(name: str) -> Tensor:
        try:
            with archive.open(places[name].entry) as stream:
                values = np.lib.format.read_array(stream, allow_pickle=False)
                stream.read(1)  # at the end of an entry, zipfile compares the checksum
        except _ERRORS as error:
            raise FileError(f"{path}: {name} cannot be read: {reason(error)}; copy the file again.") from None
        return torch.from_numpy(values)

    return ForeignTensors(path, {name: place.facts for name, place in places.items()}, read)


def _entries(path: Path, archive: zipfile.ZipFile, size: int) -> list[zipfile.ZipInfo]:
    """Returns the entries of an archive of `size` bytes, which must be arrays."""
    entries = archive.infolist()
    if not 0 < len(entries) <= MOST_ARRAYS:
        raise FileError(f"{path} must have from 1 to {MOST_ARRAYS:,} arrays, got {len(entries):,}.")
    grown = sum(entry.file_size for entry in entries)
    if grown > MOST_GROWTH * size:
        raise FileError(
            f"{path} has {size:,} bytes, but claims to hold {grown:,}; at most {MOST_GROWTH} times its size is allowed."
        )
    for entry in entries:
        name = entry.filename
        if not name.endswith(SUFFIX):
            raise FileError(f"{path}: {name[:80]!r} must be the name of an array, which ends in {SUFFIX}.")
        if archive.NameToInfo[name] is not entry:
            raise FileError(f"{path} is damaged: it has the array {name[:80]!r} twice.")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FileError(f"{path}: {name} must be stored or deflated.")
    return entries


def _place(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> _Place:
    """Returns the place of an array, whose header must promise exactly the bytes of its entry."""
    name = entry.filename
    try:
        with archive.open(entry) as stream:
            data = stream.read(LONGEST_HEADER)
    except _ERRORS as error:
        raise FileError(f"{path}: {name} cannot be read: {reason(error)}; copy the file again.") from None
    # Versions 2 and 3 have four bytes for the length of the text, version 1 has two.
    first = {b"\1": 10, b"\2": 12, b"\3": 12}.get(data[6:7], 0)
    begin = first + int.from_bytes(data[8:first], "little")
    text = data[first:begin].decode("latin-1")
    header = _HEADER.fullmatch(text)
    if data[:6] != b"\x93NUMPY" or begin > LONGEST_HEADER or not header or header[1] not in TYPES:
        raise FileError(
            f"{path}: {name} must be a NumPy array of the type {', '.join(TYPES)} in C order, got {text[:80]!r}."
        )
    shape = tuple(int(number[:20]) for number in re.findall(r"\d+", header[2]))
    size, held = math.prod(shape) * int(header[1][1]), entry.file_size - begin
    if len(shape) > MOST_DIMENSIONS or size != held:
        raise FileError(
            f"{path}: {name} must have {size:,} bytes for its shape {list(shape[:MOST_DIMENSIONS])}, got {held:,}."
        )
    return _Place(Facts(TYPES[header[1]], shape), entry)
