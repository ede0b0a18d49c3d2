"""Writes a model for Marian: an `.npz` file, vocabularies and a `decoder.yml`.

Marian's usual network (`type: transformer`) has its own sinusoidal positions and starts a translation with an embedding
of zeros. A model with both, such as an import from Marian or one that was trained with these positions, is written as
that network. Any other becomes Marian's `transformer-new`, which learns a table of positions for each side. The tables
hold our positions, and the first row of the decoder's also holds our start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vtrans.checkpoint import LoadedModel
from vtrans.config import SearchConfig
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.interop.expressible import MARIAN, check_model, nearest_search
from vtrans.interop.imported import NEVER, rows_there
from vtrans.interop.marian import layout
from vtrans.interop.marian.importer import (
    CONFIG,
    DECODER,
    EXPECTED,
    EXPECTED_OF_RNN,
    SIDES,
    control_pieces,
    spm_table,
)
from vtrans.interop.marian.npz import write_npz
from vtrans.interop.marian.original import MarianModel
from vtrans.interop.verification import Program
from vtrans.model import MarianPositions, SinusoidalPositions
from vtrans.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, SPECIAL_PIECES, UNK_ID, Vocabulary

MODEL, VOCABULARY = "model.npz", "vocab"
MOST_RATIO = 3.0  # target subwords per source subword, Marian's default
_VERSION = "v1.12.42"  # of Marian, whose settings these are
_TIES = {
    "src-tgt-softmax": ("tied-embeddings-all",),
    "src-tgt": ("tied-embeddings-src",),
    "tgt-softmax": ("tied-embeddings",),
    "none": (),
}


def write(loaded: LoadedModel, folder: Path, console: Console) -> tuple[LoadedModel, Callable[[], Program]]:
    """Writes the files into an empty folder. Returns the model with the search that they express, and a function
    that loads them.

    Raises InputError for a model that Marian's networks do not express.
    """
    config = loaded.model.config
    check_model(config, MARIAN)
    usual = is_usual(loaded)
    if config.autoregression == "ssru" and not usual:
        raise InputError(
            "a model with model.autoregression = ssru is exported to Marian only with Marian's positions and norms; "
            'train one with model.positions = "marian" and model.norm_eps = 1e-6, or translate with the model itself.'
        )
    if not usual and config.norm_eps > layout.NEW_EPSILON:
        raise InputError(
            f"a model with model.norm_eps = {config.norm_eps:g} cannot be exported to Marian, whose layer norms have "
            f"{layout.NEW_EPSILON:g}; translate with the model itself."
        )
    search = _search(loaded, console)
    longest = None if usual else _longest_source(loaded, search)
    positions = 0 if longest is None else math.ceil(search.max_ratio * (longest + 1))
    settings, arrays = settings_of(loaded, positions), tensors_of(loaded, positions)
    arrays[CONFIG] = torch.frombuffer(bytearray(yaml_of(settings) + b"\0"), dtype=torch.int8)
    write_npz(folder / MODEL, {name: arrays[name].contiguous().numpy() for name in sorted(arrays)})
    names = _write_vocabularies(loaded, folder, console)
    (folder / DECODER).write_bytes(yaml_of(_decoder(search, names, set(control_pieces(loaded.tgt_vocab)), longest)))
    if usual and not layout.decodes_as_trained(config):
        console.warn(
            "Marian's decoder leaves out a norm of pre-norm models after the first word, so its translations differ "
            "from those of the model; its scores agree"
        )
    translates = not usual or layout.decodes_as_trained(config)
    program = partial(MarianModel, folder / MODEL, loaded.src_vocab, loaded.tgt_vocab, translates=translates)
    return replace(loaded, search=search), program


def is_usual(loaded: LoadedModel) -> bool:
    """Returns whether the model has the positions, the start and the epsilon of Marian's usual network."""
    config, model = loaded.model.config, loaded.model
    return (
        config.positions in ("stored", "marian")
        and config.scale_embedding
        and config.norm_eps == layout.EPSILON
        and not bool(model.tgt_embedding.weight[BOS_ID].any())
        and (config.positions == "marian" or all(map(_are_marians, (model.src_positions, model.tgt_positions))))
    )


def _are_marians(table: nn.Module) -> bool:
    weight = table.get_buffer("weight")
    return torch.equal(weight, MarianPositions.rows(*weight.shape).to(weight))


