"""Reads a CTranslate2 folder: a Transformer in any file version and any weight type.

A folder lists tokens, but has no tokenizer. SentencePiece models come from the user or lie in the folder; without them,
text consists of tokens separated by spaces.

CTranslate2's `src/models/transformer.cc`, `src/layers/transformer.cc`, `src/models/sequence_to_sequence.cc` and
`src/vocabulary.cc` define what the variables and settings mean. Before revision 5 of the specification, encoder and
decoder had common scalars; before binary version 6, the settings of config.json were variables.

`model.bin` contains its version, the name and revision of the model's specification, the variables and their aliases,
in little-endian byte order. `_serialize` in `python/ctranslate2/specs/model_spec.py` writes it, and `Model::load` in
`src/models/model.cc` reads versions 1 to 6.
"""

from __future__ import annotations

import math
import struct
from collections.abc import MutableMapping
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vtrans.apps.interop.comparison import Imported
from vtrans.apps.interop.ctranslate2.exporter import DEFAULTS, ROTARY, CTranslate2Model
from vtrans.apps.interop.foreign_files import AGAIN, ForeignTensors, Settings, file_in, read_bytes, read_object, wrong
from vtrans.apps.interop.weights import CTRANSLATE2, STACKS, TIES, layer_weights, marian_positions, read_network
from vtrans.config import ModelConfig, SearchConfig
from vtrans.storage.model_file import Model
from vtrans.system.errors import FileError
from vtrans.system.files import reason
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
VERSION, REVISION = 6, 7  # the newest file version and specification revision
# Specifications of encoder-decoder Transformers, with the number of heads of models before revision 3.
SPECIFICATIONS = {"TransformerSpec": 8, "TransformerBase": 8, "TransformerBig": 16, "": 8}
# Revision 1 uses OpenNMT-tf's names. Each is replaced once, in this order.
OPENNMT_TF = {
    "transformer/": "", ":0": "", "w_embs": "embeddings/weight", "kernel": "weight", "LayerNorm": "layer_norm",
    "dense": "projection", "conv1d_": "linear_", "conv1d": "linear_0", "masked_multi_head": "self_attention",
}  # fmt: skip
# By type id. NumPy lacks bfloat16, the upper half of float32, so it is read as uint16.
TYPES = tuple(map(np.dtype, ("<f4", "<i1", "<i2", "<i4", "<f2", "<u2")))
TYPE_OF_WIDTH = {4: 0, 2: 2, 1: 1}  # versions 1 to 3 store the width of a value instead of its type
INT16_SCALE = 1000.0  # default scale of int16 variables; version 1 stores none
SCALE = "_scale"  # suffix of the name of a quantised variable's scale
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
    """Returns the stored table, or the one that CTranslate2 computes (`src/layers/common.cc`)."""
    if table in binary:
        return binary.weight(table)[: config.max_positions]
    return marian_positions(config.max_positions, config.d_model, first=1)


