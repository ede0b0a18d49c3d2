"""Decoding one sentence step by step with few operations, for IncrementalDecoder.

A step of a single sentence multiplies matrices with few rows, so its time is the number of operations. All rows have
the same source and the same age, which saves most of the operations of a batch: keys and values lie in one block, whose
newest slots are a slice, and cross-attention is two products with matrices that are made once per sentence.

Legend: L layers, K rows, S source length, D model width, H heads, d head width, n slots in use, C slots allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vtrans.model import (
    CrossAttention,
    DecoderLayer,
    DecoderOnly,
    Embedding,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    Residual,
    SelfAttention,
    Transformer,
)

Function = Callable[[Tensor], Tensor]

# Steps for which slots are allocated at a time.
STEPS = 16
# Cross-attention is folded for sources of up to FOLD * d subwords.
FOLD = 2


class Own(NamedTuple):
    """One layer's view of the slots during one step."""

    newest_KX: Tensor  # queries, keys and values of the newest subwords: X = 3 * H * d
    q_HKd: Tensor
    keys_Hdn: Tensor
    values_Hnd: Tensor


class SingleState:
    """The source and the subwords fed so far of one sentence with K rows.

    Each step fills the next K slots of every layer. As in DecodingState, reordering moves no keys or values: the bias
    of the attention scores says which slots belong to a row's history. When all allocated slots are full, those that
    are in no row's history are left out.
    """

    def __init__(self, own_LSX: Tensor, cross: Sequence[Function | None], width: int, heads: int) -> None:
        self.cross, self.width, self.heads = cross, width, heads
        self.position = own_LSX.shape[1]  # of the next subword
        self.slots_LCX, self.used = own_LSX, own_LSX.shape[1]
        self.bias_KC = own_LSX.new_zeros(width, self.used)  # of a slot: 0 if the row attends to it, else -inf
        self.itself_KK = own_LSX.new_full((width, width), -torch.inf).fill_diagonal_(0.0)

    def advance(self) -> tuple[list[Own], Tensor]:
        """Takes slots for the newest subwords. Returns the slots of each layer and the bias [K, n] of their scores."""
        if self.used + self.width > self.slots_LCX.shape[1]:
            self._make_room()
        self.position += 1
        start, self.used = self.used, self.used + self.width
        return own_of_layers(self.slots_LCX[:, : self.used], start, self.heads), self.bias_KC[:, : self.used]

    def _make_room(self) -> None:
        """Copies the slots that some row attends to, and allocates at least as many again."""
        kept_m = (self.bias_KC[:, : self.used] == 0).any(0).nonzero()[:, 0]
        m, K = len(kept_m), self.width
        steps = STEPS + m // K
        L, _, X = self.slots_LCX.shape
        slots_LCX = self.slots_LCX.new_empty(L, m + steps * K, X)
        torch.index_select(self.slots_LCX, 1, kept_m, out=slots_LCX[:, :m])
        # Rows are reordered in the past only, so the bias of future slots can be written in advance.
        self.bias_KC = torch.cat((self.bias_KC[:, kept_m], self.itself_KK.repeat(1, steps)), 1)
        self.slots_LCX, self.used = slots_LCX, m

    def reorder(self, parents_BK: Tensor) -> None:
        """Row k continues the old row `parents_BK[0, k]`."""
        past_Kn = self.bias_KC[:, : self.used]
        past_Kn.copy_(past_Kn[parents_BK[0].to(past_Kn.device)])


