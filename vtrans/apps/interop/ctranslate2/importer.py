"""Reads a CTranslate2 folder: a Transformer in any file version and any weight type.

A folder lists tokens, but has no tokenizer. SentencePiece models come from the user or lie in the folder; without them,
text consists of tokens separated by spaces.

CTranslate2's `src/models/transformer.cc`, `src/layers/transformer.cc`, `src/models/sequence_to_sequence.cc` and
`src/vocabulary.cc` define what the variables and settings mean. Before revision 5 of the specification, encoder and
decoder had common scalars; before binary version 6, the settings of config.json were variables.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from vtrans.apps.interop.comparison import Imported
from vtrans.apps.interop.ctranslate2.binary import SCALE, SPECIFICATIONS, Binary
from vtrans.apps.interop.ctranslate2.exporter import DEFAULTS, ROTARY, CTranslate2Model
from vtrans.apps.interop.foreign_files import AGAIN, Settings, file_in, read_bytes, read_object, wrong
from vtrans.apps.interop.weights import CTRANSLATE2, STACKS, TIES, layer_weights, read_network
from vtrans.config import ModelConfig, SearchConfig
from vtrans.model.positions import tensor_of
from vtrans.model.rotary import marian
from vtrans.storage.model_file import Model
from vtrans.system.errors import FileError
from vtrans.text.languages import tags_among
from vtrans.text.piece_table import pack
from vtrans.text.vocabulary import BOS_ID, SRC_FILE, TGT_FILE, Vocabulary
from vtrans.translate.steps.split import EXTRA_LENGTH

BINARY, CONFIG = "model.bin", "config.json"
TABLES = CTRANSLATE2.tables
SRC, TGT = TABLES["src_embedding.weight"], TABLES["tgt_embedding.weight"]
PROJECTION = TABLES["projection.weight"]
POSITIONS = "src_positions.weight", "tgt_positions.weight"
# Number of positions of a computed table: enough for any source that is translated whole, and its translation.
COMPUTED_POSITIONS = SearchConfig.max_source + EXTRA_LENGTH
ACTIVATIONS = {0: "relu", 2: "swish", 3: "gelu"}  # by CTranslate2's numbers; 1 is an approximation of GELU
# The scalars of encoder and decoder with the values that vtrans supports; the first is the default.
SCALARS: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(("multi_query_attention", "alibi", "final_logit_softcapping"), (0,)),
    "scale_outputs": (1,),
    "pre_norm": (1, 0),
    "activation": tuple(ACTIVATIONS),
}
SCALES = ("scale_embeddings", "embeddings/multiply_by_sqrt_depth")
# Scalars without effect here, for example how to merge embeddings, because there is only one.
UNUSED = ("embeddings_merge", "alignment_layer", "alignment_heads", "alibi_use_positive_positions", "scale_alibi")
# Settings with the values that vtrans supports; None means that the setting is missing.
FIXED = {"add_source_bos": (False, None), "multi_query_attention": (False, None), "quantization_type": (0, None)}


def read(folder: Path, options: MutableMapping[str, Any]) -> Imported:
    """Returns the model of a CTranslate2 folder. Removes the SentencePiece models, `src_spm` and `tgt_spm`, from the
    options.

    Raises FileError for a damaged folder, or a model that vtrans cannot express.
    """
    binary = Binary(file_in(folder, BINARY))
    settings = _settings(folder, binary)
    adds_eos = settings.get("add_source_eos") is not None and settings.flag("add_source_eos")
    start, eos = settings.text("decoder_start_token"), settings.text("eos_token")
    # In models from Hugging Face, the tokenizer appends EOS to sources, and the decoder starts with padding or EOS.
    source_eos = adds_eos or start in ("<pad>", eos)
    from_zero = binary.number("decoder/start_from_zero_embedding", 0) != 0
    spms, note = _splitters(folder, options.pop("src_spm", None), options.pop("tgt_spm", None))
    src, tgt = _vocabularies(folder, settings, spms, None if from_zero else start)
    if eos not in tgt.pieces or (source_eos and eos not in src.pieces):
        raise FileError(f"{folder} must have its end token {eos!r:.40} in its vocabularies; copy it again.")
    config = replace(_model_config(binary, settings, src, tgt), source_eos=source_eos)
    for _, (name,), shape in layer_weights(config, CTRANSLATE2):
        if name not in binary and "linear" in name and name.endswith("bias"):  # a linear layer's bias is optional
            binary.add(name, np.zeros(shape, np.float32))
    # CTranslate2 starts from <unk> if the start is not a token.
    row = None if from_zero else tgt.pieces.index(start if start in tgt.pieces else settings.text("unk_token"))
    positions = {name: partial(_positions, binary, TABLES[name], config) for name in POSITIONS}
    known = SCALE, *UNUSED, *SCALES, *(ROTARY if config.positions == "rotary" else ())
    ignored = [name for name in binary.shapes if name.endswith(known)]
    network = read_network(binary, CTRANSLATE2, config, (src, tgt), positions, start=row, ignored=ignored)
    end = [eos] if source_eos and not adds_eos else []
    notes = [note, *(f"sources end with {eos}, as those of Hugging Face's tokenizers do" for eos in end)]
    tokens = [["" if place is None else vocab.pieces[place] for place in vocab.order] for vocab in (src, tgt)]
    original = partial(CTranslate2Model, folder, (tokens[0], tokens[1]), end)
    model = Model(network, src, tgt, DEFAULTS, {"imported": "CTranslate2"}, tags=tags_among(src.tags))
    return Imported(f"a CTranslate2 folder of binary version {binary.version}", tuple(notes), model, original)


def _settings(folder: Path, binary: Binary) -> Settings:
    """Returns the settings of a folder. Raises FileError for a value that is wrong or that vtrans cannot express."""
    file = folder / CONFIG
    values = read_object(file_in(folder, CONFIG)) if binary.version >= 6 or file.exists() else {}
    if binary.version < 6:
        start = binary.text("bos_token", "<s>") if binary.number("with_target_bos", 1) else None
        values |= {
            "unk_token": binary.text("unk_token", "<unk>"),
            "eos_token": (eos := binary.text("eos_token", "</s>")),
            "decoder_start_token": None if binary.number("user_decoder_start_tokens", 0) else start or eos,
            "add_source_bos": bool(binary.number("with_source_bos", 0)),
            "add_source_eos": bool(binary.number("with_source_eos", 0)),
        }
    settings = Settings(values, str(file))
    settings.check(FIXED)
    for key in ("unk_token", "decoder_start_token", "eos_token"):
        if type(settings.get(key)) is not str:
            raise settings.wrong(key, "a token", "convert the model again")
    return settings


def _vocabularies(
    folder: Path, settings: Settings, spms: tuple[bytes, bytes], start: str | None
) -> tuple[Vocabulary, Vocabulary]:
    """Returns both vocabularies, the same object twice if they are equal. `start` is the token that starts a
    translation, or None."""
    unk, eos = settings.text("unk_token"), settings.text("eos_token")
    names = ["shared"] if any(folder.glob("shared_vocabulary.*")) else ["source", "target"]
    sides = [_tokens(folder, f"{name}_vocabulary", unk) for name in names]
    vocabs = []
    for tokens, spm in zip((sides[0], sides[-1]), spms, strict=True):
        places = {token: place for place, token in enumerate(tokens)}
        # Padding has no place, because CTranslate2 predicts a token named <pad> like any other. Neither has a start
        # from zeros, which is not a token, nor a start that is also `unk` or `eos`, which becomes a separate row here.
        bos = None if start is None or start in (unk, eos) else places.get(start)
        special = {"unk": places[unk], "bos": bos, "eos": places.get(eos)}
        vocabs.append(Vocabulary(pack(tokens, special, spm), str(folder)))
    src, tgt = vocabs
    return (tgt, tgt) if src.digest == tgt.digest else (src, tgt)


def _tokens(folder: Path, name: str, unk: str) -> list[str]:
    """Returns the tokens in a JSON list or the lines of a text file. Adds a missing `unk`, as CTranslate2 does."""
    if (folder / f"{name}.json").exists():
        tokens: list[str] = read_object(file_in(folder, f"{name}.json"), list)
    else:
        text = read_bytes(file_in(folder, f"{name}.txt")).decode(errors="replace")
        tokens = text.removesuffix("\n").split("\n")
    tokens += [] if unk in tokens else [unk]
    if not all(isinstance(token, str) and token for token in tokens) or len({*tokens}) < len(tokens):
        raise FileError(f"{folder / name} must be a list of different tokens, none of them empty; {AGAIN}.")
    return tokens


def _splitters(folder: Path, src_spm: Path | None, tgt_spm: Path | None) -> tuple[tuple[bytes, bytes], str]:
    """Returns the SentencePiece models of both sides, empty if there are none, and a note about the splitting."""
    models = [file.name for file in folder.glob("*.model")]
    only = models if len(models) == 1 else []
    src, tgt = (
        given or next((file_in(folder, name) for name in (*own, *only) if (folder / name).exists()), None)
        for given, own in ((src_spm, ("source.spm", SRC_FILE)), (tgt_spm, ("target.spm", TGT_FILE)))
    )
    if src is None and tgt is None:
        return (b"", b""), "it has no SentencePiece model, so text consists of tokens separated by spaces"
    if src is None or tgt is None:
        raise FileError(f"{folder} has a SentencePiece model for one side only; give both `src_spm` and `tgt_spm`.")
    return (read_bytes(src), read_bytes(tgt)), f"{src.name} splits the source, and {tgt.name} the target"


def _model_config(binary: Binary, settings: Settings, src: Vocabulary, tgt: Vocabulary) -> ModelConfig:
    """Returns the architecture that variables and settings describe. Raises FileError if vtrans does not support it."""
    scalars = {key: _common(binary, key, allowed[0], allowed) for key, allowed in SCALARS.items()}
    D = _matrix(binary, SRC)[1]
    d_ff = _matrix(binary, "encoder/layer_0/ffn/linear_0/weight")[0]
    depths = [next(n for n in count() if f"{side}/layer_{n}/ffn/linear_0/weight" not in binary) for side in STACKS]
    tables = [TABLES[name] for name in POSITIONS if TABLES[name] in binary]
    for name in tables:
        binary.check(name, _matrix(binary, name)[0], D)
    values = {
        "d_model": D,
        "d_ff": d_ff,
        "heads": int(_common(binary, "num_heads", SPECIFICATIONS[binary.specification])),
        "encoder_layers": depths[0],
        "decoder_layers": depths[1],
        "activation": ACTIVATIONS[int(scalars["activation"])],
        "norm": "pre" if scalars["pre_norm"] else "post",
        "positions": "stored",
        "max_positions": min((binary.shapes[name][0] for name in tables), default=COMPUTED_POSITIONS),
        "scale_embedding": _scales(binary, D),
        # If the start is not a token there, a bias prevents its prediction.
        "projection_bias": TABLES["projection.bias"] in binary or tgt.order[BOS_ID] is None,
    }
    if settings.get("layer_norm_epsilon") is not None:
        values["norm_eps"] = settings.number("layer_norm_epsilon", 0)
    config = settings.section(ModelConfig, values)
    for name in (TGT, PROJECTION):
        binary.check(name, len(tgt.pieces), D)
    # Compare matrices only now that all sizes are known to be valid.
    share = src.pieces == tgt.pieces and binary.same(SRC, TGT), binary.same(TGT, PROJECTION)
    rotary = [(name, key) for name in binary.shapes for key in ROTARY if name.endswith(f"/{key}")]
    in_all_layers = len(rotary) == len(ROTARY) * sum(depths)
    if in_all_layers and all(np.array_equal(binary.variables[name], ROTARY[key]) for name, key in rotary):
        return replace(config, tie=TIES[share], positions="rotary", max_positions=ModelConfig.max_positions)
    one_table = not tables or binary.same(TABLES[POSITIONS[0]], TABLES[POSITIONS[1]])
    return replace(config, tie=TIES[share], share_positions=one_table)


def _matrix(binary: Binary, name: str) -> tuple[int, int]:
    """Returns the shape of a matrix. Raises FileError if it is missing or not a matrix."""
    shape = binary.shapes.get(name, ())
    if len(shape) != 2:
        raise wrong(binary.path, name, "a matrix", shape or None, "convert the model again")
    return shape[0], shape[1]


def _common(binary: Binary, key: str, default: float, allowed: tuple[float, ...] = ()) -> float:
    """Returns a scalar. Raises FileError unless encoder and decoder agree, on one of `allowed` if that is not empty."""
    values = [binary.number(f"{side}/{key}", binary.number(key, default)) for side in STACKS]
    if values[0] != values[1] or (allowed and values[0] not in allowed):
        wanted = " or ".join(f"{value:g}" for value in allowed) or "the same"
        raise wrong(binary.path, key, f"{wanted} in encoder and decoder", values)
    return values[0]


def _scales(binary: Binary, D: int) -> bool:
    """Returns whether embeddings are multiplied by sqrt(D). The scalar is an integer flag or the factor itself."""
    factors = []
    for side in STACKS:
        name = next((name for key in SCALES if (name := f"{side}/{key}") in binary), "")
        value = binary.number(name, 1)
        is_flag = not name or binary.variables[name].dtype.kind == "i"
        factors.append((math.sqrt(D) if value else 1.0) if is_flag else value)
    for factor, scales in ((1.0, False), (math.sqrt(D), True)):
        if all(math.isclose(other, factor, rel_tol=1e-6) for other in factors):
            return scales
    raise wrong(binary.path, "scale_embeddings", f"1 or the root of the width, {math.sqrt(D):g}, in both", factors)


def _positions(binary: Binary, table: str, config: ModelConfig) -> Tensor:
    if table in binary:
        return binary.weight(table)[: config.max_positions]
    return computed_positions(config.max_positions, config.d_model)


def computed_positions(length: int, D: int) -> Tensor:
    """Returns the table [length, D] that CTranslate2 computes for a model without one (`src/layers/common.cc`):
    Marian's from position 1."""
    return tensor_of(marian(length + 1, D))[1:]
