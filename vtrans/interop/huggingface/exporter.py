"""Writes a model as a Hugging Face folder: MarianMTModel for post-norm, Pegasus for pre-norm, and M2M100 for a model
that was imported from M2M100 or NLLB (multilingual.py).

All have our layers exactly. Pegasus is Marian with the norm before the sublayers and a norm after the stacks. M2M100 is
like Pegasus, with positions of other frequencies. Marian and Pegasus have the sines of a position in the first half of
the columns and the cosines in the second, while our columns alternate. The layers treat all columns alike, so the
columns of every weight are reordered, which changes only the order of sums.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vtrans.checkpoint import LoadedModel
from vtrans.config import ModelConfig, SearchConfig
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.interop.comparison import Program
from vtrans.interop.expressible import HUGGING_FACE, check_model, nearest_search
from vtrans.interop.huggingface import multilingual, names
from vtrans.interop.huggingface.original import TransformersModel
from vtrans.interop.imported import ABSENT_BIAS, rows_there
from vtrans.interop.weight_names import HUGGING_FACE as WEIGHTS
from vtrans.interop.weight_names import layer_weights
from vtrans.lines.reader import EXTRA_LENGTH
from vtrans.model import tensor_of
from vtrans.numerics.positions import sinusoidal
from vtrans.search.rules import suppressed_ids
from vtrans.storage.tensors import save_tensors
from vtrans.text.piece_table import is_language
from vtrans.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, SPECIAL_PIECES, UNK_ID, Vocabulary

CARD = "README.md"
SEVERAL = "mul"  # ISO 639-2's code for several languages


def write(loaded: LoadedModel, folder: Path, console: Console) -> tuple[LoadedModel, Callable[[], Program]]:
    """Writes the files into an empty folder. Returns the model with the search that they express, and a function
    that loads them.

    Raises InputError for a model that neither architecture expresses.
    """
    config = loaded.model.config
    check_model(config, HUGGING_FACE)
    # In transformers, greedy search applies the penalty to logits; beam search applies it to log-probabilities, as ours
    # does.
    greedy = {"repetition_penalty": 1.0} if loaded.search.beam == 1 else {}
    search = nearest_search(replace(loaded.search, begin=()), HUGGING_FACE, console, **greedy)
    (folder / CARD).write_text(_card(loaded), encoding="utf-8")
    if loaded.search.begin:
        return _write_multilingual(loaded, folder, replace(search, begin=loaded.search.begin))
    order = _column_order(loaded)
    shared = config.tie == "src-tgt-softmax"
    embedding = loaded.model.tgt_embedding.weight
    places = [_Places(loaded.src_vocab, embedding if shared else None), _Places(loaded.tgt_vocab, embedding)]
    length = loaded.model.config.max_length or loaded.search.max_source + EXTRA_LENGTH
    for tag in loaded.tags.values():
        if not is_language(tag):
            console.warn(
                f"Hugging Face's tokenizer knows only tags such as >>de<<, so no text can begin with {tag} there"
            )
    if config.norm == "pre" and len(places[0].pieces) != len(places[1].pieces):
        raise InputError(
            'a model with model.norm = "pre" can be exported to Hugging Face only if both vocabularies have equally '
            f"many subwords, got {len(places[0].pieces):,} and {len(places[1].pieces):,}; train one with "
            "`--set model.norm=post`, or with a joint vocabulary."
        )
    _write_vocabularies(loaded, folder, places, shared=shared)
    tensors = _tensors(loaded, places, order, shared=shared)
    tensors |= dict.fromkeys(names.POSITIONS.values(), names.positions(length, config.d_model))
    save_tensors(folder / names.WEIGHTS, _separate(tensors), {"format": "pt"})
    tied = {"tie_word_embeddings": names.EMBEDDINGS["projection.weight"] not in tensors}
    _write_json(folder / names.CONFIG, _config(config, places, length, shared=shared) | tied)
    forced = {"forced_eos_token_id": places[1].eos}
    _write_json(folder / names.GENERATION, _generation(loaded, search, places[1], length) | forced)
    return replace(loaded, search=search, shortlist=None), partial(
        TransformersModel, folder, places[0].of_ours, places[1].of_ours
    )


def _write_multilingual(
    loaded: LoadedModel, folder: Path, search: SearchConfig
) -> tuple[LoadedModel, Callable[[], Program]]:
    """Writes a model of M2M100's shape for one direction."""
    vocab, config = loaded.tgt_vocab, loaded.model.config
    direction = multilingual.direction_of(loaded)
    places = _Places(vocab, loaded.model.tgt_embedding.weight, multilingual.unused(len(vocab.pieces)))
    longest = loaded.search.max_source + 1  # with the end
    _write_json(
        folder / names.TOKENIZER,
        multilingual.write_tokenizer(folder, vocab, places.pieces, direction, longest),
    )
    tensors = dict(_layers(loaded, None))
    tensors |= multilingual.embeddings(loaded, places.rows)
    save_tensors(folder / names.WEIGHTS, _separate(tensors), {"format": "pt"})
    special = places.special | {"bos_token_id": places.pieces.index("<s>")}
    description = {
        "architectures": ["M2M100ForConditionalGeneration"],
        "model_type": multilingual.KIND,
        "vocab_size": len(places.pieces),
        "tie_word_embeddings": names.EMBEDDINGS["projection.weight"] not in tensors,
        **_sizes(config, config.max_positions),
        **special,
    }
    _write_json(folder / names.CONFIG, description)
    forced = {"forced_bos_token_id": direction.theirs[1], "bos_token_id": special["bos_token_id"]}
    _write_json(folder / names.GENERATION, _generation(loaded, search, places, config.max_positions) | forced)
    return replace(loaded, search=search, shortlist=None), partial(
        TransformersModel, folder, places.of_ours, places.of_ours, direction.theirs
    )


