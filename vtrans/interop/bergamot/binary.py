"""Reads and writes the binary files of Bergamot: models (`src/common/binary.cpp` of browsermt/marian-dev) and lexical
shortlists (`src/data/shortlist.cpp`).

A model file has the version 1, the number of tensors, four numbers per tensor (length of the name, type, length of the
shape, bytes), the names, the shapes, a gap, and the data. A tensor of the type intgemm8 is a matrix of 8-bit integers,
which is followed by the number that the weights were multiplied with. All but embeddings are transposed: their shape
is [in, out], their data [out, in].
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vtrans.errors import FileError
from vtrans.files import check_path, reason
from vtrans.interop.foreign_files import AGAIN, Facts, ForeignTensors, Stream, read_bytes
from vtrans.interop.settings import wrong
from vtrans.storage.model_file import Shortlist
from vtrans.text.vocabulary import EOS_ID, Vocabulary

VERSION, ALIGNMENT = 1, 256
INT8, FLOAT32, INTGEMM8 = 0x0101, 0x0404, 0x4101
NAMES = {INT8: "int8", FLOAT32: "float32", INTGEMM8: "intgemm8"}
SHORTLIST_MAGIC = 0xF11A48D5013417F5
MOST_TENSORS, LONGEST_NAME, MOST_DIMENSIONS = 100_000, 1000, 4
LONGEST_SHORTLIST, LONGEST_LIST = 1 << 26, 1000  # bytes of a file, and subwords of a list; Firefox's have 100
_HEADER, _NUMBER, _MULTIPLIER = struct.Struct("<4Q"), struct.Struct("<Q"), struct.Struct("<f")


class Matrix(NamedTuple):
    """A matrix in 8 bits: `integers` [out, in] or, of an embedding, [V, D], which are its values times `multiplier`."""

    integers: Tensor
    multiplier: float

    @property
    def values(self) -> Tensor:
        return self.integers.float() * (1 / self.multiplier)


Tensors = Mapping[str, Tensor | Matrix]
"""By name. A tensor has the type float32 or, if it is Marian's settings, int8."""


def is_embedding(name: str) -> bool:
    """Returns whether Bergamot reads a matrix as an embedding, which is not transposed."""
    return "Wemb" in name


class _Place(NamedTuple):
    """A tensor in a file."""

    kind: int
    shape: tuple[int, ...]
    offset: int


def open_model(path: Path) -> ForeignTensors:
    """Returns the tensors of a model file by name. Matrices are [in, out] and in float32.

    Raises FileError if the file is missing or damaged, or has tensors of other types.
    """
    check_path(path)
    try:
        with path.open("rb") as file:
            places = _places(Stream(path, file))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {reason(error)}.") from None
    facts = {
        name: Facts(torch.int8 if place.kind == INT8 else torch.float32, place.shape) for name, place in places.items()
    }
    return ForeignTensors(path, facts, lambda name: _tensor(path, name, places[name]))


def _places(stream: Stream) -> dict[str, _Place]:
    """Returns the tensors of a model file, whose list must describe the whole file."""
    path = stream.path
    version, number = stream.number("Q"), stream.number("Q")
    if version != VERSION or not 0 < number <= MOST_TENSORS:
        raise FileError(
            f"{path} must be a binary model of Marian of the version {VERSION} with 1 to {MOST_TENSORS:,} tensors, got "
            f"the version {version} with {number:,}."
        )
    headers = [_HEADER.unpack(stream.bytes(_HEADER.size)) for _ in range(number)]
    names = [_name(stream, length) for length, *_ in headers]
    if len(set(names)) < len(names):
        raise FileError(f"{path} has two tensors of one name; {AGAIN}.")
    shapes = []
    for name, (_, kind, rank, _) in zip(names, headers, strict=True):
        if kind not in NAMES:
            allowed = f"{', '.join(NAMES.values())} ({', '.join(map(hex, NAMES))})"
            raise FileError(f"{path}: {name} must have one of the types {allowed}, got {kind:#x}.")
        if not 1 <= rank <= MOST_DIMENSIONS or (kind == INTGEMM8 and rank != 2):
            raise wrong(path, f"the number of dimensions of {name}", "2" if kind == INTGEMM8 else "from 1 to 4", rank)
        shapes.append(tuple(stream.number("I") for _ in range(rank)))
    stream.skip(stream.number("Q"))
    places = {}
    for name, shape, (_, kind, _, length) in zip(names, shapes, headers, strict=True):
        size = math.prod(shape) * (4 if kind == FLOAT32 else 1) + (_MULTIPLIER.size if kind == INTGEMM8 else 0)
        if not 0 <= length - size < ALIGNMENT:
            raise wrong(path, f"{name} of the shape {list(shape)}", f"{size:,} bytes", length, AGAIN)
        places[name] = _Place(kind, shape, stream.tell())
        stream.skip(length)
    if stream.left:
        raise FileError(f"{path} has {stream.left:,} bytes after its last tensor; {AGAIN}.")
    return places


def _name(stream: Stream, length: int) -> str:
    data = stream.bytes(min(length, LONGEST_NAME))
    name = data.decode("latin-1")
    if length > LONGEST_NAME or not name.endswith("\0") or not (name.isascii() and name[:-1].isprintable()):
        what = f"the name before byte {stream.tell():,}"
        raise wrong(stream.path, what, f"at most {LONGEST_NAME} ASCII characters and a final NUL", name, AGAIN)
    return name[:-1]


