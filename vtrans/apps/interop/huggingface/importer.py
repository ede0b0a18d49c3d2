"""Reads Hugging Face folders: Marian models such as OPUS-MT, Pegasus models with Marian's tokenizer, M2M100 and NLLB.

The source is version 5.23 of transformers: `modeling_marian.py`, `modeling_pegasus.py`, `modeling_m2m_100.py` and the
tokenizers of Marian, M2M100 and NLLB. Marian models are post-norm without an embedding norm; Pegasus is the same
network with pre-norm. The decoder starts with its padding id, a class of the softmax that the search suppresses. That
class becomes our `<s>`; our `<pad>` is a separate, unused row.

M2M100 is Pegasus with other position frequencies and a projection without a bias. A source sentence is its language
code, the text and `</s>`. The decoder starts with `</s>`, and its first token is forced to be the target language's
code. We write a code as a tag: `>>eng_Latn<<` is NLLB's piece `eng_Latn`, and `>>en<<` is M2M100's piece `__en__`. A
model file has one direction: each source begins with its language's tag, and `search.begin` is the target language's
tag.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vtrans.apps.interop.comparison import Imported
from vtrans.apps.interop.foreign_files import (
    ForeignTensors,
    Settings,
    file_in,
    open_safetensors,
    ordered,
    read_bytes,
    read_object,
    shown,
)
from vtrans.apps.interop.huggingface.original import Direction, TransformersModel
from vtrans.apps.interop.weights import HUGGING_FACE, marian_positions, read_network
from vtrans.config import ModelConfig, SearchConfig
from vtrans.model.positions import tensor_of
from vtrans.model.rotary import sinusoidal
from vtrans.storage.model_file import Model
from vtrans.system.errors import FileError, InputError
from vtrans.text.languages import Languages, languages_from, tags_among
from vtrans.text.piece_table import pack
from vtrans.text.vocabulary import EOS_ID, Vocabulary

CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"
WEIGHTS, SHARDS, PICKLED = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
SOURCE_SPM, TARGET_SPM, VOCAB, TARGET_VOCAB = "source.spm", "target.spm", "vocab.json", "target_vocab.json"
M2M100_SPM, NLLB_TOKENIZER = "sentencepiece.bpe.model", "tokenizer.json"
LARGEST_SPM = 1 << 28  # bytes
NLLB_CODE, _M2M100_CODE = re.compile("[a-z]{3}_[A-Z][a-z]{3}"), re.compile("__([a-z]{2,3})__")
M2M100 = "m2m_100"
NAMES = {"marian": "Marian", "pegasus": "Pegasus", M2M100: "M2M100"}  # by model_type
# Keys of config.json by our names: sizes, which must be equal in both stacks, and other values.
SIZES = {
    "d_model": ("d_model",),
    "d_ff": ("encoder_ffn_dim", "decoder_ffn_dim"),
    "heads": ("encoder_attention_heads", "decoder_attention_heads"),
    "encoder_layers": ("encoder_layers",),
    "decoder_layers": ("decoder_layers",),
}
VALUES = ("scale_embedding", "dropout", "attention_dropout", "activation_dropout")
# Keys of generation_config.json by our names, and values of `early_stopping` by `search.stop`.
SEARCH = {"beam": "num_beams", "alpha": "length_penalty", "no_repeat_ngram": "no_repeat_ngram_size"}
STOPS = {"count": True, "current": False, "exhaustive": "never"}
# The defaults of M2M100Config; transformers does not save keys with these values.
M2M100_DEFAULTS: dict[str, Any] = {
    "d_model": 1024, "max_position_embeddings": 1024, "vocab_size": 128112, "encoder_layers": 12, "decoder_layers": 12,
    "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096, "encoder_attention_heads": 16, "decoder_attention_heads": 16,
    "activation_function": "relu", "scale_embedding": True, "dropout": 0.1, "attention_dropout": 0.1,
    "decoder_start_token_id": 2, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
ACTIVATIONS = {"gelu": "gelu", "swish": "swish", "silu": "swish", "relu": "relu"}  # the first is the default there
# Keys of config.json, each with the only value that vtrans supports.
EXPECTED: dict[str, tuple[Any, ...]] = {
    "normalize_embedding": (False,),
    "add_bias_logits": (False,),
    "static_position_embeddings": (True,),
    "is_encoder_decoder": (True,),
    "quantization_config": (None,),
}
EXPECTED_NORMS = {
    "marian": {"normalize_before": (False,), "add_final_layer_norm": (False,)},
    "pegasus": {"normalize_before": (True,), "add_final_layer_norm": (True,)},
}
# Keys that are read elsewhere, and keys without effect on a translation by beam search.
KNOWN = {
    *chain(*SIZES.values()), *VALUES, *SEARCH.values(), *EXPECTED, *EXPECTED_NORMS["marian"], "hidden_size",
    "num_attention_heads", "num_hidden_layers", "max_position_embeddings", "vocab_size", "decoder_vocab_size",
    "activation_function", "share_encoder_decoder_embeddings", "tie_word_embeddings", "model_type", "early_stopping",
    "max_length", "min_length", "bad_words_ids", "suppress_tokens", "_name_or_path", "_num_labels",
    "_from_model_config", "architectures", "transformers_version", "torch_dtype", "dtype", "use_cache", "init_std",
    "encoder_layerdrop", "decoder_layerdrop", "classif_dropout", "classifier_dropout", "gradient_checkpointing",
    "id2label", "label2id", "num_labels", "return_dict", "output_past", "is_decoder", "tokenizer_class",
    "task_specific_params", "extra_pos_embeddings", "chunk_size_feed_forward", "temperature", "top_k", "top_p", "min_p",
    "typical_p", "diversity_penalty", "forced_eos_token_id", "bos_token_id",
}  # fmt: skip
# Values without effect, besides null, false, 0 and empty values.
NEUTRAL = {"repetition_penalty": 1, "encoder_repetition_penalty": 1, "num_beam_groups": 1, "num_return_sequences": 1}


def recognises(path: Path) -> bool:
    """Returns whether this is a Hugging Face folder."""
    others = (WEIGHTS, SHARDS, PICKLED, VOCAB)
    return (path / CONFIG).is_file() and any((path / name).is_file() for name in others)


def read(folder: Path, options: MutableMapping[str, Any]) -> Imported:
    """Returns the model of a folder. For M2M100 and NLLB, removes the languages `from` and `to` from the options.
    Raises FileError if the folder is damaged or vtrans does not support its model."""
    given = {"model_type": "marian", **read_object(file_in(folder, CONFIG))}
    kind = given["model_type"]
    config = Settings(M2M100_DEFAULTS | given if kind == M2M100 else given, str(folder / CONFIG))
    config.check({"model_type": tuple(NAMES)})
    config.check(EXPECTED | EXPECTED_NORMS.get(kind, {}))
    tokenizer = _optional(folder / TOKENIZER)
    # transformers ignores the search settings of config.json if generation_config.json exists.
    generation = _optional(folder / GENERATION) if (folder / GENERATION).is_file() else config
    model = _model_config(config)
    size = model.max_positions, model.d_model
    direction = None
    if kind == M2M100:
        src = tgt = _multilingual_vocabulary(folder, config, tokenizer)
        direction = direction_between(src, options.pop("from", None), options.pop("to", None))
        languages: Sequence[Languages] = [Languages(direction.src, direction.tgt)]
        tags = {direction.tgt: f">>{direction.src}<<"}
        positions = partial(marian_positions, *size, first=config.size("pad_token_id", least=0) + 1)
    else:
        src, tgt = _vocabularies(folder, config)
        languages, tags = _languages(tokenizer, src), tags_among(src.tags)
        positions = partial(half_positions, *size)
    search, left_out = _search_config(config, generation, tokenizer, tgt, model)
    if direction:
        search = replace(search, begin=(f">>{direction.tgt}<<",))
    tensors, start = _tensors(folder), config.get("decoder_start_token_id")
    # Early versions of transformers saved the positions; they are computed here.
    network = read_network(tensors, HUGGING_FACE, model, (src, tgt), {"src_positions.weight": positions}, start=start)
    name = f"Hugging Face {NAMES[kind]}"
    notes = (f"weights: {tensors.path.name}", *left_out, *_ignored(config, generation, direction))
    original = partial(TransformersModel, folder, src.order, tgt.order, direction)
    imported = Model(network, src, tgt, search, {"imported": name}, languages=languages, tags=tags)
    return Imported(f"a {name} folder", notes, imported, original)


def _optional(path: Path) -> Settings:
    return Settings(read_object(path) if path.is_file() else {}, str(path))


def _languages(tokenizer: Settings, src: Vocabulary) -> tuple[Languages, ...]:
    """Returns the languages of a Marian model; () if they are unknown or not language codes."""
    codes = [tokenizer.get(f"{side}_lang") for side in ("source", "target")]
    try:
        return languages_from([[codes[0], code] for code in tags_among(src.tags)] or codes)
    except InputError:
        return ()


# Vocabularies.


def _vocabularies(folder: Path, config: Settings) -> tuple[Vocabulary, Vocabulary]:
    shared = config.get("share_encoder_decoder_embeddings", True)
    src_size = config.size("vocab_size")
    src_pieces = tgt_pieces = ordered(read_object(file_in(folder, VOCAB)), src_size, folder / VOCAB)
    if (folder / TARGET_VOCAB).is_file() and not shared:
        path = folder / TARGET_VOCAB
        tgt_pieces = ordered(read_object(path), config.size("decoder_vocab_size"), path)
    else:  # one vocabulary
        config.check({"decoder_vocab_size": (src_size, None)})
    start = config.size("decoder_start_token_id", least=0, largest=len(tgt_pieces) - 1)
    src = _vocabulary(folder / SOURCE_SPM, config, src_pieces, start if src_pieces is tgt_pieces else None)
    tgt = _vocabulary(folder / TARGET_SPM, config, tgt_pieces, start)
    return src, src if src.digest == tgt.digest else tgt


def _vocabulary(spm: Path, config: Settings, pieces: list[str], start: int | None) -> Vocabulary:
    """Returns the vocabulary of a side. The piece with which the decoder starts becomes our `<s>`."""
    eos, unk = pieces.index("</s>"), pieces.index("<unk>")
    if config.get("eos_token_id") != eos:
        raise config.wrong("eos_token_id", f"{eos}, the id of </s>")
    return _packed(spm, pieces, {"unk": unk, "eos": eos, "bos": None if start in (eos, unk) else start})


def _packed(spm: Path, pieces: Sequence[str], special: Mapping[str, int | None]) -> Vocabulary:
    """Returns the vocabulary of a table and a SentencePiece model. Raises FileError if the model is missing or empty,
    or if the table is invalid."""
    data = read_bytes(file_in(spm.parent, spm.name), LARGEST_SPM)
    if not data:
        raise FileError(f"{spm} is empty.")
    return Vocabulary(pack(pieces, special, data), str(spm))


def _multilingual_vocabulary(folder: Path, config: Settings, tokenizer: Settings) -> Vocabulary:
    """Returns the vocabulary of M2M100 or NLLB. Raises FileError for a tokenizer that does not fit the model, or that
    puts the source language's code after the text."""
    tokenizer.check({"legacy_behaviour": (False, None)})
    size = config.size("vocab_size")
    path = folder / (VOCAB if (folder / VOCAB).is_file() else NLLB_TOKENIZER)
    if not path.is_file():
        raise FileError(f"{folder} lacks its tokenizer: {VOCAB} for M2M100, or {NLLB_TOKENIZER} for NLLB.")
    if not (folder / M2M100_SPM).is_file():
        raise FileError(
            f"{folder} lacks the file {M2M100_SPM}, which transformers 5 does not save for NLLB; copy it from the "
            "model that this one was made of."
        )
    ids = _m2m100_ids(folder, tokenizer) if path.name == VOCAB else _nllb_ids(path)
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
    return _packed(folder / M2M100_SPM, pieces, special)


