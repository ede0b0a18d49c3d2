"""Fuzzed readers of model files, recipes and data folders."""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import foreign
import numpy as np
from fuzzing import CUT, LINES, scratch, target, tiny_model

from vtrans.data.store import DataFolder, TokenStore
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model.checkpoint import load_model, save_model
from vtrans.storage.tensors import CHECKSUMS, checksum, header_checksum, header_text
from vtrans.text.piece_table import pack
from vtrans.text.vocabulary import Vocabulary
from vtrans.training.recipe import load_recipe, recipe_toml
from vtrans.translate.translator import Translator

TYPES = {"F32": np.float32, "I32": np.int32, "U8": np.uint8}


def _taken_apart(raw: bytes) -> bytes:
    """The tensors of a safetensors file as JSON, our header without checksums, and the data."""
    length = int.from_bytes(raw[:8], "little")
    tensors = json.loads(raw[8 : 8 + length])
    header = json.loads(tensors.pop("__metadata__")["vtrans"])
    header.pop("crc32", None)
    return CUT.join((json.dumps(tensors).encode(), json.dumps(header).encode(), raw[8 + length :]))


def _put_together(path: Path, tensors: bytes, header: bytes, *data: bytes) -> None:
    """Writes such parts as a file, with the checksums of what can be read. What is no JSON object becomes the whole
    header."""
    content = CUT.join(data)
    try:
        described = json.loads(tensors)
        described["__metadata__"] = {"vtrans": _with_checksums(header.decode(), described, content)}
        tensors = json.dumps(described).encode()
    except (ValueError, TypeError, RecursionError):
        pass
    path.write_bytes(len(tensors).to_bytes(8, "little") + tensors + content)


def _with_checksums(header: str, described: dict[str, Any], content: bytes) -> str:
    """Returns the header with the checksums of itself and of the tensors, or as it is if there are none."""
    try:
        values, sums = json.loads(header), {}
        for name, facts in described.items():
            begin, end = facts["data_offsets"]
            sums[name] = checksum(np.frombuffer(content[begin:end], TYPES[facts["dtype"]]).reshape(facts["shape"]))
        return header_text(values | {CHECKSUMS: {"header": header_checksum(values), "tensors": sums}})
    except (ValueError, TypeError, KeyError, RecursionError):
        return header


@functools.cache
def _model() -> bytes:
    """The file of a tiny model."""
    with scratch() as folder:
        save_model(folder / "model.safetensors", tiny_model())
        return (folder / "model.safetensors").read_bytes()


@target(lambda: [_taken_apart(_model())])
def model(parts: Sequence[bytes], folder: Path) -> None:
    path = folder / "model.safetensors"
    _put_together(path, *parts)
    loaded = load_model(path)
    found = list(Translator(TorchEngine([loaded]), loaded.search).translate(LINES))
    assert len(found) == len(LINES)


@target(lambda: [_model()])
def model_bytes(parts: Sequence[bytes], folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(CUT.join(parts))
    load_model(path)


@target(lambda: [foreign.sentencepiece_model(foreign.TEXT[:1], 20), pack(["</s>", "<unk>", "a"], {"eos": 0}, b"")])
def vocabulary(parts: Sequence[bytes], folder: Path) -> None:
    """A SentencePiece model with its own ids is read as that of a piece table, which accepts any."""
    data = CUT.join(parts)
    if not data.startswith(b"vtrans"):
        data = pack(["</s>", "<unk>", "a", "\u2581a"], {"eos": 0, "unk": 1}, data)
    found = Vocabulary(data)
    for line in ("", "a dog  sees \u2581a 日本", "\0\ufeff"):
        ids = found.encode(line)
        assert all(0 <= i < len(found) for i in ids)
        found.decode(ids)


@target(lambda: [recipe_toml(load_recipe()).encode() + CUT + b"model.d_model=64\ntrain.corpus_weights=[1, 2]"])
def recipe(parts: Sequence[bytes], folder: Path) -> None:
    path = folder / "recipe.toml"
    path.write_bytes(parts[0])
    overrides = parts[1].decode(errors="replace").split("\n")
    loaded = load_recipe(str(path), [line for line in overrides if line])
    path.write_text(recipe_toml(loaded), encoding="utf-8")
    assert load_recipe(str(path)) == loaded


@functools.cache
def _data_folder() -> dict[str, bytes]:
    """The files of a small data folder."""
    from conftest import TRAIN_PAIRS, make_data

    with scratch() as folder:
        path = make_data(folder, vocab_size=None, train=TRAIN_PAIRS[:20]).path
        return {file.name: file.read_bytes() for file in path.iterdir()}


@target(lambda: [_data_folder()["data.json"]])
def data(parts: Sequence[bytes], folder: Path) -> None:
    for name, content in _data_folder().items():
        (folder / name).write_bytes(content)
    (folder / "data.json").write_bytes(CUT.join(parts))
    found = DataFolder.open(folder)
    assert sum(found.corpora) == len(found.train)


@target(lambda: [_taken_apart(_data_folder()["valid.safetensors"])])
def store(parts: Sequence[bytes], folder: Path) -> None:
    path = folder / "train.safetensors"
    _put_together(path, *parts)
    found = TokenStore.open(path)
    for i in range(min(len(found), 100)):
        assert len(found.src(i)) == found.src_lengths[i]
        assert len(found.tgt(i)) == found.tgt_lengths[i]
