"""Writes the binary files of Bergamot: models (`src/common/binary.cpp` of browsermt/marian-dev) and lexical
shortlists (`src/data/shortlist.cpp`).

A model file has the version 1, the number of tensors, four numbers per tensor (length of the name, type, length of the
shape, bytes), the names, the shapes, a gap, and the data. A tensor of the type intgemm8 is a matrix of 8-bit integers,
which is followed by the number that the weights were multiplied with. All but embeddings are transposed: their shape
is [in, out], their data [out, in].
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vtrans.storage.model_file import Shortlist
from vtrans.text.vocabulary import EOS_ID, Vocabulary

VERSION, ALIGNMENT = 1, 256
INT8, FLOAT32, INTGEMM8 = 0x0101, 0x0404, 0x4101
SHORTLIST_MAGIC = 0xF11A48D5013417F5
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


def places_of(vocab: Vocabulary) -> dict[int, int]:
    """Returns the rows of the written vocabulary by our ids."""
    return {id: place for id, place in enumerate(vocab.order) if place is not None}


def checksum(data: bytes | memoryview) -> int:
    """Returns Marian's hash of whole 64-bit words: `hashMem` of src/common/hash.h."""
    seed, mask = 0, (1 << 64) - 1
    for (word,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]):
        seed ^= (word + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & mask
    return seed
