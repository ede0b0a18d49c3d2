"""Writes a model as a folder for CTranslate2.

The folder contains the SentencePiece model(s), vtrans.json, and CTranslate2's own files (model.bin, config.json, the
subwords as JSON), which any program with CTranslate2 can load.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vtrans.apps.interop.capabilities import CTRANSLATE2, check_model
from vtrans.apps.interop.comparison import Program, Tolerance
from vtrans.apps.interop.ctranslate2.folder import DESCRIPTION, FORMAT
from vtrans.apps.interop.ctranslate2.original import CTranslate2Model, ctranslate2
from vtrans.apps.interop.foreign_files import write_json
from vtrans.apps.interop.weight_names import CTRANSLATE2 as WEIGHTS
from vtrans.apps.interop.weight_names import layer_weights
from vtrans.config.keys import toml_value
from vtrans.model.checkpoint import LoadedModel
from vtrans.model.positions import ComputedPositions
from vtrans.search.rules import suppressed_ids
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.text.vocabulary import BOS_ID, EOS_ID, JOINT_FILE, PAD_ID, SPECIAL_PIECES, SRC_FILE, TGT_FILE, UNK_ID
from vtrans.translate.steps.split import EXTRA_LENGTH

# In float32, only the order of sums differs, which changes a log-probability by at most 6e-6 in a Transformer-Tiny. If
# this breaks a tie, one sentence may lose more than rounding, so `lost` is a mean. The other types round the weights:
# in that model, int8 changes log-probabilities by 0.02 in the mean and 0.16 at most, and loses 0.004 of the score.
TOLERANCES = {
    "float32": Tolerance(token=2e-4, mean=2e-5, lost=1e-3),
    "float16": Tolerance(token=0.2, mean=0.01, lost=0.01),
    "int8": Tolerance(token=2.0, mean=0.1, lost=0.02),
}
# Our rotary positions. A rotary_dim of 0 means the whole head width.
ROTARY = {"rotary_dim": 0, "rotary_interleave": True, "rotary_base": 10_000}
# Bias of the padding logit, which is -inf in our models. The probability of padding is 0 in float32 either way, and
# this number is finite in float16.
PAD_BIAS = -6e4


def write(
    loaded: LoadedModel, folder: Path, console: Console, quantization: str = "float32"
) -> tuple[LoadedModel, Callable[[], Program]]:
    """Writes the files into an empty folder. Returns the model as CTranslate2 expresses it, and a function that loads
    the files.

    CTranslate2 takes search settings from its callers, not from the folder; `vtrans import` restores the model's.
    Raises InputError for a model that cannot be exported.
    """
    if quantization not in TOLERANCES:
        raise InputError(f"`quantization` must be one of {', '.join(TOLERANCES)}, got {quantization!r}.")
    check_model(loaded.model.config, CTRANSLATE2)
    if loaded.search.begin:
        raise InputError(
            f"a model that stores search.begin = {toml_value(loaded.search.begin)} cannot be exported to CTranslate2, "
            "which has only []; translate with the model itself."
        )
    ctranslate2()
    loaded = without_suppressed(loaded, console)
    src, tgt = loaded.src_vocab, loaded.tgt_vocab
    # Sinusoidal positions cover the longest source that is translated whole, and its translation.
    spec = specification(loaded, loaded.model.config.max_length or loaded.search.max_source + EXTRA_LENGTH)
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))
    for name, vocabulary in ({JOINT_FILE: src} if src is tgt else {SRC_FILE: src, TGT_FILE: tgt}).items():
        (folder / name).write_bytes(vocabulary.proto)
    write_json(folder / DESCRIPTION, {**loaded.record(), "format": FORMAT, "quantization": quantization})
    pieces = [src.piece(i) for i in range(len(src))], [tgt.piece(i) for i in range(len(tgt))]
    load = partial(CTranslate2Model, folder, pieces, (), quantization, TOLERANCES[quantization])
    return dataclasses.replace(loaded, shortlist=None), load


def without_suppressed(loaded: LoadedModel, console: Console) -> LoadedModel:
    """Returns the model with a projection bias that excludes the subwords of `search.suppress` from its softmax.

    With a beam, CTranslate2's own rule would change the log-probabilities of the other subwords by a different amount
    at each step. The weights are shared with `loaded`, which does not change.
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


def specification(loaded: LoadedModel, positions: int) -> Any:
    """Returns the model as a `ctranslate2.specs.TransformerSpec` whose position table has `positions` rows.

    Weights are copied, because quantization writes into them.
    """
    ctranslate2()
    from ctranslate2.specs import common_spec, model_spec, transformer_spec

    model, config = loaded.model, loaded.model.config
    # CTranslate2's GELU is exact, like torch's default; its GELUTanh is the approximation.
    activation = getattr(common_spec.Activation, config.activation.upper())
    options: dict[str, Any] = {"pre_norm": config.norm == "pre", "activation": activation}
    if config.positions == "rotary":
        options |= ROTARY
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(config.encoder_layers, config.heads, **options),
        transformer_spec.TransformerDecoderSpec(config.decoder_layers, config.heads, **options),
    )
    sides = (
        (spec.encoder, spec.encoder.embeddings[0], model.src_embedding, model.src_positions),
        (spec.decoder, spec.decoder.embeddings, model.tgt_embedding, model.tgt_positions),
    )
    for side, embeddings, embedding, table in sides:
        embeddings.weight = _array(embedding.weight)
        side.scale_embeddings = config.scale_embedding  # E[x] * sqrt(D) + P
        if table.turns:
            # Encoder specifications always have a table. CTranslate2 would not read it, and refuses an empty one.
            vars(side).pop("position_encodings", None)
            continue
        encodings = _array(table(positions) if isinstance(table, ComputedPositions) else table.weight)
        # A comparison scores a translation with EOS appended. The copied row gives EOS a position after an unfinished
        # translation that fills the table; its log-probability is not used.
        side.position_encodings.encodings = np.concatenate((encodings, encodings[-1:]))
    weights = model.state_dict()
    for name, (stored,), _ in layer_weights(config, WEIGHTS):
        scope, _, kind = stored.rpartition("/")
        setattr(model_spec.index_spec(spec, scope), kind, _array(weights[name]))
    spec.decoder.projection.weight = _array(model.projection.weight)
    bias_V = model.projection.bias
    bias = np.zeros(len(loaded.tgt_vocab), dtype=np.float32) if bias_V is None else _array(bias_V)
    bias[PAD_ID] = PAD_BIAS
    spec.decoder.projection.bias = bias
    spec.register_source_vocabulary([loaded.src_vocab.piece(i) for i in range(len(loaded.src_vocab))])
    spec.register_target_vocabulary([loaded.tgt_vocab.piece(i) for i in range(len(loaded.tgt_vocab))])
    names = {"unk_token": UNK_ID, "bos_token": BOS_ID, "eos_token": EOS_ID, "decoder_start_token": BOS_ID}
    for name, number in names.items():
        setattr(spec.config, name, SPECIAL_PIECES[number])
    spec.config.add_source_eos = config.source_eos
    spec.config.layer_norm_epsilon = config.norm_eps
    return spec


def _array(weight: Tensor) -> NDArray[np.float32]:
    copy: NDArray[np.float32] = weight.detach().float().cpu().numpy().copy()
    return copy
