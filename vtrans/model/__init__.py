"""The network: the one model module of the package. Read network.py first, then layers.py."""

from vtrans.model.layers import (
    CrossAttention,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    Residual,
    SelfAttention,
    SSRULayer,
)
from vtrans.model.network import (
    Decoder,
    DecoderOnly,
    Embedding,
    Transformer,
    count_parameters,
    module_list,
)
from vtrans.model.positions import ComputedPositions, RotaryPositions, SinusoidalPositions
from vtrans.model.ssru import SSRU

__all__ = [
    "SSRU",
    "ComputedPositions",
    "CrossAttention",
    "Decoder",
    "DecoderLayer",
    "DecoderOnly",
    "Embedding",
    "EncoderLayer",
    "FeedForward",
    "LayerNorm",
    "Residual",
    "RotaryPositions",
    "SSRULayer",
    "SelfAttention",
    "SinusoidalPositions",
    "Transformer",
    "count_parameters",
    "module_list",
]
