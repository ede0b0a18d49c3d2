"""The files of a model for Bergamot, and the engine's npm package, which runs them in Node.

A model file (`src/common/binary.cpp` of browsermt/marian-dev) contains the version 1, the number of tensors, four
numbers per tensor (length of the name, type, rank, bytes), the names, the shapes, a gap, and the data. A tensor of type
intgemm8 is a matrix of 8-bit integers followed by the multiplier of its weights. All matrices but embeddings are
transposed: their shape is [in, out], their data [out, in]. `src/data/shortlist.cpp` defines a lexical shortlist.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import struct
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vtrans.apps.interop.comparison import Outputs, Program, Tolerance
from vtrans.apps.interop.foreign_files import read_bytes
from vtrans.model.checkpoint import LoadedModel
from vtrans.storage.model_file import Shortlist
from vtrans.system.errors import InputError
from vtrans.text.vocabulary import EOS_ID, Vocabulary

PACKAGE = "@browsermt/bergamot-translator"
# The engine's code and the message loop around it, which a web page or Node runs in a separate thread.
WORKER = (
    "worker/translator-worker.js",
    "worker/bergamot-translator-worker.js",
    "worker/bergamot-translator-worker.wasm",
)
# Translates its standard input. The arguments are the worker, the settings and the files of the model.
_PROGRAM = Path(__file__).with_name("translate.cjs")
VERSION, ALIGNMENT = 1, 256
INT8, FLOAT32, INTGEMM8 = 0x0101, 0x0404, 0x4101
SHORTLIST_MAGIC = 0xF11A48D5013417F5
SETTINGS = "config.intgemm8bitalpha.yml"
RATIO = 2.0  # target subwords per source subword in Firefox
# Firefox's settings. The engine's worker replaces the length and batch settings with its own, which are equal.
FIREFOX = {
    "beam-size": "1",
    "normalize": "1.0",
    "word-penalty": "0",
    "max-length-break": "128",
    "mini-batch-words": "1024",
    "workspace": "128",
    "max-length-factor": str(RATIO),
    "skip-cost": "true",
    "cpu-threads": "0",
    "gemm-precision": "int8shiftAlphaAll",
    "alignment": "soft",
    "quiet": "true",
    "quiet-translation": "true",
}


class Matrix(NamedTuple):
    """An 8-bit matrix: `integers` are its values times `multiplier`, [out, in] or, in an embedding, [V, D]."""

    integers: Tensor
    multiplier: float

    @property
    def values(self) -> Tensor:
        return self.integers.float() * (1 / self.multiplier)


Tensors = Mapping[str, Tensor | Matrix]
"""Tensors by name: float32, or int8 for Marian's settings."""


class Names(NamedTuple):
    """The names of a model's files, as in Firefox, such as `model.ende.intgemm.alphas.bin`."""

    model: str
    vocabs: tuple[str, str]
    """The same name twice for a joint vocabulary."""
    shortlist: str | None


def names_of(loaded: LoadedModel) -> Names:
    """Returns the names, which omit the languages unless there is one pair."""
    pair = f".{''.join(loaded.languages[0])}" if len(loaded.languages) == 1 else ""
    src, tgt = ("", "") if loaded.src_vocab is loaded.tgt_vocab else ("src", "trg")
    shortlist = f"lex{pair}.s2t.bin" if loaded.shortlist else None
    return Names(f"model{pair}.intgemm.alphas.bin", (f"{src}vocab{pair}.spm", f"{tgt}vocab{pair}.spm"), shortlist)


def write_settings(folder: Path, names: Names) -> None:
    """Writes the settings. Lists have one item per line, the only form that the engine's worker reads."""
    vocabs = [f"  - {name}" for name in names.vocabs]
    lines = ["relative-paths: true", "models:", f"  - {names.model}", "vocabs:", *vocabs]
    if names.shortlist:
        lines += ["shortlist:", f"  - {names.shortlist}", "  - false"]  # do not check the shortlist
    lines += [f"{key}: {value}" for key, value in FIREFOX.items()]
    (folder / SETTINGS).write_bytes(("\n".join(lines) + "\n").encode())