def unused(place: int) -> str:
    """Returns the piece for a row that the tokenizer of M2M100 or NLLB lacks."""
    return f"<unused {place}>"


def _m2m100_ids(folder: Path, tokenizer: Settings) -> dict[str, Any]:
    """Returns the ids of the pieces in vocab.json, followed by the languages in the order of the tokenizer's special
    tokens."""
    ids = read_object(folder / VOCAB)
    files = tokenizer, _optional(folder / "special_tokens_map.json")
    lists = [file.listed(f"{kind}_special_tokens") for file in files for kind in ("additional", "extra")]
    codes = [match[1] for token in chain(*lists) if (match := _M2M100_CODE.search(str(token)))]
    if not codes:
        raise FileError(
            f"{folder} does not list the languages of its tokenizer; copy special_tokens_map.json from the model that "
            "this one was made of."
        )
    return {**ids, **{f">>{code}<<": len(ids) + i for i, code in enumerate(dict.fromkeys(codes))}}


def _nllb_ids(path: Path) -> dict[str, Any]:
    """Returns the ids of the pieces in a tokenizer.json."""
    content = read_object(path)
    try:
        ids = {str(piece): id for piece, id in content["model"]["vocab"].items()}
        added = {str(token["content"]): token["id"] for token in content["added_tokens"]}
    except (KeyError, TypeError, AttributeError):
        raise FileError(f"{path} must hold a tokenizer of the kind BPE with its added tokens.") from None
    codes = {piece: f">>{piece}<<" if NLLB_CODE.fullmatch(piece) else piece for piece in added}
    return {piece: id for piece, id in ids.items() if piece not in added} | {codes[p]: id for p, id in added.items()}


