"""The Transformer of "Attention is all you need" (Vaswani et al. 2017), read downwards.

Sharing has one mechanism: the constructor gives the SAME module or parameter to every place
that uses it. torch then counts, moves, optimises and differentiates it once.

Legend: B sentences, S source length, T target length, D model width, H heads, d = D / H head
width, F feed-forward width, V vocabulary, K beam rows of a sentence, N real target positions.
A mask is named for what True means: keep_BS is True at the source positions that are attended to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vtrans.config import TIE_FORMS, ModelConfig, contradiction
from vtrans.decoding.state import DecodingState, Past, Seen
from vtrans.errors import InputError
from vtrans.runtime.products import Int8Weight, Linear, linear


class Transformer(nn.Module):
    """Encoder, decoder, and up to three uses of one embedding matrix (section 3.4).

    `config.tie` says which of the source embedding, the target embedding and the pre-softmax
    projection are one parameter: `src-tgt-softmax`, `tgt-softmax`, `src-tgt` or `none`; the
    first owner in that order gives the tensor its name in files. `src_vocab` and `tgt_vocab`
    are numbers of subwords, `pad_id` is the subword that is never predicted.

    Raises InputError for a `tie` that the vocabularies do not allow, and for values that make no model together.
    """

    one_by_nature: frozenset[str] = frozenset()
    """Parts that are another part in every model of this architecture, which is no sharing that saves weights."""

    def __init__(self, config: ModelConfig, src_vocab: int, tgt_vocab: int, *, joint: bool, pad_id: int) -> None:
        super().__init__()
        check_tie(config.tie, joint)
        if reason := contradiction(config):
            raise InputError(reason)
        assert isinstance(self, DecoderOnly) == (config.architecture == "decoder-only"), "see make_model"
        self.config, self.pad_id = config, pad_id
        D, tie = config.d_model, config.tie
        scale = math.sqrt(D) if config.scale_embedding else 1.0
        self.src_embedding = Embedding(src_vocab, D, scale)
        self.tgt_embedding = self.src_embedding if tie.startswith("src-tgt") else Embedding(tgt_vocab, D, scale)
        self.projection = Projection(self.tgt_embedding.weight if tie.endswith("softmax") else None, tgt_vocab, D)
        self.src_positions = make_positions(config)
        one_sequence = config.architecture == "decoder-only"
        one_table = config.share_positions or one_sequence
        self.tgt_positions = self.src_positions if one_table else make_positions(config)
        self.dropout = Dropout(config.dropout)
        sublayers = Sublayers(config)
        self.encoder = Encoder(config, sublayers)
        self.decoder = OneStack(config, sublayers) if one_sequence else Decoder(config, sublayers)

    @property
    def max_length(self) -> int | None:
        """Longest sequence of either side, BOS or EOS counted, that the positions reach; None: no limit."""
        return self.config.reach

    @property
    def device(self) -> torch.device:
        return self.src_embedding.weight.device

    def freeze(self, precision: str = "float32") -> None:
        """Makes the model one that only translates: from now on its weights may not change.

        `precision` is one of DECODING_PRECISIONS: of the weights and of all that is computed, but with int8 of the
        projection's weights alone, which on a CPU are most of the work. Raises InputError for int8 elsewhere.
        """
        self.eval().requires_grad_(False)
        if precision == "int8":
            if self.device.type != "cpu":
                raise InputError(f"int8 is for the CPU, but the device is {self.device}; there bfloat16 saves time.")
        else:
            self.to(getattr(torch, precision))
        self.projection.freeze(int8=precision == "int8")

    def forward(self, src_BS: Tensor, keep_BS: Tensor, tgt_BT: Tensor) -> Tensor:
        """Logits [B, T, V] of the subword that follows each prefix of `tgt_BT`.

        `src_BS` [B, S] holds the source with EOS, `keep_BS` [B, S] is False at its padding,
        `tgt_BT` [B, T] begins with BOS. Training does not come here: its loss never holds all logits (loss.py).
        """
        return self.logits(self.decode(tgt_BT, self.encode(src_BS, keep_BS), keep_BS))

    def encode(self, src_BS: Tensor, keep_BS: Tensor) -> Tensor:
        """The memory [B, S, D]; nothing stands between it and the decoder's cross-attention."""
        x_BSD = self.src_embedding(src_BS) + self.src_positions(src_BS.shape[1])
        out: Tensor = self.encoder(self.dropout(x_BSD), keep_BS)
        return out

    def decode(self, tgt_BT: Tensor, memory_BSD: Tensor, keep_BS: Tensor) -> Tensor:
        """The decoder's output [B, T, D], before the projection."""
        out: Tensor = self.decoder(self.embedded(tgt_BT, keep_BS), memory_BSD, keep_BS)
        return out

    def embedded(self, tgt_BT: Tensor, keep_BS: Tensor) -> Tensor:
        """The decoder's input [B, T, D]; its positions do not depend on the source."""
        out: Tensor = self.dropout(self.tgt_embedding(tgt_BT) + self.tgt_positions(tgt_BT.shape[1]))
        return out

    def logits(self, h_D: Tensor) -> Tensor:
        """h E^T, [..., D] to [..., V]; padding is -inf, so that its row gets no gradient from the softmax."""
        logits_V: Tensor = self.projection(h_D)
        logits_V[..., self.pad_id] = -torch.inf
        return logits_V

    def attentions(self, src_BS: Tensor, keep_BS: Tensor, tgt_BT: Tensor, first: int) -> list[Tensor]:
        """Where each position of `tgt_BT` looks in the source: the cross-attention probabilities
        [B, H, T, S] of each decoder layer from `first` on, 0 the lowest. Other arguments as of `forward`."""
        return self.decoder.attentions(self.embedded(tgt_BT, keep_BS), self.encode(src_BS, keep_BS), keep_BS, first)

    # Decoding one subword at a time, for the search: the calls of search.Decoder.

    def start(self, sources: Sequence[Sequence[int]], width: int) -> DecodingState:
        """A state with `width` rows for each source (subwords and EOS); no subword fed yet."""
        return DecodingState(*self._memory(sources), [len(s) for s in sources], width)

    def _memory(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Each layer's keys and values of the sources' memory [L, 2, B, H, S, d], and keep_BS."""
        S = max(map(len, sources))
        src_BS = torch.tensor([[*s] + [self.pad_id] * (S - len(s)) for s in sources], device=self.device)
        length_B = torch.tensor([len(s) for s in sources], device=self.device)
        keep_BS = torch.arange(S, device=self.device) < length_B[:, None]
        return self.decoder.memory_cache(self.encode(src_BS, keep_BS), keep_BS), keep_BS

    def step(self, state: DecodingState, tokens_BK: Tensor, live_r: Tensor) -> Iterator[Tensor]:
        """Feeds each row its newest subword [B, K]; gives log-probabilities [n, V] of the next, of n live rows at
        a time, in the order of `live_r`, their places among the flattened rows B * K."""
        blocks = torch.split(self.hidden(state, tokens_BK, live_r), self.rows)
        return (self._logprobs(block_nD) for block_nD in blocks)

    def _logprobs(self, h_nD: Tensor) -> Tensor:
        logits_nV = self.projection.step(h_nD)
        logits_nV[:, self.pad_id] = -torch.inf
        return logprobs(logits_nV)

    def hidden(self, state: DecodingState, tokens_BK: Tensor, live_r: Tensor) -> Tensor:
        """The first half of `step`: the decoder's output [r, D] of the live rows, before the projection."""
        # Both at once, as a GPU would be waited for between the layers and the rows.
        tokens_BK, live_r = tokens_BK.to(self.device), live_r.to(self.device)
        x_BKD = self.tgt_embedding(tokens_BK) + self.newest_positions(state)[:, None]
        return self.decoder.step(x_BKD, state).flatten(0, 1)[live_r]

    def newest_positions(self, state: DecodingState) -> Tensor:
        """The rows [B, D] of the position table for one more subword, for which there is room in `state` then."""
        age_B = state.next_slots()
        table: Tensor = self.tgt_positions(state.oldest)
        return table[age_B]

    @property
    def rows(self) -> int:
        """Rows that are projected and read at a time; so few on a CPU that they are still in its cache."""
        return ROWS_CPU if self.device.type == "cpu" else ROWS_GPU

    def reorder(self, state: DecodingState, parents_BK: Tensor) -> None:
        """Row k of each sentence goes on from its old row parents[:, k]."""
        state.reorder(parents_BK)

    def drop(self, state: DecodingState, sentences: Sequence[int]) -> None:
        """These sentences are over; their places stay until they are taken or removed."""
        state.drop(sentences)

    def select(self, state: DecodingState, sentences: Sequence[int]) -> None:
        """Keeps these sentences of the state only, in this order."""
        state.select(sentences)

    def admit(self, state: DecodingState, sources: Sequence[Sequence[int]], places: Sequence[int]) -> None:
        """Fresh sentences take the places of dropped ones, and those without a place follow at the end."""
        state.admit(*self._memory(sources), [len(s) for s in sources], places)


# Rows that are projected to the vocabulary and read at a time. 128 rows of 8,000 subwords are 4 MB.
ROWS_CPU, ROWS_GPU = 128, 8192


def check_tie(tie: str, joint: bool) -> None:
    """InputError unless `tie` is one of the four forms and fits joint or separate vocabularies."""
    if tie not in TIE_FORMS:
        raise InputError(f"model.tie must be one of {', '.join(TIE_FORMS)}, but is {tie!r}.")
    if tie.startswith("src-tgt") and not joint:
        raise InputError(
            f"model.tie = {tie} makes source and target embedding one matrix, which needs a joint vocabulary, "
            "but the data has separate ones; choose tgt-softmax or none, or prepare the data without --separate."
        )


def resolve_tie(tie: str, joint: bool) -> str:
    """`auto` as the form that the vocabularies call for, anything else as it is."""
    if tie == "auto":
        return "src-tgt-softmax" if joint else "tgt-softmax"
    return tie


def logprobs(logits_nV: Tensor) -> Tensor:
    """Log-probabilities [n, V], in float32 where the logits are of half precision."""
    return (logits_nV.float() if logits_nV.dtype in (torch.bfloat16, torch.float16) else logits_nV).log_softmax(-1)


class Embedding(nn.Module):
    """E[x] * sqrt(D). E starts with standard deviation D ** -0.5, so that the scaled rows and,
    where E is the projection too, the logits start at unit variance. Where the recipe leaves the
    sqrt(D) out, `scale` is 1 and E starts as it does with it: smaller than the positions, by sqrt(D)."""

    def __init__(self, vocab: int, D: int, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab, D).normal_(std=D**-0.5))
        self.scale = scale

    def forward(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.weight) * self.scale


