"""What a Marian model of Hugging Face calls our weights, and its position table: shared by import and export."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vtrans.config import ModelConfig

CONFIG, GENERATION, WEIGHTS, PICKLED = "config.json", "generation_config.json", "model.safetensors", "pytorch_model.bin"
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

Part = tuple[str, tuple[int, ...]]
"""The name and shape of a tensor there."""


def layer_parts(config: ModelConfig) -> Iterator[tuple[str, list[Part]]]:
    """Yields the name of each of our weights in the layers, and the tensors there that it is the concatenation of."""
    for side, depth in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for number in range(depth):
            layer = f"{side}.layers.{number}"
            yield from _layer_parts(config, layer, f"model.{layer}", with_cross_attention=side == "decoder")
        if config.norm == "pre":
            for kind in ("weight", "bias"):
                yield f"{side}.final_norm.{kind}", [(f"model.{side}.layer_norm.{kind}", (config.d_model,))]


def _layer_parts(
    config: ModelConfig, ours: str, theirs: str, *, with_cross_attention: bool
) -> Iterator[tuple[str, list[Part]]]:
    D, F = config.d_model, config.d_ff
    linears = {
        "self_attention.qkv": [(f"self_attn.{kind}_proj", D, D) for kind in "qkv"],
        "self_attention.out": [("self_attn.out_proj", D, D)],
        "feed_forward.inner": [("fc1", F, D)],
        "feed_forward.outer": [("fc2", D, F)],
    }
    norms = {"self_attention_residual": "self_attn_layer_norm", "feed_forward_residual": "final_layer_norm"}
    if with_cross_attention:
        linears["cross_attention.query"] = [("encoder_attn.q_proj", D, D)]
        linears["cross_attention.kv"] = [(f"encoder_attn.{kind}_proj", D, D) for kind in "kv"]
        linears["cross_attention.out"] = [("encoder_attn.out_proj", D, D)]
        norms["cross_attention_residual"] = "encoder_attn_layer_norm"
    for name, parts in linears.items():
        yield f"{ours}.{name}.weight", [(f"{theirs}.{part}.weight", (rows, columns)) for part, rows, columns in parts]
        yield f"{ours}.{name}.bias", [(f"{theirs}.{part}.bias", (rows,)) for part, rows, _ in parts]
    for name, part in norms.items():
        for kind in ("weight", "bias"):
            yield f"{ours}.{name}.norm.{kind}", [(f"{theirs}.{part}.{kind}", (D,))]


def positions(length: int, D: int) -> Tensor:
    """Returns the position table [length, D]: sin(p / 10000^(2i/D)) in the first half, the cosines in the second."""
    p = torch.arange(length, dtype=torch.float64)[:, None]
    angle = p / 10000 ** (torch.arange(0, D, 2, dtype=torch.float64) / D)
    return torch.cat([angle.sin(), angle.cos()], 1).float()
