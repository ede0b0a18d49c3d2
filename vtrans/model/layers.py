"""The layers of the encoder and of the decoder, and their sublayers, each with its residual.

Legend: B sentences, S source length, T target length, Q queries, D model width, H heads, d = D / H head width,
F feed-forward width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from torch import Tensor, nn
from torch.nn import functional as F

from vtrans.config import ModelConfig
from vtrans.model.positions import turned
from vtrans.model.ssru import SSRU
from vtrans.runtime.attention import dot_product_attention, log_weights, merge_heads, split_heads
from vtrans.runtime.dropout import Dropout
from vtrans.runtime.products import xavier


class Module(nn.Module):
    """A module that returns one tensor. torch declares that calling a module returns Any."""

    __call__: Callable[..., Tensor]


class EncoderLayer(Module):
    def __init__(self, sublayers: Sublayers, layer: int) -> None:
        super().__init__()
        attention, inner = sublayers.numbers(layer)
        self.self_attention, self.self_attention_residual = sublayers.self_attention(attention)
        self.feed_forward, self.feed_forward_residual = sublayers.feed_forward(inner)

    def forward(self, x_BSD: Tensor, keep_BQS: Tensor, turn_SD: Tensor | None) -> Tensor:
        x_BSD = self.self_attention_residual(x_BSD, lambda x: self.self_attention(x, turn_SD, keep_BQS))
        return self.feed_forward_residual(x_BSD, self.feed_forward)


class DecoderLayer(Module):
    def __init__(self, sublayers: Sublayers, layer: int) -> None:
        super().__init__()
        attention, inner = sublayers.numbers(layer)
        self.add_first(sublayers, attention)
        self.cross_attention, self.cross_attention_residual = sublayers.cross_attention(attention)
        self.feed_forward, self.feed_forward_residual = sublayers.feed_forward(inner)
        self.aligns = layer + 1 == sublayers.config.alignment_layer

    def forward(
        self,
        x_BTD: Tensor,
        memory_BSD: Tensor,
        keep_BS: Tensor,
        turn_TD: Tensor | None,
        attention: list[Tensor] | None = None,
    ) -> Tensor:
        def attend(x_BTD: Tensor) -> Tensor:
            out_BTD, logprobs_BTS = self.cross_attention(x_BTD, memory_BSD, keep_BS, attention is not None)
            if attention is not None:
                attention.append(logprobs_BTS)
            return out_BTD

        x_BTD = self.cross_attention_residual(self.read_target(x_BTD, turn_TD), attend)
        return self.feed_forward_residual(x_BTD, self.feed_forward)

    def add_first(self, sublayers: Sublayers, number: int) -> None:
        self.self_attention, self.self_attention_residual = sublayers.self_attention(number)

    def read_target(self, x_BTD: Tensor, turn_TD: Tensor | None) -> Tensor:
        """Returns the output of the first sublayer [B, T, D]."""
        return self.self_attention_residual(x_BTD, lambda x: self.self_attention(x, turn_TD))


class SSRULayer(DecoderLayer):
    """A decoder layer with an SSRU in place of self-attention."""

    def add_first(self, sublayers: Sublayers, number: int) -> None:
        self.ssru, self.ssru_residual = sublayers.ssru(number)

    def read_target(self, x_BTD: Tensor, turn_TD: Tensor | None) -> Tensor:
        return self.ssru_residual(x_BTD, self.ssru)


class Sublayers:
    """Makes the sublayers of a stack, each with its residual. All sharing of layers happens here: for the same number,
    a method returns the SAME modules.

    With `share_layers`, all layers of a stack, or each group of `share_group` layers, have the same number
    (`ModelConfig.sublayer`). With `share_stacks`, both stacks use one object of this class.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        skip = config.cross_attention_residual
        self.self_attention = cache(lambda number: (SelfAttention(config), Residual(config)))
        self.ssru = cache(lambda number: (SSRU(config.d_model), Residual(config)))
        self.cross_attention = cache(lambda number: (CrossAttention(config), Residual(config, skip=skip)))
        self.feed_forward = cache(lambda number: (FeedForward(config), Residual(config)))

    def numbers(self, layer: int) -> tuple[int, int]:
        """Returns the numbers of a layer's attention and feed-forward sublayers."""
        return self.config.sublayer("attention", layer), self.config.sublayer("feed-forward", layer)