class Projection(nn.Module):
    """h E^T, without scaling or bias; `weight` is the embedding's own parameter where they are tied."""

    def __init__(self, weight: nn.Parameter | None, vocab: int, D: int) -> None:
        super().__init__()
        self.weight = weight if weight is not None else nn.Parameter(torch.empty(vocab, D).normal_(std=D**-0.5))
        self._frozen: Callable[[Tensor], Tensor] | None = None

    def forward(self, h_D: Tensor) -> Tensor:
        return linear(h_D, self.weight)

    def freeze(self, int8: bool) -> None:
        """See Transformer.freeze. With the few rows of a sentence a CPU spends its time on reading E. A copy that is
        E^T, beside E, is read in half the time: with a beam of 4 a search of single sentences is 8% faster in all, of
        batches 2 to 4% (V 8,000, D 128 and 256). A copy in 8 bits is read in a quarter."""
        weight_VD = self.weight.detach()
        if int8:
            self._frozen = Int8Weight(weight_VD).product
        elif weight_VD.device.type == "cpu" and weight_VD.dtype is torch.float32:
            turned_DV = weight_VD.t().contiguous()
            self._frozen = lambda h_ND: linear(h_ND, turned_DV.t())

    def step(self, h_ND: Tensor) -> Tensor:
        """The same for decoding, [N, D] to [N, V]."""
        return self(h_ND) if self._frozen is None else self._frozen(h_ND)


