"""Decoding step by step: one subword per row is fed to a Transformer in each step of the search.

`Transformer.decode` computes all positions at once. A step computes one position per row, and reads what a
DecodingState keeps of earlier positions. This module also holds what depends on the precision of decoding.

Legend: L layers, B sentences, K rows per sentence, r live rows, S source length, D model width, H heads, d head
width, V vocabulary, n keys (or rows of a block), x = B * H.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vtrans.engines.single import SingleState, SingleSteps
from vtrans.engines.state import DecodingState, LayerState, Seen, SelfAttentionState, SSRUState
from vtrans.errors import InputError
from vtrans.model import Decoder, DecoderLayer, DecoderOnly, EncoderLayer, SelfAttention, SSRULayer, Transformer
from vtrans.model.positions import turn_
from vtrans.runtime import kernels
from vtrans.runtime.kernels import Kernels
from vtrans.runtime.products import HAS_ONEDNN, Bfloat16Linear, Int8Linear, Linear, Rounded, linear, packed, product

State = SelfAttentionState | SSRUState | SingleState
# Computes a layer's step, [B, K, D] to [B, K, D], from the layer's state and from the rows of rotary positions.
Step = Callable[[Tensor, Any, Tensor | None], Tensor]

# Rows that are projected to the vocabulary at a time. On a CPU a block stays in the cache while the search reads it:
# 128 rows of 8,000 subwords are 4 MB.
ROWS_CPU, ROWS_GPU = 128, 8192
ROUNDING: dict[str, type[Rounded]] = {"bfloat16": Bfloat16Linear, "int8": Int8Linear}


class IncrementalDecoder:
    """Implements `search.Decoder` with one model.

    `precision` is one of DECODING_PRECISIONS. "float32" leaves the weights as they are; "bfloat16" and "float16"
    convert the model in place. On a CPU, "bfloat16" and "int8" instead give each linear layer a rounded copy of its
    weight: only products are in that precision, and single sentences use it for the projection alone, because other
    products with few rows gain nothing.

    The projection's weight is copied if it is frozen (requires no gradient), as in a model loaded for translation, and
    so are those of the layers for single sentences, where oneDNN computes products with few rows.
    Nothing is copied from a model in training in float32, so this decoder follows its updates. Raises InputError for
    "int8" on a device that is not a CPU.
    """

    def __init__(self, model: Transformer, precision: str = "float32") -> None:
        self.model, self.device = model, model.device
        on_cpu = self.device.type == "cpu"
        rounding = ROUNDING.get(precision) if on_cpu else None
        if rounding:
            for module in model.modules():
                if isinstance(module, Linear):
                    weight = module.weight.detach()
                    bias = weight.new_zeros(len(weight)) if module.bias is None else module.bias.detach()
                    module.rounded = rounding(weight, bias)
        elif precision == "int8":
            raise InputError(f"`precision` must be float32, bfloat16 or float16 on `device` {self.device}, got int8.")
        elif precision != "float32":
            model.to(getattr(torch, precision))
        self.reuse_slots = on_cpu
        self.rows = ROWS_CPU if on_cpu else ROWS_GPU
        decoder = model.decoder
        self.steps = (
            DecoderOnlySteps(model, decoder) if isinstance(decoder, DecoderOnly) else DecoderSteps(model, decoder)
        )
        self.frozen = not any(parameter.requires_grad for parameter in model.parameters())
        self._single: tuple[Kernels, SingleSteps] | None = None
        self.project = projection(model, rounding)

    def start(self, sources: Sequence[Sequence[int]], width: int) -> State:
        if len(sources) == 1 and self.device.type == "cpu":
            return self._single_steps().start(sources[0], width)
        memory, keep_BS = self._source_cache(sources)
        lengths = [len(s) for s in sources]
        if self.model.config.autoregression == "ssru":
            return SSRUState(memory, keep_BS, lengths, width)
        return SelfAttentionState(memory, keep_BS, lengths, width, reuse_slots=self.reuse_slots)

    def _single_steps(self) -> SingleSteps:
        """Returns the steps of a single sentence, which are made again for other kernels and for a model in training,
        whose optimizer may replace the memory of its weights."""
        chosen = kernels.current()
        if self._single is None or self._single[0] is not chosen or not self.frozen:
            self._single = chosen, SingleSteps(self.model)
        return self._single[1]

    def _source_cache(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Returns each layer's keys and values of the sources [L, 2, B, H, S, d], and keep_BS."""
        S = max(map(len, sources))
        pad_id = self.model.pad_id
        src_BS = torch.tensor([[*s] + [pad_id] * (S - len(s)) for s in sources], device=self.device)
        length_B = torch.tensor([len(s) for s in sources], device=self.device)
        keep_BS = torch.arange(S, device=self.device) < length_B[:, None]
        memory_BSD, keep_BS = self.model.encode(src_BS, keep_BS), self.model.attended(keep_BS)
        return self.steps.source_cache(memory_BSD, keep_BS), keep_BS

    def step(self, state: State, tokens_BK: Tensor, live_r: Tensor) -> Iterator[Tensor]:
        h_rD = self.hidden(state, tokens_BK, live_r)
        blocks = torch.split(h_rD, self.rows) if len(h_rD) > self.rows else (h_rD,)
        return (logprobs(self.project(block_nD)) for block_nD in blocks)

    def hidden(self, state: State, tokens_BK: Tensor, live_r: Tensor) -> Tensor:
        """Computes a step up to the projection: the decoder's output [r, D] of the live rows."""
        if isinstance(state, SingleState):
            h_KD = state.steps.hidden(state, tokens_BK[0])
            return h_KD if len(live_r) == len(h_KD) else h_KD[live_r]
        # Copy both now; a copy after the layers would synchronise the GPU.
        tokens_BK, live_r = tokens_BK.to(self.device), live_r.to(self.device)
        rows_B1D = self.steps.positions(state, state.advance())[:, None]
        x_BKD, turn_B1D = self.steps.table.place(self.model.tgt_embedding(tokens_BK), rows_B1D)
        for layer, layer_state in zip(self.steps.layers, state.layers(), strict=True):
            x_BKD = layer(x_BKD, layer_state, turn_B1D)
        return self.model.decoder.final_norm(x_BKD).flatten(0, 1)[live_r]

    def reorder(self, state: State, parents_BK: Tensor) -> None:
        state.reorder(parents_BK)

    def drop(self, state: State, sentences: Sequence[int]) -> None:
        assert not isinstance(state, SingleState)
        state.drop(sentences)

    def admit(self, state: State, sources: Sequence[Sequence[int]], places: Sequence[int]) -> None:
        assert not isinstance(state, SingleState)
        state.admit(*self._source_cache(sources), [len(s) for s in sources], places)

    def select(self, state: State, sentences: Sequence[int]) -> None:
        assert not isinstance(state, SingleState)
        state.select(sentences)


