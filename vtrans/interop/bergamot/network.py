"""The tensors and settings of Marian's usual network (`type: transformer`), which Bergamot runs.

It has its own sinusoidal positions, and starts a translation with an embedding of zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vtrans.checkpoint import LoadedModel
from vtrans.interop.imported import ABSENT_BIAS, rows_there
from vtrans.interop.marian import layout
from vtrans.interop.marian.importer import EXPECTED, EXPECTED_OF_RNN, spm_table
from vtrans.model import tensor_of
from vtrans.numerics.positions import marian
from vtrans.text.vocabulary import BOS_ID, PAD_ID, Vocabulary

_VERSION = "v1.12.42"  # of Marian, whose settings these are


def is_usual(loaded: LoadedModel) -> bool:
    """Returns whether the model has the positions and the start of the network."""
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
    """Returns Marian's tensors by name."""
    config, ours = loaded.model.config, loaded.model.state_dict()
    arrays: dict[str, Tensor] = {}
    for weight in layout.weights_of_layers(config):
        arrays |= layout.split(weight, ours[weight.ours].float())
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
        "dim-vocabs": [layout.padded(len(vocab.pieces)) for vocab in (loaded.src_vocab, loaded.tgt_vocab)],
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
        "transformer-postprocess-emb": "d",
        "transformer-postprocess-top": "",
        "transformer-preprocess": "",
        "transformer-train-position-embeddings": False,
        "type": "transformer",
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
