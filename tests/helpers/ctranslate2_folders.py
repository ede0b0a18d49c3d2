"""Writes CTranslate2 folders with random weights, in every version of the format, without CTranslate2."""

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from drawn import seeded_arrays

D, F, H, LAYERS = 8, 12, 2, 2
SRC = ["<unk>", "<s>", "</s>", "a", "b", "c", "d"]
TGT = ["<blank>", "<s>", "x", "</s>", "y", "<unk>", "z", "w"]
TYPES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4, "bfloat16": 5}
CONFIG = {
    "unk_token": "<unk>",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "decoder_start_token": "<s>",
    "add_source_bos": False,
    "add_source_eos": True,
    "layer_norm_epsilon": None,
}


@dataclass
class Folder:
    """A CTranslate2 folder for `write`. Arrays of uint16 are bfloat16."""

    variables: dict[str, Any]
    aliases: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=lambda: dict(CONFIG))
    vocabularies: dict[str, list[str]] = field(
        default_factory=lambda: {"source_vocabulary": list(SRC), "target_vocabulary": list(TGT)}
    )
    version: int = 6
    specification: str = "TransformerSpec"
    revision: int = 7

    def binary(self) -> bytes:
        parts = [struct.pack("<I", self.version)]
        if self.version >= 2:
            parts += [packed_name(self.specification), struct.pack("<I", self.revision)]
        parts.append(struct.pack("<I", len(self.variables)))
        parts += [packed(name, np.asarray(value), self.version) for name, value in sorted(self.variables.items())]
        if self.version >= 3:
            parts.append(struct.pack("<I", len(self.aliases)))
            parts += [packed_name(name) for pair in self.aliases.items() for name in pair]
        return b"".join(parts)

    def write(self, path: Path) -> Path:
        path.mkdir(parents=True)
        (path / "model.bin").write_bytes(self.binary())
        if self.version >= 6:
            (path / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
        for name, tokens in self.vocabularies.items():
            if self.version >= 6:
                (path / f"{name}.json").write_text(json.dumps(tokens), encoding="utf-8")
            else:
                (path / f"{name}.txt").write_bytes("".join(f"{token}\n" for token in tokens).encode())
        return path


Change = Callable[[Folder], object]


def in_variables(name: str, value: Any) -> Change:
    return lambda folder: folder.variables.update({name: np.asarray(value)})


def in_both(key: str, value: Any) -> Change:
    return lambda folder: folder.variables.update({f"{side}/{key}": value for side in ("encoder", "decoder")})


def without(*names: str) -> Change:
    return lambda folder: [folder.variables.pop(name) for name in names]


def in_config(**values: Any) -> Change:
    return lambda folder: folder.config.update(values)


def packed_name(name: str) -> bytes:
    return struct.pack("<H", len(name.encode()) + 1) + name.encode() + b"\0"


def packed(name: str, value: np.ndarray[Any, Any], version: int = 6) -> bytes:
    shape = struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)
    kind = "bfloat16" if value.dtype == np.uint16 else value.dtype.name
    facts = struct.pack("<BI", TYPES[kind], value.nbytes)
    if version < 4:
        facts = struct.pack("<BI", value.itemsize, value.size)
    return packed_name(name) + shape + facts + value.tobytes()


def linear(scope: str, rows: int, columns: int, draw: np.random.Generator) -> dict[str, Any]:
    return {
        f"{scope}/weight": draw.normal(0, columns**-0.5, (rows, columns)).astype(np.float32),
        f"{scope}/bias": draw.normal(0, 0.1, rows).astype(np.float32),
    }


def norm(scope: str, draw: np.random.Generator) -> dict[str, Any]:
    return {
        f"{scope}/gamma": draw.normal(1, 0.1, D).astype(np.float32),
        f"{scope}/beta": draw.normal(0, 0.1, D).astype(np.float32),
    }


def transformer(*, pre_norm: bool = True, src: int = len(SRC), tgt: int = len(TGT), seed: int = 0) -> dict[str, Any]:
    """Returns the variables of a small model with random weights and computed positions."""
    draw = seeded_arrays(seed)
    found: dict[str, Any] = {}
    for side, vocabulary, embeddings in (("encoder", src, "embeddings_0"), ("decoder", tgt, "embeddings")):
        found |= {
            f"{side}/num_heads": np.int16(H),
            f"{side}/pre_norm": np.int8(pre_norm),
            f"{side}/activation": np.int8(0),
            f"{side}/scale_embeddings": np.int8(1),
            f"{side}/{embeddings}/weight": draw.normal(0, 0.5, (vocabulary, D)).astype(np.float32),
        }
        for i in range(LAYERS):
            layer = f"{side}/layer_{i}"
            parts = {"self_attention": (3, 1)} | ({"attention": (1, 2, 1)} if side == "decoder" else {})
            for attention, widths in parts.items():
                found |= norm(f"{layer}/{attention}/layer_norm", draw)
                for k, width in enumerate(widths):
                    found |= linear(f"{layer}/{attention}/linear_{k}", width * D, D, draw)
            found |= norm(f"{layer}/ffn/layer_norm", draw)
            found |= linear(f"{layer}/ffn/linear_0", F, D, draw) | linear(f"{layer}/ffn/linear_1", D, F, draw)
        if pre_norm:
            found |= norm(f"{side}/layer_norm", draw)
    projection = linear("decoder/projection", tgt, D, draw)
    projection["decoder/projection/bias"][2:4] += 1  # the end is one of them, so that translations end
    return found | projection


def quantized(variables: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns the variables with matrices in int8 or int16, as CTranslate2 quantises them, or in a 16-bit type."""
    found = dict(variables)
    for name, value in variables.items():
        if np.ndim(value) == 0:
            continue
        if kind == "float16":
            found[name] = value.astype(np.float16)
        elif kind == "bfloat16":
            found[name] = (value.view(np.uint32) >> 16).astype(np.uint16)  # rounded towards zero
        elif name.endswith("weight"):
            bounds = np.abs(value).max(1) if kind == "int8" else np.abs(value).max()
            scale = np.asarray((127 if kind == "int8" else 1024) / bounds, np.float32)
            found[f"{name}_scale"] = scale
            found[name] = np.rint(value * scale.reshape(-1, 1)).astype(kind)
    return found