def direction_between(vocab: Vocabulary, src: str | None, tgt: str | None) -> Direction:
    """Returns the direction between two languages of M2M100 or NLLB. Raises InputError unless both are known."""
    codes = [tag[2:-2] for tag in vocab.tags]
    for side, code in (("from", src), ("to", tgt)):
        if code not in codes:
            raise InputError(f"`{side}` must be one of the model's languages, {', '.join(codes)}, got {shown(code)}.")
    return Direction(str(src), str(tgt), vocab.pieces.index(f">>{tgt}<<"))


# Positions.


def half_order(D: int) -> Tensor:
    """Returns the order of our columns that puts all sines before the cosines."""
    return torch.cat([torch.arange(0, D, 2), torch.arange(1, D, 2)])


def half_positions(length: int, D: int) -> Tensor:
    """Returns the position table [length, D] of Marian and Pegasus in transformers: ours, with all sines before the
    cosines."""
    return tensor_of(sinusoidal(length, D))[:, half_order(D)]


# Settings.


def _model_config(config: Settings) -> ModelConfig:
    sizes = {ours: config.size(theirs[0]) for ours, theirs in SIZES.items()}
    for ours, size in sizes.items():
        config.check(dict.fromkeys(SIZES[ours], (size,)))
    config.check({"activation_function": tuple(ACTIVATIONS)})
    shared, tied = (config.get(key, True) for key in ("share_encoder_decoder_embeddings", "tie_word_embeddings"))
    values = {
        **sizes,
        "activation": ACTIVATIONS[config.text("activation_function", "gelu")],
        "tie": "none" if not tied else "src-tgt-softmax" if shared else "tgt-softmax",
        "norm": "post" if config.get("model_type") == "marian" else "pre",
        "positions": "stored",
        "max_positions": config.size("max_position_embeddings"),
        "share_positions": True,
        "projection_bias": True,
        "scale_embedding": False,
        **{key: config.get(key) for key in VALUES if key in config.values},
    }
    return config.section(ModelConfig, values)


