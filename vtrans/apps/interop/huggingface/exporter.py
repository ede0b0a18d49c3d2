"""Writes a model as a Hugging Face folder: MarianMTModel for post-norm, Pegasus for pre-norm, and M2M100 for a model
that was imported from M2M100 or NLLB (multilingual.py).

All have exactly our layers. Pegasus is Marian with the norm before the sublayers and a norm after each stack. M2M100 is
Pegasus with other position frequencies. In Marian and Pegasus, a position has its sines in the first half of the
columns and its cosines in the second; ours alternate. The layers treat all columns alike, so the columns of every
weight are reordered, which changes only the order of sums.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vtrans.apps.interop.capabilities import HUGGING_FACE, check_model, nearest_search
from vtrans.apps.interop.comparison import Program
from vtrans.apps.interop.foreign_files import write_json
from vtrans.apps.interop.huggingface import multilingual, names
from vtrans.apps.interop.huggingface.original import TransformersModel
from vtrans.apps.interop.imported import ABSENT_BIAS, rows_there
from vtrans.apps.interop.weight_names import HUGGING_FACE as WEIGHTS
from vtrans.apps.interop.weight_names import layer_weights
from vtrans.config import ModelConfig, SearchConfig
from vtrans.model.checkpoint import LoadedModel
from vtrans.model.positions import tensor_of
from vtrans.model.rotary import sinusoidal
from vtrans.search.rules import suppressed_ids
from vtrans.storage.tensors import save_tensors
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.text.piece_table import is_language
from vtrans.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, SPECIAL_PIECES, UNK_ID, Vocabulary
from vtrans.translate.steps.split import EXTRA_LENGTH

CARD = "README.md"
KINDS = {"post": "marian", "pre": "pegasus"}
ARCHITECTURES = {
    "marian": "MarianMTModel",
    "pegasus": "PegasusForConditionalGeneration",
    multilingual.KIND: "M2M100ForConditionalGeneration",
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
    direction = multilingual.direction_of(loaded) if begin else None
    if direction:
        kind, length = multilingual.KIND, config.max_positions
        src = tgt = _Places(
            loaded.tgt_vocab, loaded.model.tgt_embedding.weight, multilingual.unused(len(loaded.tgt_vocab.pieces))
        )
        forced: dict[str, Any] = {"forced_bos_token_id": direction.theirs[1], "bos_token_id": src.pieces.index("<s>")}
        tokenizer = multilingual.write_tokenizer(folder, loaded.tgt_vocab, src.pieces, direction)
        tensors = dict(_layers(loaded, None)) | multilingual.embeddings(loaded, src.rows)
    else:
        kind, length = KINDS[config.norm], config.max_length or loaded.search.max_source + EXTRA_LENGTH
        src, tgt = _both_places(loaded, console)
        forced = {"forced_eos_token_id": tgt.eos}
        tokenizer = _write_vocabularies(loaded, folder, src, tgt)
        tensors = _tensors(loaded, src, tgt)
        for side in ("src", "tgt"):
            tensors[WEIGHTS.tables[f"{side}_positions.weight"]] = names.positions(length, config.d_model)
    own = WEIGHTS.tables["src_embedding.weight"]
    if kind != KINDS["post"] and own in tensors:
        tensors[WEIGHTS.shared] = tensors[own]  # unused, but transformers expects it
    # No two tensors of a file may share memory.
    separate = {name: value.contiguous().clone() for name, value in tensors.items()}
    save_tensors(folder / names.WEIGHTS, separate, {"format": "pt"})
    special = {"decoder_start_token_id": tgt.start, "pad_token_id": tgt.pad, "eos_token_id": tgt.eos, **forced}
    longest = {"model_max_length": loaded.search.max_source + 1}  # transformers counts EOS
    described = {"model_type": kind, "architectures": [ARCHITECTURES[kind]], **_config(config, src, tgt, length)}
    described["tie_word_embeddings"] = WEIGHTS.tables["projection.weight"] not in tensors
    write_json(folder / names.TOKENIZER, tokenizer | longest)
    write_json(folder / names.CONFIG, described | special)
    write_json(folder / names.GENERATION, _generation(loaded, search, tgt, length) | special)
    load = partial(TransformersModel, folder, src.of_ours, tgt.of_ours, direction and direction.theirs)
    return replace(loaded, search=search, shortlist=None), load


class _Places:
    """The ids of a vocabulary in Hugging Face. A vocabulary with a table keeps the table's ids.

    A missing start is replaced by a piece with the same embedding, such as `</s>`, or else by a new last piece, `<pad>`
    as in OPUS-MT's conversions. Padding is `<pad>` or else the start.
    """

    def __init__(self, vocab: Vocabulary, weight_VD: Tensor | None, new: str = "<pad>") -> None:
        """`weight_VD` is the decoder's embedding, or None for a vocabulary of the encoder alone, which has no start.
        `new` is the name of a new start piece."""
        self.pieces, self.of_ours = list(vocab.pieces), vocab.order
        self.eos, self.unk = self._at(EOS_ID), self._at(UNK_ID)
        pad = self.pieces.index("<pad>") if "<pad>" in self.pieces else None
        start = self.of_ours[BOS_ID]
        if start is None and weight_VD is not None:
            start = self._new_start(weight_VD, new)
        self.start = self.eos if start is None else start
        self.pad = self.start if pad is None else pad

    def _new_start(self, weight_VD: Tensor, new: str) -> int:
        for id in (weight_VD == weight_VD[BOS_ID]).all(1).nonzero().flatten().tolist():
            place = self.of_ours[int(id)]
            if place is not None:
                return place
        if new in self.pieces:
            raise InputError(
                f"the vocabulary has {new} as an ordinary piece, so the start of a translation can get no piece."
            )
        self.pieces.append(new)
        place = len(self.pieces) - 1
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


def _both_places(loaded: LoadedModel, console: Console) -> tuple[_Places, _Places]:
    """Returns the ids of source and target for Marian, or for Pegasus, which needs vocabularies of equal size."""
    for tag in loaded.tags.values():
        if not is_language(tag):
            console.warn(
                f"Hugging Face's tokenizer knows only tags such as >>de<<, so no text can begin with {tag} there"
            )
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


def _column_order(loaded: LoadedModel) -> Tensor | None:
    """Returns the order of our columns that gives Hugging Face's positions, or None if ours are equal to them."""
    model, D = loaded.model, loaded.model.config.d_model
    if model.config.positions == "stored":
        tables: list[Tensor] = [model.get_buffer(f"{side}_positions.weight") for side in ("src", "tgt")]
        if all(torch.allclose(table, names.positions(len(table), D), atol=1e-6) for table in tables):
            return None
        if not all(torch.allclose(table, tensor_of(sinusoidal(len(table), D)), atol=1e-6) for table in tables):
            raise InputError(
                'a model with model.positions = "stored" can be exported to Hugging Face only if they are '
                "sin(p / 10000^(2i/D)) and cos of the same from p = 0; train one with "
                "`--set model.positions=sinusoidal`, or export it to another format."
            )
    return torch.cat([torch.arange(0, D, 2), torch.arange(1, D, 2)])


