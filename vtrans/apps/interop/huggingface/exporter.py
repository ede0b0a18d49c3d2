"""Writes a model as a Hugging Face folder: MarianMTModel for post-norm, Pegasus for pre-norm, and M2M100 for a model
that was imported from M2M100 or NLLB.

All have exactly our layers. Pegasus is Marian with the norm before the sublayers and a norm after each stack. M2M100 is
Pegasus with other position frequencies. In Marian and Pegasus, a position has its sines in the first half of the
columns and its cosines in the second; ours alternate. The layers treat all columns alike, so the columns of every
weight are reordered, which changes only the order of sums.

M2M100 starts a translation with the embedding of `</s>`, and ties all embeddings to a projection without a bias. A
fresh import does the same, but training gives our start its own row and each subword a bias. The export then has
separate matrices, and the projection's weights contain the bias.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vtrans.apps.interop.capabilities import HUGGING_FACE, check_model, nearest_search
from vtrans.apps.interop.comparison import Program
from vtrans.apps.interop.foreign_files import write_json
from vtrans.apps.interop.huggingface import importer as names
from vtrans.apps.interop.huggingface.original import Direction, TransformersModel, transformers
from vtrans.apps.interop.weights import ABSENT_BIAS, layer_weights, marian_positions, rows_there
from vtrans.apps.interop.weights import HUGGING_FACE as FORMAT
from vtrans.config import ModelConfig, SearchConfig
from vtrans.config.keys import toml_value
from vtrans.model.checkpoint import LoadedModel
from vtrans.model.positions import tensor_of
from vtrans.model.rotary import sinusoidal
from vtrans.search.rules import suppressed_ids
from vtrans.storage.tensors import save_tensors
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.text.piece_table import is_language
from vtrans.text.spm import in_spec
from vtrans.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, SPECIAL_PIECES, UNK_ID, Vocabulary
from vtrans.translate.steps.split import EXTRA_LENGTH

CARD = "README.md"
KINDS = {"post": "marian", "pre": "pegasus"}
ARCHITECTURES = {
    "marian": "MarianMTModel",
    "pegasus": "PegasusForConditionalGeneration",
    names.M2M100: "M2M100ForConditionalGeneration",
}
SEVERAL = "mul"  # ISO 639-2's code for several languages


def write(loaded: LoadedModel, folder: Path, console: Console) -> tuple[LoadedModel, Callable[[], Program]]:
    """Writes the files into an empty folder. Returns the model with the search that the files express, and a function
    that loads them.

    Raises InputError for a model that no architecture can express.
    """
    config, begin = loaded.model.config, loaded.search.begin
    check_model(config, HUGGING_FACE)
    # In transformers, greedy search applies the penalty to logits; beam search applies it to log-probabilities, as ours
    # does.
    greedy = {"repetition_penalty": 1.0} if loaded.search.beam == 1 else {}
    search = replace(nearest_search(replace(loaded.search, begin=()), HUGGING_FACE, console, **greedy), begin=begin)
    (folder / CARD).write_text(_card(loaded), encoding="utf-8")
    direction = _direction_of(loaded) if begin else None
    if direction:
        kind, length = names.M2M100, config.max_positions
        vocab = loaded.tgt_vocab
        src = tgt = _Places(vocab, loaded.model.tgt_embedding.weight)
        forced: dict[str, Any] = {"forced_bos_token_id": direction.forced, "bos_token_id": src.pieces.index("<s>")}
        tokenizer = _write_multilingual_vocabulary(folder, vocab, src.pieces, direction)
    else:
        kind, length = KINDS[config.norm], config.max_length or loaded.search.max_source + EXTRA_LENGTH
        src, tgt = _both_places(loaded)
        forced = {"forced_eos_token_id": tgt.eos}
        tokenizer = _write_vocabularies(loaded, folder, src, tgt)
    tensors = _tensors(loaded, kind, src, tgt)
    if not direction:
        for side in ("src", "tgt"):
            tensors[FORMAT.tables[f"{side}_positions.weight"]] = names.half_positions(length, config.d_model)
    # No two tensors of a file may share memory.
    separate = {name: value.contiguous().clone() for name, value in tensors.items()}
    save_tensors(folder / names.WEIGHTS, separate, {"format": "pt"})
    special = {"decoder_start_token_id": tgt.start, "pad_token_id": tgt.pad, "eos_token_id": tgt.eos, **forced}
    longest = {"model_max_length": loaded.search.max_source + 1}  # transformers counts EOS
    described = {"model_type": kind, "architectures": [ARCHITECTURES[kind]], **_config(config, src, tgt, length)}
    described["tie_word_embeddings"] = FORMAT.tables["projection.weight"] not in tensors
    write_json(folder / names.TOKENIZER, tokenizer | longest)
    write_json(folder / names.CONFIG, described | special)
    write_json(folder / names.GENERATION, _generation(loaded, search, tgt, length) | special)
    load = partial(TransformersModel, folder, src.of_ours, tgt.of_ours, direction)
    return replace(loaded, search=search, shortlist=None), load


class _Places:
    """The ids of a vocabulary in Hugging Face. A vocabulary with a table keeps the table's ids.

    A missing start is replaced by a piece with the same embedding, such as `</s>`, or else by a new last piece. Padding
    is `<pad>` or else the start.
    """

    def __init__(self, vocab: Vocabulary, weight_VD: Tensor | None) -> None:
        """`weight_VD` is the decoder's embedding, or None for a vocabulary of the encoder alone, which has no start."""
        self.pieces, self.of_ours = list(vocab.pieces), vocab.order
        self.eos, self.unk = self._at(EOS_ID), self._at(UNK_ID)
        pad = self.pieces.index("<pad>") if "<pad>" in self.pieces else None
        start = self.of_ours[BOS_ID]
        if start is None and weight_VD is not None:
            start = self._new_start(weight_VD)
        self.start = self.eos if start is None else start
        self.pad = self.start if pad is None else pad

    def _new_start(self, weight_VD: Tensor) -> int:
        for id in (weight_VD == weight_VD[BOS_ID]).all(1).nonzero().flatten().tolist():
            place = self.of_ours[int(id)]
            if place is not None:
                return place
        place = len(self.pieces)
        self.pieces.append(names.unused(place))
        self.of_ours = [place if id == BOS_ID else other for id, other in enumerate(self.of_ours)]
        return place

    def _at(self, id: int) -> int:
        place = self.of_ours[id]
        if place is None:
            raise InputError(f"the model's vocabulary lacks {SPECIAL_PIECES[id]}, which Hugging Face needs.")
        return place

    def rows(self, weight: Tensor) -> Tensor:
        """Returns our rows in Hugging Face's order."""
        return rows_there(weight, self.of_ours, len(self.pieces))