class LayerNorm(nn.LayerNorm):
    __call__: Callable[..., Tensor]


class Residual(Module):
    """Wraps a sublayer f: norm(x + dropout(f(x))) as in the paper, or pre-norm, x + dropout(f(norm(x))).

    `skip=False` is an ablation that leaves out the "x +".
    """

    def __init__(self, config: ModelConfig, *, skip: bool = True) -> None:
        super().__init__()
        self.pre, self.skip = config.norm == "pre", skip
        self.norm = LayerNorm(config.d_model, config.norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        out = self.dropout(f(self.before(x)))
        if self.skip:
            out = x + out
        return out if self.pre else self.norm(out)

    def before(self, x: Tensor) -> Tensor:
        """Returns the input of the sublayer."""
        return self.norm(x) if self.pre else x


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


class SelfAttention(Module):
    """Multi-head attention of a sequence to itself (section 3.2); q, k and v are one product."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.qkv = xavier(config.d_model, config.d_model, parts=3)
        self.out = xavier(config.d_model, config.d_model)

    def forward(self, x_BTD: Tensor, turn_TD: Tensor | None, keep_BQT: Tensor | None = None) -> Tensor:
        """Returns the output [B, T, D]. `keep_BQT` masks each position; with Q = 1 it is one mask for all positions.
        Without it, attention is causal, and padding needs no mask because it follows every real position."""
        mask, dropout = None if keep_BQT is None else keep_BQT[:, None], self.dropout if self.training else 0.0
        q_BHTd, k_BHTd, v_BHTd = self.queries_keys_values(x_BTD, turn_TD)
        return self.out(merge_heads(dot_product_attention(q_BHTd, k_BHTd, v_BHTd, mask, dropout)))

    def queries_keys_values(self, x_BTD: Tensor, turn_TD: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Returns queries, keys and values, [B, H, T, d] each. Queries and keys are turned by the rows `turn_TD`."""
        q, k, v = self.qkv(x_BTD).chunk(3, dim=-1)
        if turn_TD is not None:
            q, k = turned(q, turn_TD), turned(k, turn_TD)
        return split_heads(q, self.heads), split_heads(k, self.heads), split_heads(v, self.heads)


class CrossAttention(nn.Module):
    """Multi-head attention of the decoder to the encoder's memory; k and v are one product."""

    __call__: Callable[..., tuple[Tensor, Tensor]]

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.query = xavier(config.d_model, config.d_model)
        self.kv = xavier(config.d_model, config.d_model, parts=2)
        self.out = xavier(config.d_model, config.d_model)

    def queries(self, x_BTD: Tensor) -> Tensor:
        """Returns the queries [B, H, T, d]."""
        return split_heads(self.query(x_BTD), self.heads)

    def keys_values(self, memory_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the keys and values of the memory, [B, H, S, d] each."""
        k, v = self.kv(memory_BSD).chunk(2, dim=-1)
        return split_heads(k, self.heads), split_heads(v, self.heads)

    def forward(
        self, x_BTD: Tensor, memory_BSD: Tensor, keep_BS: Tensor, with_weights: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Returns the output [B, T, D] and, `with_weights`, the logarithms of the first head's weights [B, T, S], else
        an empty tensor. Each source holds at least EOS, so no softmax row is all -inf."""
        mask, dropout = keep_BS[:, None, None, :], self.dropout if self.training else 0.0
        q_BHTd, (k_BHSd, v_BHSd) = self.queries(x_BTD), self.keys_values(memory_BSD)
        out_BTD = self.out(merge_heads(dot_product_attention(q_BHTd, k_BHSd, v_BHSd, mask, dropout)))
        # Computed here, because FSDP gathers the weights of this module for its forward pass only.
        return out_BTD, log_weights(q_BHTd[:, 0], k_BHSd[:, 0], keep_BS) if with_weights else out_BTD.new_empty(0)
