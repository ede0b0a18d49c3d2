"""Writes a model as a folder for CTranslate2.

The folder holds what CTranslate2 reads (model.bin, config.json, the subwords as JSON), so that any program with
CTranslate2 can use it, the SentencePiece model(s), and vtrans.json.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vtrans.checkpoint import LoadedModel
from vtrans.config import SearchConfig
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.files import file_sha256
from vtrans.interop.ctranslate2.folder import DESCRIPTION, FORMAT, KIND, ctranslate2
from vtrans.interop.ctranslate2.original import CTranslate2Model
from vtrans.interop.ctranslate2.spec import PAD_BIAS, specification
from vtrans.interop.expressible import CTRANSLATE2, check_model
from vtrans.interop.verification import Program, Tolerance
from vtrans.lines.pieces import EXTRA_LENGTH
from vtrans.search.rules import suppressed_ids
from vtrans.text.vocabulary import JOINT_FILE, SRC_FILE, TGT_FILE

# In float32, only the order of sums differs: by at most 6e-6 per subword in a Transformer-Tiny. Where two extensions
# are that close, the search may choose the other one, and a single translation may then score lower by more than
# rounding. Hence `lost` bounds the mean over all sentences: a wrong search loses much more than one such tie does.
# The other types round the weights, and often choose other words: in a Transformer-Tiny, int8 differs by 0.02 in the
# mean and 0.16 at most, and loses 0.004 of the score.
TOLERANCES = {
    "float32": Tolerance(token=2e-4, mean=2e-5, lost=1e-3),
    "float16": Tolerance(token=0.2, mean=0.01, lost=0.01),
    "int8": Tolerance(token=2.0, mean=0.1, lost=0.02),
}


def write(
    loaded: LoadedModel, folder: Path, console: Console, quantization: str = "float32"
) -> tuple[LoadedModel, Callable[[], Program]]:
    """Writes the files into an empty folder. Returns the model with CTranslate2's default length penalty and no rules,
    and a function that loads the files.

    CTranslate2 reads no search settings from a folder, but its callers pass them; `vtrans import` reads those of the
    model. Raises InputError for a model that cannot be exported.
    """
    if quantization not in TOLERANCES:
        raise InputError(f"`quantization` must be one of {', '.join(TOLERANCES)}, got {quantization!r}.")
    check_model(loaded.model.config, CTRANSLATE2)
    if loaded.search.begin:
        raise InputError(
            "a model that stores search.begin cannot be exported to CTranslate2, which does not have it; translate "
            "with the model itself."
        )
    ctranslate2()
    loaded = without_suppressed(loaded, console)
    write_files(loaded, folder, quantization)
    search = SearchConfig(alpha=1.0, length_penalty="length", max_source=loaded.search.max_source)
    src, tgt = loaded.src_vocab, loaded.tgt_vocab
    pieces = [src.piece(i) for i in range(len(src))], [tgt.piece(i) for i in range(len(tgt))]
    load = partial(CTranslate2Model, folder, pieces, weights=quantization, tolerance=TOLERANCES[quantization])
    return dataclasses.replace(loaded, search=search), load


def without_suppressed(loaded: LoadedModel, console: Console) -> LoadedModel:
    """Returns the model with the subwords of `search.suppress` left out of its softmax, by the projection's bias.

    CTranslate2's own rule would, with a beam, change the log-probabilities of the other subwords by a different amount
    at each step. The weights are shared with `loaded`, which stays as it is.
    """
    suppressed = suppressed_ids(loaded.search, loaded.tgt_vocab)
    if not suppressed:
        return loaded
    learned = loaded.model.projection.bias
    bias = torch.zeros(len(loaded.tgt_vocab)) if learned is None else learned.detach().clone()
    bias[list(suppressed)] = PAD_BIAS
    projection, model = copy.copy(loaded.model.projection), copy.copy(loaded.model)
    projection._parameters = {**projection._parameters, "bias": nn.Parameter(bias, requires_grad=False)}
    model._modules = {**model._modules, "projection": projection}
    model.config = dataclasses.replace(model.config, projection_bias=True)
    pieces = ", ".join(loaded.search.suppress)
    console.info(f"left out of the softmax, because the search suppresses them: {pieces}")
    return dataclasses.replace(loaded, model=model, search=dataclasses.replace(loaded.search, suppress=()))


def write_files(loaded: LoadedModel, folder: Path, quantization: str) -> None:
    """Writes the files of an export into an empty folder. Raises OSError if that fails."""
    # Sinusoidal positions reach as far as the longest source that is translated in one piece, and its translation.
    positions = loaded.model.max_length or loaded.search.max_source + EXTRA_LENGTH
    spec = specification(loaded, positions)
    spec.validate()
    spec.optimize(quantization)
    if loaded.src_vocab is loaded.tgt_vocab:
        vocabularies = {JOINT_FILE: loaded.src_vocab}
    else:
        vocabularies = {SRC_FILE: loaded.src_vocab, TGT_FILE: loaded.tgt_vocab}
    description: dict[str, Any] = {
        **loaded.record(),
        "format": FORMAT,
        "kind": KIND,
        "quantization": quantization,
        "vocabularies": sorted(vocabularies),
    }
    spec.save(str(folder))
    for name, vocabulary in vocabularies.items():
        (folder / name).write_bytes(vocabulary.proto)
    description["files"] = {file.name: file_sha256(file) for file in sorted(folder.iterdir())}
    text = json.dumps(description, sort_keys=True, ensure_ascii=False, indent=2)
    (folder / DESCRIPTION).write_bytes(text.encode() + b"\n")
