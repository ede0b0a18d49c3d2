"""Imports of CTranslate2 folders: every version and type of weights gives what CTranslate2 computes."""

import dataclasses
import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ctranslate2_folders import Change, D, Folder, in_both, in_config, in_variables, quantized, transformer, without
from drawn import seeded_arrays, some
from exports import random_model

from vtrans.apps.interop.comparison import Imported, compare, outputs
from vtrans.apps.interop.ctranslate2.exporter import DEFAULTS
from vtrans.apps.interop.formats import export_model, read_model
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import LoadedModel, weights_of
from vtrans.system.console import Console
from vtrans.system.errors import FileError

JOINT = ["<unk>", "<s>", "</s>", "a", "b", "c", "d", "<pad>"]
LINES = ["a b c d", "d", "c c a d b a a c", "b a q d"]  # q is not in the vocabulary


def joint(folder: Folder, alias: str | None = None) -> None:
    folder.vocabularies = {"shared_vocabulary": list(JOINT)}
    folder.variables = transformer(src=len(JOINT), tgt=len(JOINT))
    if alias:
        for name in (alias, *(["encoder/embeddings_0/weight"] if "projection" in alias else [])):
            del folder.variables[name]
            folder.aliases[name] = "decoder/embeddings/weight"


def stored_positions(folder: Folder) -> None:
    for side, rows in (("encoder", 70), ("decoder", 80)):
        folder.variables[f"{side}/position_encodings/encodings"] = (
            seeded_arrays(rows).normal(0, 0.5, (rows, D)).astype(np.float32)
        )


def starts_with_padding(folder: Folder) -> None:
    joint(folder)
    folder.config["decoder_start_token"] = "<pad>"


def of_version(version: int, revision: int, kind: str = "") -> Callable[[Folder], None]:
    """An older file: its settings are variables, and those of revision 4 and before are common to both sides."""

    def change(folder: Folder) -> None:
        folder.version, folder.revision = version, revision
        if kind:
            folder.variables = quantized(folder.variables, kind)
        if version < 6:
            folder.variables["with_source_eos"] = np.int8(1)
        if revision < 5:
            for key in ("num_heads", "pre_norm", "activation"):
                folder.variables[key] = np.int8(folder.variables.pop(f"encoder/{key}"))
                del folder.variables[f"decoder/{key}"]
        if version < 4:  # only three types had a width of their own
            folder.variables = {
                name: value if np.ndim(value) else np.int8(value) if value.dtype == np.int16 else value
                for name, value in folder.variables.items()
            }

    return change


def first_version(folder: Folder) -> None:
    """Version 1 has the names of OpenNMT-tf, eight heads, and int16 without scales."""
    renamed = {}
    for name, value in folder.variables.items():
        if np.ndim(value) == 0:
            continue
        parts = name.replace("embeddings_0/weight", "w_embs").replace("embeddings/weight", "w_embs")
        parts = parts.replace("layer_norm", "LayerNorm").replace("projection", "dense").replace("weight", "kernel")
        for number, conv in (("0", "conv1d"), ("1", "conv1d_1"), ("2", "conv1d_2")):
            parts = parts.replace(f"linear_{number}", conv)
        if name.startswith("encoder"):
            parts = parts.replace("self_attention", "multi_head")
        else:
            parts = parts.replace("/attention", "/multi_head").replace("self_attention", "masked_multi_head")
        matrix = name.endswith("weight")
        renamed[f"transformer/{parts}:0"] = np.rint(value * 1000).astype(np.int16) if matrix else value
    folder.variables, folder.version = renamed, 1


FOLDERS: dict[str, Change] = {
    "pre-norm, computed positions": lambda folder: None,
    "post-norm": lambda folder: vars(folder).update(variables=transformer(pre_norm=False)),
    "joint vocabulary, no ties": joint,
    "joint vocabulary, all tied": lambda folder: joint(folder, "decoder/projection/weight"),
    "stored positions": stored_positions,
    "swish": in_both("activation", np.int8(2)),
    "gelu": in_both("activation", np.int8(3)),
    "no EOS": in_config(add_source_eos=False),
    "starts with EOS": in_config(decoder_start_token="</s>", add_source_eos=False),
    "starts with no token": in_config(decoder_start_token="<none>"),
    "starts with padding": starts_with_padding,
    "starts with zeros": in_variables("decoder/start_from_zero_embedding", np.int8(1)),
    "epsilon": in_config(layer_norm_epsilon=1e-2),
    "unscaled": in_both("scale_embeddings", np.int8(0)),
    "scaled by a number": in_both("scale_embeddings", np.float32(math.sqrt(D))),
    "no biases": without("decoder/projection/bias", "encoder/layer_0/ffn/linear_0/bias"),
    "without scalars that change nothing": lambda folder: folder.variables.update(
        {"decoder/alibi": np.int8(0), "decoder/alignment_layer": np.int16(-1), "decoder/alignment_heads": np.int16(1)}
    ),
    "int8": of_version(6, 7, "int8"),
    "int16": of_version(6, 7, "int16"),
    "float16": of_version(6, 7, "float16"),
    "bfloat16": of_version(6, 7, "bfloat16"),
    "version 5": of_version(5, 7, "int8"),
    "version 4, revision 4": of_version(4, 4, "int16"),
    "version 3, revision 3": of_version(3, 3),
    "version 2, revision 3": of_version(2, 3, "int8"),
    "version 1": first_version,
}


