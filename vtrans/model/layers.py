"""Encoder and decoder layers, and their sublayers, each with its residual connection.

Legend: B sentences, S source length, T target length, Q queries, D model width, H heads, d = D / H head width,
F feed-forward width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from vtrans.config import ModelConfig
from vtrans.model.attention import CrossAttention, Module, Recorder, SelfAttention
from vtrans.model.cache import LayerCache
from vtrans.model.dropout import Dropout
from vtrans.model.kernels import compiled_for
from vtrans.model.products import xavier
from vtrans.model.ssru import SSRU


class EncoderLayer(Module):
    """A layer of the encoder, or of a decoder-only model."""

    def __init__(self, sublayers: Sublayers, layer: int) -> None:
        super().__init__()
        attention, inner = sublayers.numbers(layer)
        self.self_attention, self.self_attention_residual = sublayers.self_attention(attention)
        self.feed_forward, self.feed_forward_residual = sublayers.feed_forward(inner)

    def forward(
        self,
        x_BSD: Tensor,
        rotary_SD: Tensor | None,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
        recorder: Recorder | None = None,
    ) -> Tensor:
        """Returns the output [B, S, D]. See SelfAttention for the arguments."""
        history = None if cache is None else cache.history
        x_BSD = self.self_attention_residual(
            x_BSD, lambda x: self.self_attention(x, rotary_SD, mask, history, recorder)
        )
        return self.feed_forward_residual(x_BSD, self.feed_forward)


class DecoderLayer(Module):
    """A layer of the decoder of an encoder-decoder model, with self-attention or an SSRU as its first sublayer."""

    def __init__(self, sublayers: Sublayers, layer: int) -> None:
        super().__init__()
        attention, inner = sublayers.numbers(layer)
        self.has_ssru = sublayers.config.autoregression == "ssru"
        if self.has_ssru:
            self.ssru, self.ssru_residual = sublayers.ssru(attention)
        else:
            self.self_attention, self.self_attention_residual = sublayers.self_attention(attention)
        self.cross_attention, self.cross_attention_residual = sublayers.cross_attention(attention)
        self.feed_forward, self.feed_forward_residual = sublayers.feed_forward(inner)

    def forward(
        self,
        x_BTD: Tensor,
        rotary_TD: Tensor | None,
        mask: Tensor | None = None,
        memory_BSD: Tensor | None = None,
        cache: LayerCache | None = None,
        recorder: Recorder | None = None,
    ) -> Tensor:
        """Returns the output [B, T, D]. `mask` is the memory's; a cache replaces both."""
        history: Any
        history, memory = (None, None) if cache is None else cache
        if self.has_ssru:
            x_BTD = self.ssru_residual(x_BTD, lambda x: self.ssru(x, history))
        else:
            x_BTD = self.self_attention_residual(x_BTD, lambda x: self.self_attention(x, rotary_TD, None, history))
        x_BTD = self.cross_attention_residual(
            x_BTD, lambda x: self.cross_attention(x, memory_BSD, mask, memory, recorder)
        )
        return self.feed_forward_residual(x_BTD, self.feed_forward)


class LayerNorm(nn.LayerNorm):
    __call__: Callable[..., Tensor]


class Residual(Module):
    """Wraps a sublayer f: norm(x + dropout(f(x))) as in the paper, or pre-norm, x + dropout(f(norm(x))).

    `skip=False` is an ablation that removes the "x +".
    """

    def __init__(self, config: ModelConfig, *, skip: bool = True) -> None:
        super().__init__()
        self.pre, self.skip = config.norm == "pre", skip
        self.norm = LayerNorm(config.d_model, config.norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        out = f(self.norm(x) if self.pre else x)
        if self.skip and self.training and (compiled := compiled_for(x)):
            out = compiled.residual(x, out, self.dropout.dropped)
        else:
            out = x + self.dropout(out) if self.skip else self.dropout(out)
        return out if self.pre else self.norm(out)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


class FeedForward(Module):
    """W_2 relu(W_1 x + b_1) + b_2 (section 3.3); `model.activation` may replace the relu."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = xavier(config.d_model, config.d_ff)
        self.outer = xavier(config.d_ff, config.d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(self.activation(self.inner(x))))


class Sublayers:
    """Makes the sublayers of a stack, each with its residual. All sharing of layers happens here: for the same number,
    a method returns the SAME modules.

    With `share_layers`, all layers of a stack, or each group of `share_group` layers, have the same number
    (`ModelConfig.sublayer`). With `share_stacks`, both stacks use one object of this class.

    A user-defined network subclasses this and replaces the classes.
    """

    self_attention_class: type[SelfAttention] = SelfAttention
    cross_attention_class: type[CrossAttention] = CrossAttention
    feed_forward_class: type[FeedForward] = FeedForward

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        skip = config.cross_attention_residual
        self.self_attention = cache(lambda number: (self.self_attention_class(config), Residual(config)))
        self.ssru = cache(lambda number: (SSRU(config.d_model), Residual(config)))
        self.cross_attention = cache(lambda number: (self.cross_attention_class(config), Residual(config, skip=skip)))
        self.feed_forward = cache(lambda number: (self.feed_forward_class(config), Residual(config)))

    def numbers(self, layer: int) -> tuple[int, int]:
        """Returns the numbers of a layer's attention and feed-forward sublayers."""
        return self.config.sublayer("attention", layer), self.config.sublayer("feed-forward", layer)
