"""The Transformer of "Attention is all you need" (Vaswani et al. 2017), to be read from top to bottom.

Sharing has one mechanism: the constructor gives the SAME module or parameter to every place that uses it.
torch then counts, moves, optimises and differentiates it once. The layers are in layers.py. Training, scoring and
search steps use the same layers; search steps pass them a cache (cache.py).

Legend: B sentences, S source length, T target length, n = S + T, D model width, H heads, d = D / H head width,
F feed-forward width, V vocabulary, N target positions that are not padding.
A mask is named after what True means: keep_BS is True at the source positions that are attended to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vtrans.config import ModelConfig, check_tie, contradiction
from vtrans.model.attention import Module, Recorder
from vtrans.model.cache import Cache, DecoderSlots, LayerCache, Prefill, Slots, SourceCache, States
from vtrans.model.dropout import Dropout
from vtrans.model.layers import DecoderLayer, EncoderLayer, LayerNorm, Sublayers
from vtrans.model.positions import Positions, make_positions
from vtrans.model.products import Linear, linear
from vtrans.system.errors import InputError


class Transformer(Module):
    """Encoder, decoder, and one to three embedding matrices for three uses (section 3.4 of the paper).

    `config.tie` says which of `src_embedding`, `tgt_embedding` and `projection` are one parameter:
    `src-tgt-softmax`, `tgt-softmax`, `src-tgt` or `none`. Files store a shared parameter once, under the first of
    its names in this order. `src_vocab` and `tgt_vocab` are vocabulary sizes; `pad_id` is never predicted.

    A user-defined network is a subclass with the same constructor. It may replace `sublayers`.

    Raises InputError for a `tie` that the vocabularies do not allow, and for settings that contradict each other.
    """

    sublayers: type[Sublayers] = Sublayers

    def __init__(self, config: ModelConfig, src_vocab: int, tgt_vocab: int, *, joint: bool, pad_id: int) -> None:
        super().__init__()
        check_tie(config.tie, joint)
        if reason := contradiction(config):
            raise InputError(reason)
        self.config, self.pad_id = config, pad_id
        D, tie = config.d_model, config.tie
        one_sequence = config.architecture == "decoder-only"
        # All tying of embeddings happens here.
        scale = math.sqrt(D) if config.scale_embedding else 1.0
        self.src_embedding = Embedding(src_vocab, D, scale)
        self.tgt_embedding = self.src_embedding if tie.startswith("src-tgt") else Embedding(tgt_vocab, D, scale)
        tied = self.tgt_embedding.weight if tie.endswith("softmax") else None
        self.projection = Projection(tied, tgt_vocab, D, bias=config.projection_bias)
        self.src_positions = make_positions(config)
        one_table = config.share_positions or one_sequence
        self.tgt_positions = self.src_positions if one_table else make_positions(config)

        self.dropout = Dropout(config.dropout)
        encoder_parts = self.sublayers(config)
        decoder_parts = encoder_parts if config.share_stacks else self.sublayers(config)
        self.encoder = Encoder(config, encoder_parts)
        self.decoder = DecoderOnly(config, decoder_parts) if one_sequence else Decoder(config, decoder_parts)

    @property
    def device(self) -> torch.device:
        return self.src_embedding.weight.device

    def matrices(self) -> dict[Tensor, int]:
        """Returns the weight of each linear layer, with the number of projections fused in it."""
        return {module.weight: module.parts for module in self.modules() if isinstance(module, Linear)}

    def forward(self, src_BS: Tensor, keep_BS: Tensor, tgt_BT: Tensor) -> Tensor:
        """Returns the logits [B, T, V] of the subword that follows each prefix of `tgt_BT`.

        `src_BS` [B, S] holds the sources with EOS, `keep_BS` [B, S] is False at their padding, `tgt_BT` [B, T]
        begins with BOS. Training calls `hidden` instead: its loss never holds all logits at once.
        """
        return self.logits(self.decode(tgt_BT, self.encode(src_BS, keep_BS), keep_BS))

    def hidden(self, src_BS: Tensor, keep_BS: Tensor, tgt_BT: Tensor, real_N: Tensor) -> Tensor:
        """Returns the decoder's output [N, D] at the positions `real_N`, indices into the flattened [B, T]."""
        h_BTD = self.decode(tgt_BT, self.encode(src_BS, keep_BS), keep_BS)
        return h_BTD.flatten(0, 1).index_select(0, real_N)

    def hidden_and_attention(
        self, src_BS: Tensor, keep_BS: Tensor, tgt_BT: Tensor, real_N: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns `hidden` [N, D] and the log-attention [B, T, S] of the head that aligns words: the first head of
        layer `model.alignment_layer`."""
        recorder = Recorder((self.config.alignment_layer - 1,), heads=1)
        # Embed the target before encoding the source: the order decides which dropout masks each one draws.
        x_BTD, rotary_TD = self.embed_tgt(tgt_BT, keep_BS)
        h_BTD = self.decoder(x_BTD, rotary_TD, self.encode(src_BS, keep_BS), self.attended(keep_BS), recorder)
        return h_BTD.flatten(0, 1).index_select(0, real_N), recorder.logprobs[0][:, 0]

    def encode(self, src_BS: Tensor, keep_BS: Tensor) -> Tensor:
        """Returns the encoder's output [B, S, D], the memory of cross-attention."""
        x_BSD, rotary_SD = self.src_positions.place(self.src_embedding(src_BS), self.src_positions(src_BS.shape[1]))
        return self.encoder(self.dropout(x_BSD), rotary_SD, self.attended(keep_BS))

    def decode(self, tgt_BT: Tensor, memory_BSD: Tensor, keep_BS: Tensor, recorder: Recorder | None = None) -> Tensor:
        """Returns the decoder's output [B, T, D], before the projection."""
        x_BTD, rotary_TD = self.embed_tgt(tgt_BT, keep_BS)
        return self.decoder(x_BTD, rotary_TD, memory_BSD, self.attended(keep_BS), recorder)

    def embed_tgt(self, tgt_BT: Tensor, keep_BS: Tensor) -> tuple[Tensor, Tensor | None]:
        """Returns the decoder's input [B, T, D] and, with rotary positions, the rows that rotate queries and keys."""
        rows_TD = self.decoder.positions(self.tgt_positions, keep_BS, tgt_BT.shape[1])
        x_BTD, rotary_TD = self.tgt_positions.place(self.tgt_embedding(tgt_BT), rows_TD)
        return self.dropout(x_BTD), rotary_TD

    def attended(self, keep_BS: Tensor) -> Tensor:
        """Returns the mask [B, S] of the source positions to attend to: `keep_BS`, without each source's EOS unless
        `model.source_eos` is set."""
        return keep_BS if self.config.source_eos else F.pad(keep_BS[:, 1:], (0, 1))

    def new_cache(self, width: int, *, reuse_slots: bool) -> Cache:
        """Returns an empty cache for `width` rows per sentence. See DecoderSlots for `reuse_slots`."""
        config, device = self.config, self.device
        history: DecoderSlots | States = DecoderSlots(width, device, reuse_slots=reuse_slots)
        if config.autoregression == "ssru":
            history = States(width, device)
        return Cache(history, None if config.architecture == "decoder-only" else Slots(width, device), device)

    def source_cache(self, src_BS: Tensor, keep_BS: Tensor, lengths: Sequence[int]) -> SourceCache:
        """Returns the source keys and values of new sentences, for `Cache.admit`; `lengths` are the source lengths."""
        memory_BSD, attended_BS = self.encode(src_BS, keep_BS), self.attended(keep_BS)
        rotary_SD = self.tgt_positions(src_BS.shape[1]) if self.tgt_positions.turns else None
        return SourceCache(
            self.decoder.source_keys_and_values(memory_BSD, attended_BS, rotary_SD), attended_BS, lengths
        )

    def step(self, tokens_BK: Tensor, cache: Cache) -> Tensor:
        """Feeds the newest subword of each row and updates the cache. Returns the decoder's output [B, K, D]."""
        rows_B1D = self.tgt_positions(1 + max(cache.positions))[cache.position_B][:, None]
        x_BKD, rotary_B1D = self.tgt_positions.place(self.tgt_embedding(tokens_BK), rows_B1D)
        return self.decoder.step(x_BKD, rotary_B1D, cache.advance())

    def logits(self, h_D: Tensor) -> Tensor:
        """Returns h E^T, [..., D] to [..., V]. The logit of padding is -inf, so the softmax gives it no gradient."""
        logits_V = self.projection(h_D)
        logits_V[..., self.pad_id] = -torch.inf
        return logits_V


def count_parameters(model: nn.Module) -> int:
    """Returns the number of weights; a shared weight counts once."""
    return sum(p.numel() for p in model.parameters())


class Embedding(Module):
    """E[x] * sqrt(D).

    E starts with standard deviation D ** -0.5, so that the scaled rows and, if E is also the projection, the logits
    start at unit variance. Without `model.scale_embedding`, `scale` is 1, and E starts with the same values.
    """

    def __init__(self, vocab: int, D: int, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab, D).normal_(std=D**-0.5))
        self.scale = scale

    def forward(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.weight) * self.scale