def _search_config(
    config: Settings, settings: Settings, tokenizer: Settings, tgt: Vocabulary, model: ModelConfig
) -> tuple[SearchConfig, list[str]]:
    """Returns the search that `settings` describe, and a note on each setting that is left out."""
    advice = "remove it from the file to import the model without this rule, which may change translations"
    if config.get("model_type") != M2M100:  # the direction determines its first token
        settings.check({"forced_bos_token_id": (None,)}, advice)
    settings.check({"forced_eos_token_id": (config.get("eos_token_id"), None)}, advice)
    suppressed, left_out = _suppressed(settings, tgt)
    if settings.get("forced_eos_token_id") is not None:
        left_out.append("forced_eos_token_id is ignored: a translation that reaches its limit has no end of sentence")

    def length(file: Settings, key: str, below: int = 1 << 30) -> int:
        """Returns a length minus the start or end token that it counts; 0 if it is missing or not `below`."""
        value = file.get(key)
        return value - 1 if type(value) is int and 1 < value < below else 0

    most = model.max_positions
    early = settings.get("early_stopping")
    values = {
        "beam": 1,
        "alpha": 1.0,
        **{ours: settings.get(theirs) for ours, theirs in SEARCH.items() if settings.get(theirs) is not None},
        "length_penalty": "length",
        "stop": next((ours for ours, theirs in STOPS.items() if theirs == early), "current"),
        "max_length": length(settings, "max_length", most),
        "min_length": length(settings, "min_length"),
        "suppress": suppressed,
        "max_source": min(SearchConfig.max_source, length(tokenizer, "model_max_length", most) or most - 1),
    }
    return settings.section(SearchConfig, values), left_out


