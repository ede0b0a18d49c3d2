"""Reads a CTranslate2 folder: a Transformer in any version and any type of weights.

A folder has tokens, but no tokenizer. SentencePiece models come from the user or lie in the folder; without them, text
consists of tokens separated by spaces. An export of vtrans has its own configuration and vocabularies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from vtrans.config import ModelConfig, SearchConfig, section_from
from vtrans.errors import FileError, InputError
from vtrans.interop.ctranslate2.architecture import newest_names, read_architecture, refuse_others
from vtrans.interop.ctranslate2.binary import Binary
from vtrans.interop.ctranslate2.folder import DESCRIPTION, ctranslate2, is_exported, read_exported
from vtrans.interop.ctranslate2.names import weight_names
from vtrans.interop.ctranslate2.original import CTranslate2Model
from vtrans.interop.ctranslate2.settings import Tokens, read_settings, read_vocabularies
from vtrans.interop.foreign_files import Read, file_in, read_bytes
from vtrans.interop.imported import ABSENT_BIAS, Imported, Original, rows_of, shapes_of
from vtrans.storage.tensors import check_training
from vtrans.text.languages import languages_from, tags_from
from vtrans.text.piece_table import pack
from vtrans.text.vocabulary import BOS_ID, PAD_ID, Vocabulary

BINARY = "model.bin"
SEARCH = SearchConfig(beam=2, alpha=1.0, length_penalty="length", min_length=1)  # CTranslate2's defaults


def recognises(path: Path) -> bool:
    """Returns whether this is a folder of CTranslate2."""
    return (path / BINARY).is_file()


def read(folder: Path, src_spm: Path | None = None, tgt_spm: Path | None = None) -> Imported:
    """Returns the model of a CTranslate2 folder. The SentencePiece models split its text.

    Raises FileError for a folder that is damaged or that vtrans cannot express, and InputError for SentencePiece models
    in addition to those of a folder that vtrans exported.
    """
    binary = Binary(file_in(folder, BINARY))
    newest_names(binary)
    settings = read_settings(folder, binary)
    if not is_exported(folder):
        return _read_foreign(folder, binary, settings, src_spm, tgt_spm)
    if src_spm or tgt_spm:
        raise InputError(
            f"`src_spm` and `tgt_spm` must be left out, because vtrans exported {folder} with the model's vocabularies."
        )
    return _read_export(folder, binary, settings)


def _read_export(folder: Path, binary: Binary, settings: Tokens) -> Imported:
    """Returns the model from which vtrans made the folder, except for the rounding of its weights."""
    description, src, tgt = read_exported(folder)
    file = folder / DESCRIPTION
    config = section_from(ModelConfig, "model", description["model"], str(file))
    imported = _Model(folder, binary, settings, config, src, tgt, foreign=False).imported("`vtrans export` wrote it")
    return replace(
        imported,
        search=section_from(SearchConfig, "search", description["search"], str(file)),
        training=check_training(file, description["training"]),
        languages=languages_from(description.get("languages")),
        tags=tags_from(description.get("tags"), src.tags),
    )


def _read_foreign(
    folder: Path, binary: Binary, settings: Tokens, src_spm: Path | None, tgt_spm: Path | None
) -> Imported:
    """Returns the model of a folder that another program wrote."""
    src_tokens, tgt_tokens = read_vocabularies(folder, settings)
    sizes = len(src_tokens), len(tgt_tokens)
    config = read_architecture(binary, settings, *sizes, joint=src_tokens is tgt_tokens)
    from_zero = binary.number("decoder/start_from_zero_embedding", 0) != 0
    (src_model, tgt_model), splitters = _splitters(folder, src_spm, tgt_spm)
    src, tgt = (
        Vocabulary(pack(tokens, _special(tokens, settings, from_zero=from_zero), spm), str(folder))
        for tokens, spm in ((src_tokens, src_model), (tgt_tokens, tgt_model))
    )
    if src.digest == tgt.digest:
        src = tgt
    if tgt.order[BOS_ID] is None:
        config = replace(config, projection_bias=True)  # keeps a start that is no token there from being predicted
    # CTranslate2 starts from <unk> if the start is not a token.
    start = None if from_zero else tgt_tokens.index(settings.start if settings.start in tgt_tokens else settings.unk)
    notes = [splitters]
    if settings.source_eos and not settings.adds_eos:
        notes.append(f"sources end with {settings.eos}, as those of Hugging Face's tokenizers do")
    return _Model(folder, binary, settings, config, src, tgt, start).imported(*notes)


def _special(tokens: Sequence[str], settings: Tokens, *, from_zero: bool) -> dict[str, int | None]:
    """Returns the places of our special pieces among the tokens, None for one that is not there.

    Padding always has None, because CTranslate2 predicts a token named <pad> like any other. So has a start from zeros,
    which is not a token, and a start that is also `unk` or `eos`, which becomes a separate row here.
    """
    places = {token: place for place, token in enumerate(tokens)}
    unk, start, eos = (places.get(token) for token in (settings.unk, settings.start, settings.eos))
    return {"unk": unk, "bos": None if from_zero or start in (unk, eos) else start, "eos": eos}


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


@dataclass
class _Model:
    """A model whose weights are in a model.bin.

    The rows of a `foreign` model are in the order of its vocabularies' tables. `start` is the row of the embeddings
    from which its decoder starts; None for zeros.
    """

    folder: Path
    binary: Binary
    settings: Tokens
    config: ModelConfig
    src: Vocabulary
    tgt: Vocabulary
    start: int | None = None
    foreign: bool = True

    def __post_init__(self) -> None:
        if self.foreign:
            refuse_others(self.binary, self.config)
        self.tensors, self.names = self.binary.tensors(), weight_names(self.config)

    def imported(self, *notes: str) -> Imported:
        """Returns the model with these notes about it."""
        src, tgt, settings = self.src, self.tgt, self.settings
        wanted = shapes_of(self.folder, self.config, src, tgt)
        return Imported(
            path=self.folder,
            kind=f"a CTranslate2 folder of binary version {self.binary.version} with {self.binary.weight_type} weights",
            notes=notes,
            model=self.config,
            search=SEARCH,
            src_vocab=src,
            tgt_vocab=tgt,
            weights={name: self._reader(name, shape) for name, shape in wanted.items()},
            original=Original(
                partial(
                    CTranslate2Model,
                    self.folder,
                    (self._tokens(src), self._tokens(tgt)),
                    source_end=[settings.eos] if settings.source_eos and not settings.adds_eos else [],
                    has_own=self.foreign,
                ),
                ctranslate2,
            ),
            training={"imported": "CTranslate2"},
        )

    def _tokens(self, vocab: Vocabulary) -> list[str]:
        """Returns the name in CTranslate2 of each of our subwords."""
        if self.foreign:
            return ["" if place is None else vocab.pieces[place] for place in vocab.order]
        return [vocab.piece(i) for i in range(len(vocab))]

    def _reader(self, name: str, shape: Sequence[int]) -> Read:
        """Returns a function that reads one of our weights. Raises FileError if it is missing or has another shape."""
        module = name.rpartition(".")[0]
        stored = self.names[name]
        if module.endswith("positions"):
            return self._positions_reader(stored, *shape)
        vocab = {"src_embedding": self.src, "tgt_embedding": self.tgt, "projection": self.tgt}.get(module)
        rows = len(vocab.pieces) if self.foreign and vocab else shape[0]
        if stored.endswith("bias") and stored not in self.tensors:  # a linear layer may have none, a norm may not
            read: Read = partial(torch.zeros, rows)
        else:
            read = self.tensors.get(stored, rows, *shape[1:])
        if name == "projection.bias":
            return partial(self._bias, read)
        return partial(self._rows, read, module, vocab) if vocab and self.foreign else read

    def _rows(self, read: Read, module: str, vocab: Vocabulary) -> Tensor:
        """Returns an embedding or the projection in the order of our ids."""
        values = read()
        # Only the target has a start; a separate matrix of the source needs no row for it.
        starts = module == "tgt_embedding" or (module == "src_embedding" and self.config.tie.startswith("src-tgt"))
        return rows_of(vocab, values, values[self.start] if starts and self.start is not None else None)

    def _bias(self, read: Read) -> Tensor:
        """Returns the bias of the projection in the order of our ids."""
        bias = read()
        if self.foreign:
            bias = rows_of(self.tgt, bias, absent=ABSENT_BIAS)
        bias[PAD_ID] = 0  # exports have another value, because padding is never predicted
        return bias

    def _positions_reader(self, stored: str, length: int, D: int) -> Read:
        if stored not in self.tensors:
            return partial(computed_positions, length, D)
        read = self.tensors.get(stored, max(length, *self.tensors.facts[stored].shape[:1]), D)
        return lambda: read()[:length]


def computed_positions(length: int, D: int) -> Tensor:
    """Returns the table that CTranslate2 computes for a model without one (`src/layers/common.cc`), in float32.

    Its frequencies divide by D / 2 - 1, and the first position is 1.
    """
    step = torch.tensor(10000.0).log() / (D // 2 - 1)
    angles = torch.arange(1, length + 1)[:, None] * (-step * torch.arange(D // 2)).exp()
    return torch.cat((angles.sin(), angles.cos()), 1)
