"""How M2M100 and NLLB differ from Marian's folders, for the import and the export: the language codes, the tokenizer,
the positions, and a projection without a bias.

The source is transformers' `modeling_m2m_100.py`, `tokenization_m2m_100.py` and `tokenization_nllb.py`, version 5.23. A
source sentence is its language code, the text and `</s>`. The decoder starts with `</s>`, and its first token is forced
to be the target language's code. We write a code as a tag: `>>eng_Latn<<` is NLLB's piece `eng_Latn`, and `>>en<<` is
M2M100's piece `__en__`. A model file has one direction: each source begins with its language's tag, and `search.begin`
is the target language's tag.

M2M100 starts a translation with the embedding of `</s>`, and ties all embeddings to a projection without a bias. A
fresh import does the same, but training gives our start its own row and each subword a bias. The export then has
separate matrices, and the projection's weights contain the bias.
"""

from __future__ import annotations

import importlib
import math
import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vtrans.apps.interop.foreign_files import Settings, file_in, read_bytes, read_object, shown, write_json
from vtrans.apps.interop.huggingface import names
from vtrans.apps.interop.huggingface.original import transformers
from vtrans.apps.interop.weight_names import HUGGING_FACE
from vtrans.config.keys import toml_value
from vtrans.model.checkpoint import LoadedModel
from vtrans.system.errors import FileError, InputError, need_packages
from vtrans.text.languages import Languages
from vtrans.text.piece_table import is_language, pack
from vtrans.text.spm import BPE, CONTROL, NORMAL, UNKNOWN, field, in_spec, piece_field
from vtrans.text.vocabulary import SPECIAL_PIECES, Vocabulary