def own_of_layers(slots_LnX: Tensor, start: int, heads: int) -> list[Own]:
    """Returns each layer's view of its slots, of which the newest begin at `start`."""
    L, n, X = slots_LnX.shape
    parts_Ln3Hd = slots_LnX.view(L, n, 3, heads, X // (3 * heads))
    views = zip(
        slots_LnX[:, start:].unbind(),
        parts_Ln3Hd[:, start:, 0].transpose(1, 2).unbind(),
        parts_Ln3Hd[:, :, 1].permute(0, 2, 3, 1).unbind(),
        parts_Ln3Hd[:, :, 2].transpose(1, 2).unbind(),
        strict=True,
    )
    return [Own(*of_layer) for of_layer in views]


class SingleSteps:
    """Computes the steps of one sentence. The weights are read in every step, so it follows a model in training."""

    def __init__(self, model: Transformer) -> None:
        self.model, encoder, decoder = model, model.encoder, model.decoder
        self.heads = model.config.heads
        self.encoder_layers = [layer_step(layer) for layer in encoder.layers]
        self.encoder_norm, self.decoder_norm = normalize(encoder.final_norm), normalize(decoder.final_norm)
        self.layers = [layer_step(layer) for layer in decoder.layers]
        self.cross = [] if isinstance(decoder, DecoderOnly) else [layer.cross_attention for layer in decoder.layers]

    def start(self, source: Sequence[int], width: int) -> SingleState:
        """Returns the state of a sentence with these tokens, of which EOS is the last."""
        model, L = self.model, len(self.layers)
        # Nothing depends on an EOS that is not attended to.
        tokens_S = torch.tensor(source if model.config.source_eos else source[:-1], device=model.device)
        x_SD = embed(model.src_embedding, tokens_S, model.src_positions(len(tokens_S)))
        S, X = len(x_SD), 3 * x_SD.shape[1]
        if isinstance(model.decoder, DecoderOnly):
            # The source takes the first slots.
            slots_LSX = x_SD.new_empty(L, S, X)
            keep_SS = model.decoder.keep(tokens_S.new_ones(1, S, dtype=torch.bool), 0)[0]
            bias_SS = torch.zeros_like(keep_SS, dtype=x_SD.dtype).masked_fill_(~keep_SS, -torch.inf)
            for step, own in zip(self.layers, own_of_layers(slots_LSX, 0, self.heads), strict=True):
                x_SD = step(x_SD, own, bias_SS, None)
            return SingleState(slots_LSX, [None] * L, width, self.heads)
        [own] = own_of_layers(x_SD.new_empty(1, S, X), 0, self.heads)
        bias_1S = x_SD.new_zeros(1, S)
        for step in self.encoder_layers:
            x_SD = step(x_SD, own, bias_1S, None)
        cross = attend_to(self.encoder_norm(x_SD), self.cross)
        return SingleState(x_SD.new_empty(L, 0, X), cross, width, self.heads)

    def hidden(self, state: SingleState, tokens_K: Tensor) -> Tensor:
        """Computes a step up to the projection: the decoder's output [K, D]."""
        position = state.position
        own, bias_Kn = state.advance()
        x_KD = embed(self.model.tgt_embedding, tokens_K, self.model.tgt_positions(position + 1)[position])
        for step, slots, cross in zip(self.layers, own, state.cross, strict=True):
            x_KD = step(x_KD, slots, bias_Kn, cross)
        return self.decoder_norm(x_KD)


def embed(embedding: Embedding, tokens_N: Tensor, positions_ND: Tensor) -> Tensor:
    """Returns the input of a stack [N, D]; `positions_ND` may be one position [D] for all tokens."""
    return torch.add(positions_ND, embedding.weight.index_select(0, tokens_N), alpha=embedding.scale)


def layer_step(layer: DecoderLayer | EncoderLayer) -> Callable[[Tensor, Own, Tensor, Function | None], Tensor]:
    """Returns the step of a layer, [K, D] to [K, D]."""
    attend_to_own = with_residual(layer.self_attention_residual, self_attention(layer.self_attention))
    feed_forward = with_residual(layer.feed_forward_residual, position_wise(layer.feed_forward))
    if isinstance(layer, EncoderLayer):
        return lambda x_KD, own, bias_Kn, cross: feed_forward(attend_to_own(x_KD, own, bias_Kn))
    attend_to_source = with_residual(layer.cross_attention_residual, lambda x_KD, cross: cross(x_KD))
    return lambda x_KD, own, bias_Kn, cross: feed_forward(attend_to_source(attend_to_own(x_KD, own, bias_Kn), cross))


def with_residual(residual: Residual, sublayer: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns a sublayer with its norm and residual. The sublayer returns a new tensor."""
    norm, pre, skip = normalize(residual.norm), residual.pre, residual.skip

    def wrapped(x_KD: Tensor, *others: Any) -> Tensor:
        out_KD = sublayer(norm(x_KD) if pre else x_KD, *others)
        if skip:
            out_KD += x_KD
        return out_KD if pre else norm(out_KD)

    return wrapped


def normalize(norm: LayerNorm | nn.Identity) -> Function:
    if isinstance(norm, nn.Identity):
        return lambda x_KD: x_KD
    shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
    return lambda x_KD: torch.layer_norm(x_KD, shape, weight, bias, eps)


def self_attention(attention: SelfAttention) -> Callable[[Tensor, Own, Tensor], Tensor]:
    qkv, out = product(attention.qkv), product(attention.out)

    def attend(x_KD: Tensor, own: Own, bias_Kn: Tensor) -> Tensor:
        own.newest_KX.copy_(qkv(x_KD))
        scores_HKn = torch.baddbmm(bias_Kn, own.q_HKd, own.keys_Hdn, alpha=own.q_HKd.shape[2] ** -0.5)
        mixed_HKd = torch.bmm(scores_HKn.softmax(-1), own.values_Hnd)
        return out(mixed_HKd.transpose(0, 1).reshape(x_KD.shape))

    return attend


def position_wise(feed_forward: FeedForward) -> Function:
    inner, outer, activation = product(feed_forward.inner), product(feed_forward.outer), feed_forward.activation
    return lambda x_KD: outer(activation(inner(x_KD)))


def product(linear: nn.Linear) -> Function:
    weight, bias = linear.weight, linear.bias
    return lambda x_KD: F.linear(x_KD, weight, bias)


def attend_to(memory_SD: Tensor, attentions: Sequence[CrossAttention]) -> list[Function]:
    """Returns each layer's cross-attention to one source, [K, D] to [K, D].

    The scores of a head are x Wq (k Wk)^T = x (Wq k), and its part of the output is w (v Wo), where w are the weights.
    For short sources, the matrices in brackets of all heads are small: they replace the products with the queries'
    and output's weights, and two products per head.
    """
    H, S = attentions[0].heads, len(memory_SD)
    L, d = len(attentions), memory_SD.shape[1] // H
    kv_LS2Hd = torch.stack([product(a.kv)(memory_SD) for a in attentions]).view(L, S, 2, H, d)
    keys_LHSd, values_LHSd = kv_LS2Hd.permute(2, 0, 3, 1, 4).unbind()
    keys_LHSd = keys_LHSd * d**-0.5
    if FOLD * d < S:
        keys_LHdS = keys_LHSd.transpose(2, 3)
        return [attend_unfolded(*parts) for parts in zip(attentions, keys_LHdS, values_LHSd, strict=True)]
    query_LHdD = torch.stack([a.query.weight for a in attentions]).view(L, H, d, -1)
    query_LHd1 = torch.stack([a.query.bias for a in attentions]).view(L, H, d, 1)
    out_LHdD = torch.stack([a.out.weight for a in attentions]).transpose(1, 2).reshape(L, H, d, -1)
    keys_LDy = (keys_LHSd @ query_LHdD).flatten(1, 2).transpose(1, 2)  # y = H * S
    bias_Ly = (keys_LHSd @ query_LHd1).flatten(1)
    # The weights of a head sum to 1.
    values_LyD = (values_LHSd @ out_LHdD).flatten(1, 2)
    values_LyD += torch.stack([a.out.bias for a in attentions])[:, None] / H
    return [attend_folded(*parts, H) for parts in zip(keys_LDy, bias_Ly, values_LyD, strict=True)]


def attend_folded(keys_Dy: Tensor, bias_y: Tensor, values_yD: Tensor, heads: int) -> Function:
    def attend(x_KD: Tensor) -> Tensor:
        scores_Ky = torch.addmm(bias_y, x_KD, keys_Dy)
        weights_KHS = scores_Ky.view(len(x_KD), heads, -1).softmax(-1)
        return torch.mm(weights_KHS.view(scores_Ky.shape), values_yD)

    return attend


def attend_unfolded(attention: CrossAttention, keys_HdS: Tensor, values_HSd: Tensor) -> Function:
    query, out = product(attention.query), product(attention.out)
    H, d, _ = keys_HdS.shape

    def attend(x_KD: Tensor) -> Tensor:
        q_HKd = query(x_KD).view(-1, H, d).transpose(0, 1)
        mixed_HKd = torch.bmm(torch.bmm(q_HKd, keys_HdS).softmax(-1), values_HSd)
        return out(mixed_HKd.transpose(0, 1).reshape(x_KD.shape))

    return attend
