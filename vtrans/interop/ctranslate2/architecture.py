"""The architecture of a CTranslate2 Transformer, from the variables of its model.bin.

CTranslate2's `src/models/transformer.cc` and `src/layers/transformer.cc` define it. Before revision 5, the scalars of
encoder and decoder were common to both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from vtrans.config import ModelConfig, SearchConfig
from vtrans.errors import FileError
from vtrans.interop.ctranslate2.binary import SCALE, Binary
from vtrans.interop.settings import Settings, wrong
from vtrans.interop.weight_names import CTRANSLATE2, STACKS, layer_weights
from vtrans.lines.reader import EXTRA_LENGTH

EMBEDDINGS = ("encoder/embeddings/weight", "decoder/embeddings/weight")
POSITIONS = ("encoder/position_encodings/encodings", "decoder/position_encodings/encodings")
PROJECTION = "decoder/projection"
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
    "masked_multi_head": "self_attention",
}
# Positions of a model whose table is computed: as many as a source that is translated in one piece can need.
COMPUTED_POSITIONS = SearchConfig.max_source + EXTRA_LENGTH
ACTIVATIONS = {0: "relu", 2: "swish", 3: "gelu"}  # by CTranslate2's numbers; 1 is an approximation of GELU
TIES = {(True, True): "src-tgt-softmax", (False, True): "tgt-softmax", (True, False): "src-tgt", (False, False): "none"}
# The scalars of encoder and decoder with the values that vtrans has; the first is the default.
SCALARS: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(("multi_query_attention", "alibi", "final_logit_softcapping"), (0,)),
    "scale_outputs": (1,),
    "pre_norm": (1, 0),
    "activation": tuple(ACTIVATIONS),
}
# Scalars without effect: there is one embedding to merge, no attention is returned, and `_scales` reads one of two.
UNUSED = ("embeddings_merge", "alignment_layer", "alignment_heads", "alibi_use_positive_positions", "scale_alibi")
SCALES = ("scale_embeddings", "embeddings/multiply_by_sqrt_depth")


def weight_names(config: ModelConfig) -> dict[str, str]:
    """Returns the name in CTranslate2 of each weight of an encoder-decoder model."""
    names = dict(zip(("src_embedding.weight", "tgt_embedding.weight"), EMBEDDINGS, strict=True))
    names |= dict(zip(("src_positions.weight", "tgt_positions.weight"), POSITIONS, strict=True))
    names |= {f"projection.{kind}": f"{PROJECTION}/{kind}" for kind in ("weight", "bias")}
    return names | {weight.ours: weight.theirs[0] for weight in layer_weights(config, CTRANSLATE2)}


def renamed(binary: Binary) -> None:
    """Gives the variables of an old revision the names of the newest one.

    Raises FileError for an unknown revision, and for a model that is not a Transformer with encoder and decoder.
    """
    name = binary.specification
    if name not in SPECIFICATIONS:
        raise wrong(binary.path, "the specification", "TransformerSpec, a Transformer with encoder and decoder", name)
    if not 1 <= binary.revision <= REVISION:
        advice = "convert the model with CTranslate2 4"
        raise wrong(binary.path, f"the revision of {name}", f"from 1 to {REVISION}", binary.revision, advice)
    named = _of_opennmt_tf if binary.revision == 1 else _newest_name
    variables = {named(name): values for name, values in binary.variables.items()}
    if len(variables) < len(binary.variables):
        raise FileError(f"{binary.path} has two variables of one name; copy the folder again.")
    binary.variables = variables
    binary.aliases = {named(alias): named(name) for alias, name in binary.aliases.items()}


def _newest_name(name: str) -> str:
    return name.replace("encoder/embeddings_0/", "encoder/embeddings/", 1)  # a single embedding needs no number


def _of_opennmt_tf(name: str) -> str:
    for old, new in OPENNMT_TF.items():
        name = name.replace(old, new, 1)
    return name.replace("multi_head", "self_attention" if "encoder" in name else "attention", 1)


def read_architecture(binary: Binary, given: Mapping[str, Any], src: Sequence[str], tgt: Sequence[str]) -> ModelConfig:
    """Returns the architecture that the variables describe, given some values and the vocabularies, which are one
    object if they are shared.

    Raises FileError if vtrans does not support it.
    """
    names = binary.variables
    scalars = {key: _common(binary, key, allowed[0], allowed) for key, allowed in SCALARS.items()}
    D = _shape(binary, EMBEDDINGS[0], len(src))[1]
    for name in (EMBEDDINGS[1], f"{PROJECTION}/weight"):
        _shape(binary, name, len(tgt), D)
    d_ff = _shape(binary, "encoder/layer_0/ffn/linear_0/weight", columns=D)[0]
    depths = [next(n for n in count() if f"{side}/layer_{n}/ffn/linear_0/weight" not in names) for side in STACKS]
    tables = [_shape(binary, name, columns=D)[0] for name in POSITIONS if name in names]
    values = {
        **given,
        "d_model": D,
        "d_ff": d_ff,
        "heads": int(_common(binary, "num_heads", SPECIFICATIONS[binary.specification])),
        "encoder_layers": depths[0],
        "decoder_layers": depths[1],
        "activation": ACTIVATIONS[int(scalars["activation"])],
        "norm": "pre" if scalars["pre_norm"] else "post",
        "positions": "stored",
        "max_positions": min(tables, default=COMPUTED_POSITIONS),
        "scale_embedding": _scales(binary, D),
        "projection_bias": f"{PROJECTION}/bias" in names,
    }
    config = Settings({}, str(binary.path)).section(ModelConfig, values)
    # All sizes are known to be possible; matrices are compared only now.
    share = src is tgt and binary.same(*EMBEDDINGS), binary.same(EMBEDDINGS[1], f"{PROJECTION}/weight")
    one_table = not tables or (len(tables) == 2 and binary.same(*POSITIONS))
    return replace(config, tie=TIES[share], share_positions=one_table)


def refuse_others(binary: Binary, config: ModelConfig) -> None:
    """Raises FileError if a variable does not belong to a model of this architecture, and has not been read."""
    known = {*weight_names(config).values(), *binary.read, *UNUSED, *SCALES}
    known |= {f"{side}/{key}" for side in STACKS for key in (*UNUSED, *SCALES)}
    for name in binary.variables:
        if name.removesuffix(SCALE) not in known:
            raise FileError(
                f"{binary.path} has the variable {name[:80]}, which vtrans cannot import: its Transformer has no such "
                "part."
            )


def _shape(binary: Binary, name: str, rows: int | None = None, columns: int | None = None) -> tuple[int, ...]:
    """Returns the shape of a matrix. Raises FileError if it is missing or has another shape."""
    shape = binary.variables[name].shape if name in binary.variables else ()
    if len(shape) != 2 or rows not in (None, shape[0]) or columns not in (None, shape[1]):
        wanted = f"a matrix, {'any' if rows is None else rows} by {'any' if columns is None else columns}"
        raise wrong(binary.path, name, wanted, shape or None, "convert the model again")
    return shape


def _common(binary: Binary, key: str, default: float, allowed: tuple[float, ...] = ()) -> float:
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
        name = next((name for key in SCALES if (name := f"{side}/{key}") in binary.variables), "")
        value = binary.number(name, 1)
        is_flag = not name or binary.variables[name].dtype.kind == "i"
        factors.append((math.sqrt(D) if value else 1.0) if is_flag else value)
    for factor, scales in ((1.0, False), (math.sqrt(D), True)):
        if all(math.isclose(other, factor, rel_tol=1e-6) for other in factors):
            return scales
    raise wrong(binary.path, "scale_embeddings", f"1 or the root of the width, {math.sqrt(D):g}, in both", factors)