def make_positions(config: ModelConfig) -> SinusoidalPositions | LearnedPositions:
    if config.positions == "learned":
        return LearnedPositions(config.max_positions, config.d_model)
    return SinusoidalPositions(config.d_model)


class SinusoidalPositions(nn.Module):
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos of the same (section 3.5); of any length."""

    table: Tensor

    def __init__(self, D: int) -> None:
        super().__init__()
        self.register_buffer("table", self.rows(256, D), persistent=False)

    def forward(self, length: int) -> Tensor:
        """The first `length` rows [length, D]; the table doubles when it is outgrown."""
        if length > self.table.shape[0]:
            # Outside inference mode: the table outlives the call and training reads it too.
            with torch.inference_mode(False):
                self.table = self.rows(1 << (length - 1).bit_length(), self.table.shape[1]).to(self.table)
        return self.table[:length]

    @staticmethod
    def rows(length: int, D: int) -> Tensor:
        p = torch.arange(length, dtype=torch.float64)[:, None]
        angle = p / 10000 ** (torch.arange(0, D, 2, dtype=torch.float64) / D)
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).to(torch.get_default_dtype())


class LearnedPositions(nn.Module):
    """A learned table [max_positions, D]; InputError for a longer sequence."""

    def __init__(self, length: int, D: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, D).normal_(std=D**-0.5))

    def forward(self, length: int) -> Tensor:
        """The first `length` rows [length, D]."""
        if length > self.weight.shape[0]:
            raise InputError(
                f"a sequence of {length} subwords is longer than model.max_positions = {self.weight.shape[0]}; "
                "learned positions end there, sinusoidal ones do not."
            )
        return self.weight[:length]


class Encoder(nn.Module):
    """A stack of self-attention and feed-forward layers; pre-norm adds a norm at its end. Without layers, as in
    a decoder-only model, what goes in comes out."""

    def __init__(self, config: ModelConfig, sublayers: Sublayers) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(sublayers, i, SelfAttention) for i in range(config.encoder_layers))
        normed = config.norm == "pre" and config.encoder_layers > 0
        self.final_norm = nn.LayerNorm(config.d_model) if normed else nn.Identity()

    def forward(self, x_BSD: Tensor, keep_BS: Tensor) -> Tensor:
        keep_B1S = keep_BS[:, None]
        for layer in self.layers:
            x_BSD = layer(x_BSD, keep_B1S)
        out: Tensor = self.final_norm(x_BSD)
        return out


class EncoderLayer(nn.Module):
    def __init__(self, sublayers: Sublayers, number: int, attention: type[SelfAttention]) -> None:
        super().__init__()
        self.self_attention, self.self_attention_residual = sublayers.take(attention, "encoder", number)
        self.feed_forward, self.feed_forward_residual = sublayers.take(FeedForward, "encoder", number)

    def forward(self, x_BSD: Tensor, keep_BQS: Tensor) -> Tensor:
        x_BSD = self.self_attention_residual(x_BSD, lambda x: self.self_attention(x, keep_BQS))
        out: Tensor = self.feed_forward_residual(x_BSD, self.feed_forward)
        return out


class Decoder(nn.Module):
    """A stack of causal self-attention, cross-attention and feed-forward layers."""

    def __init__(self, config: ModelConfig, sublayers: Sublayers) -> None:
        super().__init__()
        self.layers = nn.ModuleList(self.make_layer(sublayers, i) for i in range(config.decoder_layers))
        self.final_norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()

    def make_layer(self, sublayers: Sublayers, number: int) -> nn.Module:
        return DecoderLayer(sublayers, number)

    def forward(self, x_BTD: Tensor, memory_BSD: Tensor, keep_BS: Tensor) -> Tensor:
        for layer in self.layers:
            x_BTD = layer(x_BTD, memory_BSD, keep_BS)
        out: Tensor = self.final_norm(x_BTD)
        return out

    def attentions(self, x_BTD: Tensor, memory_BSD: Tensor, keep_BS: Tensor, first: int) -> list[Tensor]:
        """The cross-attention probabilities [B, H, T, S] of the layers from `first` on."""
        found = []
        for number, layer in enumerate(self._layers):
            if number >= first:
                found.append(layer.attention(x_BTD, memory_BSD, keep_BS))
            x_BTD = layer(x_BTD, memory_BSD, keep_BS)
        return found

    @property
    def _layers(self) -> list[DecoderLayer]:
        return cast(list[DecoderLayer], list(self.layers))

    def memory_cache(self, memory_BSD: Tensor, keep_BS: Tensor) -> Tensor:
        """Each layer's keys and values [L, 2, B, H, S, d] of the memory, made once a sentence; of its padding too,
        where no step looks."""
        return torch.stack([torch.stack(layer.cross_attention.keys_values(memory_BSD)) for layer in self._layers])

    def step(self, x_BKD: Tensor, state: DecodingState) -> Tensor:
        """The output [B, K, D] for each row's newest subword; its keys and values join the caches."""
        for layer, past in zip(self._layers, state.pasts(), strict=True):
            x_BKD = layer.step(x_BKD, past)
        out: Tensor = self.final_norm(x_BKD)
        return out