def _longest_source(loaded: LoadedModel, search: SearchConfig) -> int:
    """Returns the subwords, without EOS, of the longest source for which there are positions. Marian ends with an error
    if a translation needs more positions than it has, so they must suffice for the longest one that it may try."""
    reach, most = loaded.model.max_length, loaded.search.max_source
    return most if reach is None else min(most, int(reach / search.max_ratio) - 1)


# Weights.


def tensors_of(loaded: LoadedModel, positions: int) -> dict[str, Tensor]:
    """Returns Marian's tensors by name: of its usual network, or with tables of `positions` positions."""
    usual = not positions
    config, ours = loaded.model.config, loaded.model.state_dict()
    arrays: dict[str, Tensor] = {}
    for weight in layout.weights_of_layers(config):
        arrays |= layout.split(weight, ours[weight.ours].float())
    scale = 1.0 if usual else loaded.model.src_embedding.scale
    shared = config.tie.startswith("src-tgt")
    if shared:
        arrays["Wemb"] = _rows(loaded.src_vocab, ours["src_embedding.weight"].float()) * scale
    else:
        for side, vocab in (("src", loaded.src_vocab), ("tgt", loaded.tgt_vocab)):
            name = "encoder_Wemb" if side == "src" else "decoder_Wemb"
            arrays[name] = _rows(vocab, ours[f"{side}_embedding.weight"].float()) * scale
    if not config.tie.endswith("softmax"):
        arrays["decoder_ff_logit_out_Wt"] = _rows(loaded.tgt_vocab, ours["projection.weight"].float())
    bias = ours["projection.bias"].float().clone() if config.projection_bias else torch.zeros(len(loaded.tgt_vocab))
    bias[PAD_ID] = NEVER
    arrays["decoder_ff_logit_out_b"] = _rows(loaded.tgt_vocab, bias)[None]
    if usual:
        return arrays
    if config.tie.endswith("softmax"):
        # The embedding is scaled, and the projection is the same matrix. The last norm takes the scale back.
        last = "decoder_top" if config.norm == "pre" else f"decoder_l{config.decoder_layers}_ffn_ffn"
        for name in (f"{last}_ln_scale", f"{last}_ln_bias"):
            arrays[name] = arrays[name] / scale
    arrays = dict(layout.new_item(name, tensor, config) for name, tensor in arrays.items())
    for side, stack in (("src", "encoder"), ("tgt", "decoder")):
        table = _positions(loaded, side, positions)
        if side == "tgt":
            table[0] += ours["tgt_embedding.weight"][BOS_ID].float() * scale
        arrays[layout.new_positions(stack)] = table
    return arrays


def _positions(loaded: LoadedModel, side: str, length: int) -> Tensor:
    """Returns `length` rows of our positions. Rows that the model lacks are zero, and Marian's limits avoid them."""
    table = getattr(loaded.model, f"{side}_positions")
    if isinstance(table, SinusoidalPositions):
        return table.rows(length, loaded.model.config.d_model).float()
    weight: Tensor = table.weight.detach()[:length].float()
    return torch.cat([weight, weight.new_zeros(length - len(weight), weight.shape[1])])


def _rows(vocab: Vocabulary, weight: Tensor) -> Tensor:
    """Returns our rows in the order of the vocabulary that is written."""
    return rows_there(weight, vocab.order, len(vocab.pieces))


# Settings.


def settings_of(loaded: LoadedModel, positions: int) -> dict[str, Any]:
    """Returns the settings of the model file, those of Marian 1.12.42 that change a Transformer."""
    config = loaded.model.config
    pre, ssru = config.norm == "pre", config.autoregression == "ssru"
    settings: dict[str, Any] = {
        **{key: allowed[0] for key, allowed in EXPECTED.items()},
        "dec-depth": config.decoder_layers,
        "dim-emb": config.d_model,
        "dim-vocabs": [len(loaded.src_vocab.pieces), len(loaded.tgt_vocab.pieces)],
        "enc-depth": config.encoder_layers,
        "factors-combine": "sum",
        "lemma-dependency": "",
        "output-omit-bias": False,
        **{key: key in _TIES[config.tie] for (key,) in filter(None, _TIES.values())},
        "transformer-decoder-autoreg": "rnn" if ssru else "self-attention",
        "transformer-decoder-dim-ffn": 0,
        "transformer-dim-ffn": config.d_ff,
        "transformer-ffn-activation": config.activation,
        "transformer-guided-alignment-layer": "last",
        "transformer-heads": config.heads,
        "transformer-postprocess": "da" if pre else "dan",
        "transformer-postprocess-emb": "d",
        "transformer-postprocess-top": "n" if pre else "",
        "transformer-preprocess": "n" if pre else "",
        "transformer-train-position-embeddings": bool(positions),
        "type": "transformer-new" if positions else "transformer",
        "version": f"{_VERSION}, written by vtrans",
    }
    if ssru:
        settings |= {key: allowed[0] for key, allowed in EXPECTED_OF_RNN.items()}
    return settings | ({"max-length": positions} if positions else {})


