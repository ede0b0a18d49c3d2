"""Fuzzed readers of the models of other programs."""

import dataclasses
import functools
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import ctranslate2_folders
import foreign
import marian_models
import numpy as np
import torch
from fuzzing import CUT, LINES, in_files, scratch, target
from safetensors.torch import load

from vtrans.apps.interop.formats import read_model
from vtrans.apps.interop.marian.importer import open_npz
from vtrans.engines.torch_engine import TorchEngine
from vtrans.translate.translator import Translator


def _import(folder: Path, files: Iterable[tuple[str, bytes]] = ()) -> None:
    """Writes files to a folder, and translates with the model that is in it."""
    for name, content in files:
        (folder / name).write_bytes(content)
    loaded = read_model(folder).model
    found = list(Translator(TorchEngine([loaded]), dataclasses.replace(loaded.search, beam=2)).translate(LINES))
    assert len(found) == len(LINES)


def _archives() -> list[bytes]:
    made = []
    for save in (np.savez, np.savez_compressed):
        out = io.BytesIO()
        save(out, a=np.ones((2, 3), np.float32), b=np.zeros(0, np.int8))
        made.append(out.getvalue())
    return made


@target(_archives)
def npz(parts: Sequence[bytes], folder: Path) -> None:
    path = folder / "model.npz"
    path.write_bytes(CUT.join(parts))
    tensors = open_npz(path)
    for name, shape in tensors.shapes.items():
        assert tensors.read(name).shape == shape


@functools.cache
def _marian_arrays() -> dict[str, Any]:
    with scratch() as folder, np.load(marian_models.folder(folder / "made") / "model.npz") as file:
        return dict(file)


@target(lambda: [_marian_arrays()[marian_models.CONFIG].tobytes() + CUT + b"vocabs: [vocab.spm, vocab.spm]\n"])
def marian(parts: Sequence[bytes], folder: Path) -> None:
    """The settings in the model, and decoder.yml if there is one."""
    arrays = _marian_arrays() | {marian_models.CONFIG: np.frombuffer(parts[0], np.int8)}
    np.savez(folder / "model.npz", **arrays)
    (folder / "vocab.spm").write_bytes(marian_models.spm())
    if parts[1]:
        (folder / "decoder.yml").write_bytes(parts[1])
    _import(folder)


_CT2_FILES = ("model.bin", "config.json", "source_vocabulary.json", "target_vocabulary.json")


@target(
    in_files(*_CT2_FILES, made=lambda path: ctranslate2_folders.Folder(ctranslate2_folders.transformer()).write(path))
)
def ctranslate2(parts: Sequence[bytes], folder: Path) -> None:
    _import(folder, zip(_CT2_FILES, parts, strict=False))


_HF_FILES = ("config.json", "vocab.json", "tokenizer_config.json")


@functools.cache
def _hf_folder() -> dict[str, bytes]:
    with scratch() as folder:
        return {file.name: file.read_bytes() for file in foreign.hugging_face_folder(folder / "made").iterdir()}


@target(lambda: [CUT.join(_hf_folder()[name] for name in _HF_FILES) + CUT + b'{"num_beams": 2}'])
def huggingface(parts: Sequence[bytes], folder: Path) -> None:
    files = _hf_folder() | dict(zip((*_HF_FILES, "generation_config.json"), parts, strict=False))
    _import(folder, files.items())


def _pickles() -> list[bytes]:
    out = io.BytesIO()
    torch.save(load(_hf_folder()["model.safetensors"]), out)
    return [out.getvalue()]


@target(_pickles)
def pickled(parts: Sequence[bytes], folder: Path) -> None:
    others = {name: content for name, content in _hf_folder().items() if name != "model.safetensors"}
    _import(folder, [*others.items(), ("pytorch_model.bin", CUT.join(parts))])