class DecoderLayer(nn.Module):
    def __init__(self, sublayers: Sublayers, number: int) -> None:
        super().__init__()
        self.self_attention, self.self_attention_residual = sublayers.take(SelfAttention, "decoder", number)
        self.cross_attention, self.cross_attention_residual = sublayers.take(CrossAttention, "decoder", number)
        self.feed_forward, self.feed_forward_residual = sublayers.take(FeedForward, "decoder", number)

    def forward(self, x_BTD: Tensor, memory_BSD: Tensor, keep_BS: Tensor) -> Tensor:
        memory = self.cross_attention.keys_values(memory_BSD)
        x_BTD = self.self_attention_residual(x_BTD, self.self_attention)
        x_BTD = self.cross_attention_residual(x_BTD, lambda x: self.cross_attention(x, memory, keep_BS))
        out: Tensor = self.feed_forward_residual(x_BTD, self.feed_forward)
        return out

    def attention(self, x_BTD: Tensor, memory_BSD: Tensor, keep_BS: Tensor) -> Tensor:
        x_BTD = self.self_attention_residual(x_BTD, self.self_attention)
        keys_BHSd, _ = self.cross_attention.keys_values(memory_BSD)
        return self.cross_attention.probabilities(self.cross_attention_residual.before(x_BTD), keys_BHSd, keep_BS)

    def step(self, x_BKD: Tensor, past: Past) -> Tensor:
        x_BKD = self.self_attention_residual(x_BKD, lambda x: self.self_attention.step(x, past))
        x_BKD = self.cross_attention_residual(x_BKD, lambda x: self.cross_attention.step(x, past))
        out: Tensor = self.feed_forward_residual(x_BKD, self.feed_forward)
        return out