KIND = "m2m_100"
LARGEST_SPM = 1 << 28  # bytes
_LONGEST_PIECE = 100  # characters; SentencePiece's own limit is 16
SPM, FAST = "sentencepiece.bpe.model", "tokenizer.json"
# The defaults of M2M100Config; transformers does not save keys with these values.
DEFAULTS: dict[str, Any] = {
    "d_model": 1024, "max_position_embeddings": 1024, "vocab_size": 128112, "encoder_layers": 12, "decoder_layers": 12,
    "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096, "encoder_attention_heads": 16, "decoder_attention_heads": 16,
    "activation_function": "relu", "scale_embedding": True, "dropout": 0.1, "attention_dropout": 0.1,
    "decoder_start_token_id": 2, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
NLLB_CODE, _M2M100_CODE = re.compile("[a-z]{3}_[A-Z][a-z]{3}"), re.compile("__([a-z]{2,3})__")


class Direction(NamedTuple):
    """The translation direction of an import."""

    pair: Languages
    begins_source: str
    """The tag with which sources begin."""
    forced: str
    """The tag with which translations begin."""
    theirs: tuple[str, int]
    """The source language and the id of the forced token in transformers."""


def languages_of(vocab: Vocabulary, src: str | None, tgt: str | None) -> Direction:
    """Returns the direction between two languages. Raises InputError unless both are known."""
    codes = {tag[2:-2]: tag for tag in vocab.tags}
    for side, code in (("from", src), ("to", tgt)):
        if code not in codes:
            known = ", ".join(codes)
            raise InputError(f"`{side}` must be one of the model's languages, {known}, got {shown(code)}.")
    assert src is not None
    assert tgt is not None
    place = vocab.pieces.index(codes[tgt])
    return Direction(Languages(src, tgt), codes[src], codes[tgt], (src, place))


def vocabulary(folder: Path, config: Settings, tokenizer: Mapping[str, Any]) -> Vocabulary:
    """Returns the joint vocabulary. Raises FileError for a tokenizer that does not fit the model, or that puts the
    source language's code after the text."""
    settings = Settings(tokenizer, str(folder / names.TOKENIZER))
    settings.check({"legacy_behaviour": (False, None)})
    size = config.size("vocab_size")
    is_m2m100 = (folder / names.VOCAB).is_file()
    if not is_m2m100 and not (folder / FAST).is_file():
        raise FileError(f"{folder} lacks its tokenizer: {names.VOCAB} for M2M100, or {FAST} for NLLB.")
    path = file_in(folder, names.VOCAB if is_m2m100 else FAST)
    content = read_object(path)
    ids = _m2m100_ids(folder, content, settings) if is_m2m100 else _nllb_ids(path, content)
    pieces = list(map(unused, range(size)))  # rows beyond the tokenizer's
    for piece, id in ids.items():
        if type(id) is not int or not 0 <= id < size:
            raise FileError(f"{path} must give each piece an id from 0 to {size - 1:,}, got {str(id)[:80]}.")
        pieces[id] = piece
    places = {piece: place for place, piece in enumerate(pieces)}
    for piece, key in (("</s>", "eos_token_id"), ("<pad>", "pad_token_id")):
        if config.get(key) != places.get(piece) or piece not in places:
            raise config.wrong(key, f"the id of {piece} in {path}")
    special = {"unk": places.get("<unk>"), "eos": places["</s>"], "bos": None}
    start = config.size("decoder_start_token_id", least=0, largest=size - 1)
    if pieces[start] == unused(start):  # an export of a trained model has its own start row
        special["bos"] = start
    elif start != special["eos"]:
        raise config.wrong("decoder_start_token_id", f"the id of </s> in {path}, or of no piece")
    if is_m2m100 or (folder / SPM).is_file():
        return packed(folder / SPM, pieces, special)
    return Vocabulary(pack(pieces, special, _sentencepiece(path, content)), str(path))


def packed(path: Path, pieces: Sequence[str], special: Mapping[str, int | None]) -> Vocabulary:
    """Returns the vocabulary of a table and a SentencePiece model. Raises FileError if the model is missing or empty,
    or if the table is invalid."""
    data = read_bytes(file_in(path.parent, path.name), LARGEST_SPM)
    if not data:
        raise FileError(f"{path} is empty.")
    return Vocabulary(pack(pieces, special, data), str(path))


def unused(place: int) -> str:
    """Returns the piece for a row that the tokenizer lacks."""
    return f"<unused {place}>"


def _nllb_ids(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the ids of the pieces in a tokenizer.json."""
    try:
        ids = {str(piece): id for piece, id in content["model"]["vocab"].items()}
        added = {str(token["content"]): token["id"] for token in content["added_tokens"]}
    except (KeyError, TypeError, AttributeError):
        raise FileError(f"{path} must hold a tokenizer of the kind BPE with its added tokens.") from None
    codes = {piece: f">>{piece}<<" if NLLB_CODE.fullmatch(piece) else piece for piece in added}
    return {piece: id for piece, id in ids.items() if piece not in added} | {codes[p]: id for p, id in added.items()}


def _sentencepiece(path: Path, content: Mapping[str, Any]) -> bytes:
    """Returns the SentencePiece model from which a tokenizer.json was made; transformers 5 saves only the latter.

    SentencePiece merges two neighbours if they form a piece; earlier pieces of its list come first. So the merges must
    contain every split of each piece into two pieces, grouped by piece. Raises FileError for other merges.
    """
    with suppress(KeyError, TypeError, AttributeError, ValueError):
        vocab, added = content["model"]["vocab"], {token["content"] for token in content["added_tokens"]}
        merges = [tuple(pair.split() if isinstance(pair, str) else pair) for pair in content["model"]["merges"]]
        merged = ["".join(pair) for pair in merges]
        pieces = [piece for piece in dict.fromkeys(merged) if len(piece) <= _LONGEST_PIECE]
        halves = ((piece[:i], piece[i:]) for piece in pieces for i in range(1, len(piece)))
        pairs = {(left, right) for left, right in halves if left in vocab and right in vocab}
        normalizer = content["normalizer"] or {"normalizers": []}
        parts = normalizer.get("normalizers", [normalizer])
        tables = [b64decode(part["precompiled_charsmap"]) for part in parts if part["type"] == "Precompiled"]
        if set(merges) == pairs and len(list(groupby(merged))) == len(pieces):
            characters = [piece for piece in vocab if len(piece) == 1 and piece not in added]
            return _bpe_model([*pieces, *characters], b"".join(tables))
    raise FileError(
        f"{path.parent} lacks the file {SPM}, and {path.name} has not been made of one; copy the file from the model "
        "that this one was made of."
    )


def _bpe_model(pieces: Sequence[str], table: bytes) -> bytes:
    """Returns a SentencePiece BPE model with these ordinary pieces, in the order of merging, and this
    `normalization_table`."""
    special = [("<unk>", 0, UNKNOWN), ("<s>", 0, CONTROL), ("</s>", 0, CONTROL)]
    ordinary = [(piece, -rank, NORMAL) for rank, piece in enumerate(pieces)]
    parts = [piece_field(*piece) for piece in [*special, *ordinary]]
    parts.append(field(2, field(3, BPE)))
    name = b"user_defined" if table else b"identity"
    return b"".join([*parts, field(3, field(1, name) + field(2, table))])


def _m2m100_ids(folder: Path, ids: Mapping[str, Any], tokenizer: Settings) -> dict[str, Any]:
    """Returns the ids of the pieces in vocab.json, followed by the languages in the order of the tokenizer's special
    tokens. transformers 5 may save none; its tokenizer class then gives the order."""
    path = folder / "special_tokens_map.json"
    files = [tokenizer, Settings(read_object(path), str(path))] if path.is_file() else [tokenizer]
    lists = [map(str, file.listed(f"{kind}_special_tokens")) for file in files for kind in ("additional", "extra")]
    codes = [match[1] for token in chain(*lists) if (match := _M2M100_CODE.search(token))]
    if not codes:
        need_packages("the tokenizer does not list its languages, which {} knows", "huggingface", "transformers")
        known = importlib.import_module("transformers.models.m2m_100.tokenization_m2m_100").FAIRSEQ_LANGUAGE_CODES
        tokenizer.check({"language_codes": tuple(known)})
        codes = known[tokenizer.text("language_codes", "m2m100")]
    return {**ids, **{f">>{code}<<": len(ids) + i for i, code in enumerate(dict.fromkeys(codes))}}


def positions(length: int, D: int, pad: int) -> Tensor:
    """Returns the position table [length, D] from position `pad` + 1: sines in the first half, then cosines.

    As in tensor2tensor, the last frequency is exactly 1/10000. Computed in float32, as transformers does.
    """
    half = D // 2
    frequencies = torch.exp(torch.arange(half).float() * -(math.log(10000) / (half - 1)))
    angles = torch.arange(pad + 1, pad + 1 + length).float()[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], 1)


# For the export.


def direction_of(loaded: LoadedModel) -> Direction:
    """Returns the model's direction. Raises InputError unless its vocabulary and positions come from M2M100 or
    NLLB."""
    vocab, config, begin = loaded.tgt_vocab, loaded.model.config, loaded.search.begin
    tags = [*begin, *loaded.tags.values()]
    has_codes = loaded.src_vocab is vocab and len(tags) == 2 and set(tags) <= set(vocab.tags)
    if has_codes and "<pad>" in vocab.pieces and config.positions == "stored" and config.norm == "pre":
        table = positions(config.max_positions, config.d_model, vocab.pieces.index("<pad>"))
        stored = [loaded.model.get_buffer(f"{side}_positions.weight") for side in ("src", "tgt")]
        if all(torch.allclose(table, other, atol=1e-6) for other in stored):
            return languages_of(vocab, tags[1][2:-2], tags[0][2:-2])
    raise InputError(
        f"a model that stores search.begin = {toml_value(begin)} can be exported to Hugging Face only if it was "
        "imported from M2M100 or NLLB; translate with the model itself."
    )


def embeddings(loaded: LoadedModel, rows: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Returns the embeddings and the projection, and the bias of the decoder's final norm if the projection's weights
    contain a bias.

    `rows` puts a weight in Hugging Face's order. The final norm is n * g + c, and the mean of n is 0. Adding
    a = g * (1 - mean(c / g)) to c makes the mean of (n * g + c + a) / g equal to 1. It also adds a constant to each
    subword's logit, which is subtracted from its bias b. So b / (g * D), added to a subword's row, adds b to its logit.
    """
    ours = loaded.model.state_dict()
    bias_V = rows(ours["projection.bias"].float()) if "projection.bias" in ours else torch.zeros(1)
    if loaded.model.config.tie == "src-tgt-softmax" and not bias_V.any():
        return {HUGGING_FACE.shared: rows(ours["src_embedding.weight"].float())}
    tensors = {theirs: rows(ours[name].float()) for name, theirs in HUGGING_FACE.of_tables("none").items()}
    if bias_V.any():
        gain_D, last_D = (ours[f"decoder.final_norm.{kind}"].float() for kind in ("weight", "bias"))
        added_D = gain_D * (1 - (last_D / gain_D).mean())
        projection_VD = tensors[HUGGING_FACE.tables["projection.weight"]]
        bias_V = bias_V - projection_VD @ added_D
        projection_VD += bias_V[:, None] / (gain_D * len(gain_D))
        tensors["model.decoder.layer_norm.bias"] = last_D + added_D
    return tensors


def write_tokenizer(folder: Path, vocab: Vocabulary, pieces: Sequence[str], direction: Direction) -> dict[str, Any]:
    """Writes the tokenizer's files, and returns its settings. Raises InputError for NLLB without transformers, which
    makes tokenizer.json."""
    codes = [tag[2:-2] for tag in vocab.tags]
    settings: dict[str, Any] = {
        "src_lang": direction.pair.src, "tgt_lang": direction.pair.tgt, "bos_token": "<s>", "eos_token": "</s>",
        "sep_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
    }  # fmt: skip
    (folder / SPM).write_bytes(vocab.spm)
    if NLLB_CODE.fullmatch(direction.pair.tgt):
        settings |= {"mask_token": None, "additional_special_tokens": codes}
        ids = {piece[2:-2] if is_language(piece) else piece: id for id, piece in enumerate(pieces)}
        _nllb_tokenizer(ids, normalization_table(vocab.spm), settings).save(str(folder / FAST))
        return {"tokenizer_class": "NllbTokenizer", **settings}
    first = min(id for id, piece in enumerate(pieces) if is_language(piece))
    ids = {piece: id for id, piece in enumerate(pieces[:first])}
    write_json(folder / names.VOCAB, ids)
    return {
        "tokenizer_class": "M2M100Tokenizer",
        "language_codes": "m2m100" if "af" in codes else "wmt21",
        "additional_special_tokens": [f"__{code}__" for code in codes],
        **settings,
    }


def normalization_table(proto: bytes) -> bytes:
    """Returns `normalizer_spec.precompiled_charsmap` (fields 3 and 2); empty if the model does not normalize."""
    return bytes(in_spec(proto, 3, 2, b""))


def _nllb_tokenizer(ids: Mapping[str, int], normalization: bytes, settings: Mapping[str, Any]) -> Any:
    """Returns a tokenizer of the package tokenizers. `normalization` is a `normalization_table`."""
    package = transformers()
    base = importlib.import_module("transformers.tokenization_utils_base")
    special = [*SPECIAL_PIECES, *settings["additional_special_tokens"]]
    merges = base.generate_merges(ids, skip_tokens=special)
    options = {"_spm_precompiled_charsmap": normalization} if normalization else {}
    return package.NllbTokenizer(vocab=ids, merges=merges, **settings, **options).backend_tokenizer
