"""Multi-head attention (section 3.2 of the paper), to the sequence itself and to the encoder's memory.

Legend: B sentences, S source length, T target length, Q queries, n keys, D model width, H heads, d = D / H head width,
h recorded heads. In a search step, the T = K queries of a sentence belong to its K rows (cache.py).
A mask broadcasts to [B, H, Q, n]; `keep` is True where a query attends to a key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from torch import Tensor, nn

from vtrans.config import ModelConfig
from vtrans.model.attention_products import dot_product_attention, log_weights, merge_heads, split_heads
from vtrans.model.cache import LayerSlots, Prefill
from vtrans.model.kernels import compiled_for
from vtrans.model.positions import rotate
from vtrans.model.products import xavier


class Module(nn.Module):
    """A module that returns one tensor. torch declares that calling a module returns Any."""

    __call__: Callable[..., Tensor]


class Recorder:
    """Collects the log-attention [B, h, Q, n] of each decoder layer in `layers` (0 is the lowest), in at least float32:
    of the first `heads` heads, or of all if None."""

    def __init__(self, layers: Collection[int], heads: int | None = None) -> None:
        self.layers, self.heads, self.logprobs = layers, heads, list[Tensor]()

    def add(self, q_BHQd: Tensor, k_BHnd: Tensor, keep: Tensor) -> None:
        self.logprobs.append(log_weights(q_BHQd[:, : self.heads], k_BHnd[:, : self.heads], keep))


class SelfAttention(Module):
    """Multi-head attention of a sequence to itself; q, k and v are one product."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.qkv = xavier(config.d_model, config.d_model, parts=3)
        self.out = xavier(config.d_model, config.d_model)

    def forward(
        self,
        x_BTD: Tensor,
        rotary_TD: Tensor | None,
        mask: Tensor | None = None,
        cache: LayerSlots | Prefill | None = None,
        recorder: Recorder | None = None,
    ) -> Tensor:
        """Returns the output [B, T, D]. Without a mask, attention is causal, and padding needs no mask because it
        follows every real position. A cache adds earlier keys and values and has its own mask. `rotary_TD`, if given,
        rotates queries and keys."""
        dropout = self.dropout if self.training else 0.0
        # A subclass may replace queries, keys and values.
        whole = type(self) is SelfAttention and cache is None and recorder is None
        if whole and (compiled := compiled_for(x_BTD, dropout)):
            return self.out(compiled.attention(self.qkv(x_BTD), None, self.heads, rotary_TD, mask))
        q_BHTd, k_BHnd, v_BHnd = self.queries_keys_values(x_BTD, rotary_TD)
        if cache is not None:
            k_BHnd, v_BHnd, mask = cache.append(k_BHnd, v_BHnd)
        if recorder is not None:
            assert mask is not None
            recorder.add(q_BHTd, k_BHnd, mask)
        return self.out(merge_heads(dot_product_attention(q_BHTd, k_BHnd, v_BHnd, mask, dropout)))

    def queries_keys_values(self, x_BTD: Tensor, rotary_TD: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Returns queries, keys and values, [B, H, T, d] each."""
        qkv_BT3D = self.qkv(x_BTD).view(*x_BTD.shape[:2], 3, -1)
        if rotary_TD is None:
            q, k, v = qkv_BT3D.unbind(-2)
        else:
            q, k = rotate(qkv_BT3D[..., :2, :], rotary_TD.unsqueeze(-2)).unbind(-2)
            v = qkv_BT3D[..., 2, :]
        return split_heads(q, self.heads), split_heads(k, self.heads), split_heads(v, self.heads)


class CrossAttention(Module):
    """Multi-head attention of the decoder to the encoder's memory; k and v are one product."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.query = xavier(config.d_model, config.d_model)
        self.kv = xavier(config.d_model, config.d_model, parts=2)
        self.out = xavier(config.d_model, config.d_model)

    def keys_values(self, kv_BS2D: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the keys and values in the product `kv` of the memory, [B, H, S, d] each."""
        k_BSD, v_BSD = kv_BS2D.chunk(2, dim=-1)
        return split_heads(k_BSD, self.heads), split_heads(v_BSD, self.heads)

    def forward(
        self,
        x_BTD: Tensor,
        memory_BSD: Tensor | None,
        mask: Tensor | None,
        cache: LayerSlots | None = None,
        recorder: Recorder | None = None,
    ) -> Tensor:
        """Returns the output [B, T, D]. A cache holds the memory's keys and values, and the mask. Each source holds at
        least EOS, so no softmax row is all -inf."""
        q_BTD, dropout = self.query(x_BTD), self.dropout if self.training else 0.0
        q_BHTd = split_heads(q_BTD, self.heads)
        if cache is not None:
            k_BHSd, v_BHSd, mask = cache.stored()
        else:
            assert memory_BSD is not None
            kv_BS2D = self.kv(memory_BSD)
            k_BHSd, v_BHSd = self.keys_values(kv_BS2D)
        if recorder is not None:
            assert mask is not None
            recorder.add(q_BHTd, k_BHSd, mask)
        if cache is None and (compiled := compiled_for(x_BTD, dropout)):
            return self.out(compiled.attention(q_BTD, kv_BS2D, self.heads, None, mask))
        return self.out(merge_heads(dot_product_attention(q_BHTd, k_BHSd, v_BHSd, mask, dropout)))