Sublayer = TypeVar("Sublayer", bound=nn.Module)


class Sublayers:
    """Gives the layers their sublayers: the SAME one to all the places that share it, else a new one.

    `share_layers` makes the layers of a stack, or of each group of `share_group` consecutive ones, use one
    attention (of the decoder both), one feed-forward, or both; `share_stacks` makes the encoder's self-attention
    and feed-forward the decoder's too. A sublayer comes with its residual, whose norm is shared as it is.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.made: dict[tuple[object, str, int], tuple[nn.Module, Residual]] = {}

    def take(self, kind: Callable[[ModelConfig], Sublayer], stack: str, layer: int) -> tuple[Sublayer, Residual]:
        """The sublayer of this kind for a layer of the stack, and the residual around it."""
        config, cross = self.config, kind is CrossAttention
        number = config.sublayer("feed-forward" if kind is FeedForward else "attention", layer)
        place = (kind, "both" if config.share_stacks and not cross else stack, number)
        if place not in self.made:
            around = Residual if config.cross_attention_residual or not cross else WithoutResidual
            self.made[place] = kind(config), around(config)
        return cast(tuple[Sublayer, Residual], self.made[place])


class Residual(nn.Module):
    """Around a sublayer f: norm(x + dropout(f(x))) as in the paper, or pre-norm x + dropout(f(norm(x)))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        out: Tensor = x + self.dropout(f(self.before(x)))
        return out if self.pre else self.norm(out)

    def before(self, x: Tensor) -> Tensor:
        """What the sublayer is given."""
        out: Tensor = self.norm(x) if self.pre else x
        return out


class WithoutResidual(Residual):
    """An ablation: what the sublayer makes of x takes its place, norm(dropout(f(x)))."""

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        out: Tensor = self.dropout(f(self.before(x)))
        return out if self.pre else self.norm(out)


