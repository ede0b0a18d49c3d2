"""The names of a Transformer's weights in CTranslate2."""

from __future__ import annotations

from collections.abc import Iterator

from vtrans.config import ModelConfig

SIDES = ("encoder", "decoder")
# CTranslate2 calls the first one encoder/embeddings_0/weight: the encoder may have several.
SRC_EMBEDDING, TGT_EMBEDDING = EMBEDDINGS = ("encoder/embeddings/weight", "decoder/embeddings/weight")
SRC_POSITIONS, TGT_POSITIONS = POSITIONS = (
    "encoder/position_encodings/encodings",
    "decoder/position_encodings/encodings",
)
PROJECTION = "decoder/projection"
# The scalars of our rotary positions, in each scope of `rotary_scopes`. A rotary_dim of 0 stands for the head width.
ROTARY = {"rotary_dim": 0, "rotary_interleave": 1, "rotary_base": 10_000}

# The sublayers of a layer: the names of their modules here, and their scopes in CTranslate2.
_SELF_ATTENTION = {
    "self_attention_residual.norm": "self_attention/layer_norm",
    "self_attention.qkv": "self_attention/linear_0",
    "self_attention.out": "self_attention/linear_1",
}
_CROSS_ATTENTION = {
    "cross_attention_residual.norm": "attention/layer_norm",
    "cross_attention.query": "attention/linear_0",
    "cross_attention.kv": "attention/linear_1",
    "cross_attention.out": "attention/linear_2",
}
_FEED_FORWARD = {
    "feed_forward_residual.norm": "ffn/layer_norm",
    "feed_forward.inner": "ffn/linear_0",
    "feed_forward.outer": "ffn/linear_1",
}


def module_scopes(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yields the name of each linear layer and norm of an encoder-decoder model, and its scope in CTranslate2.

    A linear layer has `weight` and `bias` in both; those of a norm are `gamma` and `beta` in CTranslate2.
    """
    encoder_layer = _SELF_ATTENTION | _FEED_FORWARD
    sides = (
        ("encoder", config.encoder_layers, encoder_layer),
        ("decoder", config.decoder_layers, encoder_layer | _CROSS_ATTENTION),
    )
    for side, layers, sublayers in sides:
        for i in range(layers):
            yield from ((f"{side}.layers.{i}.{name}", f"{side}/layer_{i}/{scope}") for name, scope in sublayers.items())
        if config.norm == "pre":
            yield f"{side}.final_norm", f"{side}/layer_norm"


def rotary_scopes(config: ModelConfig) -> list[str]:
    """Returns the scopes of all self-attention."""
    depths = zip(SIDES, (config.encoder_layers, config.decoder_layers), strict=True)
    return [f"{side}/layer_{i}/self_attention" for side, layers in depths for i in range(layers)]


def weight_names(config: ModelConfig) -> dict[str, str]:
    """Returns the name in CTranslate2 of each weight of an encoder-decoder model."""
    found = {
        "src_embedding.weight": SRC_EMBEDDING,
        "tgt_embedding.weight": TGT_EMBEDDING,
        "projection.weight": f"{PROJECTION}/weight",
        "projection.bias": f"{PROJECTION}/bias",
        "src_positions.weight": SRC_POSITIONS,
        "tgt_positions.weight": TGT_POSITIONS,
    }
    for module, scope in module_scopes(config):
        weight, bias = ("gamma", "beta") if module.endswith("norm") else ("weight", "bias")
        found |= {f"{module}.weight": f"{scope}/{weight}", f"{module}.bias": f"{scope}/{bias}"}
    return found
