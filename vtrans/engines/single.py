"""Decoding one sentence step by step with few operations, for IncrementalDecoder.

A step of a single sentence multiplies matrices with few rows, so its time is the number of operations. All rows have
the same source and the same age, which saves most of the operations of a batch: keys and values lie in one block, whose
views are made once for many steps, and cross-attention is two products with matrices that are made once per sentence.
Products write into the block and add to the residual stream in place. Where oneDNN is the choice for few rows, it reads
packed copies of the weights; small weights are left to BLAS, because a call of oneDNN takes 11 us on a Zen 5 core.

Legend: L layers, K rows, S source length, D model width, F feed-forward width, H heads, d head width, X = 3 * D
(queries, keys and values), n slots, of which C are allocated for the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vtrans.config import ModelConfig
from vtrans.engines.state import LEAST, pad_to
from vtrans.model import (
    SSRU,
    CrossAttention,
    DecoderLayer,
    DecoderOnly,
    Embedding,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    Residual,
    SelfAttention,
    SSRULayer,
    Transformer,
)
from vtrans.model.positions import turn_
from vtrans.runtime import kernels
from vtrans.runtime.products import HAS_ONEDNN, packed, product

Function = Callable[[Tensor], Tensor]

# Steps for which slots are allocated at a time.
STEPS = 16
# Cross-attention is folded for sources of up to FOLD * d subwords.
FOLD = 2


class Own(NamedTuple):
    """One layer's views of the slots during one step."""

    newest_KX: Tensor  # queries, keys and values of the newest subwords
    q_HKd: Tensor
    keys_Hdn: Tensor
    values_Hnd: Tensor
    bias_Kn: Tensor  # of the scores: 0 where a row attends to a slot, else -inf; [1, n] for all rows
    turn_K1D: Tensor | None  # rows of rotary positions; [1, 1, D] for all rows


class Cell(NamedTuple):
    """One layer's state of an SSRU, and the memory in which its inputs and forget gates are computed."""

    c_KD: Tensor
    zf_KE: Tensor  # E = 2 * D
    z_KD: Tensor  # the memory of `zf_KE`, as is `f_KD`
    f_KD: Tensor


class Folded(NamedTuple):
    """One layer's cross-attention to a short source: matrices that take the place of keys and values, y = H * S."""

    keys_Dy: Tensor
    bias_y: Tensor  # -inf at padding
    values_yD: Tensor
    weights_Ky: Tensor  # overwritten in each step
    weights_KHS: Tensor  # the same memory


class Unfolded(NamedTuple):
    """One layer's keys and values of a long source."""

    keys_HdS: Tensor
    values_HSd: Tensor


