"""Passes the weights and sizes of a model to compiled code.

Legend: D model width.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vtrans.storage.layout import layer_weights
from vtrans.storage.model_file import Weights
from vtrans.text.vocabulary import PAD_ID

Floats = NDArray[np.float32]

ACTIVATIONS = ("relu", "gelu", "swish")
PRECISIONS = ("float32", "bfloat16", "int8")


class Sizes(ctypes.Structure):
    """`Sizes` of model.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("width", "feed_forward", "heads", "vocabulary", "pad_id")),
        *((name, ctypes.c_int32) for name in ("encoder_layers", "decoder_layers", "activation", "precision")),
        *((name, ctypes.c_int32) for name in ("pre", "cross_skip", "decoder_only", "prefix", "ssru", "rotary")),
        *((name, ctypes.c_float) for name in ("epsilon", "embedding_scale")),
    )


def sizes_of(weights: Weights, precision: str) -> Sizes:
    c = weights.config
    return Sizes(
        width=c.d_model,
        feed_forward=c.d_ff,
        heads=c.heads,
        vocabulary=len(weights["projection.weight"]),
        pad_id=PAD_ID,
        encoder_layers=c.encoder_layers,
        decoder_layers=c.decoder_layers,
        activation=ACTIVATIONS.index(c.activation),
        precision=PRECISIONS.index(precision),
        pre=c.norm == "pre",
        cross_skip=c.cross_attention_residual,
        decoder_only=c.architecture == "decoder-only",
        prefix=c.source_mask == "prefix",
        ssru=c.autoregression == "ssru",
        rotary=c.positions == "rotary",
        epsilon=c.norm_eps,
        embedding_scale=math.sqrt(c.d_model) if c.scale_embedding else 1.0,
    )


def in_order(weights: Weights) -> Iterator[Floats | None]:
    """Yields the weights in the order in which model.h reads them; None: the model lacks this weight."""
    config = weights.config
    yield from (weights["src_embedding.weight"], weights["tgt_embedding.weight"])
    for stack, depth in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for layer in range(depth):
            for _, name, _ in layer_weights(config, stack):
                array = weights[f"{stack}.layers.{layer}.{name}"]
                # The fused product of the SSRU has no bias in its first half.
                yield np.pad(array, (config.d_model, 0)) if name == "ssru.forget_bias" else array
        for kind in ("weight", "bias"):
            yield weights.get(f"{stack}.final_norm.{kind}")
    yield from (weights["projection.weight"], weights.get("projection.bias"))