class Dropout(nn.Module):
    """Zeros with probability `rate`, in steps of 2^-16; what stays is scaled so that the mean does.

    On a CPU torch draws a float for each element, one after the other: 5.1 ms for [4096, 256]. 16 bits decide
    as well, four elements from one draw of the same generator: 0.9 ms, and the same backward.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.dropped = round(rate * (1 << 16))  # of the 65,536 values of 16 bits

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.dropped:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.rate)
        return x * self.mask(x)

    def mask(self, x: Tensor) -> Tensor:
        """Zeros, and the scale of what stays, in the shape and type of `x`."""
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
        lanes = draws.view(torch.int16)[: x.numel()].view(x.shape)
        keep = torch.ge(lanes, self.dropped - (1 << 15), out=torch.empty_like(x))
        return keep.mul_((1 << 16) / ((1 << 16) - self.dropped))


class FeedForward(nn.Module):
    """W_2 relu(W_1 x + b_1) + b_2 (section 3.3)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = xavier(config.d_model, config.d_ff)
        self.outer = xavier(config.d_ff, config.d_model)
        self.activation = F.relu if config.activation == "relu" else F.gelu
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.outer(self.dropout(self.activation(self.inner(x))))
        return out


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself (section 3.2); q, k and v are one product."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.qkv = xavier(config.d_model, config.d_model, parts=3)
        self.out = xavier(config.d_model, config.d_model)

    def forward(self, x_BTD: Tensor, keep_BQT: Tensor | None = None) -> Tensor:
        """[B, T, D] to [B, T, D]. `keep_BQT` says what each position attends to, with Q = 1 all to the same.
        Without it it is causal: right padding then follows every real position, so that none attends to it."""
        q_BHTd, k_BHTd, v_BHTd = (split_heads(part, self.heads) for part in self.qkv(x_BTD).chunk(3, dim=-1))
        dropout = self.dropout if self.training else 0.0
        if keep_BQT is None:
            mixed = F.scaled_dot_product_attention(q_BHTd, k_BHTd, v_BHTd, dropout_p=dropout, is_causal=True)
        else:
            mask = keep_BQT[:, None]
            mixed = F.scaled_dot_product_attention(q_BHTd, k_BHTd, v_BHTd, attn_mask=mask, dropout_p=dropout)
        out: Tensor = self.out(merge_heads(mixed))
        return out

    def step(self, x_BKD: Tensor, past: Past) -> Tensor:
        """One position of each row, attending to the row's past and itself."""
        B, K, D = x_BKD.shape
        qkv_BK3Hd = self.qkv(x_BKD).view(B, K, 3, self.heads, D // self.heads)
        past.add(qkv_BK3Hd[:, :, 1:])
        mixed_BKD = past.mixed(self.mix, qkv_BK3Hd[:, :, 0].transpose(1, 2))
        out: Tensor = self.out(mixed_BKD)
        return out

    @staticmethod
    def mix(q_BHKd: Tensor, own: Seen, source: Callable[[], Seen]) -> Tensor:
        """What K queries a sentence make of the values that they see [B, K, D]; not of the source's here."""
        return attend(q_BHKd, own)


class CrossAttention(nn.Module):
    """Multi-head attention of the decoder to the encoder's memory; k and v are one product."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.attention_dropout
        self.query = xavier(config.d_model, config.d_model)
        self.kv = xavier(config.d_model, config.d_model, parts=2)
        self.out = xavier(config.d_model, config.d_model)

    def keys_values(self, memory_BSD: Tensor) -> KeyValue:
        """Keys and values [B, H, S, d] of the memory."""
        k, v = self.kv(memory_BSD).chunk(2, dim=-1)
        return split_heads(k, self.heads), split_heads(v, self.heads)

    def forward(self, x_BTD: Tensor, memory: KeyValue, keep_BS: Tensor) -> Tensor:
        """[B, T, D] to [B, T, D]; no source is all padding, as each holds at least EOS."""
        q_BHTd = split_heads(self.query(x_BTD), self.heads)
        dropout = self.dropout if self.training else 0.0
        mask = keep_BS[:, None, None, :]
        mixed = F.scaled_dot_product_attention(q_BHTd, *memory, attn_mask=mask, dropout_p=dropout)
        out: Tensor = self.out(merge_heads(mixed))
        return out

    def probabilities(self, x_BTD: Tensor, keys_BHSd: Tensor, keep_BS: Tensor) -> Tensor:
        """What `forward` mixes the values by, [B, H, T, S]; its own kernel never shows it."""
        q_BHTd = split_heads(self.query(x_BTD), self.heads)
        scores_BHTS = q_BHTd @ keys_BHSd.transpose(-1, -2) / math.sqrt(q_BHTd.shape[-1])
        return scores_BHTS.masked_fill(~keep_BS[:, None, None, :], -torch.inf).softmax(-1)

    def step(self, x_BKD: Tensor, past: Past) -> Tensor:
        """One position of each row: the K rows of a sentence are K queries on its one memory."""
        q_BHKd = split_heads(self.query(x_BKD), self.heads)
        out: Tensor = self.out(attend(q_BHKd, past.src))
        return out


def attend(q_BHKd: Tensor, seen: Seen) -> Tensor:
    """K queries a sentence to the n keys that it sees, [B, K, D]; x = B * H.

    Two batched products: with so few queries each, the CPU kernel of `scaled_dot_product_attention` takes
    1.3 to 1.6 times as long on one thread and 6 times on two.
    """
    B, H, K, d = q_BHKd.shape
    scores_xKn = torch.baddbmm(seen.bias_xKn, q_BHKd.reshape(B * H, K, d), seen.keys_xdn, alpha=d**-0.5)
    mixed_xKd = torch.bmm(scores_xKn.softmax(-1), seen.values_xnd)
    return mixed_xKd.view(B, H, K, d).transpose(1, 2).reshape(B, K, H * d)


def split_heads(x_BTD: Tensor, heads: int) -> Tensor:
    """[B, T, D] to [B, H, T, d]."""
    B, T, D = x_BTD.shape
    return x_BTD.view(B, T, heads, D // heads).transpose(1, 2)


def merge_heads(x_BHTd: Tensor) -> Tensor:
    """[B, H, T, d] to [B, T, D]."""
    return x_BHTd.transpose(1, 2).flatten(2)


def xavier(inputs: int, outputs: int, parts: int = 1) -> Linear:
    """A linear layer whose `parts` projections, fused along the output, are each Xavier uniform on
    their own: fused, they must start as they would have apart. Biases start at zero."""
    layer = Linear(inputs, outputs * parts)
    for part in layer.weight.detach().chunk(parts):
        nn.init.xavier_uniform_(part)
    nn.init.zeros_(layer.bias)
    return layer


KeyValue = tuple[Tensor, Tensor]


# Decoder-only: one stack over the source and then the target.


def make_model(config: ModelConfig, src_vocab: int, tgt_vocab: int, *, joint: bool, pad_id: int) -> Transformer:
    """The model of that architecture; arguments and errors as of Transformer."""
    kind = DecoderOnly if config.architecture == "decoder-only" else Transformer
    return kind(config, src_vocab, tgt_vocab, joint=joint, pad_id=pad_id)


class DecoderOnly(Transformer):
    """A language model of the source, its EOS as separator, and the target (Radford et al. 2018); by its mask
    causal throughout, or a prefix language model (Raffel et al. 2019, section 3.2.1).

    Its encoder has no layers, so that the memory [B, S, D] is the embedded source, and its decoder goes over
    memory and target as one sequence. Positions go on from the sentence's OWN length: the padding between the two
    counts for nothing. In decoding, the source's keys and values are made once, like those of cross-attention.
    """

    one_by_nature = frozenset({"tgt_positions"})

    def embedded(self, tgt_BT: Tensor, keep_BS: Tensor) -> Tensor:
        T, S = tgt_BT.shape[1], keep_BS.shape[1]
        at_BT = keep_BS.sum(1, keepdim=True) + torch.arange(T, device=keep_BS.device)
        out: Tensor = self.dropout(self.tgt_embedding(tgt_BT) + self.tgt_positions(S + T)[at_BT])
        return out

    def newest_positions(self, state: DecodingState) -> Tensor:
        age_B = state.next_slots()
        table: Tensor = self.tgt_positions(state.furthest)
        return table[torch.tensor(state.lengths, device=self.device) + age_B]


class OneStack(Decoder):
    """The layers of a decoder-only model. n = S + T positions: the source, its padding and the target."""

    def __init__(self, config: ModelConfig, sublayers: Sublayers) -> None:
        super().__init__(config, sublayers)
        self.prefix = config.source_mask == "prefix"

    def make_layer(self, sublayers: Sublayers, number: int) -> OneStackLayer:
        return OneStackLayer(sublayers, number, OneStackAttention)

    def forward(self, x_BTD: Tensor, memory_BSD: Tensor, keep_BS: Tensor) -> Tensor:
        x_BnD, keep_Bnn = torch.cat((memory_BSD, x_BTD), 1), self.keep(keep_BS, x_BTD.shape[1])
        for layer in self.layers:
            x_BnD = layer(x_BnD, keep_Bnn)
        out: Tensor = self.final_norm(x_BnD[:, keep_BS.shape[1] :])
        return out

    def keep(self, keep_BS: Tensor, T: int) -> Tensor:
        """What each position attends to [B, n, n]: what is real and does not follow it, and of a prefix all to all."""
        B, S = keep_BS.shape
        keep_nn = keep_BS.new_ones(S + T, S + T).tril()
        keep_nn[:S, :S] |= self.prefix
        return keep_nn & torch.cat((keep_BS, keep_BS.new_ones(B, T)), 1)[:, None]

    def attentions(self, x_BTD: Tensor, memory_BSD: Tensor, keep_BS: Tensor, first: int) -> list[Tensor]:
        """What the target positions give to the source [B, H, T, S]; the rest of 1 goes to the target before them.
        A head that looks there alone says little of the source, and so is given little weight in a mean."""
        found, S = [], keep_BS.shape[1]
        x_BnD, keep_Bnn = torch.cat((memory_BSD, x_BTD), 1), self.keep(keep_BS, x_BTD.shape[1])
        for number, layer in enumerate(self.sequence_layers):
            if number >= first:
                found.append(layer.probabilities(x_BnD, keep_Bnn)[:, :, S:, :S])
            x_BnD = layer(x_BnD, keep_Bnn)
        return found

    def memory_cache(self, memory_BSD: Tensor, keep_BS: Tensor) -> Tensor:
        found, keep_BSS = [], self.keep(keep_BS, 0)
        for layer in self.sequence_layers:
            found.append(torch.stack(layer.keys_values(memory_BSD)))
            memory_BSD = layer(memory_BSD, keep_BSS)
        return torch.stack(found)

    @property
    def sequence_layers(self) -> list[OneStackLayer]:
        return cast(list[OneStackLayer], list(self.layers))


class OneStackLayer(EncoderLayer):
    self_attention: OneStackAttention

    def keys_values(self, x_BSD: Tensor) -> KeyValue:
        return self.self_attention.keys_values(self.self_attention_residual.before(x_BSD))

    def probabilities(self, x_BnD: Tensor, keep_Bnn: Tensor) -> Tensor:
        return self.self_attention.probabilities(self.self_attention_residual.before(x_BnD), keep_Bnn)

    def step(self, x_BKD: Tensor, past: Past) -> Tensor:
        x_BKD = self.self_attention_residual(x_BKD, lambda x: self.self_attention.step(x, past))
        out: Tensor = self.feed_forward_residual(x_BKD, self.feed_forward)
        return out


class OneStackAttention(SelfAttention):
    """Self-attention of a sequence that begins with the source."""

    def keys_values(self, x_BSD: Tensor) -> KeyValue:
        """Keys and values [B, H, S, d] of the source."""
        _, k, v = self.qkv(x_BSD).chunk(3, dim=-1)
        return split_heads(k, self.heads), split_heads(v, self.heads)

    def probabilities(self, x_BnD: Tensor, keep_Bnn: Tensor) -> Tensor:
        """What `forward` mixes the values by, [B, H, n, n]."""
        q_BHnd, k_BHnd, _ = (split_heads(part, self.heads) for part in self.qkv(x_BnD).chunk(3, dim=-1))
        scores_BHnn = q_BHnd @ k_BHnd.transpose(-1, -2) / math.sqrt(q_BHnd.shape[-1])
        return scores_BHnn.masked_fill(~keep_Bnn[:, None], -torch.inf).softmax(-1)

    @staticmethod
    def mix(q_BHKd: Tensor, own: Seen, source: Callable[[], Seen]) -> Tensor:
        """With one softmax over the source, the row's past and itself."""
        (B, H, K, d), src = q_BHKd.shape, source()
        S, q_xKd = src.bias_xKn.shape[2], q_BHKd.reshape(B * H, K, d)
        src_xKS = torch.baddbmm(src.bias_xKn, q_xKd, src.keys_xdn, alpha=d**-0.5)
        own_xKn = torch.baddbmm(own.bias_xKn, q_xKd, own.keys_xdn, alpha=d**-0.5)
        shares_xKm = torch.cat((src_xKS, own_xKn), 2).softmax(-1)
        src_xKd = torch.bmm(shares_xKm[:, :, :S], src.values_xnd)
        mixed_xKd = torch.baddbmm(src_xKd, shares_xKm[:, :, S:], own.values_xnd)
        return merge_heads(mixed_xKd.view(B, H, K, d))


def count_parameters(model: nn.Module) -> int:
    """Weights of the model, each shared one counted once."""
    return sum(p.numel() for p in model.parameters())