def _search(loaded: LoadedModel, console: Console) -> SearchConfig:
    """Returns the nearest search that a `decoder.yml` expresses. Warns of settings that it does not."""
    search = loaded.search
    control = control_pieces(loaded.tgt_vocab)
    suppressed = [UNK_PIECE] if UNK_PIECE in search.suppress else []
    suppressed += control if set(control) <= set(search.suppress) else []
    ratio = search.max_ratio or MOST_RATIO
    return nearest_search(search, MARIAN, console, suppress=tuple(suppressed), max_ratio=ratio)


UNK_PIECE = SPECIAL_PIECES[UNK_ID]


def _decoder(search: SearchConfig, vocabularies: list[str], control: set[str], longest: int | None) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "relative-paths": True,
        "models": [MODEL],
        "vocabs": vocabularies,
        "beam-size": search.beam,
        "normalize": search.alpha,
        "word-penalty": 0,
        "max-length-factor": search.max_ratio,
        "allow-unk": UNK_PIECE not in search.suppress,
        "allow-special": not control <= set(search.suppress),
        "mini-batch": 32,
        "maxi-batch": 100,
        "maxi-batch-sort": "src",
    }
    if longest is not None:
        settings |= {"max-length": longest, "max-length-crop": True}
    return settings


def yaml_of(values: Mapping[str, Any]) -> bytes:
    def scalar(value: Any) -> str:
        if isinstance(value, list):
            return f"[{', '.join(map(scalar, value))}]"
        return str(value).lower() if isinstance(value, bool) else str(value) if value != "" else '""'

    return "".join(f"{key}: {scalar(value)}\n" for key, value in values.items()).encode()


# Vocabularies.


def _write_vocabularies(loaded: LoadedModel, folder: Path, console: Console) -> list[str]:
    """Writes the vocabularies. Returns the names of the files that Marian reads, for source and target."""
    vocabularies = [loaded.src_vocab, loaded.tgt_vocab]
    for vocab in vocabularies:
        if None in (vocab.order[UNK_ID], vocab.order[EOS_ID]):
            raise InputError("the model's vocabulary lacks <unk> or </s>, which Marian needs.")
    if all(is_spm(vocab) for vocab in vocabularies) and not loaded.tags:  # Marian's text never becomes a tag
        one = loaded.src_vocab is loaded.tgt_vocab
        names = [f"{VOCABULARY}.spm" if one else f"{side}.spm" for side in SIDES]
        for name, vocab in zip(names, vocabularies, strict=True):
            (folder / name).write_bytes(vocab.spm)
        return names
    names = [f"{VOCABULARY}.yml"] * 2 if loaded.joint else [f"{side}.yml" for side in SIDES]
    for name, side, vocab in zip(names, SIDES, vocabularies, strict=True):
        lines = (f"{_quoted(piece)}: {i}\n" for i, piece in enumerate(vocab.pieces))
        (folder / name).write_bytes("".join(lines).encode())
        if vocab.spm:
            (folder / f"{side}.spm").write_bytes(vocab.spm)
    console.warn(
        "Marian neither splits nor joins text with these vocabularies: give it pieces with spaces between, as "
        "`spm_encode --model source.spm` makes them, and join its output with target.spm"
        + ("; put the tag of the target language before the pieces" if loaded.tags else "")
    )
    return names


def is_spm(vocab: Vocabulary) -> bool:
    """Returns whether the SentencePiece model by itself gives the ids of the vocabulary."""
    if vocab.table is None:
        return True
    return bool(vocab.spm) and spm_table(vocab.spm) == (vocab.table.pieces, vocab.table.special)


def _quoted(piece: str) -> str:
    escaped = "".join(c if c.isalnum() or c == "\u2581" else f"\\U{ord(c):08x}" for c in piece)
    return f'"{escaped}"'
