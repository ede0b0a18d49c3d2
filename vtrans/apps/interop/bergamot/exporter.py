"""Writes a model for Bergamot: a Marian network with 8-bit weights, SentencePiece models, a shortlist and settings.

The files have the names of Firefox's models. `write_page` also writes a static page that translates in a browser.

Each matrix has one multiplier, and its input activations have another, the alpha. Values are multiplied, rounded to
integers and clipped at -127 and 127. The engine is compared with a reference that has the file's own weights and
alphas, so only the order of sums differs, which may move an activation to the next integer.
"""

from __future__ import annotations

import copy
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

from vtrans.apps.interop.bergamot import engine as files
from vtrans.apps.interop.bergamot.engine import Bergamot, Matrix, Tensors
from vtrans.apps.interop.capabilities import BERGAMOT, check_model, nearest_search
from vtrans.apps.interop.comparison import encoded, real_sentences, translated
from vtrans.apps.interop.marian.importer import CONFIG, EXPECTED, EXPECTED_OF_RNN, NORMS, OPERATIONS, SIZES
from vtrans.apps.interop.weights import ABSENT_BIAS, MARIAN, layer_weights
from vtrans.model.checkpoint import LoadedModel
from vtrans.model.products import Linear
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.text.languages import language_name
from vtrans.text.vocabulary import BOS_ID, PAD_ID

ALPHA = "_QuantMultA"  # suffix of a matrix's name
# The engine finds an alpha by the name of its matrix, which is "none" for a shortlisted projection in some versions.
_SHORTLISTED = "none"
LONGEST = 126  # subwords; the engine splits longer sentences
PAGE = Path(__file__).with_name("page")
_VERSION = "v1.12.42, written by vtrans"  # of Marian, whose settings `settings_of` returns
LARGEST_INTEGER = 127  # largest absolute value of a quantised number
# Limit for the sum of two neighbouring weights. Inputs range from 0 to 254, because the engine adds 127 to them.
MOST_OF_PAIR = 32767 // 254
PROJECTION = "projection"
KEPT = 1 << 18  # activations per matrix from which its alpha is chosen
CLIPS = [share / 40 for share in range(8, 81)]  # candidates, as shares of the largest value, for clipping
# Candidates for weights. They include every share with which the largest value becomes an integer from 60 to 127.
WEIGHT_CLIPS = [*CLIPS[:32], *(LARGEST_INTEGER / largest for largest in range(LARGEST_INTEGER, 59, -1))]


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
        files.package(engine)
    if samples is None:
        console.warn("the alphas are tuned on a few sentences of vtrans; give a sample file of some hundred sentences")
        samples = real_sentences(loaded)
    search = nearest_search(loaded.search, BERGAMOT, console, max_ratio=files.RATIO)
    # Compare scores per subword.
    search = replace(search, alpha=1.0, length_penalty="length", max_source=min(search.max_source, LONGEST))
    loaded = replace(loaded, search=search)
    alphas = tuned_alphas(loaded, samples)
    tensors, weights = quantized(loaded, alphas)
    names = files.names_of(loaded)
    files.write_model(folder / names.model, tensors)
    for name, vocab in zip(names.vocabs, (loaded.src_vocab, loaded.tgt_vocab), strict=True):
        (folder / name).write_bytes(vocab.spm)
    if loaded.shortlist and names.shortlist:
        files.write_shortlist(folder / names.shortlist, loaded.shortlist)
    else:
        console.warn("the model has no shortlist, with which Bergamot is several times as fast; run `vtrans shortlist`")
    files.write_settings(folder, names)
    return reference(loaded, weights, alphas), partial(Bergamot, folder, names, engine, loaded.tgt_vocab)


def _check(loaded: LoadedModel) -> None:
    """Raises InputError for a network, a start or a vocabulary that Bergamot cannot express."""
    check_model(loaded.model.config, BERGAMOT)
    if loaded.model.tgt_embedding.weight[BOS_ID].any():
        raise InputError(
            "the model's embedding of <s> must be zero, as in Bergamot; train one with "
            '`--set model.positions="marian"`.'
        )
    if loaded.tags or loaded.src_vocab.table or loaded.tgt_vocab.table:
        raise InputError(
            "a model with tags of target languages, or with the vocabulary of another program, cannot be exported to "
            "Bergamot; translate with the model itself."
        )


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
        tensors[table] = embedding = _embedding(ours[name].float())
        weights[name] = embedding.values[: len(ours[name])]
    settings, rows = settings_of(loaded), len(loaded.tgt_vocab)
    bias = torch.full((settings["dim-vocabs"][1],), ABSENT_BIAS)
    bias[:rows] = ours.get("projection.bias", torch.zeros(rows))
    bias[PAD_ID] = ABSENT_BIAS
    tensors[MARIAN.tables["projection.bias"]] = bias[None]
    for table in (list(names.values())[-1], _SHORTLISTED):
        tensors[table + ALPHA] = torch.tensor([alphas[PROJECTION]])
    # JSON is YAML.
    text = torch.frombuffer(bytearray(json.dumps(settings).encode() + b"\0"), dtype=torch.int8)
    return {name: tensors[name] for name in sorted(tensors)} | {CONFIG: text}, weights


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
        "dim-vocabs": [_padded(len(vocab)) for vocab in (loaded.src_vocab, loaded.tgt_vocab)],
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


# Quantization.


