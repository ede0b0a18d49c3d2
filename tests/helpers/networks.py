"""Small random models for tests, and the input that they are given."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from drawn import seed_of, seeded_tensors
from torch import Tensor

from vtrans.config import ModelConfig
from vtrans.engines.alignments import Links, links
from vtrans.engines.forced import attention
from vtrans.engines.incremental import IncrementalDecoder
from vtrans.model.cache import Cache
from vtrans.model.checkpoint import weights_of
from vtrans.model.network import Transformer
from vtrans.search.decoder import SubwordPair, logprobs_of
from vtrans.storage.layout import layout_of
from vtrans.storage.model_file import Weights

V, PAD, BOS, EOS = 40, 0, 2, 3
SMALL = ModelConfig(d_model=16, d_ff=24, heads=4, encoder_layers=2, decoder_layers=3, tie="src-tgt-softmax")
VARIANTS = [
    SMALL,
    dataclasses.replace(SMALL, norm="pre", tie="tgt-softmax"),
    dataclasses.replace(SMALL, positions="learned", max_positions=64, activation="gelu", tie="none"),
    dataclasses.replace(SMALL, positions="learned", share_positions=True, norm="pre", tie="src-tgt"),
    dataclasses.replace(SMALL, share_layers="all", share_group=2, norm="pre"),
    dataclasses.replace(SMALL, share_layers="attention", scale_embedding=False),
    dataclasses.replace(SMALL, share_stacks=True, encoder_layers=3),
    dataclasses.replace(SMALL, share_stacks=True, share_layers="all", norm="pre"),
    dataclasses.replace(SMALL, positions="stored", max_positions=64, activation="swish", projection_bias=True),
    dataclasses.replace(SMALL, cross_attention_residual=False),
    dataclasses.replace(SMALL, cross_attention_residual=False, norm="pre", encoder_layers=6, decoder_layers=1),
    dataclasses.replace(SMALL, positions="rotary", norm="pre"),
    dataclasses.replace(SMALL, autoregression="ssru"),
    dataclasses.replace(SMALL, autoregression="ssru", positions="rotary"),
    dataclasses.replace(SMALL, autoregression="ssru", norm="pre", share_layers="all", share_group=2),
]
SEQUENCE = dataclasses.replace(SMALL, architecture="decoder-only", encoder_layers=0)
SEQUENCES = [
    SEQUENCE,
    dataclasses.replace(SEQUENCE, norm="pre", source_mask="causal", tie="tgt-softmax"),
    dataclasses.replace(SEQUENCE, positions="learned", max_positions=128, share_layers="all"),
    dataclasses.replace(SEQUENCE, norm="pre", scale_embedding=False, tie="none", activation="gelu"),
    dataclasses.replace(SEQUENCE, positions="rotary"),
    dataclasses.replace(SEQUENCE, positions="rotary", norm="pre", source_mask="causal"),
]


def make(config: ModelConfig = SMALL, *, src: int = V, tgt: int = V, seed: int = 1) -> Transformer:
    """A small model in float64 whose weights are not at their symmetrical start."""
    torch.manual_seed(seed_of(seed))
    model = Transformer(config, src, tgt, joint=src == tgt, pad_id=PAD).double().eval()
    for p in model.parameters():
        p.data += 0.1 * torch.randn_like(p)
    return model


def arrays_of(model: Transformer) -> Weights:
    """The weights of a network on the CPU as arrays in float32."""
    sizes = len(model.src_embedding.weight), len(model.projection.weight)
    layout = layout_of(model.config, *sizes, joint=model.src_embedding is model.tgt_embedding)
    arrays = {name: weight.detach().float().contiguous().numpy() for name, weight in weights_of(model).items()}
    return Weights(model.config, layout, arrays)


def sequences(*lengths: int, seed: int = 0) -> list[list[int]]:
    """Sources with EOS."""
    generator = seeded_tensors(seed)
    return [[*torch.randint(4, V, (n,), generator=generator).tolist(), EOS] for n in lengths]


def padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows))
    ids = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])
    return ids, torch.tensor([[i < len(row) for i in range(longest)] for row in rows])


def step(decoder: IncrementalDecoder, state: Cache, tokens_BK: Tensor) -> Tensor:
    """Feeds one token per row; returns the log-probabilities of all rows [B, K, V]."""
    blocks = [logprobs_of(block) for block in decoder.step(state, tokens_BK.numpy(), np.arange(tokens_BK.numel()))]
    return torch.from_numpy(np.concatenate(blocks)).view(*tokens_BK.shape, -1)


def align(model: Transformer, pairs: Sequence[SubwordPair], words: Sequence[Any], batch_tokens: int) -> list[Links]:
    """Returns the links of each pair, as an engine with this network."""
    found: list[Links] = [()] * len(pairs)
    with torch.inference_mode():
        for i, attention_TS in attention(model, pairs, batch_tokens):
            found[i] = links(attention_TS, *words[i])
    return found