def _both_places(loaded: LoadedModel) -> tuple[_Places, _Places]:
    """Returns the ids of source and target for Marian, or for Pegasus, which needs vocabularies of equal size."""
    embedding = loaded.model.tgt_embedding.weight
    src = _Places(loaded.src_vocab, embedding if _shares(loaded) else None)
    tgt = _Places(loaded.tgt_vocab, embedding)
    if loaded.model.config.norm == "pre" and len(src.pieces) != len(tgt.pieces):
        raise InputError(
            'a model with model.norm = "pre" can be exported to Hugging Face only if both vocabularies have equally '
            f"many subwords, got {len(src.pieces):,} and {len(tgt.pieces):,}; train one with "
            "`--set model.norm=post`, or with a joint vocabulary."
        )
    return src, tgt


def _shares(loaded: LoadedModel) -> bool:
    return loaded.model.config.tie == "src-tgt-softmax"


# Weights.


def _tensors(loaded: LoadedModel, kind: str, src: _Places, tgt: _Places) -> dict[str, Tensor]:
    """Returns the tensors except the positions. M2M100 has no bias of the projection."""
    config = loaded.model.config
    ours = _weights(loaded, kind)
    tensors: dict[str, Tensor] = {}
    for name, parts, _ in layer_weights(config, FORMAT):
        tensors |= zip(parts, ours[name].chunk(len(parts)), strict=True)
    bias = ours.get("projection.bias", torch.zeros(len(loaded.tgt_vocab))).clone()
    bias[PAD_ID] = ABSENT_BIAS
    bias = tgt.rows(bias)
    # Marian ties all three matrices or only the target's two; Pegasus and M2M100 tie all or none.
    is_tie = _shares(loaded) or (config.tie == "tgt-softmax" and kind == KINDS["post"])
    if kind == names.M2M100:
        is_tie = is_tie and not bias.any()
    for name, table in FORMAT.of_tables(config.tie if is_tie else "none").items():
        tensors[table] = (src if name.startswith("src") else tgt).rows(ours[name])
        if table == FORMAT.tables["src_embedding.weight"] and kind != KINDS["post"]:
            tensors[FORMAT.shared] = tensors[table]  # unused, but transformers expects it
    if kind == names.M2M100:
        return tensors | _biased(tensors, bias) if bias.any() else tensors
    return tensors | {FORMAT.tables["projection.bias"]: bias[None]}