def _ignored(config: Settings, generation: Settings, direction: Direction | None) -> list[str]:
    """Returns a note on each ignored setting that may change a translation."""
    neutral = NEUTRAL | {key: config.get(key) for key in ("decoder_start_token_id", "pad_token_id", "eos_token_id")}
    neutral["forced_bos_token_id"] = direction and direction.forced
    files = [config] if generation is config else [config, generation]
    return [
        f"{key} {value!r:.80} of {Path(settings.name).name} is ignored"
        for settings in files
        for key, value in settings.values.items()
        if key not in KNOWN and value and value != neutral.get(key)
    ]


def _suppressed(settings: Settings, tgt: Vocabulary) -> tuple[list[str], list[str]]:
    """Returns the suppressed pieces (bad words of one token and suppressed tokens), and a note on each other one."""
    ours = {place: id for id, place in enumerate(tgt.order)}
    pieces: dict[str, None] = {}
    left_out: list[str] = []
    for word in [*settings.listed("bad_words_ids"), *([token] for token in settings.listed("suppress_tokens"))]:
        if not (isinstance(word, list) and len(word) == 1 and type(word[0]) is int and word[0] in ours):
            left_out.append(f"the bad word {word!r:.80} is not taken over, because only single tokens are")
        elif word[0] != tgt.order[EOS_ID]:  # transformers ignores the end of sentence
            pieces[tgt.piece(ours[word[0]])] = None
    return list(pieces), left_out


# Weights.


def _tensors(folder: Path) -> ForeignTensors:
    path = folder / WEIGHTS
    if path.is_file():
        return open_safetensors(path, [path])
    path = folder / SHARDS
    if path.is_file():
        places = read_object(path).get("weight_map")
        if not isinstance(places, dict) or not places:
            raise FileError(f"{path} must hold a weight_map from names of weights to names of files.")
        return open_safetensors(path, [file_in(folder, name) for name in sorted(set(map(str, places.values())))])
    path = file_in(folder, PICKLED)
    try:
        # weights_only refuses everything but tensors; its error advises setting it to False, so it is not quoted. mmap
        # reads a weight on use; early versions of torch wrote files that cannot be mapped.
        tensors: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception:  # torch raises many kinds for foreign and hostile files
        raise FileError(
            f"{path} is damaged or holds more than weights, such as code, which vtrans does not run; copy it again, or "
            f"save the weights as {WEIGHTS}."
        ) from None
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise FileError(f"{path} must hold a dictionary of weights.")
    return ForeignTensors(path, {str(name): tensor.shape for name, tensor in tensors.items()}, tensors.pop)
