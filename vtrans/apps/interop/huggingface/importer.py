"""Reads Hugging Face folders: Marian models such as OPUS-MT, Pegasus models with Marian's tokenizer, and M2M100 and
NLLB (multilingual.py).

The source is transformers' `modeling_marian.py`, `modeling_pegasus.py` and `tokenization_marian.py`, version 5.23.
Marian models are post-norm without an embedding norm; Pegasus is the same network with pre-norm. The decoder starts
with its padding id, a class of the softmax that the search suppresses. That class becomes our `<s>`; our `<pad>` is a
separate, unused row.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vtrans.apps.interop.foreign_files import ForeignTensors, Settings, file_in, open_safetensors, ordered, read_object
from vtrans.apps.interop.huggingface import multilingual, names
from vtrans.apps.interop.huggingface.original import TransformersModel
from vtrans.apps.interop.imported import Imported, Sources, weights_in
from vtrans.apps.interop.weight_names import HUGGING_FACE
from vtrans.config import ModelConfig, SearchConfig
from vtrans.storage.model_file import Model
from vtrans.system.errors import FileError, InputError
from vtrans.text.languages import Languages, languages_from, tags_among
from vtrans.text.vocabulary import EOS_ID, Vocabulary

ACTIVATIONS = {"gelu": "gelu", "swish": "swish", "silu": "swish", "relu": "relu"}  # the first is the default there
# Keys of config.json, each with the only value that vtrans supports.
EXPECTED: dict[str, tuple[Any, ...]] = {
    "normalize_embedding": (False,),
    "add_bias_logits": (False,),
    "static_position_embeddings": (True,),
    "is_encoder_decoder": (True,),
    "quantization_config": (None,),
}
NAMES = {"marian": "Marian", "pegasus": "Pegasus", multilingual.KIND: "M2M100"}  # by model_type
EXPECTED_NORMS = {
    "marian": {"normalize_before": (False,), "add_final_layer_norm": (False,)},
    "pegasus": {"normalize_before": (True,), "add_final_layer_norm": (True,)},
}
# Alternative names of sizes; transformers takes whichever name comes last.
OTHER_NAMES = {"d_model": ["hidden_size"], "heads": ["num_attention_heads"], "encoder_layers": ["num_hidden_layers"]}
# Keys that are read elsewhere, and keys without effect on a translation by beam search.
KNOWN = {
    *chain(*names.SIZES.values(), *OTHER_NAMES.values()), *names.VALUES, *names.SEARCH.values(), *EXPECTED,
    *EXPECTED_NORMS["marian"], "max_position_embeddings", "vocab_size", "decoder_vocab_size", "activation_function",
    "share_encoder_decoder_embeddings", "tie_word_embeddings", "model_type", "early_stopping", "max_length",
    "min_length", "bad_words_ids", "suppress_tokens", "_name_or_path", "_num_labels", "_from_model_config",
    "architectures", "transformers_version", "torch_dtype", "dtype", "use_cache", "init_std", "encoder_layerdrop",
    "decoder_layerdrop", "classif_dropout", "classifier_dropout", "gradient_checkpointing", "id2label", "label2id",
    "num_labels", "return_dict", "output_past", "is_decoder", "tokenizer_class", "task_specific_params",
    "extra_pos_embeddings", "chunk_size_feed_forward", "temperature", "top_k", "top_p", "min_p", "typical_p",
    "diversity_penalty", "forced_eos_token_id", "bos_token_id",
}  # fmt: skip
# Values without effect, besides null, false, 0 and empty values.
NEUTRAL = {"repetition_penalty": 1, "encoder_repetition_penalty": 1, "num_beam_groups": 1, "num_return_sequences": 1}


def recognises(path: Path) -> bool:
    """Returns whether this is a Hugging Face folder."""
    others = (names.WEIGHTS, names.SHARDS, names.PICKLED, names.VOCAB)
    return (path / names.CONFIG).is_file() and any((path / name).is_file() for name in others)


def read(folder: Path, options: MutableMapping[str, Any]) -> Imported:
    """Returns the model of a folder. For M2M100 and NLLB, removes the languages `from` and `to` from the options.
    Raises FileError if the folder is damaged or vtrans does not support its model."""
    path = file_in(folder, names.CONFIG)
    given = {"model_type": "marian", **read_object(path)}
    is_multilingual = given["model_type"] == multilingual.KIND
    config = Settings(multilingual.DEFAULTS | given if is_multilingual else given, str(path))
    config.check({"model_type": tuple(NAMES)})
    config.check(EXPECTED | EXPECTED_NORMS.get(config.values["model_type"], {}))
    tokenizer = read_object(folder / names.TOKENIZER) if (folder / names.TOKENIZER).is_file() else {}
    wanted = None
    if is_multilingual:
        src = tgt = multilingual.vocabulary(folder, config, tokenizer)
        wanted = multilingual.languages_of(src, options.pop("from", None), options.pop("to", None))
    else:
        src, tgt = _vocabularies(folder, config)
    model = _model_config(config)
    path = folder / names.GENERATION
    # transformers ignores the search settings of config.json if generation_config.json exists.
    generation = Settings(read_object(path), str(path)) if path.is_file() else config
    search, left_out = _search_config(config, generation, tokenizer, tgt, model)
    tensors = _tensors(folder)
    weights = weights_in(tensors, HUGGING_FACE, model, (src, tgt), config.get("decoder_start_token_id"))
    # Early versions of transformers saved the positions.
    tensors.refuse_others({*HUGGING_FACE.tables.values(), HUGGING_FACE.shared})
    positions = partial(names.positions, model.max_positions, model.d_model)
    languages, tags, forced, theirs = _languages(tokenizer, src), tags_among(src.tags), None, None
    if wanted:
        search = replace(search, begin=(wanted.forced,))
        pad = config.size("pad_token_id", least=0)
        positions = partial(multilingual.positions, model.max_positions, model.d_model, pad)
        languages, tags, theirs = (wanted.pair,), {wanted.pair.tgt: wanted.begins_source}, wanted.theirs
        forced = theirs[1]
    notes = (f"weights: {tensors.path.name}", *left_out, *_ignored(config, generation, forced))
    name = f"Hugging Face {NAMES[config.values['model_type']]}"
    sources = Sources(model, weights | {"src_positions.weight": positions})
    original = partial(TransformersModel, folder, src.order, tgt.order, theirs)
    imported = Model(sources, src, tgt, search, {"imported": name}, languages=languages, tags=tags)
    return Imported(folder, f"a {name} folder", notes, imported, original)


def _languages(tokenizer: Mapping[str, Any], src: Vocabulary) -> tuple[Languages, ...]:
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
    src_pieces = tgt_pieces = _pieces(file_in(folder, names.VOCAB), src_size)
    if (folder / names.TARGET_VOCAB).is_file() and not shared:
        tgt_pieces = _pieces(folder / names.TARGET_VOCAB, config.size("decoder_vocab_size"))
    else:  # one vocabulary
        config.check({"decoder_vocab_size": (src_size, None)})
    start = config.size("decoder_start_token_id", least=0, largest=len(tgt_pieces) - 1)
    src = _vocabulary(folder, config, names.SOURCE_SPM, src_pieces, start if src_pieces is tgt_pieces else None)
    tgt = _vocabulary(folder, config, names.TARGET_SPM, tgt_pieces, start)
    return src, src if src.digest == tgt.digest else tgt


def _pieces(path: Path, count: int) -> list[str]:
    return ordered(read_object(path), count, path)


def _vocabulary(folder: Path, config: Settings, spm: str, pieces: list[str], start: int | None) -> Vocabulary:
    """Returns the vocabulary of a side. The piece with which the decoder starts becomes our `<s>`."""
    eos, unk = pieces.index("</s>"), pieces.index("<unk>")
    if config.get("eos_token_id") != eos:
        raise config.wrong("eos_token_id", f"{eos}, the id of </s>")
    special = {"unk": unk, "eos": eos, "bos": None if start in (eos, unk) else start}
    return multilingual.packed(folder / spm, pieces, special)


# Settings.


def _model_config(config: Settings) -> ModelConfig:
    sizes = {ours: config.size(theirs[0]) for ours, theirs in names.SIZES.items()}
    for ours, size in sizes.items():
        config.check(dict.fromkeys((*names.SIZES[ours], *OTHER_NAMES.get(ours, ())), (size,)))
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
        **{key: config.get(key) for key in names.VALUES if key in config.values},
    }
    return config.section(ModelConfig, values)


def _search_config(
    config: Settings, settings: Settings, tokenizer: Mapping[str, Any], tgt: Vocabulary, model: ModelConfig
) -> tuple[SearchConfig, list[str]]:
    """Returns the search that `settings` describe, and a note on each setting that is left out."""
    advice = "remove it from the file to import the model without this rule, which may change translations"
    if config.get("model_type") != multilingual.KIND:  # the direction determines its first token
        settings.check({"forced_bos_token_id": (None,)}, advice)
    settings.check({"forced_eos_token_id": (config.get("eos_token_id"), None)}, advice)
    given = settings.values
    suppressed, left_out = _suppressed(given, tgt)
    if given.get("forced_eos_token_id") is not None:
        left_out.append("forced_eos_token_id is ignored: a translation that reaches its limit has no end of sentence")

    def length(values: Mapping[str, Any], key: str, below: int = 1 << 30) -> int:
        """Returns a length minus the start or end token that it counts; 0 if it is missing or not `below`."""
        value = values.get(key)
        return value - 1 if type(value) is int and 1 < value < below else 0

    most = model.max_positions
    longest_source = length(tokenizer, "model_max_length", most) or most - 1
    copied = {ours: given[theirs] for ours, theirs in names.SEARCH.items() if given.get(theirs) is not None}
    early = given.get("early_stopping")
    values = {
        "beam": 1,
        "alpha": 1.0,
        **copied,
        "length_penalty": "length",
        "stop": next((ours for ours, theirs in names.STOPS.items() if theirs == early), "current"),
        "max_length": length(given, "max_length", most),
        "min_length": length(given, "min_length"),
        "suppress": suppressed,
        "max_source": min(SearchConfig.max_source, longest_source),
    }
    return settings.section(SearchConfig, values), left_out


def _ignored(config: Settings, generation: Settings, forced: int | None) -> list[str]:
    """Returns a note on each ignored setting that may change a translation. `forced` is the id of the forced first
    token."""
    neutral = NEUTRAL | {key: config.get(key) for key in ("decoder_start_token_id", "pad_token_id", "eos_token_id")}
    neutral["forced_bos_token_id"] = forced
    files = [config] if generation is config else [config, generation]
    return [
        f"{key} {value!r:.80} of {Path(settings.name).name} is ignored"
        for settings in files
        for key, value in settings.values.items()
        if key not in KNOWN and value and value != neutral.get(key)
    ]


def _suppressed(given: Mapping[str, Any], tgt: Vocabulary) -> tuple[list[str], list[str]]:
    """Returns the suppressed pieces (bad words of one token and suppressed tokens), and a note on each other one."""
    ours = {place: id for id, place in enumerate(tgt.order)}
    settings = Settings({key: value for key, value in given.items() if value}, "")
    tokens = [[token] for token in settings.listed("suppress_tokens")]
    pieces: list[str] = []
    left_out: list[str] = []
    for word in [*settings.listed("bad_words_ids"), *tokens]:
        if not (isinstance(word, list) and len(word) == 1 and type(word[0]) is int and word[0] in ours):
            left_out.append(f"the bad word {word!r:.80} is not taken over, because only single tokens are")
        elif word[0] != tgt.order[EOS_ID]:  # transformers ignores the end of sentence
            pieces.append(tgt.piece(ours[word[0]]))
    return list(dict.fromkeys(pieces)), left_out


# Weights.


def _tensors(folder: Path) -> ForeignTensors:
    if (folder / names.WEIGHTS).is_file():
        return open_safetensors(folder / names.WEIGHTS)
    if (folder / names.SHARDS).is_file():
        return _sharded(folder)
    path = file_in(folder, names.PICKLED)
    try:
        # weights_only refuses everything but tensors; its error advises setting it to False, so it is not quoted. mmap
        # reads a weight on use; early versions of torch wrote files that cannot be mapped.
        tensors: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception:  # torch raises many kinds for foreign and hostile files
        raise FileError(
            f"{path} is damaged or holds more than weights, such as code, which vtrans does not run; copy it again, or "
            f"save the weights as {names.WEIGHTS}."
        ) from None
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise FileError(f"{path} must hold a dictionary of weights.")
    return ForeignTensors(path, {str(name): tensor.shape for name, tensor in tensors.items()}, tensors.pop)


def _sharded(folder: Path) -> ForeignTensors:
    """Returns the tensors of the safetensors files that the index names. Raises FileError if a file lacks a tensor that
    the index places there."""
    index = folder / names.SHARDS
    places = read_object(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise FileError(f"{index} must hold a weight_map from names of weights to names of files.")
    files = {name: open_safetensors(file_in(folder, name)) for name in dict.fromkeys(places.values())}
    for weight, name in places.items():
        if weight not in files[name]:
            raise FileError(f"{folder / name} lacks the weight {weight[:80]!r}, which {index.name} has there.")
    shapes = {weight: files[name].shapes[weight] for weight, name in places.items()}
    return ForeignTensors(index, shapes, lambda weight: files[places[weight]].read(weight))