class _Places:
    """The ids of a vocabulary in Hugging Face. A vocabulary with a table keeps the ids of the table.

    A missing start becomes a piece with the same row, such as `</s>`, or else a new piece at the end, `<pad>` as in the
    conversions of OPUS-MT. Missing padding becomes `<pad>` or the start.
    """

    def __init__(self, vocab: Vocabulary, weight_VD: Tensor | None, new: str = "<pad>") -> None:
        """`weight_VD` is the embedding of a decoder; None: the vocabulary is only an encoder's, which has no start.
        `new` names the piece of a missing start."""
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

    @property
    def special(self) -> dict[str, int]:
        """The special ids of a decoder, as config.json and generation_config.json name them."""
        return {"decoder_start_token_id": self.start, "pad_token_id": self.pad, "eos_token_id": self.eos}

    def rows(self, weight: Tensor) -> Tensor:
        """Returns our rows in the order of Hugging Face."""
        return rows_there(weight, self.of_ours, len(self.pieces))


def _column_order(loaded: LoadedModel) -> Tensor | None:
    """Returns the order of our columns that gives the positions of Hugging Face, or None if they have that order."""
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


def _tensors(loaded: LoadedModel, places: list[_Places], order: Tensor | None, *, shared: bool) -> dict[str, Tensor]:
    config, ours = loaded.model.config, loaded.model.state_dict()
    tensors = dict(_layers(loaded, order))
    embeddings = {"src_embedding.weight": names.SHARED} if shared else dict(names.EMBEDDINGS)
    if config.tie == "tgt-softmax" and config.norm == "post":  # Pegasus ties all three matrices or none
        embeddings.pop("projection.weight")
    for name, part in embeddings.items():
        rows = places[0 if name.startswith("src") else 1].rows(ours[name].float())
        tensors[part] = rows if order is None else rows[:, order]
    if config.norm == "pre" and not shared:  # nothing uses it, but transformers expects it
        tensors[names.SHARED] = tensors[names.EMBEDDINGS["src_embedding.weight"]]
    bias = ours.get("projection.bias")
    bias = torch.zeros(len(loaded.tgt_vocab)) if bias is None else bias.float().clone()
    bias[PAD_ID] = ABSENT_BIAS
    tensors[names.LOGITS_BIAS] = places[1].rows(bias)[None]
    return tensors


