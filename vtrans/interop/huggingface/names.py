"""The files, weights and positions of Hugging Face's Marian models, for the import and the export."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vtrans.config import ModelConfig
from vtrans.interop.layers import Names, Weight, layer_weights

CONFIG, GENERATION, WEIGHTS, PICKLED = "config.json", "generation_config.json", "model.safetensors", "pytorch_model.bin"
SHARDS = "model.safetensors.index.json"
SOURCE_SPM, TARGET_SPM, VOCAB, TARGET_VOCAB = "source.spm", "target.spm", "vocab.json", "target_vocab.json"
TOKENIZER = "tokenizer_config.json"
SHARED, LOGITS_BIAS = "model.shared.weight", "final_logits_bias"
EMBEDDINGS = {
    "src_embedding.weight": "model.encoder.embed_tokens.weight",
    "tgt_embedding.weight": "model.decoder.embed_tokens.weight",
    "projection.weight": "lm_head.weight",
}
POSITIONS = {
    "src_positions.weight": "model.encoder.embed_positions.weight",
    "tgt_positions.weight": "model.decoder.embed_positions.weight",
}

# The rules of `search.stop` there, as `early_stopping`.
STOPS = {"count": True, "current": False, "exhaustive": "never"}

_NAMES: Names = {
    "self_attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.out": ("self_attn.out_proj",),
    "self_attention.norm": ("self_attn_layer_norm",),
    "cross_attention.query": ("encoder_attn.q_proj",),
    "cross_attention.kv": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross_attention.out": ("encoder_attn.out_proj",),
    "cross_attention.norm": ("encoder_attn_layer_norm",),
    "feed_forward.inner": ("fc1",),
    "feed_forward.outer": ("fc2",),
    "feed_forward.norm": ("final_layer_norm",),
    "final_norm": ("layer_norm",),
}


def weights_of_layers(config: ModelConfig) -> Iterator[Weight]:
    """Yields our weights in the layers with the tensors of Hugging Face."""

    def named(stack: str, layer: int | None, name: str, kind: str) -> str:
        return f"model.{stack}.{'' if layer is None else f'layers.{layer}.'}{name}.{kind}"

    return layer_weights(config, _NAMES, named)


def positions(length: int, D: int) -> Tensor:
    """Returns the position table [length, D]: sin(p / 10000^(2i/D)) in the first half, the cosines in the second."""
    p = torch.arange(length, dtype=torch.float64)[:, None]
    angle = p / 10000 ** (torch.arange(0, D, 2, dtype=torch.float64) / D)
    return torch.cat([angle.sin(), angle.cos()], 1).float()
