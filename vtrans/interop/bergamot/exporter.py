"""Writes a model for Bergamot: Marian's usual network in 8 bits, SentencePiece models, a shortlist and settings.

The files have the names of Firefox's models. The reference that the engine is compared with is made of the file's own
weights and alphas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vtrans.checkpoint import LoadedModel
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.interop.bergamot.binary import Matrix, Tensors, places_of, write_model, write_shortlist
from vtrans.interop.bergamot.engine import Bergamot, package
from vtrans.interop.bergamot.folder import ALPHA, RATIO, names_of, write_settings
from vtrans.interop.bergamot.quantization import LARGEST_INTEGER, PROJECTION, matrix, reference, tuned_alphas
from vtrans.interop.comparison import generated_sentences
from vtrans.interop.expressible import BERGAMOT, check_model, nearest_search
from vtrans.interop.imported import ABSENT_BIAS, rows_of, rows_there
from vtrans.interop.marian.importer import CONFIG, EXPECTED, EXPECTED_OF_RNN, spm_table
from vtrans.interop.weight_names import MARIAN, layer_weights
from vtrans.model import tensor_of
from vtrans.numerics.positions import marian
from vtrans.text.vocabulary import BOS_ID, PAD_ID, Vocabulary

# The engine knows an alpha by the name of its matrix, which is "none" for a shortlisted projection in some versions.
_SHORTLISTED = "none"
LONGEST = 126  # subwords; the engine divides longer sentences
_VERSION = "v1.12.42"  # of Marian, whose settings `settings_of` returns


def write(
    loaded: LoadedModel, folder: Path, console: Console, samples: Sequence[str] | None, engine: Path | None = None
) -> tuple[LoadedModel, Callable[[], Bergamot]]:
    """Writes the files into an empty folder. Returns the model as Bergamot computes it, and a function that loads the
    files into the engine, whose npm package is the folder `engine`.

    The alphas are tuned on `samples`. Raises InputError for a model that Bergamot does not express, and for an
    `engine` that is not its package.
    """
    _check(loaded)
    if engine:
        package(engine)
    if samples is None:
        console.warn(
            "the alphas are tuned on generated sentences; give a sample file of some hundred sentences of real text"
        )
        samples = generated_sentences(loaded.src_vocab)
    search = nearest_search(loaded.search, BERGAMOT, console, max_ratio=RATIO)
    # Scores are those of a subword.
    search = replace(search, alpha=1.0, length_penalty="length", max_source=min(search.max_source, LONGEST))
    loaded = replace(loaded, search=search)
    alphas = tuned_alphas(loaded, samples)
    tensors, weights = quantized(loaded, alphas)
    names = names_of(loaded)
    write_model(folder / names.model, tensors)
    for name, vocab in ((names.src_vocab, loaded.src_vocab), (names.tgt_vocab, loaded.tgt_vocab)):
        (folder / name).write_bytes(vocab.spm)
    if loaded.shortlist and names.shortlist:
        places = places_of(loaded.tgt_vocab), places_of(loaded.src_vocab)
        write_shortlist(folder / names.shortlist, loaded.shortlist, *places)
    else:
        console.warn("the model has no shortlist, with which Bergamot is several times as fast; run `vtrans shortlist`")
    write_settings(folder, names)
    expressed = reference(loaded, weights, alphas)
    return expressed, partial(Bergamot, folder, names, engine, loaded.tgt_vocab)


def _check(loaded: LoadedModel) -> None:
    check_model(loaded.model.config, BERGAMOT)
    if not is_usual(loaded):
        raise InputError(
            "the model's stored positions or its embedding of <s> are not those of Bergamot; train one with "
            'model.positions = "marian".'
        )
    if loaded.tags or not all(map(is_spm, (loaded.src_vocab, loaded.tgt_vocab))):
        raise InputError(
            "a model with tags of target languages, or with a vocabulary that is not a SentencePiece model, cannot be "
            "exported to Bergamot; translate with the model itself."
        )


def quantized(loaded: LoadedModel, alphas: Mapping[str, float]) -> tuple[Tensors, dict[str, Tensor]]:
    """Returns Marian's tensors by name, with matrices in 8 bits and an alpha for each; and by our names the values of
    these matrices."""
    config, arrays, settings = loaded.model.config, tensors_of(loaded), settings_of(loaded)
    tensors: dict[str, Tensor | Matrix] = {name: value.contiguous() for name, value in arrays.items()}
    bias = arrays["decoder_ff_logit_out_b"]
    tensors["decoder_ff_logit_out_b"] = F.pad(bias, (0, settings["dim-vocabs"][1] - bias.shape[1]), value=ABSENT_BIAS)
    weights = {}
    for weight in layer_weights(config, MARIAN):
        if len(weight.shape) == 2:
            parts = {name: matrix(arrays[name].T) for name in weight.theirs}
            tensors |= parts
            weights[weight.ours] = torch.cat([part.values for part in parts.values()])
            alpha = torch.tensor([alphas[weight.ours.removesuffix(".weight")]])
            tensors |= {name + ALPHA: alpha for name in parts}
    shared = config.tie.startswith("src-tgt")
    names = {"src": "Wemb"} if shared else {"src": "encoder_Wemb", "tgt": "decoder_Wemb"}
    for side, name in names.items():
        embedding = tensors[name] = _embedding(arrays[name])
        vocab = loaded.src_vocab if side == "src" else loaded.tgt_vocab
        weights[f"{side}_embedding.weight"] = rows_of(vocab, embedding.values)
    for name in (names["src" if shared else "tgt"], _SHORTLISTED):
        tensors[name + ALPHA] = torch.tensor([alphas[PROJECTION]])
    text = torch.frombuffer(bytearray(yaml_of(settings) + b"\0"), dtype=torch.int8)
    return {name: tensors[name] for name in sorted(tensors)} | {CONFIG: text}, weights


def _embedding(weight: Tensor) -> Matrix:
    """Returns an embedding in 8 bits with unused rows. The engine chooses the multiplier of a projection by its largest
    value. A value of 127 in the last row makes it the multiplier of the file."""
    integers, multiplier = matrix(weight)
    padded = F.pad(integers, (0, 0, 0, _padded(len(integers)) - len(integers)))
    padded[-1, 0] = LARGEST_INTEGER
    return Matrix(padded, multiplier)


def _padded(rows: int) -> int:
    """Returns the number of rows that a table of pieces has for Bergamot: a multiple of 8, and at least one unused."""
    return (rows // 8 + 1) * 8


def is_usual(loaded: LoadedModel) -> bool:
    """Returns whether the model has the positions and the start of Marian's usual network (`type: transformer`), which
    Bergamot runs: its own sinusoidal positions, and an embedding of zeros."""
    config, model = loaded.model.config, loaded.model
    return not bool(model.tgt_embedding.weight[BOS_ID].any()) and (
        config.positions == "marian" or all(map(_are_marians, (model.src_positions, model.tgt_positions)))
    )


def _are_marians(table: nn.Module) -> bool:
    weight = table.get_buffer("weight")
    return torch.allclose(weight, tensor_of(marian(*weight.shape)).to(weight), atol=1e-6)


def is_spm(vocab: Vocabulary) -> bool:
    """Returns whether the SentencePiece model by itself gives the ids of the vocabulary."""
    if vocab.table is None:
        return True
    return bool(vocab.spm) and spm_table(vocab.spm) == (vocab.table.pieces, vocab.table.special)


def tensors_of(loaded: LoadedModel) -> dict[str, Tensor]:
    """Returns Marian's tensors by name: matrices [in, out] and vectors [1, n]."""
    config, ours = loaded.model.config, loaded.model.state_dict()
    arrays: dict[str, Tensor] = {}
    for weight in layer_weights(config, MARIAN):
        parts = ours[weight.ours].float().chunk(len(weight.theirs))
        arrays |= {name: part.reshape(len(part), -1).T for name, part in zip(weight.theirs, parts, strict=True)}
    if config.tie.startswith("src-tgt"):
        arrays["Wemb"] = _rows(loaded.src_vocab, ours["src_embedding.weight"].float())
    else:
        arrays["encoder_Wemb"] = _rows(loaded.src_vocab, ours["src_embedding.weight"].float())
        arrays["decoder_Wemb"] = _rows(loaded.tgt_vocab, ours["tgt_embedding.weight"].float())
    bias = ours["projection.bias"].float().clone() if config.projection_bias else torch.zeros(len(loaded.tgt_vocab))
    bias[PAD_ID] = ABSENT_BIAS
    arrays["decoder_ff_logit_out_b"] = _rows(loaded.tgt_vocab, bias)[None]
    return arrays