def _biased(tensors: Mapping[str, Tensor], bias_V: Tensor) -> dict[str, Tensor]:
    """Returns a projection whose weights contain a bias, and the bias of the decoder's final norm that this needs.

    The final norm is n * g + c, and the mean of n is 0. Adding a = g * (1 - mean(c / g)) to c makes the mean of
    (n * g + c + a) / g equal to 1. It also adds a constant to each subword's logit, which is subtracted from its bias
    b. So b / (g * D), added to a subword's row, adds b to its logit.
    """
    projection, norm = FORMAT.tables["projection.weight"], "model.decoder.layer_norm"
    gain_D, last_D = tensors[f"{norm}.weight"], tensors[f"{norm}.bias"]
    added_D = gain_D * (1 - (last_D / gain_D).mean())
    bias_V = bias_V - tensors[projection] @ added_D
    biased = tensors[projection] + bias_V[:, None] / (gain_D * len(gain_D))
    return {projection: biased, f"{norm}.bias": last_D + added_D}


def _weights(loaded: LoadedModel, kind: str) -> dict[str, Tensor]:
    """Returns our weights with columns in the order of Hugging Face's positions."""
    weights = {name: weight.float() for name, weight in loaded.model.state_dict().items()}
    stored, order = loaded.model.config.positions == "stored", names.half_order(loaded.model.config.d_model)
    if kind == names.M2M100 or (stored and _has_positions(loaded, names.half_positions)):
        return weights
    if stored and not _has_positions(loaded, lambda length, D: tensor_of(sinusoidal(length, D))):
        raise InputError(
            'a model with model.positions = "stored" can be exported to Hugging Face only if they are '
            "sin(p / 10000^(2i/D)) and cos of the same from p = 0; train one with "
            "`--set model.positions=sinusoidal`, or export it to another format."
        )
    for name, weight in weights.items():
        if re.search(r"norm\.|\.out\.|\.outer\.", name):  # their rows are columns of the model
            weights[name] = weight[order]
        elif weight.dim() == 2:
            weights[name] = weight[:, order]
    return weights


def _has_positions(loaded: LoadedModel, table: Callable[[int, int], Tensor]) -> bool:
    """Returns whether both stored position tables are `table`, except for rounding: programs compute the angles in
    float32."""
    stored = [loaded.model.get_buffer(f"{side}_positions.weight") for side in ("src", "tgt")]
    return all(torch.allclose(rows, table(*rows.shape), atol=1e-4) for rows in stored)


# M2M100 and NLLB.


def _direction_of(loaded: LoadedModel) -> Direction:
    """Returns the model's direction. Raises InputError unless its vocabulary and positions come from M2M100 or
    NLLB."""
    vocab, config, begin = loaded.tgt_vocab, loaded.model.config, loaded.search.begin
    tags = [*begin, *loaded.tags.values()]
    has_codes = loaded.src_vocab is vocab and len(tags) == 2 and set(tags) <= set(vocab.tags)
    if has_codes and "<pad>" in vocab.pieces and config.positions == "stored" and config.norm == "pre":
        table = partial(marian_positions, first=vocab.pieces.index("<pad>") + 1)
        if _has_positions(loaded, table):
            return names.direction_between(vocab, tags[1][2:-2], tags[0][2:-2])
    raise InputError(
        f"a model that stores search.begin = {toml_value(begin)} can be exported to Hugging Face only if it was "
        "imported from M2M100 or NLLB; translate with the model itself."
    )


def _write_multilingual_vocabulary(
    folder: Path, vocab: Vocabulary, pieces: Sequence[str], direction: Direction
) -> dict[str, Any]:
    """Writes the tokenizer's files, and returns its settings. Raises InputError for NLLB without transformers, which
    makes tokenizer.json."""
    codes = [tag[2:-2] for tag in vocab.tags]
    settings: dict[str, Any] = {
        "src_lang": direction.src, "tgt_lang": direction.tgt, "bos_token": "<s>", "eos_token": "</s>",
        "sep_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
    }  # fmt: skip
    (folder / names.M2M100_SPM).write_bytes(vocab.spm)
    if names.NLLB_CODE.fullmatch(direction.tgt):
        settings |= {"mask_token": None, "additional_special_tokens": codes}
        ids = {piece[2:-2] if is_language(piece) else piece: id for id, piece in enumerate(pieces)}
        tokenizer = _nllb_tokenizer(ids, normalization_table(vocab.spm), settings)
        tokenizer.save(str(folder / names.NLLB_TOKENIZER))
        return {"tokenizer_class": "NllbTokenizer", **settings}
    first = min(id for id, piece in enumerate(pieces) if is_language(piece))
    write_json(folder / names.VOCAB, {piece: id for id, piece in enumerate(pieces[:first])})
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


