"""Reads a CTranslate2 folder: a Transformer in any version and any type of weights.

A folder has tokens, but no tokenizer. SentencePiece models come from the user or lie in the folder; without them, text
consists of tokens separated by spaces. An export of vtrans has its own configuration and vocabularies.

CTranslate2's `src/models/transformer.cc`, `src/layers/transformer.cc`, `src/models/sequence_to_sequence.cc` and
`src/vocabulary.cc` define what the variables and settings mean. Before revision 5 of the specification, the scalars of
encoder and decoder were common to both; before binary version 6, the settings of config.json were variables.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vtrans.apps.interop.comparison import IdPair, Outputs, Program, Tolerance
from vtrans.apps.interop.ctranslate2.binary import SCALE, Binary
from vtrans.apps.interop.ctranslate2.folder import DESCRIPTION, FORMAT, KIND, ctranslate2, is_exported
from vtrans.apps.interop.foreign_files import (
    ForeignTensors,
    Read,
    Settings,
    file_in,
    read_bytes,
    read_object,
    wrong,
)
from vtrans.apps.interop.imported import Imported, shapes_of, weights_in
from vtrans.apps.interop.weight_names import CTRANSLATE2, STACKS, TIES, layer_weights
from vtrans.config import ModelConfig, SearchConfig, section_from
from vtrans.storage.tensors import check_training
from vtrans.system.errors import FileError, InputError, VtransError
from vtrans.text.languages import languages_from, tags_from
from vtrans.text.piece_table import pack
from vtrans.text.vocabulary import BOS_ID, JOINT_FILE, SRC_FILE, TGT_FILE, Vocabulary
from vtrans.translate.steps.reader import EXTRA_LENGTH

BINARY, CONFIG = "model.bin", "config.json"
DEFAULTS = SearchConfig(beam=2, alpha=1.0, length_penalty="length", min_length=1)
SCORED_TOKENS = 2048  # padded subwords scored at a time; their logits are in memory at once
TABLES = CTRANSLATE2.tables
EMBEDDINGS = TABLES["src_embedding.weight"], TABLES["tgt_embedding.weight"]
POSITIONS = TABLES["src_positions.weight"], TABLES["tgt_positions.weight"]
PROJECTION = TABLES["projection.weight"]
# The specifications of encoder-decoder Transformers, and the heads of their models before revision 3.
SPECIFICATIONS = {"TransformerSpec": 8, "TransformerBase": 8, "TransformerBig": 16, "": 8}
REVISION = 7  # the newest revision of these specifications
# Revision 1 has the names of OpenNMT-tf. Each is replaced once, in this order.
OPENNMT_TF = {
    "transformer/": "", ":0": "", "w_embs": "embeddings/weight", "kernel": "weight", "LayerNorm": "layer_norm",
    "dense": "projection", "conv1d_": "linear_", "conv1d": "linear_0", "masked_multi_head": "self_attention",
}  # fmt: skip
# Positions of a model whose table is computed: as many as a source that is translated in one piece can need.
COMPUTED_POSITIONS = SearchConfig.max_source + EXTRA_LENGTH
ACTIVATIONS = {0: "relu", 2: "swish", 3: "gelu"}  # by CTranslate2's numbers; 1 is an approximation of GELU
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
# Settings that must have this value if they are there.
FIXED = {"add_source_bos": (False, None), "multi_query_attention": (False, None), "quantization_type": (0, None)}


def recognises(path: Path) -> bool:
    """Returns whether this is a folder of CTranslate2."""
    return (path / BINARY).is_file()


def read(folder: Path, src_spm: Path | None = None, tgt_spm: Path | None = None) -> Imported:
    """Returns the model of a CTranslate2 folder. The SentencePiece models split its text.

    Raises FileError for a folder that is damaged or that vtrans cannot express, and InputError for SentencePiece models
    in addition to those of a folder that vtrans exported.
    """
    binary = Binary(file_in(folder, BINARY))
    _rename(binary)
    if not is_exported(folder):
        return _read_foreign(folder, binary, src_spm, tgt_spm)
    if src_spm or tgt_spm:
        raise InputError(
            f"`src_spm` and `tgt_spm` must be left out, because vtrans exported {folder} with the model's vocabularies."
        )
    return _read_export(folder, binary)


def _read_export(folder: Path, binary: Binary) -> Imported:
    """Returns the model from which vtrans made the folder, except for the rounding of its weights."""
    file = folder / DESCRIPTION
    given = Settings(read_object(file), str(file))
    given.check({"kind": (KIND,), "format": (FORMAT,)}, "export the model again")
    for key in ("model", "search", "training"):
        if not isinstance(given.get(key), dict):
            raise given.wrong(key, "an object", "export the model again")
    names = [JOINT_FILE] if (folder / JOINT_FILE).exists() else [SRC_FILE, TGT_FILE]
    vocabs = [Vocabulary(read_bytes(file_in(folder, name)), str(folder)) for name in names]
    config = section_from(ModelConfig, "model", given.get("model"), str(file))
    imported = _imported(folder, binary, config, (vocabs[0], vocabs[-1]), is_ours=True)
    return replace(
        imported,
        notes=("`vtrans export` wrote it",),
        search=section_from(SearchConfig, "search", given.get("search"), str(file)),
        training=check_training(file, given.get("training")),
        languages=languages_from(given.get("languages")),
        tags=tags_from(given.get("tags"), vocabs[0].tags),
    )


def _read_foreign(folder: Path, binary: Binary, src_spm: Path | None, tgt_spm: Path | None) -> Imported:
    """Returns the model of a folder that another program wrote."""
    settings = _settings(folder, binary)
    unk, start, eos = (settings.text(f"{key}_token") for key in ("unk", "decoder_start", "eos"))
    adds_eos = settings.get("add_source_eos") is not None and settings.flag("add_source_eos")
    # In models from Hugging Face, the tokenizer ends sources, and the decoder starts with padding or the end.
    source_eos = adds_eos or start in ("<pad>", eos)
    tokens = _vocabularies(folder, unk)
    if eos not in tokens[1] or (source_eos and eos not in tokens[0]):
        raise FileError(f"{folder} must have its end token {eos!r:.40} in its vocabularies; copy it again.")
    given: dict[str, float] = {"source_eos": source_eos}
    if settings.get("layer_norm_epsilon") is not None:
        given["norm_eps"] = settings.number("layer_norm_epsilon", 0)
    config = _model_config(binary, given, *tokens)
    from_zero = binary.number("decoder/start_from_zero_embedding", 0) != 0
    splitters, note = _splitters(folder, src_spm, tgt_spm)
    vocabs = []
    for side, spm in zip(tokens, splitters, strict=True):
        places = {token: place for place, token in enumerate(side)}
        # Padding has no place, because CTranslate2 predicts a token named <pad> like any other. So has a start from
        # zeros, which is not a token, and a start that is also `unk` or `eos`, which becomes a separate row here.
        bos = None if from_zero or start in (unk, eos) else places.get(start)
        special = {"unk": places.get(unk), "bos": bos, "eos": places.get(eos)}
        vocabs.append(Vocabulary(pack(side, special, spm), str(folder)))
    src, tgt = vocabs
    if src.digest == tgt.digest:
        src = tgt
    if tgt.order[BOS_ID] is None:
        config = replace(config, projection_bias=True)  # keeps a start that is no token there from being predicted
    # CTranslate2 starts from <unk> if the start is not a token.
    row = None if from_zero else tokens[1].index(start if start in tokens[1] else unk)
    end = [eos] if source_eos and not adds_eos else []
    notes = [f"sources end with {eos}, as those of Hugging Face's tokenizers do"] if end else []
    return replace(_imported(folder, binary, config, (src, tgt), row, end), notes=(note, *notes))


# Settings and vocabularies.


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


def _vocabularies(folder: Path, unk: str) -> tuple[list[str], list[str]]:
    """Returns the tokens of source and target, the same list if the folder has one vocabulary."""
    src = tgt = _tokens(folder, "shared_vocabulary", unk)
    if src is None:
        src, tgt = (_tokens(folder, f"{side}_vocabulary", unk) for side in ("source", "target"))
    if src is None or tgt is None:
        missing = "source_vocabulary" if src is None else "target_vocabulary"
        raise FileError(
            f"{folder} has neither shared_vocabulary nor {missing}, as .json or .txt; copy the whole folder again."
        )
    return (tgt, tgt) if src == tgt else (src, tgt)


def _tokens(folder: Path, name: str, unk: str) -> list[str] | None:
    """Returns the tokens of a JSON list or of the lines of a text, or None if there is neither file."""
    if (file := folder / f"{name}.json").exists():
        tokens: list[str] = read_object(file_in(folder, file.name), list)
    elif (file := folder / f"{name}.txt").exists():
        tokens = read_bytes(file_in(folder, file.name)).decode(errors="replace").removesuffix("\n").split("\n")
        # A token may end in a carriage return, but if all lines do, it belongs to the line end.
        if all(line.endswith("\r") for line in tokens):
            tokens = [line[:-1] for line in tokens]
    else:
        return None
    if not all(isinstance(token, str) and token for token in tokens):
        raise FileError(f"{file} must be a list of tokens, none of them empty; convert the model again.")
    if unk not in tokens:  # CTranslate2 adds it, too
        tokens.append(unk)
    ((token, times),) = Counter(tokens).most_common(1)
    if times > 1:
        raise FileError(f"{file} has the token {token!r:.40} {times:,} times; convert the model again.")
    return tokens


def _splitters(folder: Path, src_spm: Path | None, tgt_spm: Path | None) -> tuple[tuple[bytes, bytes], str]:
    """Returns the SentencePiece models of both sides, empty if there are none, and a note about the splitting."""
    models = sorted(file.name for file in folder.glob("*.model"))
    only = models[0] if len(models) == 1 else ""
    src, tgt = (
        given or next((file_in(folder, name) for name in names if name and (folder / name).exists()), None)
        for given, names in ((src_spm, ("source.spm", only)), (tgt_spm, ("target.spm", only)))
    )
    if src is None and tgt is None:
        return (b"", b""), "it has no SentencePiece model, so text consists of tokens separated by spaces"
    if src is None or tgt is None:
        raise FileError(f"{folder} has a SentencePiece model for one side only; give both `src_spm` and `tgt_spm`.")
    return (read_bytes(src), read_bytes(tgt)), f"{src.name} splits the source, and {tgt.name} the target"


# Architecture.


def _rename(binary: Binary) -> None:
    """Gives the variables of an old revision the names of the newest one.

    Raises FileError for an unknown revision, and for a model that is not a Transformer with encoder and decoder.
    """
    name = binary.specification
    if name not in SPECIFICATIONS:
        raise wrong(binary.path, "the specification", "TransformerSpec, a Transformer with encoder and decoder", name)
    if not 1 <= binary.revision <= REVISION:
        advice = "convert the model with CTranslate2 4"
        raise wrong(binary.path, f"the revision of {name}", f"from 1 to {REVISION}", binary.revision, advice)

    def renamed(name: str) -> str:
        if binary.revision > 1:  # a single embedding needs no number
            return name.replace("encoder/embeddings_0/", "encoder/embeddings/", 1)
        for old, new in OPENNMT_TF.items():
            name = name.replace(old, new, 1)
        return name.replace("multi_head", "self_attention" if "encoder" in name else "attention", 1)

    variables = {renamed(name): values for name, values in binary.variables.items()}
    if len(variables) < len(binary.variables):
        raise FileError(f"{binary.path} has two variables of one name; copy the folder again.")
    binary.variables = variables
    binary.aliases = {renamed(alias): renamed(name) for alias, name in binary.aliases.items()}


def _model_config(binary: Binary, given: Mapping[str, Any], src: Sequence[str], tgt: Sequence[str]) -> ModelConfig:
    """Returns the architecture that the variables describe, given some values and the vocabularies, which are one
    object if they are shared.

    Raises FileError if vtrans does not support it.
    """
    names = binary.variables
    scalars = {key: _common(binary, key, allowed[0], allowed) for key, allowed in SCALARS.items()}
    D = _shape(binary, EMBEDDINGS[0], len(src))[1]
    for name in (EMBEDDINGS[1], PROJECTION):
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
        "projection_bias": TABLES["projection.bias"] in names,
    }
    config = Settings({}, str(binary.path)).section(ModelConfig, values)
    # All sizes are known to be possible; matrices are compared only now.
    share = src is tgt and binary.same(*EMBEDDINGS), binary.same(EMBEDDINGS[1], PROJECTION)
    one_table = not tables or (len(tables) == 2 and binary.same(*POSITIONS))
    return replace(config, tie=TIES[share], share_positions=one_table)


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


# Weights.


def _imported(
    folder: Path,
    binary: Binary,
    config: ModelConfig,
    vocabs: tuple[Vocabulary, Vocabulary],
    start: int | None = None,
    end: Sequence[str] = (),
    *,
    is_ours: bool = False,
) -> Imported:
    """Returns the model. `start` is the row from which the decoder starts if that is no token, and `end` is what the
    program is to append to sources. A folder that `is_ours` has our order of rows."""
    variables = binary.variables
    for _, (name,), shape in layer_weights(config, CTRANSLATE2):
        if "linear" in name and name.endswith("bias"):  # a linear layer may have none, a norm may not
            variables.setdefault(name, np.zeros(shape, np.float32))
    tensors = ForeignTensors(binary.path, {name: values.shape for name, values in variables.items()}, binary.weight)
    shapes = shapes_of(folder, config, *vocabs)
    weights = weights_in(tensors, CTRANSLATE2, config, vocabs, start, is_ours=is_ours)
    weights = {name: read for name, read in weights.items() if name in shapes}  # layers may be shared
    for name, (rows, *_) in shapes.items():
        if "positions" in name and (table := TABLES[name]) in variables:
            weights[name] = partial(_cut, tensors.get(table, max(rows, len(variables[table])), config.d_model), rows)
        elif "positions" in name:
            weights[name] = partial(computed_positions, rows, config.d_model)
    tokens = [[vocab.piece(i) for i in range(len(vocab))] for vocab in vocabs]
    if not is_ours:
        tokens = [["" if place is None else vocab.pieces[place] for place in vocab.order] for vocab in vocabs]
        # The two sides of a tie or of a shared table may both be there.
        known = {*TABLES.values(), *binary.read, *UNUSED, *SCALES}
        known |= {f"{side}/{key}" for side in STACKS for key in (*UNUSED, *SCALES)}
        tensors.refuse_others({*known, *(name for name in variables if name.endswith(SCALE))})
    return Imported(
        folder, f"a CTranslate2 folder of binary version {binary.version}", (), config, DEFAULTS, *vocabs, weights,
        partial(CTranslate2Model, folder, (tokens[0], tokens[1]), end), {"imported": "CTranslate2"},
    )  # fmt: skip


def _cut(read: Read, rows: int) -> Tensor:
    return read()[:rows]


def computed_positions(length: int, D: int) -> Tensor:
    """Returns the table that CTranslate2 computes for a model without one (`src/layers/common.cc`), in float32.

    Its frequencies divide by D / 2 - 1, and the first position is 1.
    """
    step = torch.tensor(10000.0).log() / (D // 2 - 1)
    angles = torch.arange(1, length + 1)[:, None] * (-step * torch.arange(D // 2)).exp()
    return torch.cat((angles.sin(), angles.cos()), 1)


# The program, to compare the import or an export with it.


class CTranslate2Model(Program):
    """CTranslate2 on the CPU. Raises InputError if it is not installed, and VtransError for a folder that it cannot
    load."""

    search = DEFAULTS

    def __init__(
        self,
        folder: Path,
        tokens: tuple[list[str], list[str]],
        source_end: Sequence[str] = (),
        weights: str = "float32",
        tolerance: Tolerance = Program.tolerance,
    ) -> None:
        """`tokens` are the folder's names of our subwords, for source and target. `source_end` is appended to sources
        that CTranslate2 does not end itself."""
        self._package, self._folder, self._weights = ctranslate2(), folder, weights
        self.name, self.tolerance = f"ctranslate2 {self._package.__version__} with {weights} weights", tolerance
        self._src_tokens, self._tgt_tokens = tokens
        self._source_end = source_end

    @cached_property
    def _translator(self) -> Any:
        # On a CPU, CTranslate2 computes with float16 weights in float32, and warns unless told so.
        kind = "default" if self._weights == "int8" else "float32"
        threads = {"inter_threads": torch.get_num_threads(), "intra_threads": 1}
        try:
            return self._package.Translator(str(self._folder), device="cpu", compute_type=kind, **threads)
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise VtransError(f"CTranslate2 cannot load {self._folder}: {reason}.") from None

    def logprobs(self, pairs: Sequence[IdPair]) -> list[list[float]]:
        sources = [self._source(source) for source, _ in pairs]
        targets = [[self._tgt_tokens[i] for i in target[:-1]] for _, target in pairs]
        options = {"max_batch_size": SCORED_TOKENS, "batch_type": "tokens", "max_input_length": 0}  # none is cut
        return [list(result.log_probs) for result in self._translator.score_batch(sources, targets, **options)]

    def translate(self, ours: Outputs) -> list[list[int]]:
        ids = {token: i for i, token in enumerate(self._tgt_tokens)}
        options = {"beam_size": ours.search.beam, "min_decoding_length": ours.search.min_length}
        options |= {"max_decoding_length": max(ours.limits), "max_input_length": 0, "max_batch_size": 32}
        results = self._translator.translate_batch(list(map(self._source, ours.sources)), **options)
        return [[ids[token] for token in result.hypotheses[0]] for result in results]

    def _source(self, tokens: Sequence[int]) -> list[str]:
        """Returns the names of a source; CTranslate2 adds EOS, or `source_end` does if the model needs one."""
        return [*(self._src_tokens[i] for i in tokens[:-1]), *self._source_end]