def projection(model: Transformer, rounding: type[Rounded] | None) -> Callable[[Tensor], Tensor]:
    """Returns the projection of a step, [n, D] to the logits [n, V]; that of padding is -inf.

    A product with few rows spends its time reading E. On a CPU, oneDNN reads a copy in its own layout faster than E;
    a copy in 8 bits is read in a quarter of the time.
    """
    weight_VD = model.projection.weight.detach()
    frozen = (
        weight_VD.device.type == "cpu"
        and weight_VD.dtype is torch.float32
        and not model.projection.weight.requires_grad
    )
    if not rounding and not frozen:
        return model.logits
    bias_V = (
        weight_VD.new_zeros(len(weight_VD)) if model.projection.bias is None else model.projection.bias.detach().clone()
    )
    bias_V[model.pad_id] = -torch.inf
    if rounding:
        return rounding(weight_VD, bias_V)
    if not HAS_ONEDNN:
        return lambda h_nD: linear(h_nD, weight_VD, bias_V)
    (V, D), packed_VD = weight_VD.shape, packed(weight_VD)

    def project(h_nD: Tensor) -> Tensor:
        onednn = kernels.current().use_onednn(len(h_nD), D, V)[0]
        return product(h_nD, packed_VD if onednn else weight_VD, bias_V, onednn=onednn)

    return project


def logprobs(logits_nV: Tensor) -> Tensor:
    """Returns log-probabilities [n, V]; in float32 if the logits are in half precision."""
    return (logits_nV.float() if logits_nV.dtype in (torch.bfloat16, torch.float16) else logits_nV).log_softmax(-1)


class DecoderSteps:
    """Computes the steps of a decoder with cross-attention."""

    def __init__(self, model: Transformer, decoder: Decoder) -> None:
        self.table = model.tgt_positions
        self.attentions = [layer.cross_attention for layer in decoder.layers]
        self.layers: list[Step] = [
            partial(ssru_step, layer) if isinstance(layer, SSRULayer) else partial(step, layer)
            for layer in decoder.layers
        ]

    def source_cache(self, memory_BSD: Tensor, keep_BS: Tensor) -> Tensor:
        """Returns each layer's keys and values of the memory [L, 2, B, H, S, d]."""
        return torch.stack([torch.stack(attention.keys_values(memory_BSD)) for attention in self.attentions])

    def positions(self, state: DecodingState, age_B: Tensor) -> Tensor:
        """Returns the positions of the newest subwords [B, D]."""
        return self.table(state.oldest)[age_B]


def step(layer: DecoderLayer, x_BKD: Tensor, state: LayerState, turn_B1D: Tensor | None) -> Tensor:
    """Returns a layer's output for each row's newest subword [B, K, D], whose keys and values it stores. With rotary
    positions, `turn_B1D` is the row of the subword's position."""
    x_BKD = layer.self_attention_residual(x_BKD, lambda x: attend_to_own(layer.self_attention, x, state, turn_B1D))
    return rest_of_step(layer, x_BKD, state.source)