def write_model(path: Path, tensors: Tensors) -> None:
    """Writes a model file. Equal tensors give equal bytes."""
    headers, names, shapes, data = [], b"", b"", []
    for name, tensor in tensors.items():
        if isinstance(tensor, Matrix):
            kind, shape = INTGEMM8, list(tensor.integers.shape)
            shape = shape if "Wemb" in name else shape[::-1]  # Bergamot reads such a matrix as an embedding
            content = tensor.integers.numpy().tobytes() + struct.pack("<f", tensor.multiplier)
        else:
            kind, shape = (INT8 if tensor.dtype == torch.int8 else FLOAT32), list(tensor.shape)
            content = tensor.contiguous().numpy().tobytes()
        encoded = name.encode() + b"\0"
        content += bytes(-len(content) % ALIGNMENT)
        headers.append(_numbers(len(encoded), kind, len(shape), len(content)))
        names, shapes = names + encoded, shapes + np.array(shape, dtype="<i4").tobytes()
        data.append(content)
    start = b"".join((_numbers(VERSION, len(headers)), *headers, names, shapes))
    gap = -(len(start) + 8) % ALIGNMENT
    path.write_bytes(b"".join((start, _numbers(gap), bytes(gap), *data)))


def write_shortlist(path: Path, shortlist: Shortlist) -> None:
    """Writes a lexical shortlist.

    Bergamot lists the vocabulary's first rows for each sentence, but here these are not the frequent subwords. So the
    frequent subwords are translations of EOS, which ends each source.
    """
    always = {*shortlist.frequent.tolist(), EOS_ID}
    rows = [sorted(set(ids) - always) for ids in shortlist.translations.tolist()]
    rows[EOS_ID] = sorted(always)
    offsets = np.cumsum([0, *map(len, rows)], dtype="<u8")
    flat = np.array([id for row in rows for id in row], dtype="<u4")
    body = _numbers(0, max(map(len, rows)), len(offsets), len(flat)) + offsets.tobytes() + flat.tobytes()
    path.write_bytes(_numbers(SHORTLIST_MAGIC, checksum(body)) + body)


def checksum(data: bytes) -> int:
    """Returns Marian's hash of the whole 64-bit words in `data` (`hashMem` in src/common/hash.h)."""
    seed, mask = 0, (1 << 64) - 1
    for (word,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]):
        seed ^= (word + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & mask
    return seed


def _numbers(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


# The engine.


def package(engine: Path | None) -> Path:
    """Returns the folder of the npm package. Raises InputError if `engine` is None or another folder."""
    if engine is None:
        raise InputError(f"the folder of the engine's npm package, {PACKAGE}, is not given")
    for name in ("package.json", *WORKER):
        if not (engine / name).is_file():
            raise InputError(f"`engine` must be the folder of the npm package {PACKAGE}; {engine} lacks {name}.")
    return engine


class Bergamot(Program):
    """The engine running the model in a folder. It translates each sentence separately, because the sentences of a
    batch have a common shortlist."""

    tolerance = Tolerance(token=math.inf, mean=math.inf, lost=0.02)

    def __init__(self, folder: Path, names: Names, engine: Path | None, vocab: Vocabulary) -> None:
        """`vocab` is the target vocabulary. Raises InputError without the npm package or Node."""
        self.path, self.names, self.package, self.vocab = folder, names, package(engine), vocab
        if shutil.which("node") is None:
            raise InputError("Node is not installed")
        version = re.search(rb'"version":\s*"([\w.-]{1,20})"', read_bytes(self.package / "package.json"))
        self.name = f"Bergamot {version[1].decode() if version else 'of an unknown version'}"

    def translate(self, ours: Outputs) -> list[list[int]]:
        pairs = zip(ours.translations, self.texts(ours.lines), strict=True)
        return [mine if self.vocab.decode(mine) == text else self.vocab.encode(text) for mine, text in pairs]

    def texts(self, lines: Sequence[str]) -> list[str]:
        """Returns the engine's translation of each line, which is one sentence. Raises VtransError if it fails."""
        with tempfile.TemporaryDirectory() as name:
            for file in WORKER:  # without package.json, which would make Node treat the scripts as modules
                shutil.copy(self.package / file, name)
            worker, settings = Path(name) / Path(WORKER[0]).name, json.dumps(FIREFOX | {"ssplit-mode": "sentence"})
            files = [self.names.model, self.names.shortlist, *dict.fromkeys(self.names.vocabs)]
            paths = [str(self.path.absolute() / file) if file else "" for file in files]
            command = ["node", str(_PROGRAM), str(worker), settings, *paths]
            texts = self.run(command, len(lines), Path(name), json.dumps(list(lines)))
        return [json.loads(text) for text in texts]