# Weights.


def _tensors(loaded: LoadedModel, src: _Places, tgt: _Places) -> dict[str, Tensor]:
    """Returns the tensors of Marian or Pegasus except the positions, with columns in Hugging Face's order."""
    config, ours, order = loaded.model.config, loaded.model.state_dict(), _column_order(loaded)
    tensors = dict(_layers(loaded, order))
    # Marian ties all three matrices or only the target's two; Pegasus ties all or none.
    is_tie = _shares(loaded) or (config.tie == "tgt-softmax" and config.norm == "post")
    embeddings = WEIGHTS.of_tables(config.tie if is_tie else "none")
    for name, part in embeddings.items():
        rows = (src if name.startswith("src") else tgt).rows(ours[name].float())
        tensors[part] = rows if order is None else rows[:, order]
    bias = ours.get("projection.bias")
    bias = torch.zeros(len(loaded.tgt_vocab)) if bias is None else bias.float().clone()
    bias[PAD_ID] = ABSENT_BIAS
    tensors[WEIGHTS.tables["projection.bias"]] = tgt.rows(bias)[None]
    return tensors


def _layers(loaded: LoadedModel, order: Tensor | None) -> Iterator[tuple[str, Tensor]]:
    """Yields the names and tensors of the layers, with their columns in this order."""
    ours = loaded.model.state_dict()
    for name, parts, _ in layer_weights(loaded.model.config, WEIGHTS):
        weight = ours[name].float()
        if order is not None and re.search(r"norm\.|\.out\.|\.outer\.", name):  # their rows are columns of the model
            weight = weight[order]
        elif order is not None and weight.dim() == 2:
            weight = weight[:, order]
        yield from zip(parts, weight.chunk(len(parts)), strict=True)


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