class Projection(Module):
    """h E^T, without scaling, plus a bias if the model has one. `weight` is the target embedding's parameter if the two
    are tied, else None."""

    bias: nn.Parameter | None

    def __init__(self, weight: nn.Parameter | None, vocab: int, D: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = weight if weight is not None else nn.Parameter(torch.empty(vocab, D).normal_(std=D**-0.5))
        self.register_parameter("bias", nn.Parameter(torch.zeros(vocab)) if bias else None)

    def forward(self, h_D: Tensor) -> Tensor:
        return linear(h_D, self.weight, self.bias)


Layer = TypeVar("Layer", bound=nn.Module)


def module_list(layers: Iterable[Layer]) -> list[Layer]:
    """Returns a ModuleList, typed as the list that it behaves like."""
    return cast(list[Layer], nn.ModuleList(layers))


class Stack(Module, Generic[Layer]):
    """A sequence of layers, with a final norm if they are pre-norm; post-norm layers already end in one."""

    def __init__(self, config: ModelConfig, layers: Iterable[Layer]) -> None:
        super().__init__()
        self.layers = module_list(layers)
        has_norm = config.norm == "pre" and len(self.layers) > 0
        self.final_norm = LayerNorm(config.d_model, config.norm_eps) if has_norm else nn.Identity()

    def through(
        self,
        x_BTD: Tensor,
        rotary_TD: Tensor | None,
        *context: Tensor,
        caches: Sequence[LayerCache] | None = None,
        recorder: Recorder | None = None,
    ) -> Tensor:
        """Returns the output of the last layer [B, T, D]. `context` is the mask and, for a layer with cross-attention,
        the memory; layers with caches need neither."""
        for number, layer in enumerate(self.layers):
            cache = None if caches is None else caches[number]
            recording = recorder if recorder is not None and number in recorder.layers else None
            x_BTD = layer(x_BTD, rotary_TD, *context, cache=cache, recorder=recording)
        return x_BTD

    def step(self, x_BKD: Tensor, rotary_B1D: Tensor | None, caches: Sequence[LayerCache]) -> Tensor:
        """Returns the output [B, K, D] at the newest subword of each row."""
        return self.final_norm(self.through(x_BKD, rotary_B1D, caches=caches))


class Encoder(Stack[EncoderLayer]):
    """A stack of self-attention and feed-forward layers. In a decoder-only model it is empty and returns its input."""

    def __init__(self, config: ModelConfig, sublayers: Sublayers) -> None:
        super().__init__(config, (EncoderLayer(sublayers, i) for i in range(config.encoder_layers)))

    def forward(self, x_BSD: Tensor, rotary_SD: Tensor | None, keep_BS: Tensor) -> Tensor:
        return self.final_norm(self.through(x_BSD, rotary_SD, keep_BS[:, None, None]))


class Decoder(Stack[DecoderLayer]):
    """A stack of causal self-attention or SSRU, cross-attention and feed-forward layers."""

    def __init__(self, config: ModelConfig, sublayers: Sublayers) -> None:
        super().__init__(config, (DecoderLayer(sublayers, i) for i in range(config.decoder_layers)))

    def positions(self, table: Positions, keep_BS: Tensor, T: int) -> Tensor:
        """Returns the positions of the target [T, D], counted from its BOS."""
        return table(T)

    def forward(
        self,
        x_BTD: Tensor,
        rotary_TD: Tensor | None,
        memory_BSD: Tensor,
        keep_BS: Tensor,
        recorder: Recorder | None = None,
    ) -> Tensor:
        """Returns the output [B, T, D]."""
        return self.final_norm(self.through(x_BTD, rotary_TD, keep_BS[:, None, None], memory_BSD, recorder=recorder))

    def source_keys_and_values(self, memory_BSD: Tensor, keep_BS: Tensor, rotary_SD: Tensor | None) -> Tensor:
        """Returns each layer's keys and values of the memory [L, 2, B, H, S, d]."""
        parts = [layer.cross_attention for layer in self.layers]
        return torch.stack([torch.stack(part.keys_values(part.kv(memory_BSD))) for part in parts])


class DecoderOnly(Stack[EncoderLayer]):
    """A language model's stack, which reads source and target as one sequence (Radford et al. 2018).

    The source's EOS separates the two. There are no encoder layers, so the memory [B, S, D] is the embedded source.
    The n positions of the sequence are source, padding, target. `model.source_mask` makes the stack causal throughout
    or a prefix language model (Raffel et al. 2019, section 3.2.1).
    """

    def __init__(self, config: ModelConfig, sublayers: Sublayers) -> None:
        super().__init__(config, (EncoderLayer(sublayers, i) for i in range(config.decoder_layers)))
        self.prefix = config.source_mask == "prefix"

    def positions(self, table: Positions, keep_BS: Tensor, T: int) -> Tensor:
        """Returns the positions of the target [B, T, D], counted from the start of its source, without padding. Rotary
        rows cover the whole sequence [B, n, D]."""
        S, device = keep_BS.shape[1], keep_BS.device
        at_Bn = keep_BS.sum(1, keepdim=True) + torch.arange(T, device=device)
        if table.turns:
            at_Bn = torch.cat((torch.arange(S, device=device).expand(len(at_Bn), S), at_Bn), 1)
        return table(S + T)[at_Bn]

    def forward(
        self,
        x_BTD: Tensor,
        rotary_BnD: Tensor | None,
        memory_BSD: Tensor,
        keep_BS: Tensor,
        recorder: Recorder | None = None,
    ) -> Tensor:
        """Returns the output [B, T, D]. The recorded attention covers the whole sequence [B, H, n, n]."""
        x_BnD, keep_B1nn = torch.cat((memory_BSD, x_BTD), 1), self.keep(keep_BS, x_BTD.shape[1])
        x_BnD = self.through(x_BnD, rotary_BnD, keep_B1nn, recorder=recorder)
        return self.final_norm(x_BnD[:, keep_BS.shape[1] :])

    def source_keys_and_values(self, memory_BSD: Tensor, keep_BS: Tensor, rotary_SD: Tensor | None) -> Tensor:
        """Returns each layer's keys and values of the source [L, 2, B, H, S, d]."""
        prefill = Prefill(self.keep(keep_BS, 0))
        self.through(memory_BSD, rotary_SD, caches=[LayerCache(prefill, None)] * len(self.layers))
        return torch.stack(prefill.layers)

    def keep(self, keep_BS: Tensor, T: int) -> Tensor:
        """Returns the mask [B, 1, n, n]: each position attends to itself and to all earlier ones except padding; with
        `prefix`, source positions attend to the whole source."""
        B, S = keep_BS.shape
        keep_nn = keep_BS.new_ones(S + T, S + T).tril()
        keep_nn[:S, :S] |= self.prefix
        return keep_nn & torch.cat((keep_BS, keep_BS.new_ones(B, T)), 1)[:, None, None]
