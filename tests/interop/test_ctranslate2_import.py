"""Imports of CTranslate2 folders: every version and type of weights gives what CTranslate2 computes."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ctranslate2_folders import D, Folder, quantized, transformer
from drawn import seeded_arrays, some
from exports import random_model
from near_ties import equal_or_tied

from vtrans.checkpoint import LoadedModel, save_model, weights_of
from vtrans.config import ModelConfig, SearchConfig
from vtrans.console import Console
from vtrans.data.store import DataFolder
from vtrans.engines.torch_engine import TorchEngine
from vtrans.errors import FileError, InputError
from vtrans.interop.ctranslate2.importer import computed_positions, read
from vtrans.interop.exports import export_model
from vtrans.interop.imported import Imported, install
from vtrans.text.vocabulary import EOS_ID
from vtrans.translate.translator import Translator

JOINT = ["<unk>", "<s>", "</s>", "a", "b", "c", "d", "<pad>"]
LINES = ["a b c d", "d", "c c a d b a a c", "b a q d"]  # q is not in the vocabulary


def joint(folder: Folder, alias: str | None = None) -> None:
    folder.vocabularies = {"shared_vocabulary": list(JOINT)}
    folder.variables = transformer(src=len(JOINT), tgt=len(JOINT))
    if alias:
        for name in (alias, *(["encoder/embeddings_0/weight"] if "projection" in alias else [])):
            del folder.variables[name]
            folder.aliases[name] = "decoder/embeddings/weight"


def post_norm(folder: Folder) -> None:
    folder.variables = transformer(pre_norm=False)


def stored_positions(folder: Folder) -> None:
    for side, rows in (("encoder", 70), ("decoder", 80)):
        folder.variables[f"{side}/position_encodings/encodings"] = (
            seeded_arrays(rows).normal(0, 0.5, (rows, D)).astype(np.float32)
        )


def activation(number: int) -> Callable[[Folder], None]:
    def change(folder: Folder) -> None:
        folder.variables |= {f"{side}/activation": np.int8(number) for side in ("encoder", "decoder")}

    return change


def configured(**values: Any) -> Callable[[Folder], None]:
    return lambda folder: folder.config.update(values)


def with_variables(**values: Any) -> Callable[[Folder], None]:
    return lambda folder: folder.variables.update({f"decoder/{name}": value for name, value in values.items()})


def starts_with_padding(folder: Folder) -> None:
    joint(folder)
    folder.config["decoder_start_token"] = "<pad>"


def unscaled(folder: Folder) -> None:
    folder.variables |= {"encoder/scale_embeddings": np.int8(0), "decoder/scale_embeddings": np.float32(1)}


def scaled_by_number(folder: Folder) -> None:
    folder.variables |= {f"{side}/scale_embeddings": np.float32(math.sqrt(D)) for side in ("encoder", "decoder")}


def without_biases(folder: Folder) -> None:
    folder.variables = transformer(seed=1)
    for name in ("decoder/projection/bias", "encoder/layer_0/ffn/linear_0/bias"):
        del folder.variables[name]


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


FOLDERS: dict[str, Callable[[Folder], None]] = {
    "pre-norm, computed positions": lambda folder: None,
    "post-norm": post_norm,
    "joint vocabulary, no ties": joint,
    "joint vocabulary, all tied": lambda folder: joint(folder, "decoder/projection/weight"),
    "stored positions": stored_positions,
    "swish": activation(2),
    "gelu": activation(3),
    "no EOS": configured(add_source_eos=False),
    "starts with EOS": configured(decoder_start_token="</s>", add_source_eos=False),
    "starts with no token": configured(decoder_start_token="<none>"),
    "starts with padding": starts_with_padding,
    "starts with zeros": with_variables(start_from_zero_embedding=np.int8(1)),
    "epsilon": configured(layer_norm_epsilon=1e-2),
    "unscaled": unscaled,
    "scaled by a number": scaled_by_number,
    "no biases": without_biases,
    "without scalars that change nothing": with_variables(
        alibi=np.int8(0), alignment_layer=np.int16(-1), alignment_heads=np.int16(1)
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
    """Returns the largest difference of a log-probability. Asserts that the translations at beams 1 and 4 are equal or
    near-ties."""
    assert imported.original
    original, ours = imported.original.load(), TorchEngine([loaded])
    sources = [[*ids, EOS_ID] for ids in loaded.src_vocab.encode_batch(LINES)]
    largest = 0.0
    for beam in (1, 4):
        search = SearchConfig(beam=beam, max_length=20, alpha=1.0, length_penalty="length")
        theirs = original.translate(sources, 20, search)
        assert theirs is not None

        def translated(exact: list[LoadedModel], line: str, search: SearchConfig = search) -> list[int]:
            ((best,),) = Translator(TorchEngine(exact), search, retry=False).nbest([line])
            return [token for token in best.tokens if token != EOS_ID]

        # CTranslate2 counts hypotheses that were cut off at the limit as finished.
        kept = [(line, tokens) for line, tokens in zip(LINES, theirs, strict=True) if beam == 1 or len(tokens) < 20]
        lines = [line for line, _ in kept]
        mine = [translated([loaded], line) for line in lines]
        equal_or_tied([loaded], translated, lines, mine, [tokens for _, tokens in kept], logprob=10)
        pairs = [(source, [*tokens, EOS_ID]) for source, tokens in zip(sources, theirs, strict=True)]
        scored = ours.token_logprobs([(source[:-1], target) for source, target in pairs], 1)
        for a, b in zip(original.logprobs(pairs), scored, strict=True):
            largest = max(largest, *(abs(x - y) for x, y in zip(a, b, strict=True)))
    return largest


needs_ctranslate2 = pytest.mark.skipif(
    importlib.util.find_spec("ctranslate2") is None, reason="CTranslate2 is not installed: pip install ctranslate2"
)


@needs_ctranslate2
@pytest.mark.parametrize("name", some(FOLDERS, 9))
def test_an_import_computes_what_ctranslate2_computes(name: str, tmp_path: Path) -> None:
    imported = read(folder_of(name, tmp_path))
    assert largest_difference(imported, install(imported)) < 1e-5


@pytest.mark.parametrize("name", ["version 3, revision 3", "float16", "int8", "int16", "bfloat16", "version 1"])
def test_every_version_and_type_gives_the_same_weights_except_for_rounding(name: str, tmp_path: Path) -> None:
    plain = install(read(Folder(transformer()).write(tmp_path / "plain")))
    other = install(read(folder_of(name, tmp_path)))
    allowed = {"version 3, revision 3": 0.0, "float16": 1e-3, "bfloat16": 1e-2}.get(name, 2e-2)
    weights = weights_of(plain.model)
    for key, weight in weights_of(other.model).items():
        torch.testing.assert_close(weight, weights[key], rtol=allowed, atol=allowed)
    changes: dict[str, Any] = {"heads": 8, "source_eos": False} if name == "version 1" else {}
    assert other.model.config == dataclasses.replace(plain.model.config, **changes)


def test_what_an_architecture_says(tmp_path: Path) -> None:
    folder = Folder(transformer(pre_norm=False))
    stored_positions(folder)
    folder.variables |= {f"{side}/scale_embeddings": np.int8(0) for side in ("encoder", "decoder")}
    folder.config |= {"layer_norm_epsilon": 1e-3, "add_source_eos": False}
    imported = read(folder.write(tmp_path / "folder"))
    assert imported.model == ModelConfig(
        d_model=D,
        d_ff=12,
        heads=2,
        encoder_layers=2,
        decoder_layers=2,
        tie="none",
        norm="post",
        norm_eps=1e-3,
        positions="stored",
        max_positions=70,
        share_positions=False,
        scale_embedding=False,
        projection_bias=True,
        source_eos=False,
    )
    assert (imported.search.beam, imported.search.alpha, imported.search.length_penalty) == (2, 1.0, "length")


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
        imported = read(path) if names else read(path, given, given)
        assert imported.src_vocab is imported.tgt_vocab
        line = "ab ba a"
        ids = imported.src_vocab.encode(line)
        assert [imported.src_vocab.piece(i) for i in ids] == [pieces[i] for i in tiny_data.src_vocab.encode(line)]
        assert imported.tgt_vocab.decode(ids) == line
    (path / "source.spm").write_bytes(spm)
    with pytest.raises(FileError, match="`tgt_spm`"):
        read(path)


@needs_ctranslate2
@pytest.mark.parametrize(
    "changes",
    [
        {"tie": "none", "norm": "pre"},
        {"share_layers": "all", "encoder_layers": 4},
        {"positions": "rotary", "norm": "pre", "decoder_layers": 2},
    ],
)
def test_an_export_of_ours_gives_the_model_back(changes: dict[str, Any], tmp_path: Path, tiny_data: DataFolder) -> None:
    loaded = random_model(tiny_data, **changes)
    save_model(tmp_path / "before", loaded)
    export_model(loaded, "ctranslate2", tmp_path / "folder", Console(quiet=True))
    imported = read(tmp_path / "folder")
    installed = install(imported)
    save_model(tmp_path / "after", installed)
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()
    assert largest_difference(imported, installed) < 1e-4
    with pytest.raises(InputError, match="`src_spm`"):  # the folder has the vocabularies of the model
        read(tmp_path / "folder", tmp_path / "other.spm", tmp_path / "other.spm")


def test_computed_positions_start_at_one_and_divide_by_half_the_width_less_one() -> None:
    table = computed_positions(50, 8)
    for p, i in ((0, 0), (7, 1), (49, 3)):
        angle = (p + 1) / 10000 ** (i / 3)
        assert table[p, i] == pytest.approx(math.sin(angle), abs=1e-5)
        assert table[p, 4 + i] == pytest.approx(math.cos(angle), abs=1e-5)