# Settings.


def _config(config: ModelConfig, src: _Places, tgt: _Places, length: int) -> dict[str, Any]:
    return {
        "vocab_size": len(src.pieces),
        "decoder_vocab_size": len(tgt.pieces),
        "share_encoder_decoder_embeddings": config.tie == "src-tgt-softmax",
        "static_position_embeddings": True,
        "is_encoder_decoder": True,
        **{theirs: getattr(config, ours) for ours, keys in names.SIZES.items() for theirs in keys},
        **{key: getattr(config, key) for key in names.VALUES},
        "max_position_embeddings": length,
        "activation_function": config.activation,
    }


def _generation(loaded: LoadedModel, search: SearchConfig, tgt: _Places, length: int) -> dict[str, Any]:
    suppressed = [tgt.of_ours[i] for i in suppressed_ids(search, loaded.tgt_vocab)]
    if loaded.tgt_vocab.table is None:
        suppressed.append(tgt.pad)
    return {
        **{theirs: getattr(search, ours) for ours, theirs in names.SEARCH.items()},
        "early_stopping": names.STOPS[search.stop],
        "max_length": search.max_length + 1 if search.max_length else length,
        "min_length": search.min_length + 1 if search.min_length else 0,  # transformers counts the start
        "repetition_penalty": search.repetition_penalty,
        "bad_words_ids": [[place] for place in suppressed] or None,
    }


# Vocabularies and the model card.


def _write_vocabularies(loaded: LoadedModel, folder: Path, src: _Places, tgt: _Places) -> dict[str, Any]:
    """Writes the vocabularies of Marian or Pegasus. Returns the tokenizer's settings."""
    for name, vocab in ((names.SOURCE_SPM, loaded.src_vocab), (names.TARGET_SPM, loaded.tgt_vocab)):
        if not vocab.spm:
            raise InputError("a vocabulary without a SentencePiece model cannot be exported to Hugging Face.")
        (folder / name).write_bytes(vocab.spm)
    write_json(folder / names.VOCAB, {piece: i for i, piece in enumerate(src.pieces)})
    if not _shares(loaded):
        write_json(folder / names.TARGET_VOCAB, {piece: i for i, piece in enumerate(tgt.pieces)})
    special = {f"{kind}_token": tgt.pieces[getattr(tgt, kind)] for kind in ("unk", "eos", "pad")}
    languages = {f"{side}_lang": codes[0] if len(codes) == 1 else SEVERAL for side, codes in _languages(loaded)}
    return {
        "tokenizer_class": "MarianTokenizer", "separate_vocabs": not _shares(loaded), **special, **languages,
    }  # fmt: skip


def _card(loaded: LoadedModel) -> str:
    """Returns a model card, in Markdown, with the facts in the model file."""
    sides = _languages(loaded)
    languages = "".join(f" {word} {', '.join(codes)}" for word, (_, codes) in zip(("from", "to"), sides, strict=False))
    front = ["---", "pipeline_tag: translation", "library_name: transformers"]
    if sides:
        front += ["language:", *(f"- {code}" for code in dict.fromkeys(code for _, codes in sides for code in codes))]
    facts = {**loaded.training, "architecture": loaded.model.config.summary, **vars(loaded.search)}
    rows = (f"| {key} | {str(value).replace('|', chr(92) + '|')} |" for key, value in facts.items())
    said = "Exported by vtrans. The folder holds no scores: the model file records none."
    title = f"# A translation model{languages}"
    return "\n".join([*front, "---", "", title, "", said, "", "| | |", "|---|---|", *rows, ""])


def _languages(loaded: LoadedModel) -> list[tuple[str, list[str]]]:
    """Returns the name and the languages of each side; [] if the languages are unknown."""
    sides = zip(("source", "target"), zip(*loaded.languages, strict=True), strict=False)
    return [(name, list(dict.fromkeys(codes))) for name, codes in sides]
