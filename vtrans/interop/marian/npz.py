"""Reads `.npz` files: zip archives of NumPy arrays.

NumPy reads the arrays, without pickles. It allocates what a header promises and takes the last of two arrays of one
name, so the sizes in the archive and in the headers are compared first.
"""

from __future__ import annotations

import math
import warnings
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vtrans.errors import FileError
from vtrans.files import check_path
from vtrans.interop.foreign_files import Facts, ForeignTensors

SUFFIX = ".npy"
TYPES = {np.dtype(name): getattr(torch, name) for name in ("float16", "float32", "float64", "int8", "uint8")}
# Trained weights hardly compress, and zeros compress a thousandfold. A file that grows by more is no model.
MOST_GROWTH = 20
MOST_ARRAYS, MOST_DIMENSIONS = 10_000, 8


def open_npz(path: Path) -> ForeignTensors:
    """Returns the arrays of a file by name, without ".npy", after checking their headers.

    Raises FileError if the file is missing, damaged, too small for what it promises, or holds anything but arrays of
    numbers; reading an array raises it if the bytes do not match their checksum.
    """
    check_path(path)
    try:
        archive = zipfile.ZipFile(path)  # closed with the last reference to it
    except Exception:  # zipfile and NumPy raise many kinds for damaged files
        raise FileError(f"{path} is truncated or not an .npz file; copy the file again.") from None
    _check_sizes(path, archive)
    facts = {entry.filename.removesuffix(SUFFIX): _facts(path, archive, entry) for entry in archive.infolist()}

    def read(name: str) -> Tensor:
        try:
            with archive.open(name + SUFFIX) as stream:
                values = np.lib.format.read_array(stream, allow_pickle=False)
                stream.read(1)  # at the end of an entry, zipfile compares the checksum
        except Exception:
            raise FileError(f"{path}: {name} is damaged; copy the file again.") from None
        return torch.from_numpy(values)

    return ForeignTensors(path, facts, read)


def _check_sizes(path: Path, archive: zipfile.ZipFile) -> None:
    entries, size = archive.infolist(), path.stat().st_size
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


def _facts(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Facts:
    """Returns the type and shape in a header, which must promise exactly the bytes of its entry."""
    try:
        with archive.open(entry) as stream, warnings.catch_warnings():
            warnings.simplefilter("error")  # about a header that NumPy did not write
            if np.lib.format.read_magic(stream) != (1, 0):  # NumPy and Marian write no other version
                raise ValueError
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
            held = entry.file_size - stream.tell()
    except Exception:
        raise FileError(
            f"{path}: {entry.filename[:80]} is damaged or not a NumPy array; copy the file again."
        ) from None
    if is_fortran or dtype not in TYPES:
        types = ", ".join(str(each) for each in TYPES)
        raise FileError(f"{path}: {entry.filename[:80]} must be an array of {types} in C order, got {str(dtype)[:80]}.")
    size = math.prod(shape) * dtype.itemsize
    if size != held or min(shape, default=0) < 0 or len(shape) > MOST_DIMENSIONS:
        raise FileError(f"{path}: {entry.filename[:80]} must have {held:,} bytes, but its shape has {str(size)[:80]}.")
    return Facts(TYPES[dtype], shape)