def _tensor(path: Path, name: str, place: _Place) -> Tensor:
    size = math.prod(place.shape)
    with path.open("rb") as file:
        file.seek(place.offset)
        values = np.fromfile(file, "<f4" if place.kind == FLOAT32 else "<i1", size)
        multiplier = file.read(_MULTIPLIER.size)
    if len(values) < size or (place.kind == INTGEMM8 and len(multiplier) < _MULTIPLIER.size):
        raise FileError(f"{path} became shorter while it was read; {AGAIN}.")
    tensor = torch.from_numpy(values)
    if place.kind != INTGEMM8:
        return tensor.view(place.shape)
    (number,) = _MULTIPLIER.unpack(multiplier)
    if not 0 < number < math.inf:
        raise wrong(path, f"the multiplier of {name}", "a positive number", number, AGAIN)
    if is_embedding(name):
        return Matrix(tensor.view(place.shape), number).values
    return Matrix(tensor.view(place.shape[::-1]), number).values.T


def write_model(path: Path, tensors: Tensors) -> None:
    """Writes a model file. Equal tensors give equal bytes."""
    headers, names, shapes, data = [], b"", b"", []
    for name, tensor in tensors.items():
        if isinstance(tensor, Matrix):
            kind, shape = INTGEMM8, list(tensor.integers.shape)
            shape = shape if is_embedding(name) else shape[::-1]
            content = tensor.integers.numpy().tobytes() + _MULTIPLIER.pack(tensor.multiplier)
        else:
            kind, shape = (INT8 if tensor.dtype == torch.int8 else FLOAT32), list(tensor.shape)
            content = tensor.contiguous().numpy().tobytes()
        encoded = name.encode() + b"\0"
        content += bytes(-len(content) % ALIGNMENT)
        headers.append(_HEADER.pack(len(encoded), kind, len(shape), len(content)))
        names, shapes = names + encoded, shapes + np.array(shape, dtype="<i4").tobytes()
        data.append(content)
    start = _NUMBER.pack(VERSION) + _NUMBER.pack(len(headers)) + b"".join(headers) + names + shapes
    gap = -(len(start) + _NUMBER.size) % ALIGNMENT
    path.write_bytes(b"".join((start, _NUMBER.pack(gap), bytes(gap), *data)))


def write_shortlist(path: Path, shortlist: Shortlist, places: Mapping[int, int], source: Mapping[int, int]) -> None:
    """Writes a lexical shortlist. `places` are the rows of the written target vocabulary by our ids, `source` those of
    the source vocabulary.

    Bergamot lists the first rows of the vocabulary for each sentence, which are not the frequent subwords here. So
    these are translations of EOS, with which each source ends.
    """
    always = {places[int(id)] for id in shortlist.frequent} | {places[EOS_ID]}
    lists: list[list[int]] = [[] for _ in source]
    for id, place in source.items():
        listed = {places[int(other)] for other in shortlist.translations[id]}
        lists[place] = sorted(always if id == EOS_ID else listed - always)
    offsets = np.cumsum([0, *map(len, lists)], dtype="<u8")
    flat = np.array([place for row in lists for place in row], dtype="<u4")
    longest = max(map(len, lists))
    body = np.array([0, longest, len(offsets), len(flat)], dtype="<u8").tobytes() + offsets.tobytes() + flat.tobytes()
    path.write_bytes(_NUMBER.pack(SHORTLIST_MAGIC) + _NUMBER.pack(checksum(body)) + body)


def read_shortlist(path: Path, src: Vocabulary, tgt: Vocabulary) -> Shortlist:
    """Returns the lexical shortlist of a file. Every translation may contain the first rows of the vocabulary and the
    translations of EOS, with which each source ends.

    Raises FileError if the file is damaged or belongs to other vocabularies.
    """
    data = memoryview(read_bytes(path, LONGEST_SHORTLIST))
    magic, total, first, _, rows, count = struct.unpack_from("<6Q", data) if len(data) >= 48 else (0,) * 6
    if magic != SHORTLIST_MAGIC or len(data) != 48 + 8 * rows + 4 * count or total != checksum(data[16:]):
        raise FileError(f"{path} is truncated, damaged, or not a binary shortlist; {AGAIN}.")
    offsets, flat = np.frombuffer(data, "<u8", rows, 48), np.frombuffer(data, "<u4", count, 48 + 8 * rows)
    sound = len(offsets) == len(src.pieces) + 1 and offsets[0] == 0 and offsets[-1] == count
    if not sound or (offsets[1:] < offsets[:-1]).any() or (flat >= len(tgt.pieces)).any():
        raise FileError(f"{path} is not a shortlist for the model's vocabularies; give the one of the model.")
    ids = np.zeros(len(tgt.pieces), dtype=np.int32)
    for id, place in places_of(tgt).items():
        ids[place] = id
    lists = {
        id: ids[flat[int(offsets[place]) : int(offsets[place + 1])]].tolist() for id, place in places_of(src).items()
    }
    always = sorted({*ids[:first].tolist(), *lists.pop(EOS_ID)})
    longest = max(map(len, lists.values()), default=0)
    if longest > LONGEST_LIST:
        raise wrong(path, "the number of translations of a subword", f"at most {LONGEST_LIST:,}", longest)
    table = np.full((len(src), max(1, longest)), EOS_ID, dtype=np.int32)
    for id, listed in lists.items():
        table[id, : len(listed)] = listed
    return Shortlist(table, np.array(always, dtype=np.int32))


def places_of(vocab: Vocabulary) -> dict[int, int]:
    """Returns the rows of the written vocabulary by our ids."""
    return {id: place for id, place in enumerate(vocab.order) if place is not None}


def checksum(data: bytes | memoryview) -> int:
    """Returns Marian's hash of whole 64-bit words: `hashMem` of src/common/hash.h."""
    seed, mask = 0, (1 << 64) - 1
    for (word,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]):
        seed ^= (word + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & mask
    return seed