class Binary(ForeignTensors):
    """The variables of a model.bin under the names of the newest revision. Values are read on use.

    Raises FileError for a damaged file, or a model that is not an encoder-decoder Transformer.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, {}, self.tensor)
        self.variables: dict[str, NDArray[Any]] = {}
        self.aliases: dict[str, str] = {}
        self._at = 0
        try:
            self._data = np.memmap(path, np.uint8, "r")
            self._read_list()
        except OSError as error:
            raise FileError(f"{path} cannot be read: {reason(error)}.") from None
        except (ValueError, struct.error) as error:
            raise FileError(f"{path} is not a model of CTranslate2, or damaged: {error}; {AGAIN}.") from None

    def _read_list(self) -> None:
        (self.version,) = self._take("I")
        if not 1 <= self.version <= VERSION:
            raise ValueError(f"the binary version must be from 1 to {VERSION}, got {self.version}")
        self.specification, self.revision = "", 1
        if self.version >= 2:
            self.specification = self._name()
            (self.revision,) = self._take("I")
        if self.specification not in SPECIFICATIONS:
            wanted = "TransformerSpec, a Transformer with encoder and decoder"
            raise wrong(self.path, "the specification", wanted, self.specification)
        if not 1 <= self.revision <= REVISION:
            advice = "convert the model with CTranslate2 4"
            raise wrong(self.path, "the revision", f"from 1 to {REVISION}", self.revision, advice)
        (count,) = self._take("I")
        for _ in range(count):
            name = self._renamed(self._name())
            self.add(name, self._values())
        (count,) = self._take("I") if self.version >= 3 else (0,)
        for _ in range(count):
            alias = self._renamed(self._name())
            name = self._renamed(self._name())
            if name not in self.variables:
                raise ValueError(f"it has the alias {alias[:80]} of {name[:80]}")
            self.add(alias, self.variables[name])
            self.aliases[alias] = name
        if self._at < len(self._data):
            raise ValueError(f"it has {len(self._data) - self._at:,} bytes after its last variable")

    def add(self, name: str, values: NDArray[Any]) -> None:
        """Adds a variable. Raises ValueError if the name exists."""
        if name in self.variables:
            raise ValueError(f"the name {name[:80]} occurs twice")
        self.variables[name] = values
        self.shapes[name] = values.shape

    def _take(self, format: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{format}", self._data.data, self._at)
        self._at += struct.calcsize(f"<{format}")
        return values

    def _name(self) -> str:
        """Reads a name: its length in bytes including a final NUL, then the bytes."""
        (length,) = self._take("H")
        (data,) = self._take(f"{length}s")
        return bytes(data).removesuffix(b"\0").decode("ascii", "backslashreplace")

    def _renamed(self, name: str) -> str:
        """Returns a variable's name in the newest revision. A single embedding has no number."""
        if self.revision > 1:
            return name.replace("encoder/embeddings_0/", "encoder/embeddings/", 1)
        for old, new in OPENNMT_TF.items():
            name = name.replace(old, new, 1)
        return name.replace("multi_head", "self_attention" if "encoder" in name else "attention", 1)

    def _values(self) -> NDArray[Any]:
        (rank,) = self._take("B")
        shape = self._take(f"{rank}I")
        type_id, length = self._take("BI")
        if self.version < 4:  # these are the width of a value and the number of values
            type_id, length = TYPE_OF_WIDTH.get(type_id, len(TYPES)), length * type_id
        if type_id >= len(TYPES) or length != math.prod(shape) * TYPES[type_id].itemsize:
            raise ValueError(f"a variable has an unknown type, or {length:,} bytes, which do not fit its shape")
        values = np.frombuffer(self._data, TYPES[type_id], math.prod(shape), self._at).reshape(shape)
        self._at += length
        return values

    def number(self, name: str, default: float) -> float:
        """Returns the value of a scalar, or `default` if it is missing. Raises FileError unless it is one number."""
        self.checked.add(name)
        values = self.variables.get(name, np.array(default))
        if values.size != 1 or not math.isfinite(values.item()):
            raise FileError(f"{self.path}: {name[:80]} must be one number; {AGAIN}.")
        return float(values.item())

    def text(self, name: str, default: str) -> str:
        """Returns the value of a string variable, or `default` if it is missing."""
        self.checked.add(name)
        return self.variables[name].tobytes().decode(errors="replace") if name in self.variables else default

    def same(self, name: str, other: str) -> bool:
        """Returns whether two variables are equal. Versions before 3 write tied variables twice, without aliases."""
        one, two = self.variables.get(name), self.variables.get(other)
        if one is None or two is None or one.shape != two.shape:
            return False
        return one is two or torch.equal(self.tensor(name), self.tensor(other))

    def tensor(self, name: str) -> Tensor:
        """Returns a variable as float32, or unchanged if it is int32. Divides int8 and int16 values by their scale."""
        values = self.variables[name]
        if values.dtype == np.int32:
            return torch.from_numpy(values.copy())
        if values.dtype == np.uint16:
            values = (values.astype(np.uint32) << 16).view(np.float32)
        tensor = torch.from_numpy(values.astype(np.float32))
        if values.dtype not in (np.int8, np.int16):
            return tensor
        stored = f"{self.aliases.get(name, name)}{SCALE}"
        if stored not in self.variables and values.dtype == np.int16:
            return tensor / INT16_SCALE
        scale = self.variables.get(stored, np.zeros(0))  # one number, or one per row of an int8 variable
        if scale.dtype.kind != "f" or scale.size not in (1, *values.shape[:1]):
            raise wrong(self.path, stored[:80], f"a number, or one for each row of {name[:80]}", scale.shape, AGAIN)
        return tensor / self.tensor(stored).reshape(-1, *[1] * (values.ndim - 1))
