"""Writes a model for Bergamot: a Marian network with 8-bit weights, SentencePiece models, a shortlist and settings.

The files have the names of Firefox's models. The engine is compared with a reference that has the file's own weights
and alphas. `write_page` also writes a static page that translates in a browser.
"""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vtrans.apps.interop.bergamot.engine import PACKAGE, WORKER, Bergamot, package
from vtrans.apps.interop.bergamot.files import (
    FIREFOX,
    RATIO,
    Matrix,
    Tensors,
    names_of,
    write_model,
    write_settings,
    write_shortlist,
)
from vtrans.apps.interop.bergamot.quantization import LARGEST_INTEGER, PROJECTION, matrix, reference, tuned_alphas
from vtrans.apps.interop.capabilities import BERGAMOT, check_model, nearest_search
from vtrans.apps.interop.comparison import real_sentences
from vtrans.apps.interop.imported import ABSENT_BIAS, rows_of, rows_there
from vtrans.apps.interop.marian.importer import CONFIG, EXPECTED, EXPECTED_OF_RNN, NORMS, OPERATIONS, SIZES, spm_table
from vtrans.apps.interop.weight_names import MARIAN, layer_weights
from vtrans.model.checkpoint import LoadedModel
from vtrans.model.positions import tensor_of
from vtrans.model.rotary import marian
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.text.languages import language_name
from vtrans.text.vocabulary import BOS_ID, PAD_ID, Vocabulary

ALPHA = "_QuantMultA"  # suffix of a matrix's name
# The engine finds an alpha by the name of its matrix, which is "none" for a shortlisted projection in some versions.
_SHORTLISTED = "none"
LONGEST = 126  # subwords; the engine splits longer sentences
PAGE = Path(__file__).with_name("page")
COPIED = ("page.css", "page.js", "offline.js")
# The page runs only its own scripts, and sends no request to another host. The engine is WebAssembly.
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'"
)
NOTICE = """The folder `worker` holds {package}, the translation engine of the Bergamot project.

It is subject to the terms of the Mozilla Public License, version 2.0: https://mozilla.org/MPL/2.0/
Its source code is at https://github.com/browsermt/bergamot-translator
"""
_VERSION = "v1.12.42, written by vtrans"  # of Marian, whose settings `settings_of` returns


def write(
    loaded: LoadedModel, folder: Path, console: Console, samples: Sequence[str] | None, engine: Path | None = None
) -> tuple[LoadedModel, Callable[[], Bergamot]]:
    """Writes the files into an empty folder. Returns the model as Bergamot computes it, and a function that loads the
    files into the engine, whose npm package is the folder `engine`.

    The alphas are tuned on `samples`. Raises InputError for a model that Bergamot cannot express, and for an `engine`
    that is not its package.
    """
    _check(loaded)
    if engine:
        package(engine)
    if samples is None:
        console.warn("the alphas are tuned on a few sentences of vtrans; give a sample file of some hundred sentences")
        samples = real_sentences(loaded)
    search = nearest_search(loaded.search, BERGAMOT, console, max_ratio=RATIO)
    # Compare scores per subword.
    search = replace(search, alpha=1.0, length_penalty="length", max_source=min(search.max_source, LONGEST))
    loaded = replace(loaded, search=search)
    alphas = tuned_alphas(loaded, samples)
    tensors, weights = quantized(loaded, alphas)
    names = names_of(loaded)
    write_model(folder / names["models"][0], tensors)
    for name, vocab in zip(names["vocabs"], (loaded.src_vocab, loaded.tgt_vocab), strict=True):
        (folder / name).write_bytes(vocab.spm)
    if shortlist := loaded.shortlist:
        (name,) = names["shortlist"]
        write_shortlist(folder / name, shortlist, loaded.tgt_vocab.order, loaded.src_vocab.order)
    else:
        console.warn("the model has no shortlist, with which Bergamot is several times as fast; run `vtrans shortlist`")
    write_settings(folder, names)
    return reference(loaded, weights, alphas), partial(Bergamot, folder, names, engine, loaded.tgt_vocab)


def _check(loaded: LoadedModel) -> None:
    """Raises InputError for a network, positions, a start or a vocabulary that Bergamot cannot express."""
    check_model(loaded.model.config, BERGAMOT)
    model = loaded.model
    computed = loaded.model.config.positions == "marian"
    if model.tgt_embedding.weight[BOS_ID].any() or not (
        computed or all(map(_are_marians, (model.src_positions, model.tgt_positions)))
    ):
        raise InputError(
            "the model's stored positions or its embedding of <s> are not those of Bergamot; train one with "
            'model.positions = "marian".'
        )
    if loaded.tags or not all(map(_is_spm, (loaded.src_vocab, loaded.tgt_vocab))):
        raise InputError(
            "a model with tags of target languages, or with a vocabulary that is not a SentencePiece model, cannot be "
            "exported to Bergamot; translate with the model itself."
        )


def _are_marians(table: nn.Module) -> bool:
    weight = table.get_buffer("weight")
    return torch.allclose(weight, tensor_of(marian(*weight.shape)).to(weight), atol=1e-6)


def _is_spm(vocab: Vocabulary) -> bool:
    """Returns whether the SentencePiece model alone gives the ids of the vocabulary."""
    if vocab.table is None:
        return True
    return bool(vocab.spm) and spm_table(vocab.spm) == (vocab.table.pieces, vocab.table.special)