def folder_of(name: str, path: Path) -> Path:
    folder = Folder(transformer())
    FOLDERS[name](folder)
    return folder.write(path / "folder")


def largest_difference(imported: Imported, loaded: LoadedModel) -> float:
    """Returns the largest difference of a log-probability. Asserts that the translations are equal or near-ties."""
    assert imported.original
    original = imported.original()
    largest = 0.0
    for beam in (1, 4):
        # CTranslate2 forbids EOS before the softmax, and a random model may well begin with EOS.
        original.search = dataclasses.replace(DEFAULTS, beam=beam, min_length=0)
        comparison = compare(outputs(loaded, LINES, original), original, loaded.tgt_vocab)
        assert comparison.problem() is None
        largest = max(largest, comparison.largest)
    return largest


needs_ctranslate2 = pytest.mark.skipif(
    importlib.util.find_spec("ctranslate2") is None, reason="CTranslate2 is not installed: pip install ctranslate2"
)


@needs_ctranslate2
@pytest.mark.parametrize("name", some(FOLDERS, 9))
def test_an_import_computes_what_ctranslate2_computes(name: str, tmp_path: Path) -> None:
    imported = read_model(folder_of(name, tmp_path))
    assert largest_difference(imported, imported.model) < 1e-5


@pytest.mark.parametrize("name", ["version 3, revision 3", "float16", "int8", "int16", "bfloat16", "version 1"])
def test_every_version_and_type_gives_the_same_weights_except_for_rounding(name: str, tmp_path: Path) -> None:
    plain = read_model(Folder(transformer()).write(tmp_path / "plain")).model
    other = read_model(folder_of(name, tmp_path)).model
    allowed = {"version 3, revision 3": 0.0, "float16": 1e-3, "bfloat16": 1e-2}.get(name, 2e-2)
    weights = weights_of(plain.model)
    for key, weight in weights_of(other.model).items():
        torch.testing.assert_close(weight, weights[key], rtol=allowed, atol=allowed)
    changes: dict[str, Any] = {"heads": 8, "source_eos": False} if name == "version 1" else {}
    assert other.model.config == dataclasses.replace(plain.model.config, **changes)
    assert (other.search.beam, other.search.alpha, other.search.length_penalty) == (2, 1.0, "length")


def test_sentencepiece_models_of_the_folder_or_the_user_split_the_text(tmp_path: Path, tiny_data: DataFolder) -> None:
    spm = tiny_data.src_vocab.proto
    pieces = [tiny_data.src_vocab.piece(i) for i in range(len(tiny_data.src_vocab))]
    for number, names in enumerate((("source.spm", "target.spm"), ("sentencepiece.model",), ())):
        folder = Folder(transformer(src=len(pieces), tgt=len(pieces)))
        folder.vocabularies = {"shared_vocabulary": pieces[::-1]}
        path = folder.write(tmp_path / str(number))
        for name in names:
            (path / name).write_bytes(spm)
        given = tmp_path / "given"
        given.write_bytes(spm)
        imported = read_model(path, {} if names else {"src_spm": given, "tgt_spm": given})
        vocab = imported.model.src_vocab
        assert vocab is imported.model.tgt_vocab
        line = "ab ba a"
        ids = vocab.encode(line)
        assert [vocab.piece(i) for i in ids] == [pieces[i] for i in tiny_data.src_vocab.encode(line)]
        assert vocab.decode(ids) == line
    (path / "source.spm").write_bytes(spm)
    with pytest.raises(FileError, match="`tgt_spm`"):
        read_model(path)


@needs_ctranslate2
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
@pytest.mark.parametrize("separate", [False, True])
def test_an_export_gives_the_model_back(
    positions: str, separate: bool, tmp_path: Path, tiny_data: DataFolder, tiny_data_separate: DataFolder
) -> None:
    data, tie = (tiny_data_separate, "tgt-softmax") if separate else (tiny_data, "src-tgt-softmax")
    loaded = random_model(data, tie=tie, norm="pre", positions=positions)
    export_model(loaded, "ctranslate2", tmp_path / "folder", Console(quiet=True))
    imported = read_model(tmp_path / "folder")
    assert largest_difference(imported, imported.model) < 1e-4
    assert (imported.model.model.config.tie, imported.model.joint) == (tie, not separate)
    line = "A dog runs."
    texts = [each.tgt_vocab.decode(each.tgt_vocab.encode(line)) for each in (loaded, imported.model)]
    assert texts[0] == texts[1]
