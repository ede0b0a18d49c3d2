"""The names of our weights in other programs: one table per format.

If another program splits a weight, such as the query, key and value projections, ours is the concatenation of the
parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from vtrans.config import ModelConfig
from vtrans.storage import layout

STACKS = ("encoder", "decoder")
# Keys: is the target embedding tied to the source embedding, and is it tied to the projection?
TIES = {(True, True): "src-tgt-softmax", (False, True): "tgt-softmax", (True, False): "src-tgt", (False, False): "none"}


class Format(NamedTuple):
    """Name templates of a format. {stack} is encoder or decoder, {layer} counts from 0 and {number} from 1. {kind} is
    weight or bias; {W}, {gamma} and {scale} are a format's own words for weight and bias."""

    layer: str
    """Prefix of the names in a layer."""
    stack: str
    """Prefix of the names of a stack's final norm."""
    modules: Mapping[str, str]
    """The rest of the name by our module. Spaces separate the parts of a weight. Norms precede or follow a
    sublayer."""
    tables: Mapping[str, str]
    """The names of the embeddings, projection and positions that the format stores."""
    shared: str = ""
    """The name of the embedding shared by source and target."""

    def of_tables(self, tie: str) -> dict[str, str]:
        """Returns the names of the embeddings and the projection by ours. Tied matrices appear once."""
        second = [] if tie.startswith("src-tgt") else ["tgt_embedding"]
        third = [] if tie.endswith("softmax") else ["projection"]
        names = {f"{name}.weight": self.tables[f"{name}.weight"] for name in ("src_embedding", *second, *third)}
        if self.shared and tie.startswith("src-tgt"):
            names["src_embedding.weight"] = self.shared
        return names


HUGGING_FACE = Format("model.{stack}.layers.{layer}.", "model.{stack}.", {
    "self_attention.qkv": "self_attn.q_proj.{kind} self_attn.k_proj.{kind} self_attn.v_proj.{kind}",
    "self_attention.out": "self_attn.out_proj.{kind}",
    "self_attention.norm": "self_attn_layer_norm.{kind}",
    "cross_attention.query": "encoder_attn.q_proj.{kind}",
    "cross_attention.kv": "encoder_attn.k_proj.{kind} encoder_attn.v_proj.{kind}",
    "cross_attention.out": "encoder_attn.out_proj.{kind}",
    "cross_attention.norm": "encoder_attn_layer_norm.{kind}",
    "feed_forward.inner": "fc1.{kind}",
    "feed_forward.outer": "fc2.{kind}",
    "feed_forward.norm": "final_layer_norm.{kind}",
    "final_norm": "layer_norm.{kind}",
}, {
    "src_embedding.weight": "model.encoder.embed_tokens.weight",
    "tgt_embedding.weight": "model.decoder.embed_tokens.weight",
    "projection.weight": "lm_head.weight",
    "projection.bias": "final_logits_bias",
    "src_positions.weight": "model.encoder.embed_positions.weight",
    "tgt_positions.weight": "model.decoder.embed_positions.weight",
}, "model.shared.weight")  # fmt: skip
CTRANSLATE2 = Format("{stack}/layer_{layer}/", "{stack}/", {
    "self_attention.qkv": "self_attention/linear_0/{kind}",
    "self_attention.out": "self_attention/linear_1/{kind}",
    "self_attention.norm": "self_attention/layer_norm/{gamma}",
    "cross_attention.query": "attention/linear_0/{kind}",
    "cross_attention.kv": "attention/linear_1/{kind}",
    "cross_attention.out": "attention/linear_2/{kind}",
    "cross_attention.norm": "attention/layer_norm/{gamma}",
    "feed_forward.inner": "ffn/linear_0/{kind}",
    "feed_forward.outer": "ffn/linear_1/{kind}",
    "feed_forward.norm": "ffn/layer_norm/{gamma}",
    "final_norm": "layer_norm/{gamma}",
}, {
    "src_embedding.weight": "encoder/embeddings/weight",
    "tgt_embedding.weight": "decoder/embeddings/weight",
    "projection.weight": "decoder/projection/weight",
    "projection.bias": "decoder/projection/bias",
    "src_positions.weight": "encoder/position_encodings/encodings",
    "tgt_positions.weight": "decoder/position_encodings/encodings",
})  # fmt: skip
# See `src/models/transformer.h`, `src/layers/generic.h` and, for the SSRU, `src/rnn/cells.h` in Marian's source. {pre}
# marks the norms before a sublayer.
MARIAN = Format("{stack}_l{number}_", "{stack}_", {
    "self_attention.qkv": "self_{W}q self_{W}k self_{W}v",
    "self_attention.out": "self_{W}o",
    "self_attention.norm": "self_Wo_ln_{scale}{pre}",
    "cross_attention.query": "context_{W}q",
    "cross_attention.kv": "context_{W}k context_{W}v",
    "cross_attention.out": "context_{W}o",
    "cross_attention.norm": "context_Wo_ln_{scale}{pre}",
    "feed_forward.inner": "ffn_{W}1",
    "feed_forward.outer": "ffn_{W}2",
    "feed_forward.norm": "ffn_ffn_ln_{scale}{pre}",
    "final_norm": "top_ln_{scale}",
    "ssru.zf": "rnn_{W} rnn_{W}f",
    "ssru.forget_bias": "rnn_{W}f",
    "ssru.norm": "rnn_{ffn}ln_{scale}{pre}",
}, {
    "src_embedding.weight": "encoder_Wemb",
    "tgt_embedding.weight": "decoder_Wemb",
    "projection.weight": "decoder_ff_logit_out_Wt",
    "projection.bias": "decoder_ff_logit_out_b",
}, "Wemb")  # fmt: skip


Weight = tuple[str, tuple[str, ...], layout.Shape]
"""Our name of a weight, the other program's names of its parts, and the shape of each part: [out, in] or [n]."""


def layer_weights(config: ModelConfig, names: Format) -> Iterator[Weight]:
    """Yields the weights of all layers, and of the final norms of a pre-norm model."""
    pre = config.norm == "pre"

    def weight(beginning: str, module: str, kind: str, ours: str, shape: layout.Shape) -> Weight:
        bias = kind == "bias"
        words = {"kind": kind, "W": "Wb"[bias], "gamma": ("gamma", "beta")[bias], "scale": ("scale", "bias")[bias]}
        words |= {"pre": "_pre" if pre else "", "ffn": "" if pre else "ffn_"}
        theirs = tuple(beginning + name.format(**words) for name in names.modules[module].split())
        return ours, theirs, (shape[0] // len(theirs), *shape[1:])

    for stack, depth in zip(STACKS, (config.encoder_layers, config.decoder_layers), strict=True):
        for i in range(depth):
            beginning = names.layer.format(stack=stack, layer=i, number=i + 1)
            for _, name, shape in layout.layer_weights(config, stack):
                module, _, kind = name.replace("_residual", "").rpartition(".")
                if kind == "forget_bias":  # a parameter of the SSRU itself, not of a submodule
                    module, kind = f"{module}.{kind}", "bias"
                yield weight(beginning, module, kind, f"{stack}.layers.{i}.{name}", shape)
        for kind in ("weight", "bias") if pre else ():
            beginning = names.stack.format(stack=stack)
            yield weight(beginning, "final_norm", kind, f"{stack}.final_norm.{kind}", (config.d_model,))
