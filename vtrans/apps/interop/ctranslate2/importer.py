"""Reads a CTranslate2 folder: a Transformer in any file version and any weight type.

A folder lists tokens, but has no tokenizer. SentencePiece models come from the user or lie in the folder; without them,
text consists of tokens separated by spaces. A vtrans export contains our configuration and vocabularies.

CTranslate2's `src/models/transformer.cc`, `src/layers/transformer.cc`, `src/models/sequence_to_sequence.cc` and
`src/vocabulary.cc` define what the variables and settings mean. Before revision 5 of the specification, encoder and
decoder had common scalars; before binary version 6, the settings of config.json were variables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from vtrans.apps.interop.ctranslate2.binary import SCALE, SPECIFICATIONS, Binary
from vtrans.apps.interop.ctranslate2.folder import DESCRIPTION, FORMAT, is_exported
from vtrans.apps.interop.ctranslate2.original import DEFAULTS, CTranslate2Model
from vtrans.apps.interop.foreign_files import AGAIN, Read, Settings, file_in, read_bytes, read_object, wrong
from vtrans.apps.interop.imported import Imported, Sources, shapes_of, weights_in
from vtrans.apps.interop.weight_names import CTRANSLATE2, STACKS, TIES, layer_weights
from vtrans.config import ModelConfig, SearchConfig
from vtrans.model.positions import tensor_of
from vtrans.model.rotary import marian
from vtrans.storage.model_file import Model, section_of
from vtrans.storage.tensors import check_training
from vtrans.system.errors import FileError
from vtrans.text.languages import languages_from, tags_among, tags_from
from vtrans.text.piece_table import pack
from vtrans.text.vocabulary import BOS_ID, JOINT_FILE, SRC_FILE, TGT_FILE, Vocabulary
from vtrans.translate.steps.split import EXTRA_LENGTH

BINARY, CONFIG = "model.bin", "config.json"
TABLES = CTRANSLATE2.tables
SRC, TGT = TABLES["src_embedding.weight"], TABLES["tgt_embedding.weight"]
PROJECTION = TABLES["projection.weight"]
POSITIONS = TABLES["src_positions.weight"], TABLES["tgt_positions.weight"]
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


def recognises(path: Path) -> bool:
    """Returns whether this is a CTranslate2 folder."""
    return (path / BINARY).is_file()


def read(folder: Path, options: MutableMapping[str, Any]) -> Imported:
    """Returns the model of a CTranslate2 folder. Removes the SentencePiece models, `src_spm` and `tgt_spm`, from the
    options, unless vtrans exported the folder.

    Raises FileError for a damaged folder, or a model that vtrans cannot express.
    """
    binary = Binary(file_in(folder, BINARY))
    if is_exported(folder):
        return _read_export(folder, binary)
    settings = _settings(folder, binary)
    unk, start, eos = (settings.text(f"{key}_token") for key in ("unk", "decoder_start", "eos"))
    adds_eos = settings.get("add_source_eos") is not None and settings.flag("add_source_eos")
    # In models from Hugging Face, the tokenizer appends EOS to sources, and the decoder starts with padding or EOS.
    source_eos = adds_eos or start in ("<pad>", eos)
    names = ["shared"] if any(folder.glob("shared_vocabulary.*")) else ["source", "target"]
    tokens = [_tokens(folder, f"{name}_vocabulary", unk) for name in names]
    if eos not in tokens[-1] or (source_eos and eos not in tokens[0]):
        raise FileError(f"{folder} must have its end token {eos!r:.40} in its vocabularies; copy it again.")
    from_zero = binary.number("decoder/start_from_zero_embedding", 0) != 0
    splitters, note = _splitters(folder, options.pop("src_spm", None), options.pop("tgt_spm", None))
    vocabs = []
    for side, spm in zip((tokens[0], tokens[-1]), splitters, strict=True):
        places = {token: place for place, token in enumerate(side)}
        # Padding has no place, because CTranslate2 predicts a token named <pad> like any other. Neither has a start
        # from zeros, which is not a token, nor a start that is also `unk` or `eos`, which becomes a separate row here.
        bos = None if from_zero or start in (unk, eos) else places.get(start)
        special = {"unk": places[unk], "bos": bos, "eos": places.get(eos)}
        vocabs.append(Vocabulary(pack(side, special, spm), str(folder)))
    src, tgt = vocabs
    config = _model_config(binary, len(tgt.pieces), is_shared=tokens[0] == tokens[-1])
    # If the start is not a token there, a bias prevents its prediction.
    config = replace(config, source_eos=source_eos, projection_bias=config.projection_bias or tgt.order[BOS_ID] is None)
    if settings.get("layer_norm_epsilon") is not None:
        epsilon = {"norm_eps": settings.number("layer_norm_epsilon", 0)}
        config = replace(config, norm_eps=settings.section(ModelConfig, epsilon).norm_eps)
    # CTranslate2 starts from <unk> if the start is not a token.
    row = None if from_zero else tgt.pieces.index(start if start in tgt.pieces else unk)
    end = [eos] if source_eos and not adds_eos else []
    notes = [f"sources end with {eos}, as those of Hugging Face's tokenizers do"] if end else []
    if src.digest == tgt.digest:
        src = tgt
    return _imported(folder, binary, (note, *notes), {}, config, (src, tgt), row, end)


def _read_export(folder: Path, binary: Binary) -> Imported:
    """Returns the model that vtrans exported to the folder, with the weights rounded by the export."""
    file = folder / DESCRIPTION
    given = read_object(file)
    Settings(given, str(file)).check({"format": (FORMAT,)}, "export the model again")
    names = [JOINT_FILE] if (folder / JOINT_FILE).exists() else [SRC_FILE, TGT_FILE]
    vocabs = [Vocabulary(read_bytes(file_in(folder, name)), str(folder)) for name in names]
    config = section_of(ModelConfig, given, "model", file)
    recorded = {
        "search": section_of(SearchConfig, given, "search", file),
        "training": check_training(file, given.get("training")),
        "languages": languages_from(given.get("languages")),
        "tags": tags_from(given.get("tags"), vocabs[0].tags),
    }
    notes = ("`vtrans export` wrote it",)
    return _imported(folder, binary, notes, recorded, config, (vocabs[0], vocabs[-1]), is_ours=True)


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


def _tokens(folder: Path, name: str, unk: str) -> list[str]:
    """Returns the tokens in a JSON list or the lines of a text file. Adds a missing `unk`, as CTranslate2 does."""
    if (folder / f"{name}.json").exists():
        tokens: list[str] = read_object(file_in(folder, f"{name}.json"), list)
    else:
        text = read_bytes(file_in(folder, f"{name}.txt")).decode(errors="replace")
        tokens = text.removesuffix("\n").split("\n")
        # A token may end in a carriage return, but if all lines do, these are line ends.
        if all(line.endswith("\r") for line in tokens):
            tokens = [line[:-1] for line in tokens]
    tokens += [] if unk in tokens else [unk]
    if not all(isinstance(token, str) and token for token in tokens) or len({*tokens}) < len(tokens):
        raise FileError(f"{folder / name} must be a list of different tokens, none of them empty; {AGAIN}.")
    return tokens


def _splitters(folder: Path, src_spm: Path | None, tgt_spm: Path | None) -> tuple[tuple[bytes, bytes], str]:
    """Returns the SentencePiece models of both sides, empty if there are none, and a note about the splitting."""
    models = [file.name for file in folder.glob("*.model")]
    only = models if len(models) == 1 else []
    src, tgt = (
        given or next((file_in(folder, name) for name in (own, *only) if (folder / name).exists()), None)
        for given, own in ((src_spm, "source.spm"), (tgt_spm, "target.spm"))
    )
    if src is None and tgt is None:
        return (b"", b""), "it has no SentencePiece model, so text consists of tokens separated by spaces"
    if src is None or tgt is None:
        raise FileError(f"{folder} has a SentencePiece model for one side only; give both `src_spm` and `tgt_spm`.")
    return (read_bytes(src), read_bytes(tgt)), f"{src.name} splits the source, and {tgt.name} the target"


def _model_config(binary: Binary, tgt_size: int, *, is_shared: bool) -> ModelConfig:
    """Returns the architecture that the variables describe. Raises FileError if vtrans does not support it."""
    scalars = {key: _common(binary, key, allowed[0], allowed) for key, allowed in SCALARS.items()}
    D = _matrix(binary, SRC)[1]
    d_ff = _matrix(binary, "encoder/layer_0/ffn/linear_0/weight")[0]
    depths = [next(n for n in count() if f"{side}/layer_{n}/ffn/linear_0/weight" not in binary) for side in STACKS]
    tables = [_matrix(binary, name)[0] for name in POSITIONS if name in binary]
    values = {
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
        "projection_bias": TABLES["projection.bias"] in binary,
    }
    config = Settings({}, str(binary.path)).section(ModelConfig, values)
    for name in (TGT, PROJECTION):
        binary.get(name, tgt_size, D)
    # Compare matrices only now that all sizes are known to be valid.
    share = is_shared and binary.same(SRC, TGT), binary.same(TGT, PROJECTION)
    return replace(config, tie=TIES[share], share_positions=not tables or binary.same(*POSITIONS))


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


def _imported(
    folder: Path,
    binary: Binary,
    notes: tuple[str, ...],
    recorded: Mapping[str, Any],
    config: ModelConfig,
    vocabs: tuple[Vocabulary, Vocabulary],
    start: int | None = None,
    end: Sequence[str] = (),
    *,
    is_ours: bool = False,
) -> Imported:
    """Returns the model with the facts `recorded` by an export. `start` is the embedding row of the start if BOS has
    none, and `end` the tokens to append to CTranslate2's sources. If `is_ours`, rows have the order of our ids."""
    for _, (name,), shape in layer_weights(config, CTRANSLATE2):
        if name not in binary and "linear" in name and name.endswith("bias"):  # a linear layer's bias is optional
            binary.add(name, np.zeros(shape, np.float32))
    shapes = shapes_of(folder, config, *vocabs)
    weights = weights_in(binary, CTRANSLATE2, config, vocabs, start, is_ours=is_ours)
    weights = {name: read for name, read in weights.items() if name in shapes}  # layers may be shared
    for name, (rows, *_) in shapes.items():
        if "positions" in name and (table := TABLES[name]) in binary:
            weights[name] = partial(_cut, binary.get(table, max(rows, binary.shapes[table][0]), config.d_model), rows)
        elif "positions" in name:
            weights[name] = partial(computed_positions, rows, config.d_model)
    tokens = [[vocab.piece(i) for i in range(len(vocab))] for vocab in vocabs]
    if not is_ours:
        tokens = [["" if place is None else vocab.pieces[place] for place in vocab.order] for vocab in vocabs]
        # The file may contain both tensors of a tie or of a shared table.
        ignored = {name for name in binary.shapes if name.endswith((SCALE, *UNUSED, *SCALES))}
        binary.refuse_others({*TABLES.values(), *ignored})
    facts: dict[str, Any] = {"search": DEFAULTS, "training": {"imported": "CTranslate2"}}
    facts["tags"] = tags_among(vocabs[0].tags)
    model = Model(Sources(config, weights), *vocabs, **{**facts, **recorded})
    original = partial(CTranslate2Model, folder, (tokens[0], tokens[1]), end)
    return Imported(folder, f"a CTranslate2 folder of binary version {binary.version}", notes, model, original)


def _cut(read: Read, rows: int) -> Tensor:
    return read()[:rows]


def computed_positions(length: int, D: int) -> Tensor:
    """Returns the table [length, D] that CTranslate2 computes for a model without one (`src/layers/common.cc`):
    Marian's from position 1."""
    return tensor_of(marian(length + 1, D))[1:]