def _layers(loaded: LoadedModel, order: Tensor | None) -> Iterator[tuple[str, Tensor]]:
    """Yields the tensors of the layers, whose columns have this order."""
    ours = loaded.model.state_dict()
    for name, parts, _ in layer_weights(loaded.model.config, WEIGHTS):
        weight = _ordered(name, ours[name].float(), order)
        yield from zip(parts, weight.chunk(len(parts)), strict=True)


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors, of which no two share memory, as safetensors requires."""
    return {name: value.contiguous().clone() for name, value in tensors.items()}


def _ordered(name: str, weight: Tensor, order: Tensor | None) -> Tensor:
    """Returns a weight of a layer with its inputs or outputs in this order."""
    if order is None:
        return weight
    if re.search(r"norm\.|\.out\.|\.outer\.", name):  # the outputs
        return weight[order]
    return weight[:, order] if weight.dim() == 2 else weight


# Settings.


def _config(config: ModelConfig, places: list[_Places], length: int, *, shared: bool) -> dict[str, Any]:
    src, tgt = places
    pre = config.norm == "pre"
    return {
        "architectures": ["PegasusForConditionalGeneration" if pre else "MarianMTModel"],
        "model_type": "pegasus" if pre else "marian",
        "vocab_size": len(src.pieces),
        "decoder_vocab_size": len(tgt.pieces),
        "share_encoder_decoder_embeddings": shared,
        "static_position_embeddings": True,
        **_sizes(config, length),
        **tgt.special,
        "forced_eos_token_id": tgt.eos,
    }


def _sizes(config: ModelConfig, length: int) -> dict[str, Any]:
    """Returns the settings that all architectures have."""
    return {
        "d_model": config.d_model,
        **{f"{side}_layers": getattr(config, f"{side}_layers") for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": config.d_ff for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": config.heads for side in ("encoder", "decoder")},
        "max_position_embeddings": length,
        "activation_function": config.activation,
        "scale_embedding": config.scale_embedding,
        **{key: getattr(config, key) for key in ("dropout", "attention_dropout", "activation_dropout")},
        "is_encoder_decoder": True,
    }


def _generation(loaded: LoadedModel, search: SearchConfig, tgt: _Places, length: int) -> dict[str, Any]:
    suppressed = [tgt.of_ours[i] for i in suppressed_ids(search, loaded.tgt_vocab)]
    if loaded.tgt_vocab.table is None:
        suppressed.append(tgt.pad)
    return {
        "num_beams": search.beam,
        "length_penalty": search.alpha,
        "early_stopping": names.STOPS[search.stop],
        "max_length": search.max_length + 1 if search.max_length else length,
        "min_length": search.min_length + 1 if search.min_length else 0,  # theirs counts the start
        "no_repeat_ngram_size": search.no_repeat_ngram,
        "repetition_penalty": search.repetition_penalty,
        "bad_words_ids": [[place] for place in suppressed] or None,
        **tgt.special,
    }


# Vocabularies and the model card.


def _write_vocabularies(loaded: LoadedModel, folder: Path, places: list[_Places], *, shared: bool) -> None:
    src, tgt = places
    for name, vocab in ((names.SOURCE_SPM, loaded.src_vocab), (names.TARGET_SPM, loaded.tgt_vocab)):
        if not vocab.spm:
            raise InputError("a vocabulary without a SentencePiece model cannot be exported to Hugging Face.")
        (folder / name).write_bytes(vocab.spm)
    _write_json(folder / names.VOCAB, {piece: i for i, piece in enumerate(src.pieces)})
    if not shared:
        _write_json(folder / names.TARGET_VOCAB, {piece: i for i, piece in enumerate(tgt.pieces)})
    languages = {}
    for side, codes in _languages(loaded):
        languages[f"{side}_lang"] = codes[0] if len(codes) == 1 else SEVERAL
    description = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": not shared,
        "unk_token": tgt.pieces[tgt.unk],
        "eos_token": tgt.pieces[tgt.eos],
        "pad_token": tgt.pieces[tgt.pad],
        "model_max_length": loaded.search.max_source + 1,  # theirs counts the end
        **languages,
    }
    _write_json(folder / names.TOKENIZER, description)


def _card(loaded: LoadedModel) -> str:
    """Returns a model card with the facts in the model file."""
    sides = _languages(loaded)
    languages = "".join(f" {word} {', '.join(codes)}" for word, (_, codes) in zip(("from", "to"), sides, strict=False))
    front = ["---", "pipeline_tag: translation", "library_name: transformers"]
    if sides:
        front += ["language:", *(f"- {code}" for code in dict.fromkeys(code for _, codes in sides for code in codes))]
    training = {key: value for key, value in loaded.training.items() if key != "average_of"}
    if steps := loaded.training.get("average_of"):
        training["average of the checkpoints at steps"] = ", ".join(map(str, steps))
    recorded = training or {"training": "the model file records nothing about it"}
    return "\n".join(
        [
            *front, "---", "", f"# A translation model{languages}", "",
            "Exported by vtrans. The folder holds no scores: the model file "
            "records none.", "",
            "## Training data and training", "", *_table(recorded), "",
            "## Recipe", "", f"{loaded.model.config.summary}.", "",
            "## Search", "", *_table(vars(loaded.search)), "",
        ]
    )  # fmt: skip


def _languages(loaded: LoadedModel) -> list[tuple[str, list[str]]]:
    """Returns the name and the languages of each side; nothing if the languages are not known."""
    sides = zip(("source", "target"), zip(*loaded.languages, strict=True), strict=False)
    return [(name, list(dict.fromkeys(codes))) for name, codes in sides]


def _table(values: Mapping[str, Any]) -> list[str]:
    return [
        "| | |",
        "|---|---|",
        *(f"| {key} | {str(value).replace('|', chr(92) + '|')} |" for key, value in values.items()),
    ]


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_bytes(json.dumps(value, ensure_ascii=False, indent=2).encode() + b"\n")
