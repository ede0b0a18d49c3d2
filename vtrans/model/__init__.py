"""The network: the one model module of the package. Read network.py first, then layers.py and cache.py."""

from vtrans.model.attention import CrossAttention, Recorder, SelfAttention
from vtrans.model.cache import Cache, SourceCache
from vtrans.model.layers import DecoderLayer, EncoderLayer, FeedForward, SSRULayer
from vtrans.model.network import Decoder, DecoderOnly, Transformer, count_parameters, module_list
from vtrans.model.positions import ComputedPositions, tensor_of
from vtrans.model.ssru import SSRU

__all__ = [
    "SSRU",
    "Cache",
    "ComputedPositions",
    "CrossAttention",
    "Decoder",
    "DecoderLayer",
    "DecoderOnly",
    "EncoderLayer",
    "FeedForward",
    "Recorder",
    "SSRULayer",
    "SelfAttention",
    "SourceCache",
    "Transformer",
    "count_parameters",
    "module_list",
    "tensor_of",
]