def quantized(loaded: LoadedModel, alphas: Mapping[str, float]) -> tuple[Tensors, dict[str, Tensor]]:
    """Returns Marian's tensors by name, with an alpha for each 8-bit matrix, and the dequantised matrices by our
    names."""
    config, ours = loaded.model.config, loaded.model.state_dict()
    tensors: dict[str, Tensor | Matrix] = {}
    weights: dict[str, Tensor] = {}
    for name, theirs, shape in layer_weights(config, MARIAN):
        parts = dict(zip(theirs, ours[name].float().chunk(len(theirs)), strict=True))
        if len(shape) == 1:
            tensors |= {key: part[None] for key, part in parts.items()}
        else:
            matrices = {key: matrix(part) for key, part in parts.items()}
            weights[name] = torch.cat([part.values for part in matrices.values()])
            alpha = torch.tensor([alphas[name.removesuffix(".weight")]])
            tensors |= matrices | {key + ALPHA: alpha for key in matrices}
    names = MARIAN.of_tables(config.tie)
    for name, table in names.items():
        vocab = loaded.src_vocab if name.startswith("src") else loaded.tgt_vocab
        tensors[table] = embedding = _embedding(_rows(vocab, ours[name].float()))
        weights[name] = rows_of(vocab, embedding.values)
    bias = ours["projection.bias"].float().clone() if config.projection_bias else torch.zeros(len(loaded.tgt_vocab))
    bias[PAD_ID] = ABSENT_BIAS
    written, settings = _rows(loaded.tgt_vocab, bias)[None], settings_of(loaded)
    unused = (0, settings["dim-vocabs"][1] - written.shape[1])
    tensors[MARIAN.tables["projection.bias"]] = F.pad(written, unused, value=ABSENT_BIAS)
    for table in (list(names.values())[-1], _SHORTLISTED):
        tensors[table + ALPHA] = torch.tensor([alphas[PROJECTION]])
    # JSON is YAML.
    text = torch.frombuffer(bytearray(json.dumps(settings).encode() + b"\0"), dtype=torch.int8)
    return {name: tensors[name] for name in sorted(tensors)} | {CONFIG: text}, weights


def _rows(vocab: Vocabulary, weight: Tensor) -> Tensor:
    """Returns our rows in the order of the exported vocabulary."""
    return rows_there(weight, vocab.order, len(vocab.pieces))


def _embedding(weight: Tensor) -> Matrix:
    """Returns an 8-bit embedding, padded with unused rows. The engine derives a projection's multiplier from its
    largest value; a 127 in the last row makes it equal to the multiplier in the file."""
    integers, multiplier = matrix(weight)
    padded = F.pad(integers, (0, 0, 0, _padded(len(integers)) - len(integers)))
    padded[-1, 0] = LARGEST_INTEGER
    return Matrix(padded, multiplier)


def _padded(rows: int) -> int:
    """Returns the number of rows of an exported table: a multiple of 8, with at least one unused row."""
    return (rows // 8 + 1) * 8


def settings_of(loaded: LoadedModel) -> dict[str, Any]:
    """Returns the settings for the model file: all in Marian 1.12.42 that affect a post-norm Transformer."""
    config = loaded.model.config
    ssru, joint = config.autoregression == "ssru", config.tie == "src-tgt-softmax"
    return {
        **{key: allowed[0] for key, allowed in (EXPECTED | (EXPECTED_OF_RNN if ssru else {})).items()},
        **{theirs: getattr(config, ours) for ours, theirs in SIZES.items()},
        **dict(zip(OPERATIONS, NORMS["post"], strict=True)),
        "dim-vocabs": [_padded(len(vocab.pieces)) for vocab in (loaded.src_vocab, loaded.tgt_vocab)],
        "factors-combine": "sum",
        "lemma-dependency": "",
        "output-omit-bias": False,
        "tied-embeddings-all": joint,
        "tied-embeddings-src": False,
        "tied-embeddings": not joint,
        "transformer-decoder-autoreg": "rnn" if ssru else "self-attention",
        "transformer-decoder-dim-ffn": 0,
        "transformer-ffn-activation": config.activation,
        "transformer-guided-alignment-layer": "last",
        "version": _VERSION,
    }


# A page for browsers.


def write_page(
    loaded: LoadedModel, folder: Path, console: Console, samples: Sequence[str] | None, engine: Path | None = None
) -> tuple[LoadedModel, Callable[[], Bergamot]]:
    """Writes the files into an empty folder, as `write` does, and copies the engine with its licence.

    Raises InputError without the engine's npm package.
    """
    if engine is None:
        raise InputError(f"`engine` must name the folder of the npm package {PACKAGE}, which the page runs.")
    expressed, load = write(loaded, folder, console, samples, engine)
    names = names_of(loaded)
    worker = folder / "worker"
    worker.mkdir()
    for file in (*(engine / name for name in WORKER), engine / "package.json", *engine.glob("LICEN[CS]E*")):
        shutil.copy(file, worker)
    for name in COPIED:
        shutil.copy(PAGE / name, folder)
    (worker / "NOTICE.txt").write_bytes(NOTICE.format(package=PACKAGE).encode())
    files = {
        "model": names["models"][0],
        "shortlist": names.get("shortlist", [None])[0],
        "vocabs": list(dict.fromkeys(names["vocabs"])),
        "settings": FIREFOX,
    }
    pairs = [f"{language_name(src)} to {language_name(tgt)}" for src, tgt in loaded.languages]
    title = html.escape(pairs[0] if len(pairs) == 1 else "Translation")
    page = (PAGE / "index.html").read_text(encoding="utf-8").replace("{{TITLE}}", title).replace("{{POLICY}}", POLICY)
    (folder / "index.html").write_bytes(page.replace("{{FILES}}", json.dumps(files)).encode())
    return expressed, load