def _rows(vocab: Vocabulary, weight: Tensor) -> Tensor:
    """Returns our rows in the order of the vocabulary that is written."""
    return rows_there(weight, vocab.order, len(vocab.pieces))


def settings_of(loaded: LoadedModel) -> dict[str, Any]:
    """Returns the settings of the model file, those of Marian 1.12.42 that change a post-norm Transformer."""
    config = loaded.model.config
    ssru, joint = config.autoregression == "ssru", config.tie == "src-tgt-softmax"
    settings: dict[str, Any] = {
        **{key: allowed[0] for key, allowed in EXPECTED.items()},
        "dec-depth": config.decoder_layers,
        "dim-emb": config.d_model,
        "dim-vocabs": [_padded(len(vocab.pieces)) for vocab in (loaded.src_vocab, loaded.tgt_vocab)],
        "enc-depth": config.encoder_layers,
        "factors-combine": "sum",
        "lemma-dependency": "",
        "output-omit-bias": False,
        "tied-embeddings-all": joint,
        "tied-embeddings-src": False,
        "tied-embeddings": not joint,
        "transformer-decoder-autoreg": "rnn" if ssru else "self-attention",
        "transformer-decoder-dim-ffn": 0,
        "transformer-dim-ffn": config.d_ff,
        "transformer-ffn-activation": config.activation,
        "transformer-guided-alignment-layer": "last",
        "transformer-heads": config.heads,
        "transformer-postprocess": "dan",
        "transformer-postprocess-top": "",
        "transformer-preprocess": "",
        "version": f"{_VERSION}, written by vtrans",
    }
    if ssru:
        settings |= {key: allowed[0] for key, allowed in EXPECTED_OF_RNN.items()}
    return settings


def yaml_of(values: Mapping[str, Any]) -> bytes:
    """Returns settings as Marian reads them."""

    def scalar(value: Any) -> str:
        if isinstance(value, list):
            return f"[{', '.join(map(scalar, value))}]"
        return str(value).lower() if isinstance(value, bool) else str(value) if value != "" else '""'

    return "".join(f"{key}: {scalar(value)}\n" for key, value in values.items()).encode()
