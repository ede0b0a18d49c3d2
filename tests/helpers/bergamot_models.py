"""Models for Bergamot for tests: exports of small networks, and folders as Firefox downloads them."""

from __future__ import annotations

import dataclasses
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from drawn import seeded_tensors
from exports import LINES, random_model
from torch import Tensor

from vtrans.checkpoint import LoadedModel
from vtrans.config import SearchConfig
from vtrans.console import Console
from vtrans.data.store import DataFolder
from vtrans.interop.bergamot import exporter
from vtrans.interop.bergamot.binary import Matrix
from vtrans.storage.model_file import Shortlist
from vtrans.text.vocabulary import EOS_ID

MODEL: dict[str, Any] = {"d_model": 64, "d_ff": 64, "norm_eps": 1e-6, "positions": "marian", "autoregression": "ssru"}
VARIANTS: dict[str, dict[str, Any]] = {
    "SSRU": {},
    "self-attention": {"autoregression": "self-attention", "activation": "swish"},
    "separate embeddings, a bias": {"tie": "tgt-softmax", "projection_bias": True},
    "shared layers": {"share_layers": "all", "decoder_layers": 2},
}


def model(data: DataFolder, *, shortlist: bool = False, **changes: Any) -> LoadedModel:
    loaded = random_model(data, SearchConfig(beam=1, max_ratio=2.0, max_source=100), **MODEL | changes)
    loaded.model.tgt_embedding.weight.data[2] = 0.0  # the start
    if not shortlist:
        return loaded
    generator = seeded_tensors(1)
    size = len(data.tgt_vocab)
    translations = torch.randint(EOS_ID, size, (len(data.src_vocab), 5), dtype=torch.int32, generator=generator)
    made = Shortlist(translations.numpy(), np.arange(260, 290, dtype=np.int32))
    return dataclasses.replace(loaded, shortlist=made)


def written(loaded: LoadedModel, folder: Path) -> LoadedModel:
    folder.mkdir()
    return exporter.write(loaded, folder, Console(quiet=True), LINES)[0]


def the_model(folder: Path) -> Path:
    return next(folder.glob("model*.bin"))


def read_model(path: Path) -> dict[str, Tensor | Matrix]:
    """Returns the tensors of a model file, as `loadItems` of Marian reads it."""
    data = path.read_bytes()
    version, count = struct.unpack_from("<2Q", data)
    assert version == 1
    headers = [struct.unpack_from("<4Q", data, 16 + 32 * i) for i in range(count)]
    place = 16 + 32 * count
    names, shapes = [], []
    for length, *_ in headers:
        names.append(data[place : place + length].decode().removesuffix("\0"))
        place += length
    for _, _, rank, _ in headers:
        shapes.append(struct.unpack_from(f"<{rank}i", data, place))
        place += 4 * rank
    place += 8 + struct.unpack_from("<Q", data, place)[0]
    tensors: dict[str, Tensor | Matrix] = {}
    for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True):
        assert (place % 256, size % 256) == (0, 0)
        dtype = {0x0404: torch.float32, 0x0101: torch.int8, 0x4101: torch.int8}[kind]
        values = torch.frombuffer(bytearray(data[place : place + size]), dtype=dtype)[: math.prod(shape)]
        tensors[name] = values.view(shape)
        if kind == 0x4101:
            integers = values.view(shape if "Wemb" in name else shape[::-1])
            tensors[name] = Matrix(integers, struct.unpack_from("<f", data, place + len(values))[0])
        place += size
    assert place == len(data)
    return tensors