def matrix(weight: Tensor) -> Matrix:
    """Returns an 8-bit matrix [out, in], with the multiplier that minimises the squared error.

    The engine adds the products of two neighbouring inputs in 16 bits, where larger sums saturate. No sum saturates
    here, for any inputs, so all processors give the same result. Quantising the values of a matrix gives the same
    matrix: its multiplier has 8 significant bits, so rounding errors of the values do not change it.
    """
    largest = float(weight.abs().max()) or 1.0
    multipliers = torch.tensor([LARGEST_INTEGER / (largest * share) for share in WEIGHT_CLIPS]).bfloat16()
    matrices = map(partial(_matrix, weight), multipliers.tolist())
    return min(matrices, key=lambda matrix: float((matrix.values - weight).square().sum()))


def _matrix(weight: Tensor, multiplier: float) -> Matrix:
    pairs = torch.round(weight * multiplier).clamp_(-LARGEST_INTEGER, LARGEST_INTEGER).view(len(weight), -1, 2)
    sums = pairs.sum(2, keepdim=True)
    excess = (sums.abs() - MOST_OF_PAIR).clamp_(min=0) * sums.sign()
    pairs -= torch.cat((torch.trunc(excess / 2), excess - torch.trunc(excess / 2)), 2)
    return Matrix(pairs.flatten(1).to(torch.int8), multiplier)


def rounded(values: Tensor, alpha: float) -> Tensor:
    """Returns activations as Bergamot rounds them: integers from -127 to 127, divided by `alpha`."""
    return torch.round(values * alpha).clamp_(-LARGEST_INTEGER, LARGEST_INTEGER) * (1 / alpha)


def tuned_alphas(loaded: LoadedModel, lines: Sequence[str]) -> dict[str, float]:
    """Returns the alpha of each linear layer by all its names. Each minimises the squared error of the activations
    while the lines are translated. Raises InputError if all lines are blank or too long."""
    seen: dict[nn.Module, list[Tensor]] = {}

    def keep(module: nn.Module, values: Tensor) -> None:
        kept = seen.setdefault(module, [])
        if sum(map(len, kept)) < KEPT:
            kept.append(values.flatten().abs())

    model = loaded.model
    layers = {
        name: module for name, module in model.named_modules(remove_duplicate=False) if isinstance(module, Linear)
    }
    handles = [
        layer.register_forward_pre_hook(lambda layer, given: keep(layer, given[0])) for layer in {*layers.values()}
    ]
    handles.append(model.decoder.final_norm.register_forward_hook(lambda norm, _, out: keep(norm, out)))
    translated(loaded, encoded(loaded, lines))
    for handle in handles:
        handle.remove()
    alphas = {module: _alpha(torch.cat(kept)) for module, kept in seen.items()}
    return {name: alphas[layer] for name, layer in layers.items()} | {PROJECTION: alphas[model.decoder.final_norm]}


def _alpha(values: Tensor) -> float:
    largest = float(values.max()) or 1.0
    alphas: list[float] = torch.tensor([LARGEST_INTEGER / (largest * share) for share in CLIPS]).tolist()  # in float32
    return min(alphas, key=lambda alpha: float((rounded(values, alpha) - values).square().mean()))


def reference(loaded: LoadedModel, weights: Mapping[str, Tensor], alphas: Mapping[str, float]) -> LoadedModel:
    """Returns a copy that computes as Bergamot does, with these weights and with activations rounded by the alphas."""
    model = copy.deepcopy(loaded.model)
    for name, weight in weights.items():
        model.get_parameter(name).data.copy_(weight)

    def rounds(alpha: float) -> Callable[[nn.Module, tuple[Tensor]], Tensor]:
        return lambda _, given: rounded(given[0], alpha)

    for name, module in model.named_modules():
        if isinstance(module, Linear):
            module.register_forward_pre_hook(rounds(alphas[name]))
    # A shortlisted projection does not call a module.
    model.decoder.final_norm.register_forward_hook(lambda _, __, out: rounded(out, alphas[PROJECTION]))
    return replace(loaded, model=model.eval())


def write_page(
    loaded: LoadedModel, folder: Path, console: Console, samples: Sequence[str] | None, engine: Path | None = None
) -> tuple[LoadedModel, Callable[[], Bergamot]]:
    """Writes the files into an empty folder, as `write` does, and copies the engine with its licence.

    Raises InputError without the engine's npm package.
    """
    if engine is None:
        raise InputError(f"`engine` must name the folder of the npm package {files.PACKAGE}, which the page runs.")
    expressed, load = write(loaded, folder, console, samples, engine)
    names = files.names_of(loaded)
    shutil.copytree(PAGE, folder, dirs_exist_ok=True)
    for file in (*(engine / name for name in files.WORKER), engine / "package.json", *engine.glob("LICEN[CS]E*")):
        shutil.copy(file, folder / "worker")
    listed = {
        "model": names.model,
        "shortlist": names.shortlist,
        "vocabs": list(dict.fromkeys(names.vocabs)),
        "settings": files.FIREFOX,
    }
    pairs = [f"{language_name(src)} to {language_name(tgt)}" for src, tgt in loaded.languages]
    title = html.escape(pairs[0] if len(pairs) == 1 else "Translation")
    page = (folder / "index.html").read_text(encoding="utf-8")
    page = page.replace("{{TITLE}}", title).replace("{{FILES}}", json.dumps(listed))
    (folder / "index.html").write_bytes(page.encode())
    return expressed, load
