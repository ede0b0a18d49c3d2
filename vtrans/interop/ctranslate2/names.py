"""The names of a Transformer's weights in CTranslate2."""

from __future__ import annotations

from collections.abc import Iterator

from vtrans.config import ModelConfig
from vtrans.interop.layers import STACKS, Names, layer_weights

# CTranslate2 calls the first one encoder/embeddings_0/weight: the encoder may have several.
SRC_EMBEDDING, TGT_EMBEDDING = EMBEDDINGS = ("encoder/embeddings/weight", "decoder/embeddings/weight")
SRC_POSITIONS, TGT_POSITIONS = POSITIONS = (
    "encoder/position_encodings/encodings",
    "decoder/position_encodings/encodings",
)
PROJECTION = "decoder/projection"
# The scalars of our rotary positions, in each scope of `rotary_scopes`. A rotary_dim of 0 stands for the head width.
ROTARY = {"rotary_dim": 0, "rotary_interleave": 1, "rotary_base": 10_000}

_NAMES: Names = {
    "self_attention.qkv": ("self_attention/linear_0",),
    "self_attention.out": ("self_attention/linear_1",),
    "self_attention.norm": ("self_attention/layer_norm",),
    "cross_attention.query": ("attention/linear_0",),
    "cross_attention.kv": ("attention/linear_1",),
    "cross_attention.out": ("attention/linear_2",),
    "cross_attention.norm": ("attention/layer_norm",),
    "feed_forward.inner": ("ffn/linear_0",),
    "feed_forward.outer": ("ffn/linear_1",),
    "feed_forward.norm": ("ffn/layer_norm",),
    "final_norm": ("layer_norm",),
}


def layer_names(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yields the name of each weight in the layers of an encoder-decoder model, and its name in CTranslate2."""

    def named(stack: str, layer: int | None, name: str, kind: str) -> str:
        if name.endswith("norm"):
            kind = "gamma" if kind == "weight" else "beta"
        return f"{stack}/{'' if layer is None else f'layer_{layer}/'}{name}/{kind}"

    return ((weight.ours, weight.theirs[0]) for weight in layer_weights(config, _NAMES, named))


def rotary_scopes(config: ModelConfig) -> list[str]:
    """Returns the scopes of all self-attention."""
    depths = zip(STACKS, (config.encoder_layers, config.decoder_layers), strict=True)
    return [f"{side}/layer_{i}/self_attention" for side, layers in depths for i in range(layers)]


def weight_names(config: ModelConfig) -> dict[str, str]:
    """Returns the name in CTranslate2 of each weight of an encoder-decoder model."""
    return {
        "src_embedding.weight": SRC_EMBEDDING,
        "tgt_embedding.weight": TGT_EMBEDDING,
        "projection.weight": f"{PROJECTION}/weight",
        "projection.bias": f"{PROJECTION}/bias",
        "src_positions.weight": SRC_POSITIONS,
        "tgt_positions.weight": TGT_POSITIONS,
        **dict(layer_names(config)),
    }
