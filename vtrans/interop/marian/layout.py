"""The tensors of Marian's Transformer that each of our weights consists of, for the import, and the export to Bergamot.

Marian's matrices are [in, out], ours [out, in]; its vectors are [1, n]. We fuse the projections of queries, keys and
values; Marian has one matrix each. The names are those of `src/models/transformer.h` and `src/layers/generic.h` in
Marian's source.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vtrans.config import ModelConfig
from vtrans.interop.foreign_files import Read
from vtrans.interop.layers import Weight, layer_weights

EPSILON = 1e-6  # of layer norms: `layerNorm` in layers/generic.h


# With "W" or "b" for the braces, or "scale" or "bias" in a norm.
_NAMES: dict[str, tuple[str, ...]] = {
    "self_attention.qkv": ("self_{}q", "self_{}k", "self_{}v"),
    "self_attention.out": ("self_{}o",),
    "self_attention.norm": ("self_Wo_ln_{}",),
    "cross_attention.query": ("context_{}q",),
    "cross_attention.kv": ("context_{}k", "context_{}v"),
    "cross_attention.out": ("context_{}o",),
    "cross_attention.norm": ("context_Wo_ln_{}",),
    "feed_forward.inner": ("ffn_{}1",),
    "feed_forward.outer": ("ffn_{}2",),
    "feed_forward.norm": ("ffn_ffn_ln_{}",),
    "final_norm": ("top_ln_{}",),
    # `SSRU` of src/rnn/cells.h and `DecoderLayerRNN` of src/models/transformer.h.
    "ssru.zf": ("rnn_{}", "rnn_{}f"),
    "ssru.forget_bias": ("rnn_{}f",),
    "ssru.norm": ("rnn_ffn_ln_{}",),
}


def weights_of_layers(config: ModelConfig) -> Iterator[Weight]:
    """Yields our weights in the layers with Marian's tensors. `join` and `split` convert the layout."""
    pre = config.norm == "pre"

    def named(stack: str, layer: int | None, name: str, kind: str) -> str:
        if layer is None:
            stack, end = f"{stack}_", ""
        else:  # the norms before a sublayer are marked, not those at the top of a stack
            stack, end = f"{stack}_l{layer + 1}_", "_pre" if pre and "_ln_" in name else ""
        words = ("scale", "bias") if "_ln_" in name else ("W", "b")
        return stack + name.format(words[kind == "bias"]) + end

    return layer_weights(config, _NAMES | {"ssru.norm": ("rnn_ln_{}",)} if pre else _NAMES, named)


def stored(weight: Weight) -> tuple[int, int]:
    """Returns the shape [in, out] or [1, n] of Marian's tensors."""
    return (1, *weight.shape) if len(weight.shape) == 1 else (weight.shape[1], weight.shape[0])


def join(weight: Weight, tensors: list[Read]) -> Tensor:
    """Returns our weight: a matrix [out, in], or a vector."""
    joined = torch.cat([read().T for read in tensors])
    return joined.flatten() if len(weight.shape) == 1 else joined


def split(weight: Weight, value: Tensor) -> dict[str, Tensor]:
    """Returns Marian's tensors."""
    parts = value.chunk(len(weight.theirs))
    return {name: part.reshape(part.shape[0], -1).T for name, part in zip(weight.theirs, parts, strict=True)}


def padded(rows: int) -> int:
    """Returns the number of rows that a table of pieces has for Bergamot: a multiple of 8, and at least one unused."""
    return (rows // 8 + 1) * 8


def decodes_as_trained(config: ModelConfig) -> bool:
    """Returns whether Marian's usual network translates with the network that it trains and scores with.

    With pre-norm self-attention, its decoder normalises the keys and values of the first step only:
    `DecoderLayerSelfAttention` and `LayerAttention` of src/models/transformer.h.
    """
    return config.norm == "post" or config.autoregression == "ssru"