class Buffers:
    """Memory that the layers overwrite, so that a step allocates little."""

    def __init__(self, like: Tensor, rows: int, config: ModelConfig) -> None:
        D, heads = config.d_model, config.heads
        self.mixed_HKd = like.new_empty(heads, rows, D // heads)
        self.merged_KD, self.inner_KF = like.new_empty(rows, D), like.new_empty(rows, config.d_ff)
        self.heads_HKd = self.merged_KD.view(rows, heads, -1).transpose(0, 1)  # the memory of `merged_KD`


class SingleState:
    """The source of one sentence with K rows, and the number of subwords fed so far."""

    def __init__(
        self, steps: SingleSteps, source: Sequence[Folded | Unfolded | None], buffers: Buffers, position: int
    ) -> None:
        self.steps, self.source, self.buffers = steps, source, buffers
        self.position = position  # of the next subword

    def advance(self) -> Sequence[Own | Cell]:
        """Begins a step. Returns what each layer keeps of the subwords fed so far."""
        raise NotImplementedError

    def reorder(self, parents_BK: Tensor) -> None:
        """Row k continues the old row `parents_BK[0, k]`."""
        raise NotImplementedError


class SingleSSRUState(SingleState):
    """A SingleState with the states of the SSRUs."""

    def __init__(
        self, steps: SingleSteps, source: Sequence[Folded | Unfolded | None], buffers: Buffers, cells_LKD: Tensor
    ) -> None:
        super().__init__(steps, source, buffers, 0)
        K, D = buffers.merged_KD.shape
        self.cells_LKD, self.zf_KE = cells_LKD, cells_LKD.new_empty(K, 2 * D)
        self.parts = self.zf_KE, *self.zf_KE.chunk(2, 1)

    def advance(self) -> list[Cell]:
        self.position += 1
        return [Cell(c_KD, *self.parts) for c_KD in self.cells_LKD.unbind()]

    def reorder(self, parents_BK: Tensor) -> None:
        self.cells_LKD = self.cells_LKD.index_select(1, parents_BK[0])


class SingleSelfAttentionState(SingleState):
    """A SingleState with the keys and values of the subwords fed so far.

    Each step fills the next K slots of every layer. Reordering moves no keys or values: the bias of the attention
    scores says which slots belong to a row's history. It also masks the slots of later steps, because every step
    attends to the whole block. When the block is full, it is copied without the slots that are in no row's history.
    """

    def __init__(
        self,
        steps: SingleSteps,
        source: Sequence[Folded | Unfolded | None],
        buffers: Buffers,
        position: int,
        slots_LCX: Tensor,
        bias_1C: Tensor,
    ) -> None:
        super().__init__(steps, source, buffers, position)
        self.heads, self.width, _ = buffers.mixed_HKd.shape
        self.slots_LCX, self.used = slots_LCX, slots_LCX.shape[1]
        self.bias_KC = bias_1C.repeat(self.width, 1)  # of a slot: 0 if the row attends to it, else -inf
        self.itself_KK = bias_1C.new_full((self.width, self.width), -torch.inf).fill_diagonal_(0.0)

    def advance(self) -> list[Own]:
        """Begins a step: takes slots for the newest subwords, and returns the slots of each layer."""
        if self.used + self.width > self.slots_LCX.shape[1]:
            self._make_room()
        self.position += 1
        start, self.used = self.used, self.used + self.width
        self.bias_KC[:, start : self.used] = self.itself_KK
        newest = newest_of_layers(self.slots_LCX[:, start : self.used], self.heads)
        positions = self.steps.model.tgt_positions
        turn_11D = positions(self.position)[-1:, None] if positions.turns else None
        return [Own(*views, self.bias_KC, turn_11D) for views in zip(*newest, *self.history, strict=True)]

    def _make_room(self) -> None:
        """Copies the slots that some row attends to, and allocates at least as many again."""
        kept_m = (self.bias_KC[:, : self.used] == 0).any(0).nonzero()[:, 0]
        m, K = len(kept_m), self.width
        fresh = (STEPS + m // K) * K
        L, _, X = self.slots_LCX.shape
        # Fresh slots are zero, because a weight of 0 times NaN is NaN.
        self.slots_LCX = torch.cat((self.slots_LCX[:, kept_m], self.slots_LCX.new_zeros(L, fresh, X)), 1)
        self.bias_KC = torch.cat((self.bias_KC[:, kept_m], self.bias_KC.new_full((K, fresh), -torch.inf)), 1)
        self.history, self.used = history_of_layers(self.slots_LCX, self.heads), m

    def reorder(self, parents_BK: Tensor) -> None:
        self.bias_KC = self.bias_KC.index_select(0, parents_BK[0])


def newest_of_layers(slots_LKX: Tensor, heads: int) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Returns each layer's slots of the newest subwords [K, X], and the queries in them [H, K, d]."""
    L, K, X = slots_LKX.shape
    queries = slots_LKX.view(L, K, 3, heads, X // (3 * heads))[:, :, 0].transpose(1, 2)
    return slots_LKX.unbind(), queries.unbind()


def history_of_layers(slots_LnX: Tensor, heads: int) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Returns each layer's keys [H, d, n] and values [H, n, d]."""
    L, n, X = slots_LnX.shape
    parts_Ln3Hd = slots_LnX.view(L, n, 3, heads, X // (3 * heads))
    return parts_Ln3Hd[:, :, 1].permute(0, 2, 3, 1).unbind(), parts_Ln3Hd[:, :, 2].transpose(1, 2).unbind()


class SingleSteps:
    """Computes the steps of one sentence, with the kernels in use when it is made.

    Unless the weights are frozen, it copies none of a product, so it follows updates in place.
    """

    def __init__(self, model: Transformer) -> None:
        self.model, encoder, decoder = model, model.encoder, model.decoder
        self.encoder_layers = [layer_step(layer) for layer in encoder.layers]
        self.encoder_norm, self.decoder_norm = normalize(encoder.final_norm), normalize(decoder.final_norm)
        self.layers = [layer_step(layer) for layer in decoder.layers]
        self.cross = [] if isinstance(decoder, DecoderOnly) else [layer.cross_attention for layer in decoder.layers]

    def start(self, source: Sequence[int], width: int) -> SingleState:
        """Returns the state of a sentence with these tokens, of which EOS is the last."""
        model, D, H = self.model, self.model.config.d_model, self.model.config.heads
        # Nothing depends on an EOS that is not attended to.
        tokens = source if model.config.source_eos else source[:-1]
        length = len(tokens)
        tokens_S = torch.tensor([*tokens, *[model.pad_id] * (LEAST - length)], device=model.device)
        S = len(tokens_S)
        # A table may have fewer than LEAST rows.
        x_SD, turn_SD = embed(model, model.src_embedding, tokens_S, pad_to(model.src_positions(length), S, 0))
        bias_1S = x_SD.new_zeros(1, S)
        bias_1S[:, length:] = -torch.inf
        buffers = Buffers(x_SD, S, model.config)
        turn_S1D = None if turn_SD is None else turn_SD[:, None]
        if isinstance(model.decoder, DecoderOnly):
            # The source takes the first slots.
            layers, slots_LSX = self.layers, x_SD.new_empty(len(self.layers), S, 3 * D)
            keep_SS = model.decoder.keep(bias_1S == 0, 0)[0]
            bias = torch.zeros_like(keep_SS, dtype=x_SD.dtype).masked_fill_(~keep_SS, -torch.inf)
        else:
            # One layer's slots are enough, because no layer reads those of another.
            layers, slots_LSX, bias = self.encoder_layers, x_SD.new_empty(1, S, 3 * D), bias_1S
        views = zip(*newest_of_layers(slots_LSX, H), *history_of_layers(slots_LSX, H), strict=True)
        for step, own in zip(layers, cycle([Own(*of_layer, bias, turn_S1D) for of_layer in views]), strict=False):
            x_SD = step(x_SD, own, None, buffers)
        buffers = Buffers(x_SD, width, model.config)
        if isinstance(model.decoder, DecoderOnly):
            return SingleSelfAttentionState(self, [None] * len(layers), buffers, length, slots_LSX, bias_1S)
        memory_SD = self.encoder_norm(x_SD)
        attended: Sequence[Folded | Unfolded]
        if length <= FOLD * D // H:
            attended = [fold(attention, memory_SD, bias_1S, width) for attention in self.cross]
        else:
            attended = [keys_values(attention, memory_SD[:length]) for attention in self.cross]
        if model.config.autoregression == "ssru":
            return SingleSSRUState(self, attended, buffers, x_SD.new_zeros(len(self.layers), width, D))
        slots_L0X = x_SD.new_empty(len(self.layers), 0, 3 * D)
        return SingleSelfAttentionState(self, attended, buffers, 0, slots_L0X, bias_1S[:, :0])

    def hidden(self, state: SingleState, tokens_K: Tensor) -> Tensor:
        """Computes a step up to the projection: the decoder's output [K, D]."""
        position, own = state.position, state.advance()
        rows_1D = self.model.tgt_positions(position + 1)[position:]
        x_KD, _ = embed(self.model, self.model.tgt_embedding, tokens_K, rows_1D)
        for step, slots, source in zip(self.layers, own, state.source, strict=True):
            x_KD = step(x_KD, slots, source, state.buffers)
        return self.decoder_norm(x_KD)


def embed(model: Transformer, embedding: Embedding, tokens_N: Tensor, rows_ND: Tensor) -> tuple[Tensor, Tensor | None]:
    """Returns the input of a stack [N, D], and the rows if they turn queries and keys. `rows_ND` may be one row [1, D]
    for all tokens."""
    x_ND = embedding.weight.index_select(0, tokens_N)
    if model.tgt_positions.turns:
        return x_ND.mul_(embedding.scale), rows_ND
    return torch.add(rows_ND, x_ND, alpha=embedding.scale), None


# The sublayers, each with its norm and residual. They overwrite their input.

LayerStep = Callable[[Tensor, Any, Folded | Unfolded | None, Buffers], Tensor]


def layer_step(layer: DecoderLayer | SSRULayer | EncoderLayer) -> LayerStep:
    """Returns the step of a layer, [K, D] to [K, D]. It takes a Cell for an SSRULayer, and else an Own."""
    read_target: Callable[[Tensor, Any, Buffers], Tensor]
    if isinstance(layer, SSRULayer):
        read_target = recurrence(layer.ssru, layer.ssru_residual)
    else:
        read_target = self_attention(layer.self_attention, layer.self_attention_residual)
    feed_forward = position_wise(layer.feed_forward, layer.feed_forward_residual)
    if isinstance(layer, EncoderLayer):
        return lambda x_KD, own, source, buffers: feed_forward(read_target(x_KD, own, buffers), buffers)
    attend_to_source = cross_attention(layer.cross_attention, layer.cross_attention_residual)

    def step(x_KD: Tensor, own: Any, source: Folded | Unfolded | None, buffers: Buffers) -> Tensor:
        x_KD = read_target(x_KD, own, buffers)
        return feed_forward(attend_to_source(x_KD, source), buffers)

    return step


def self_attention(attention: SelfAttention, residual: Residual) -> Callable[[Tensor, Own, Buffers], Tensor]:
    before, after = norms(residual)
    qkv, out = product_into(attention.qkv, attention.qkv.bias), product_onto(attention.out)
    scale = (attention.out.in_features // attention.heads) ** -0.5

    def attend(x_KD: Tensor, own: Own, buffers: Buffers) -> Tensor:
        qkv(before(x_KD), own.newest_KX)
        if own.turn_K1D is not None:
            turn_(own.newest_KX.view(len(x_KD), 3, -1)[:, :2], own.turn_K1D)
        weights_HKn = torch.baddbmm(own.bias_Kn, own.q_HKd, own.keys_Hdn, alpha=scale)
        torch.softmax(weights_HKn, -1, out=weights_HKn)
        torch.bmm(weights_HKn, own.values_Hnd, out=buffers.mixed_HKd)
        buffers.heads_HKd.copy_(buffers.mixed_HKd)
        return after(out(x_KD, buffers.merged_KD))

    return attend


def recurrence(ssru: SSRU, residual: Residual) -> Callable[[Tensor, Cell, Buffers], Tensor]:
    before, after = norms(residual)
    zf = product_into(ssru.zf, F.pad(ssru.forget_bias.detach(), (len(ssru.forget_bias), 0)))

    def advance(x_KD: Tensor, cell: Cell, buffers: Buffers) -> Tensor:
        zf(before(x_KD), cell.zf_KE)
        torch.lerp(cell.z_KD, cell.c_KD, cell.f_KD.sigmoid_(), out=cell.c_KD)
        return after(x_KD.add_(cell.c_KD.relu()))

    return advance


def position_wise(feed_forward: FeedForward, residual: Residual) -> Callable[[Tensor, Buffers], Tensor]:
    before, after = norms(residual)
    inner, outer = product_into(feed_forward.inner, feed_forward.inner.bias), product_onto(feed_forward.outer)
    activation = feed_forward.activation

    def feed(x_KD: Tensor, buffers: Buffers) -> Tensor:
        inner(before(x_KD), buffers.inner_KF)
        return after(outer(x_KD, activation(buffers.inner_KF)))

    return feed


def cross_attention(
    attention: CrossAttention, residual: Residual
) -> Callable[[Tensor, Folded | Unfolded | None], Tensor]:
    before, after = norms(residual)
    H, query, out, skip = attention.heads, attention.query, attention.out, residual.skip
    scale = (out.in_features // H) ** -0.5

    def attend(x_KD: Tensor, source: Folded | Unfolded | None) -> Tensor:
        if isinstance(source, Folded):
            torch.addmm(source.bias_y, before(x_KD), source.keys_Dy, alpha=scale, out=source.weights_Ky)
            torch.softmax(source.weights_KHS, -1, out=source.weights_KHS)
            mixed, values = source.weights_Ky, source.values_yD
            return after(x_KD.addmm_(mixed, values) if skip else torch.mm(mixed, values))
        assert source is not None
        q_HKd = F.linear(before(x_KD), query.weight, query.bias).view(len(x_KD), H, -1).transpose(0, 1)
        weights_HKS = torch.bmm(q_HKd, source.keys_HdS).mul_(scale).softmax(-1)
        mixed_KD = torch.bmm(weights_HKS, source.values_HSd).transpose(0, 1).reshape(x_KD.shape)
        out_KD = F.linear(mixed_KD, out.weight, out.bias)
        return after(x_KD.add_(out_KD) if skip else out_KD)

    return attend


def keys_values(attention: CrossAttention, memory_SD: Tensor) -> Unfolded:
    """Returns one layer's keys and values of a source."""
    S, H = len(memory_SD), attention.heads
    kv_SE = torch.addmm(attention.kv.bias, memory_SD, attention.kv.weight.t())
    keys_HdS, values_HdS = kv_SE.view(S, 2, H, -1).permute(1, 2, 3, 0).unbind()
    return Unfolded(keys_HdS, values_HdS.transpose(1, 2))


def fold(attention: CrossAttention, memory_SD: Tensor, bias_1S: Tensor, width: int) -> Folded:
    """Returns the matrices of one layer's cross-attention to a source; `bias_1S` is -inf at padding.

    The scores of a head are x Wq (k Wk)^T = x (Wq k), and its part of the output is w (v Wo), where w are the weights.
    For short sources, the matrices in brackets of all heads are small: they replace the products with the queries'
    and output's weights, and two products per head.
    """
    (S, D), H, query, out = memory_SD.shape, attention.heads, attention.query, attention.out
    keys_HdS, values_HSd = keys_values(attention, memory_SD)
    keys_HSd, d = keys_HdS.transpose(1, 2), D // H
    keys_HSD = torch.bmm(keys_HSd, query.weight.view(H, d, D))
    bias_HS1 = torch.baddbmm(bias_1S[:, :, None], keys_HSd, query.bias.view(H, d, 1), alpha=d**-0.5)
    # The weights of a head sum to 1.
    values_HSD = torch.baddbmm(out.bias, values_HSd, out.weight.view(D, H, d).permute(1, 2, 0), beta=1 / H)
    weights_Ky = memory_SD.new_empty(width, H * S)
    return Folded(
        keys_HSD.view(H * S, D).t(),
        bias_HS1.view(H * S),
        values_HSD.view(H * S, D),
        weights_Ky,
        weights_Ky.view(width, H, S),
    )


# The parts of a sublayer.


def norms(residual: Residual) -> tuple[Function, Function]:
    """Returns what happens to the input of a sublayer, and to the sum of its input and output."""
    norm = normalize(residual.norm)
    return (norm, unchanged) if residual.pre else (unchanged, norm)


def unchanged(x: Tensor) -> Tensor:
    return x


def normalize(norm: LayerNorm | nn.Identity) -> Function:
    if isinstance(norm, nn.Identity):
        return unchanged
    shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
    return lambda x_KD: torch.layer_norm(x_KD, shape, weight, bias, eps)


def product_into(linear: nn.Linear, bias: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns a function of x and `out` that writes x W^T + b into `out`."""
    weight_IO = linear.weight.detach().t()
    if (fast := packed_for_few_rows(linear)) is not None:
        return lambda x, out: out.copy_(product(x, fast, bias, onednn=True))
    return lambda x, out: torch.addmm(bias, x, weight_IO, out=out)


def product_onto(linear: nn.Linear) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns a function of `out` and x that adds x W^T + b to `out`."""
    weight_IO, bias = linear.weight.detach().t(), linear.bias
    if (fast := packed_for_few_rows(linear)) is not None:
        return lambda out, x: out.add_(product(x, fast, bias, onednn=True))
    return lambda out, x: out.add_(bias).addmm_(x, weight_IO)


def packed_for_few_rows(linear: nn.Linear) -> Tensor | None:
    """Returns the weight in oneDNN's layout if oneDNN is the choice for few rows and the weight is frozen."""
    weight_OI = linear.weight
    if not HAS_ONEDNN or weight_OI.requires_grad or weight_OI.dtype is not torch.float32:
        return None
    outputs, inputs = weight_OI.shape
    few = kernels.current().use_onednn(kernels.BEAM, inputs, outputs)[0]
    return packed(weight_OI) if few else None
