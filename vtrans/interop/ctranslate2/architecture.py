"""The architecture of a CTranslate2 Transformer, from the variables of its model.bin.

CTranslate2's `src/models/transformer.cc` and `src/layers/transformer.cc` define it. Before revision 5, the scalars of
encoder and decoder were common to both.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from itertools import count

from vtrans.config import ModelConfig, SearchConfig
from vtrans.errors import FileError
from vtrans.interop.ctranslate2.binary import INT8, SCALE, Binary
from vtrans.interop.ctranslate2.names import (
    POSITIONS,
    PROJECTION,
    ROTARY,
    SRC_EMBEDDING,
    TGT_EMBEDDING,
    rotary_scopes,
    weight_names,
)
from vtrans.interop.ctranslate2.settings import Tokens
from vtrans.interop.layers import STACKS
from vtrans.interop.settings import Settings, wrong
from vtrans.lines.pieces import EXTRA_LENGTH

# The specifications of encoder-decoder Transformers, and the heads of their models before revision 3.
SPECIFICATIONS = {"TransformerSpec": 8, "TransformerBase": 8, "TransformerBig": 16, "": 8}
REVISION = 7  # the newest revision of these specifications
# Revision 1 has the names of OpenNMT-tf. Each is replaced once, in this order.
OPENNMT_TF = {
    "transformer/": "",
    ":0": "",
    "w_embs": "embeddings/weight",
    "kernel": "weight",
    "LayerNorm": "layer_norm",
    "dense": "projection",
    "conv1d_": "linear_",
    "conv1d": "linear_0",
}
# Positions of a model whose table is computed: as many as a source that is translated in one piece can need.
COMPUTED_POSITIONS = SearchConfig.max_source + EXTRA_LENGTH
ACTIVATIONS = {0: "relu", 2: "swish", 3: "gelu"}  # by CTranslate2's numbers; 1 is an approximation of GELU
TIES = {(True, True): "src-tgt-softmax", (False, True): "tgt-softmax", (True, False): "src-tgt", (False, False): "none"}
# Scalars that must have this value if they are there.
FIXED = {"multi_query_attention": 0, "alibi": 0, "scale_outputs": 1, "final_logit_softcapping": 0}
# Scalars without effect: there is one embedding to merge, no attention is returned, and `_scales` reads one of two.
UNUSED = (
    *("embeddings_merge", "alignment_layer", "alignment_heads", "alibi_use_positive_positions", "scale_alibi"),
    "embeddings/multiply_by_sqrt_depth",
)


def newest_names(binary: Binary) -> None:
    """Gives the variables of an old revision the names of the newest one.

    Raises FileError for an unknown revision, and for a model that is not a Transformer with encoder and decoder.
    """
    name = binary.specification
    if name not in SPECIFICATIONS:
        raise wrong(binary.path, "the specification", "TransformerSpec, a Transformer with encoder and decoder", name)
    if not 1 <= binary.revision <= REVISION:
        advice = "convert the model with CTranslate2 4"
        raise wrong(binary.path, f"the revision of {name}", f"from 1 to {REVISION}", binary.revision, advice)
    binary.rename(_of_opennmt_tf if binary.revision == 1 else _newest_name)


def _newest_name(name: str) -> str:
    return name.replace("encoder/embeddings_0/", "encoder/embeddings/", 1)  # a single embedding needs no number


def _of_opennmt_tf(name: str) -> str:
    for old, new in OPENNMT_TF.items():
        name = name.replace(old, new, 1)
    if "encoder" in name:
        return name.replace("multi_head", "self_attention", 1)
    return name.replace("masked_multi_head", "self_attention", 1).replace("multi_head", "attention", 1)


def read_architecture(binary: Binary, settings: Tokens, src_size: int, tgt_size: int, *, joint: bool) -> ModelConfig:
    """Returns the architecture that the variables describe, given the sizes of the vocabularies.

    Raises FileError if vtrans does not support it.
    """
    for key, value in FIXED.items():
        _common(binary, key, value, (value,))
    D = matrix(binary, SRC_EMBEDDING, src_size)[1]
    for name in (TGT_EMBEDDING, f"{PROJECTION}/weight"):
        matrix(binary, name, tgt_size, D)
    names = binary.variables
    depths = [next(n for n in count() if f"{side}/layer_{n}/ffn/linear_0/weight" not in names) for side in STACKS]
    tables = [matrix(binary, name)[0] for name in POSITIONS if name in names]
    values = {
        "d_model": D,
        "d_ff": matrix(binary, "encoder/layer_0/ffn/linear_0/weight")[0],
        "heads": int(_common(binary, "num_heads", SPECIFICATIONS[binary.specification])),
        "encoder_layers": depths[0],
        "decoder_layers": depths[1],
        "activation": ACTIVATIONS[int(_common(binary, "activation", 0, tuple(ACTIVATIONS)))],
        "norm": "pre" if _common(binary, "pre_norm", 1, (0, 1)) else "post",
        "norm_eps": settings.norm_eps,
        "positions": "stored",
        "max_positions": min(tables, default=COMPUTED_POSITIONS),
        "scale_embedding": _scales(binary, D),
        "projection_bias": f"{PROJECTION}/bias" in names,
        "source_eos": settings.source_eos,
    }
    config = Settings({}, str(binary.path)).section(ModelConfig, values)
    if any(name.endswith("/rotary_dim") for name in names):
        _check_rotary(binary, config)
        config = replace(config, positions="rotary", max_positions=ModelConfig.max_positions)
    # All sizes are known to be possible; matrices are compared only now.
    share = joint and binary.same(SRC_EMBEDDING, TGT_EMBEDDING), binary.same(TGT_EMBEDDING, f"{PROJECTION}/weight")
    one_table = config.positions == "stored" and (not tables or (len(tables) == 2 and binary.same(*POSITIONS)))
    return replace(config, tie=TIES[share], share_positions=one_table)


def _check_rotary(binary: Binary, config: ModelConfig) -> None:
    """Raises FileError unless every self-attention has the rotary positions of vtrans."""
    allowed: dict[str, tuple[float, ...]] = {key: (value,) for key, value in ROTARY.items()}
    allowed["rotary_dim"] += (config.d_model / config.heads,)
    for scope in rotary_scopes(config):
        for key, values in allowed.items():
            number = binary.number(f"{scope}/{key}", math.nan)
            if number not in values:
                wanted = " or ".join(f"{value:g}" for value in values)
                value = None if math.isnan(number) else number
                raise wrong(binary.path, f"{scope}/{key}", f"{wanted} for vtrans to import rotary positions", value)


def refuse_others(binary: Binary, config: ModelConfig) -> None:
    """Raises FileError if a variable does not belong to a model of this architecture, and has not been read."""
    known = {*weight_names(config).values(), *binary.read, *UNUSED}
    known |= {f"{side}/{key}" for side in STACKS for key in UNUSED}
    for name in binary.variables:
        if name.removesuffix(SCALE) not in known:
            raise FileError(
                f"{binary.path} has the variable {name[:80]}, which vtrans cannot import: its Transformer has no such "
                "part."
            )


def matrix(binary: Binary, name: str, rows: int | None = None, columns: int | None = None) -> tuple[int, int]:
    """Returns the shape of a matrix. Raises FileError if it is missing or has another shape."""
    variable = binary.variables.get(name)
    shape = variable.shape if variable else ()
    if len(shape) != 2 or rows not in (None, shape[0]) or columns not in (None, shape[1]):
        wanted = f"a matrix, {'any' if rows is None else rows} by {'any' if columns is None else columns}"
        raise wrong(binary.path, name, wanted, shape if variable else None, "convert the model again")
    return shape[0], shape[1]


def _common(binary: Binary, key: str, default: float, allowed: Collection[float] = ()) -> float:
    """Returns a scalar that must be equal in encoder and decoder, and one of `allowed` unless that is empty."""
    values = [binary.number(f"{side}/{key}", binary.number(key, default)) for side in STACKS]
    if values[0] != values[1] or (allowed and values[0] not in allowed):
        wanted = " or ".join(f"{value:g}" for value in allowed) or "the same"
        raise wrong(binary.path, key, f"{wanted} in encoder and decoder", values)
    return values[0]


def _scales(binary: Binary, D: int) -> bool:
    """Returns whether embeddings are multiplied by sqrt(D). The scalar is a flag in int8, or else the factor."""
    factors = []
    for side in STACKS:
        names = (f"{side}/scale_embeddings", f"{side}/embeddings/multiply_by_sqrt_depth")
        name = next((name for name in names if name in binary.variables), None)
        value = 1.0 if name is None else binary.number(name, 1)
        is_flag = name is None or binary.variables[name].type_id == INT8
        factors.append((math.sqrt(D) if value else 1.0) if is_flag else value)
    for factor, scales in ((1.0, False), (math.sqrt(D), True)):
        if all(math.isclose(other, factor, rel_tol=1e-6) for other in factors):
            return scales
    raise wrong(binary.path, "scale_embeddings", f"1 or the root of the width, {math.sqrt(D):g}, in both", factors)