def ssru_step(layer: SSRULayer, x_BKD: Tensor, state: tuple[Seen, Tensor], turn_B1D: Tensor | None) -> Tensor:
    """Returns a layer's output for each row's newest subword [B, K, D], and updates the SSRU's state."""
    source, cell_BKD = state
    return rest_of_step(layer, layer.ssru_residual(x_BKD, lambda x: layer.ssru.step(x, cell_BKD)), source)


def rest_of_step(layer: DecoderLayer | SSRULayer, x_BKD: Tensor, source: Seen) -> Tensor:
    cross = layer.cross_attention
    x_BKD = layer.cross_attention_residual(x_BKD, lambda x: cross.out(attend(cross.queries(x), source)))
    return layer.feed_forward_residual(x_BKD, layer.feed_forward)


class DecoderOnlySteps:
    """Computes the steps of a decoder-only model, whose layers attend to source and target together."""

    def __init__(self, model: Transformer, decoder: DecoderOnly) -> None:
        self.table, self.decoder = model.tgt_positions, decoder
        self.layers: list[Step] = [partial(self.step, layer) for layer in decoder.layers]

    def source_cache(self, memory_BSD: Tensor, keep_BS: Tensor) -> Tensor:
        """Returns each layer's keys and values of the source [L, 2, B, H, S, d]."""
        found, keep_BSS = [], self.decoder.keep(keep_BS, 0)
        turn_SD = self.table(keep_BS.shape[1]) if self.table.turns else None
        for layer in self.decoder.layers:
            before_BSD = layer.self_attention_residual.before(memory_BSD)
            _, k, v = layer.self_attention.queries_keys_values(before_BSD, turn_SD)
            found.append(torch.stack((k, v)))
            memory_BSD = layer(memory_BSD, keep_BSS, turn_SD)
        return torch.stack(found)

    def positions(self, state: DecodingState, age_B: Tensor) -> Tensor:
        """Returns the positions of the newest subwords [B, D], which continue after the source."""
        return self.table(state.longest)[torch.tensor(state.lengths, device=age_B.device) + age_B]

    @staticmethod
    def step(layer: EncoderLayer, x_BKD: Tensor, state: LayerState, turn_B1D: Tensor | None) -> Tensor:
        """Returns a layer's output for each row's newest subword [B, K, D], whose keys and values it stores."""
        own = partial(attend_to_own, layer.self_attention, state=state, turn_B1D=turn_B1D, with_source=True)
        return layer.feed_forward_residual(layer.self_attention_residual(x_BKD, own), layer.feed_forward)


def attend_to_own(
    attention: SelfAttention,
    x_BKD: Tensor,
    state: LayerState,
    turn_B1D: Tensor | None,
    *,
    with_source: bool = False,
) -> Tensor:
    """Returns the self-attention [B, K, D] of each row's newest position to itself and the row's history. With
    `with_source`, it also attends to the source, under the same softmax. Stores the position's keys and values."""
    B, K, D = x_BKD.shape
    qkv_BK3D = attention.qkv(x_BKD).view(B, K, 3, D)
    if turn_B1D is not None:
        turn_(qkv_BK3D[:, :, :2], turn_B1D[:, None])
    qkv_BK3Hd = qkv_BK3D.view(B, K, 3, attention.heads, D // attention.heads)
    state.store(qkv_BK3Hd[:, :, 1:])
    q_BHKd = qkv_BK3Hd[:, :, 0].transpose(1, 2)
    mixed_BKD = attend(q_BHKd, *((state.source, state.own) if with_source else (state.own,)))
    if (f := state.far_f) is not None:
        own = state.own_of_far()
        parts = (state.source.select(f, attention.heads), own) if with_source else (own,)
        mixed_BKD[f] = attend(q_BHKd[f], *parts)
    return attention.out(mixed_BKD)


def attend(q_BHKd: Tensor, *parts: Seen) -> Tensor:
    """Returns the attention [B, K, D] of K queries per sentence to all keys of the parts, under one softmax.

    It is computed by batched products: with so few queries, `scaled_dot_product_attention` takes 1.3 to 1.6 times as
    long on one CPU thread, and 6 times as long on two.
    """
    B, H, K, d = q_BHKd.shape
    q_xKd = q_BHKd.reshape(B * H, K, d)
    scores = [torch.baddbmm(part.bias_xKn, q_xKd, part.keys_xdn, alpha=d**-0.5) for part in parts]
    if len(parts) == 1:
        mixed_xKd = torch.bmm(scores[0].softmax(-1), parts[0].values_xnd)
    else:
        first, second = parts
        n = scores[0].shape[2]
        weights = torch.cat(scores, 2).softmax(-1)
        mixed_xKd = torch.bmm(weights[:, :, :n], first.values_xnd)
        mixed_xKd = torch.baddbmm(mixed_xKd, weights[:, :, n:], second.values_xnd)
    return mixed_xKd.view(B, H, K, d).transpose(1, 2).reshape(B, K, H * d)
