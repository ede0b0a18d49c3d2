"""The Transformer of "Attention is all you need" (Vaswani et al. 2017), read downwards.

Sharing has one mechanism: the constructor gives the SAME module or parameter to every place
that uses it. torch then counts, moves, optimises and differentiates it once.

Legend: B sentences, S source length, T target length, D model width, H heads, d = D / H head
width, F feed-forward width, V vocabulary, K beam rows of a sentence, N real target positions.
A mask is named for what True means: keep_BS is True at the source positions that are attended to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vtrans.config import TIE_FORMS, ModelConfig
from vtrans.errors import InputError
from vtrans.linear import Linear, linear


class Transformer(nn.Module):
    """Encoder, decoder, and up to three uses of one embedding matrix (section 3.4).

    `config.tie` says which of the source embedding, the target embedding and the pre-softmax
    projection are one parameter: `src-tgt-softmax`, `tgt-softmax`, `src-tgt` or `none`; the
    first owner in that order gives the tensor its name in files. `src_vocab` and `tgt_vocab`
    are numbers of subwords, `pad_id` is the subword that is never predicted.

    Raises InputError for a `tie` that the vocabularies do not allow.
    """

    def __init__(self, config: ModelConfig, src_vocab: int, tgt_vocab: int, *, joint: bool, pad_id: int) -> None:
        super().__init__()
        check_tie(config.tie, joint)
        self.config, self.pad_id = config, pad_id
        D, tie = config.d_model, config.tie
        self.src_embedding = Embedding(src_vocab, D)
        self.tgt_embedding = self.src_embedding if tie.startswith("src-tgt") else Embedding(tgt_vocab, D)
        self.projection = Projection(self.tgt_embedding.weight if tie.endswith("softmax") else None, tgt_vocab, D)
        self.src_positions = make_positions(config)
        self.tgt_positions = self.src_positions if config.share_positions else make_positions(config)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)

    @property
    def max_length(self) -> int | None:
        """Longest sequence, BOS or EOS counted, that the positions reach; None: no limit."""
        return self.config.max_positions if self.config.positions == "learned" else None

    @property
    def device(self) -> torch.device:
        return self.src_embedding.weight.device

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
        x_BTD = self.tgt_embedding(tgt_BT) + self.tgt_positions(tgt_BT.shape[1])
        out: Tensor = self.decoder(self.dropout(x_BTD), memory_BSD, keep_BS)
        return out

    def logits(self, h_D: Tensor) -> Tensor:
        """h E^T, [..., D] to [..., V]; padding is -inf, so that its row gets no gradient from the softmax."""
        logits_V: Tensor = self.projection(h_D)
        logits_V[..., self.pad_id] = -torch.inf
        return logits_V

    def attentions(self, src_BS: Tensor, keep_BS: Tensor, tgt_BT: Tensor, first: int) -> list[Tensor]:
        """Where each position of `tgt_BT` looks in the source: the cross-attention probabilities
        [B, H, T, S] of each decoder layer from `first` on, 0 the lowest. Other arguments as of `forward`."""
        x_BTD = self.tgt_embedding(tgt_BT) + self.tgt_positions(tgt_BT.shape[1])
        return self.decoder.attentions(self.dropout(x_BTD), self.encode(src_BS, keep_BS), keep_BS, first)

    # Decoding one subword at a time, for the search: start, step, select, admit.

    def start(self, sources: Sequence[Sequence[int]], width: int) -> DecodingState:
        """A state with `width` rows for each source (subwords and EOS); no subword fed yet."""
        S = max(map(len, sources))
        src_BS = torch.tensor([[*s] + [self.pad_id] * (S - len(s)) for s in sources], device=self.device)
        lengths = [len(s) for s in sources]
        keep_BS = torch.arange(S, device=self.device) < torch.tensor(lengths, device=self.device)[:, None]
        return DecodingState(self.decoder.memory_cache(self.encode(src_BS, keep_BS)), keep_BS, lengths, width)

    def step(self, state: DecodingState, tokens_BK: Tensor) -> Tensor:
        """Feeds each row its newest subword [B, K] and returns log-probabilities [B, K, V] of the next."""
        x_BKD = (
            self.tgt_embedding(tokens_BK.to(self.device))
            + self.tgt_positions(max(state.ages) + 1)[state.age_B][:, None]
        )
        logits_BKV = self.logits(self.decoder.step(x_BKD, state))
        state.age_B, state.ages = state.age_B + 1, [age + 1 for age in state.ages]
        if logits_BKV.dtype in (torch.bfloat16, torch.float16):
            logits_BKV = logits_BKV.float()
        return logits_BKV.log_softmax(-1)

    def select(self, state: DecodingState, sentences_b: Tensor, parents_bK: Tensor) -> None:
        """Keeps the sentences [b] of the state; row k of each goes on from its old row parents[:, k]."""
        state.select(sentences_b, parents_bK)

    def admit(self, state: DecodingState, sources: Sequence[Sequence[int]]) -> None:
        """Appends fresh sentences to the state."""
        state.append(self.start(sources, state.width))


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


class Embedding(nn.Module):
    """E[x] * sqrt(D). E starts with standard deviation D ** -0.5, so that the scaled rows and,
    where E is the projection too, the logits start at unit variance."""

    def __init__(self, vocab: int, D: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab, D).normal_(std=D**-0.5))
        self.scale = math.sqrt(D)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.weight) * self.scale


class Projection(nn.Module):
    """h E^T, without scaling or bias; `weight` is the embedding's own parameter where they are tied."""

    def __init__(self, weight: nn.Parameter | None, vocab: int, D: int) -> None:
        super().__init__()
        self.weight = weight if weight is not None else nn.Parameter(torch.empty(vocab, D).normal_(std=D**-0.5))

    def forward(self, h_D: Tensor) -> Tensor:
        return linear(h_D, self.weight)


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
    """A stack of self-attention and feed-forward layers; pre-norm adds a norm at its end."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.final_norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()

    def forward(self, x_BSD: Tensor, keep_BS: Tensor) -> Tensor:
        for layer in self.layers:
            x_BSD = layer(x_BSD, keep_BS)
        out: Tensor = self.final_norm(x_BSD)
        return out


class EncoderLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config)
        self.self_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x_BSD: Tensor, keep_BS: Tensor) -> Tensor:
        x_BSD = self.self_attention_residual(x_BSD, lambda x: self.self_attention(x, keep_BS))
        out: Tensor = self.feed_forward_residual(x_BSD, self.feed_forward)
        return out


class Decoder(nn.Module):
    """A stack of causal self-attention, cross-attention and feed-forward layers."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.final_norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()

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

    def memory_cache(self, memory_BSD: Tensor) -> list[KeyValue]:
        """Each layer's keys and values [B, H, S, d] of the memory, made once a sentence."""
        return [layer.cross_attention.keys_values(memory_BSD) for layer in self._layers]

    def step(self, x_BKD: Tensor, state: DecodingState) -> Tensor:
        """The output [B, K, D] for each row's newest subword; its keys and values join the caches."""
        state.make_room(len(self.layers))
        for layer, own, memory in zip(self._layers, state.own, state.memory, strict=True):
            x_BKD = layer.step(x_BKD, own, memory, state)
        out: Tensor = self.final_norm(x_BKD)
        return out


class DecoderLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config)
        self.self_attention_residual = Residual(config)
        self.cross_attention = CrossAttention(config)
        self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

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

    def step(self, x_BKD: Tensor, own: KeyValue, memory: KeyValue, state: DecodingState) -> Tensor:
        x_BKD = self.self_attention_residual(x_BKD, lambda x: self.self_attention.step(x, own, state))
        # The K rows of a sentence are K queries on one memory, which is never copied for the beam.
        x_BKD = self.cross_attention_residual(x_BKD, lambda x: self.cross_attention(x, memory, state.keep_BS))
        out: Tensor = self.feed_forward_residual(x_BKD, self.feed_forward)
        return out


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

    def forward(self, x_BTD: Tensor, keep_BT: Tensor | None = None) -> Tensor:
        """[B, T, D] to [B, T, D]. Without `keep_BT` it is causal: right padding then follows every
        real position, so that none attends to it."""
        q_BHTd, k_BHTd, v_BHTd = (split_heads(part, self.heads) for part in self.qkv(x_BTD).chunk(3, dim=-1))
        dropout = self.dropout if self.training else 0.0
        if keep_BT is None:
            mixed = F.scaled_dot_product_attention(q_BHTd, k_BHTd, v_BHTd, dropout_p=dropout, is_causal=True)
        else:
            mask = keep_BT[:, None, None, :]
            mixed = F.scaled_dot_product_attention(q_BHTd, k_BHTd, v_BHTd, attn_mask=mask, dropout_p=dropout)
        out: Tensor = self.out(merge_heads(mixed))
        return out

    def step(self, x_BKD: Tensor, own: KeyValue, state: DecodingState) -> Tensor:
        """One position of each row, attending to the row's past and itself."""
        B, K, D = x_BKD.shape
        q, k, v = (part.view(B, K, self.heads, -1) for part in self.qkv(x_BKD).chunk(3, dim=-1))
        keys_BKHTd, values_BKHTd = own
        T = max(state.ages) + 1
        if min(state.ages) + 1 == T:
            keys_BKHTd[:, :, :, T - 1], values_BKHTd[:, :, :, T - 1] = k, v
        else:
            # The newest column of a younger row is masked, but must hold numbers: NaN times 0 is NaN.
            keys_BKHTd[:, :, :, T - 1], values_BKHTd[:, :, :, T - 1] = 0, 0
            at_B = torch.arange(B, device=x_BKD.device)
            keys_BKHTd[at_B, :, :, state.age_B], values_BKHTd[at_B, :, :, state.age_B] = k, v
        mixed = F.scaled_dot_product_attention(
            q.flatten(0, 1)[:, :, None],
            keys_BKHTd[:, :, :, :T].flatten(0, 1),
            values_BKHTd[:, :, :, :T].flatten(0, 1),
            attn_mask=state.past_keep(T),
        )
        out: Tensor = self.out(mixed.reshape(B, K, D))
        return out


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


