"""Reads a CTranslate2 folder: a Transformer in any version and any type of weights.

A folder has tokens, but no tokenizer. SentencePiece models come from the user or lie in the folder; without them, text
consists of tokens separated by spaces. An export of vtrans has its own configuration and vocabularies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from vtrans.config import ModelConfig, SearchConfig, section_from
from vtrans.errors import FileError, InputError
from vtrans.interop.comparison import Program
from vtrans.interop.ctranslate2.architecture import read_architecture, refuse_others, renamed, weight_names
from vtrans.interop.ctranslate2.binary import Binary
from vtrans.interop.ctranslate2.folder import DESCRIPTION, is_exported, read_exported
from vtrans.interop.ctranslate2.original import DEFAULTS, CTranslate2Model
from vtrans.interop.ctranslate2.settings import read_settings, read_vocabularies
from vtrans.interop.foreign_files import Read, file_in, read_bytes
from vtrans.interop.imported import ABSENT_BIAS, Imported, rows_of, shapes_of
from vtrans.storage.tensors import check_training
from vtrans.text.languages import languages_from, tags_from
from vtrans.text.piece_table import pack
from vtrans.text.vocabulary import BOS_ID, PAD_ID, Vocabulary

BINARY = "model.bin"
PROJECTION = ("projection.weight", "projection.bias")


def recognises(path: Path) -> bool:
    """Returns whether this is a folder of CTranslate2."""
    return (path / BINARY).is_file()


def read(folder: Path, src_spm: Path | None = None, tgt_spm: Path | None = None) -> Imported:
    """Returns the model of a CTranslate2 folder. The SentencePiece models split its text.

    Raises FileError for a folder that is damaged or that vtrans cannot express, and InputError for SentencePiece models
    in addition to those of a folder that vtrans exported.
    """
    binary = Binary(file_in(folder, BINARY))
    renamed(binary)
    if not is_exported(folder):
        return _read_foreign(folder, binary, src_spm, tgt_spm)
    if src_spm or tgt_spm:
        raise InputError(
            f"`src_spm` and `tgt_spm` must be left out, because vtrans exported {folder} with the model's vocabularies."
        )
    return _read_export(folder, binary)


def _read_export(folder: Path, binary: Binary) -> Imported:
    """Returns the model from which vtrans made the folder, except for the rounding of its weights."""
    description, src, tgt = read_exported(folder)
    file = folder / DESCRIPTION
    config = section_from(ModelConfig, "model", description["model"], str(file))
    names = [[vocab.piece(i) for i in range(len(vocab))] for vocab in (src, tgt)]
    original = partial(CTranslate2Model, folder, (names[0], names[1]))
    imported = _imported(folder, binary, config, src, tgt, original, ["`vtrans export` wrote it"])
    return replace(
        imported,
        search=section_from(SearchConfig, "search", description["search"], str(file)),
        training=check_training(file, description["training"]),
        languages=languages_from(description.get("languages")),
        tags=tags_from(description.get("tags"), src.tags),
    )


def _read_foreign(folder: Path, binary: Binary, src_spm: Path | None, tgt_spm: Path | None) -> Imported:
    """Returns the model of a folder that another program wrote."""
    settings = read_settings(folder, binary)
    unk, start, eos = (settings.text(f"{key}_token", "") for key in ("unk", "decoder_start", "eos"))
    adds_eos = settings.get("add_source_eos") is not None and settings.flag("add_source_eos")
    # In models from Hugging Face, the tokenizer ends sources, and the decoder starts with padding or the end.
    source_eos = adds_eos or start in ("<pad>", eos)
    tokens = read_vocabularies(folder, unk)
    if eos not in tokens[1] or (source_eos and eos not in tokens[0]):
        raise FileError(f"{folder} must have its end token {eos!r:.40} in its vocabularies; copy it again.")
    given: dict[str, float] = {"source_eos": source_eos}
    if settings.get("layer_norm_epsilon") is not None:
        given["norm_eps"] = settings.number("layer_norm_epsilon", 0)
    config = read_architecture(binary, given, *tokens)
    from_zero = binary.number("decoder/start_from_zero_embedding", 0) != 0
    (src_model, tgt_model), splitters = _splitters(folder, src_spm, tgt_spm)
    vocabs = []
    for side, spm in zip(tokens, (src_model, tgt_model), strict=True):
        places = {token: place for place, token in enumerate(side)}
        # Padding has no place, because CTranslate2 predicts a token named <pad> like any other. So has a start from
        # zeros, which is not a token, and a start that is also `unk` or `eos`, which becomes a separate row here.
        bos = None if from_zero or start in (unk, eos) else places.get(start)
        special = {"unk": places.get(unk), "bos": bos, "eos": places.get(eos)}
        vocabs.append(Vocabulary(pack(side, special, spm), str(folder)))
    src, tgt = vocabs
    if src.digest == tgt.digest:
        src = tgt
    if tgt.order[BOS_ID] is None:
        config = replace(config, projection_bias=True)  # keeps a start that is no token there from being predicted
    refuse_others(binary, config)
    starts: dict[str, int] = {}
    if not from_zero:  # CTranslate2 starts from <unk> if the start is not a token
        row = tokens[1].index(start if start in tokens[1] else unk)
        # A separate matrix of the source needs no row for it.
        sides = ("src", "tgt") if config.tie.startswith("src-tgt") else ("tgt",)
        starts = {f"{side}_embedding.weight": row for side in sides}
    notes = [splitters]
    if source_eos and not adds_eos:
        notes.append(f"sources end with {eos}, as those of Hugging Face's tokenizers do")
    names = [["" if place is None else vocab.pieces[place] for place in vocab.order] for vocab in (src, tgt)]
    end = [eos] if source_eos and not adds_eos else []
    original = partial(CTranslate2Model, folder, (names[0], names[1]), end)
    return _imported(folder, binary, config, src, tgt, original, notes, starts)


def _splitters(folder: Path, src_spm: Path | None, tgt_spm: Path | None) -> tuple[tuple[bytes, bytes], str]:
    """Returns the SentencePiece models of both sides, empty if there are none, and a note about the splitting."""
    models = sorted(file.name for file in folder.glob("*.model"))
    splitters = []
    for given, name in ((src_spm, "source.spm"), (tgt_spm, "target.spm")):
        if given is None and (folder / name).exists():
            given = file_in(folder, name)
        elif given is None and len(models) == 1:
            given = file_in(folder, models[0])
        splitters.append(given)
    src, tgt = splitters
    if src is None and tgt is None:
        return (b"", b""), "it has no SentencePiece model, so text consists of tokens separated by spaces"
    if src is None or tgt is None:
        raise FileError(f"{folder} has a SentencePiece model for one side only; give both `src_spm` and `tgt_spm`.")
    return (read_bytes(src), read_bytes(tgt)), f"{src.name} splits the source, and {tgt.name} the target"


def _imported(
    folder: Path,
    binary: Binary,
    config: ModelConfig,
    src: Vocabulary,
    tgt: Vocabulary,
    original: Callable[[], Program],
    notes: Sequence[str],
    starts: Mapping[str, int] | None = None,
) -> Imported:
    """Returns the model. `starts` has the row from which the decoder starts, for each embedding that needs one. With
    None, the rows have our order, and otherwise that of the vocabularies' tables."""
    tensors, names = binary.tensors(), weight_names(config)
    vocabs = {"src_embedding.weight": src} | dict.fromkeys(("tgt_embedding.weight", *PROJECTION), tgt)
    weights: dict[str, Read] = {}
    for name, shape in shapes_of(folder, config, src, tgt).items():
        stored, vocab = names[name], None if starts is None else vocabs.get(name)
        rows = len(vocab.pieces) if vocab else shape[0]
        if stored in tensors and "positions" in name:
            rows = max(rows, *tensors.facts[stored].shape[:1])
        if stored not in tensors and "positions" in name:
            read: Read = partial(computed_positions, *shape)
        elif stored not in tensors and stored.endswith("bias"):  # a linear layer may have none, a norm may not
            read = partial(torch.zeros, rows)
        else:
            read = tensors.get(stored, rows, *shape[1:])
        weights[name] = partial(_in_our_order, name, read, shape[0], vocab, (starts or {}).get(name))
    kind = f"a CTranslate2 folder of binary version {binary.version} with {binary.weight_type} weights"
    return Imported(
        folder, kind, tuple(notes), config, DEFAULTS, src, tgt, weights, original,
        {"imported": "CTranslate2"},
    )  # fmt: skip


def _in_our_order(name: str, read: Read, rows: int, vocab: Vocabulary | None, start: int | None) -> Tensor:
    values = read()
    if vocab:
        row = None if start is None else values[start]
        values = rows_of(vocab, values, row, absent=ABSENT_BIAS if name == PROJECTION[1] else 0.0)
    if name == PROJECTION[1]:
        values[PAD_ID] = 0  # exports have another value, because padding is never predicted
    return values[:rows]


def computed_positions(length: int, D: int) -> Tensor:
    """Returns the table that CTranslate2 computes for a model without one (`src/layers/common.cc`), in float32.

    Its frequencies divide by D / 2 - 1, and the first position is 1.
    """
    step = torch.tensor(10000.0).log() / (D // 2 - 1)
    angles = torch.arange(1, length + 1)[:, None] * (-step * torch.arange(D // 2)).exp()
    return torch.cat((angles.sin(), angles.cos()), 1)
