"""The weights of a model as a specification of CTranslate2."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vtrans.checkpoint import LoadedModel
from vtrans.errors import InputError
from vtrans.interop.ctranslate2.folder import ctranslate2
from vtrans.interop.ctranslate2.names import ROTARY, layer_names
from vtrans.model import ComputedPositions
from vtrans.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, SPECIAL_PIECES, UNK_ID

# Added to the logit of padding, which is -inf in our models. Its probability is 0 in float32 either way, and unlike a
# larger number, this one is finite in float16.
PAD_BIAS = -6e4


def specification(loaded: LoadedModel, positions: int) -> Any:
    """Returns the model as a `ctranslate2.specs.TransformerSpec` whose position table has `positions` rows.

    Weights are copied, because quantization writes into them.
    """
    ctranslate2()
    from ctranslate2.specs import common_spec, model_spec, transformer_spec

    model, config = loaded.model, loaded.model.config
    # CTranslate2's GELU is exact, as torch's default; its GELUTanh is the approximation.
    activation = getattr(common_spec.Activation, config.activation.upper())
    options: dict[str, Any] = {"pre_norm": config.norm == "pre", "activation": activation}
    if config.positions == "rotary":
        if "rotary_dim" not in signature(transformer_spec.TransformerEncoderSpec.__init__).parameters:
            raise InputError(
                "the export of rotary positions needs ctranslate2 4.6.3; run `pip install -U ctranslate2`."
            )
        options |= ROTARY | {"rotary_interleave": bool(ROTARY["rotary_interleave"])}
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
            # Specifications of encoders always have a table. CTranslate2 would not read it, and refuses an empty one.
            vars(side).pop("position_encodings", None)
            continue
        encodings = _array(table(positions) if isinstance(table, ComputedPositions) else table.weight)
        # A comparison scores a translation with EOS appended. The copied row gives EOS a position after an unfinished
        # translation that fills the table; its log-probability is not used.
        side.position_encodings.encodings = np.concatenate((encodings, encodings[-1:]))
    weights = model.state_dict()
    for name, stored in layer_names(config):
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