class DecodingState:
    """What the decoder remembers of B sentences with K rows each, between two steps.

    `memory` is a pair of [B, H, S, d] a layer, `own` a pair of preallocated [B, K, H, T, d] a layer,
    filled up to each sentence's own age: sentences admitted at different times live side by side.
    """

    def __init__(self, memory: list[KeyValue], keep_BS: Tensor, lengths: list[int], width: int) -> None:
        self.memory, self.keep_BS, self.width = memory, keep_BS, width
        self.lengths = lengths  # of the sources
        self.own: list[KeyValue] = []
        self.ages = [0] * keep_BS.shape[0]  # subwords fed; the host's copy of age_B, read without synchronising
        self.age_B = torch.zeros(keep_BS.shape[0], dtype=torch.long, device=keep_BS.device)

    @property
    def capacity(self) -> int:
        """Positions that the self-attention caches have room for."""
        return self.own[0][0].shape[3] if self.own else 0

    def make_room(self, layers: int) -> None:
        """Grows the self-attention caches to hold the next position, by doubling."""
        needed = max(self.ages) + 1
        if needed <= self.capacity:
            return
        keys_BHSd = self.memory[0][0]
        B, H, _, d = keys_BHSd.shape
        room = max(32, 2 * self.capacity, needed)
        fresh = [
            (keys_BHSd.new_empty(B, self.width, H, room, d), keys_BHSd.new_empty(B, self.width, H, room, d))
            for _ in range(layers)
        ]
        for new, old in zip(fresh, self.own or fresh, strict=True):
            for new_part, old_part in zip(new, old, strict=True):
                new_part[:, :, :, : old_part.shape[3]] = old_part
        self.own = fresh

    def past_keep(self, T: int) -> Tensor | None:
        """True [B * K, 1, 1, T] at the positions a row may attend to; None when all rows are of one age."""
        if min(self.ages) == max(self.ages):
            return None
        keep_BT = torch.arange(T, device=self.age_B.device) <= self.age_B[:, None]
        return keep_BT.repeat_interleave(self.width, 0)[:, None, None]

    def select(self, sentences_b: Tensor, parents_bK: Tensor) -> None:
        """See Transformer.select."""
        if len(sentences_b) < len(self.ages):
            kept = sentences_b.tolist()
            self.ages = [self.ages[i] for i in kept]
            self.lengths = [self.lengths[i] for i in kept]
            S = max(self.lengths)
            self.keep_BS = self.keep_BS[sentences_b, :S]
            self.memory = [(k[sentences_b, :, :S], v[sentences_b, :, :S]) for k, v in self.memory]
            self.age_B = self.age_B[sentences_b]
        elif self.width == 1:
            return  # one row a sentence, every sentence stays: nothing moves
        rows, filled = (sentences_b[:, None] * self.width + parents_bK).flatten(), max(self.ages)
        self.own = [(reordered(k, rows, filled), reordered(v, rows, filled)) for k, v in self.own]

    def append(self, other: DecodingState) -> None:
        """Puts the sentences of `other`, of the same width, behind those of this state."""
        S = max(self.keep_BS.shape[1], other.keep_BS.shape[1])
        self.keep_BS = torch.cat([pad_to(self.keep_BS, S, 1), pad_to(other.keep_BS, S, 1)])
        self.memory = [
            (torch.cat([pad_to(k, S, 2), pad_to(k2, S, 2)]), torch.cat([pad_to(v, S, 2), pad_to(v2, S, 2)]))
            for (k, v), (k2, v2) in zip(self.memory, other.memory, strict=True)
        ]
        self.own = [(grown(k, len(other.ages)), grown(v, len(other.ages))) for k, v in self.own]
        self.age_B = torch.cat([self.age_B, other.age_B])
        self.ages, self.lengths = self.ages + other.ages, self.lengths + other.lengths


def reordered(cache_BKHTd: Tensor, rows: Tensor, filled: int) -> Tensor:
    """A cache of the same room whose flattened rows are `rows` of the old one, copied as far as filled."""
    _, K, H, T, d = cache_BKHTd.shape
    fresh = cache_BKHTd.new_empty(rows.shape[0] // K, K, H, T, d)
    fresh[:, :, :, :filled] = cache_BKHTd[:, :, :, :filled].flatten(0, 1)[rows].view(-1, K, H, filled, d)
    return fresh


def pad_to(x: Tensor, length: int, dim: int) -> Tensor:
    """`x` with zeros (False) behind it up to `length` along `dim`."""
    missing = length - x.shape[dim]
    if missing == 0:
        return x
    shape = list(x.shape)
    shape[dim] = missing
    return torch.cat([x, x.new_zeros(shape)], dim)


def grown(cache_BKHTd: Tensor, sentences: int) -> Tensor:
    """A cache with empty rows for that many more sentences."""
    return pad_to(cache_BKHTd, cache_BKHTd.shape[0] + sentences, 0)


def count_parameters(model: nn.Module) -> int:
    """Weights of the model, each shared one counted once."""
    return sum(p.numel() for p in model.parameters())
