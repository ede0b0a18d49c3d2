"""Writes a model as a folder for CTranslate2, and runs CTranslate2 to compare an import or an export with it.

The folder contains the SentencePiece model(s), vtrans.json, and CTranslate2's own files (model.bin, config.json, the
subwords as JSON), which any program with CTranslate2 can load.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vtrans.apps.interop.capabilities import CTRANSLATE2, check_model, nearest_search
from vtrans.apps.interop.comparison import IdPair, Outputs, Program, Tolerance
from vtrans.apps.interop.foreign_files import write_json
from vtrans.apps.interop.weights import CTRANSLATE2 as WEIGHTS
from vtrans.apps.interop.weights import layer_weights
from vtrans.config import SearchConfig
from vtrans.model.checkpoint import LoadedModel
from vtrans.model.positions import ComputedPositions
from vtrans.search.rules import suppressed_ids
from vtrans.system.console import Console
from vtrans.system.errors import InputError, VtransError, need_packages
from vtrans.text.vocabulary import BOS_ID, EOS_ID, JOINT_FILE, PAD_ID, SPECIAL_PIECES, SRC_FILE, TGT_FILE, UNK_ID
from vtrans.translate.steps.split import EXTRA_LENGTH

DESCRIPTION = "vtrans.json"  # architecture, search settings and origin, which CTranslate2 does not read
DEFAULTS = SearchConfig(beam=2, alpha=1.0, length_penalty="length", min_length=1)
# Our rotary positions. A rotary_dim of 0 means the whole head width.
ROTARY = {"rotary_dim": 0, "rotary_interleave": True, "rotary_base": 10_000}
SCORED_TOKENS = 2048  # padded subwords scored at a time; their logits are in memory at once
# In float32, only the order of sums differs, which changes a log-probability by at most 6e-6 in a Transformer-Tiny. If
# this breaks a tie, one sentence may lose more than rounding, so `lost` is a mean. The other types round the weights:
# in that model, int8 changes log-probabilities by 0.02 in the mean and 0.16 at most, and loses 0.004 of the score.
TOLERANCES = {
    "float32": Tolerance(token=2e-4, mean=2e-5, lost=1e-3),
    "float16": Tolerance(token=0.2, mean=0.01, lost=0.01),
    "int8": Tolerance(token=2.0, mean=0.1, lost=0.02),
}
# Bias of the padding logit, which is -inf in our models. The probability of padding is 0 in float32 either way, and
# this number is finite in float16.
PAD_BIAS = -6e4


def write(
    loaded: LoadedModel, folder: Path, console: Console, quantization: str = "float32"
) -> tuple[LoadedModel, Callable[[], Program]]:
    """Writes the files into an empty folder. Returns the model as CTranslate2 expresses it, and a function that loads
    the files.

    CTranslate2 takes search settings from its callers, not from the folder. Raises InputError for a model that cannot
    be exported.
    """
    if quantization not in TOLERANCES:
        raise InputError(f"`quantization` must be one of {', '.join(TOLERANCES)}, got {quantization!r}.")
    check_model(loaded.model.config, CTRANSLATE2)
    nearest_search(loaded.search, CTRANSLATE2, console)
    ctranslate2()
    loaded = without_suppressed(loaded, console)
    src, tgt = loaded.src_vocab, loaded.tgt_vocab
    # Sinusoidal positions cover the longest source that is translated whole, and its translation.
    spec = specification(loaded, loaded.model.config.max_length or loaded.search.max_source + EXTRA_LENGTH)
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))
    for name, vocabulary in ({JOINT_FILE: src} if src is tgt else {SRC_FILE: src, TGT_FILE: tgt}).items():
        (folder / name).write_bytes(vocabulary.proto)
    write_json(folder / DESCRIPTION, {**loaded.record(), "quantization": quantization})
    pieces = [src.piece(i) for i in range(len(src))], [tgt.piece(i) for i in range(len(tgt))]
    load = partial(CTranslate2Model, folder, pieces, exported=quantization)
    return dataclasses.replace(loaded, shortlist=None), load


def without_suppressed(loaded: LoadedModel, console: Console) -> LoadedModel:
    """Returns the model with a projection bias that excludes the subwords of `search.suppress` from its softmax.

    With a beam, CTranslate2's own rule would change the log-probabilities of the other subwords by a different amount
    at each step.
    """
    suppressed = suppressed_ids(loaded.search, loaded.tgt_vocab)
    if not suppressed:
        return loaded
    model = copy.deepcopy(loaded.model)
    bias = torch.zeros(len(loaded.tgt_vocab)) if model.projection.bias is None else model.projection.bias.detach()
    bias[list(suppressed)] = PAD_BIAS
    model.projection.bias = nn.Parameter(bias, requires_grad=False)
    model.config = dataclasses.replace(model.config, projection_bias=True)
    pieces = ", ".join(loaded.search.suppress)
    console.info(f"left out of the softmax, because the search suppresses them: {pieces}")
    return dataclasses.replace(loaded, model=model, search=dataclasses.replace(loaded.search, suppress=()))


def specification(loaded: LoadedModel, positions: int) -> Any:
    """Returns the model as a `ctranslate2.specs.TransformerSpec` whose position table has `positions` rows.

    Weights are copied, because quantization writes into them.
    """
    ctranslate2()
    from ctranslate2.specs import common_spec, model_spec, transformer_spec

    model, config = loaded.model, loaded.model.config
    # CTranslate2's GELU is exact, like torch's default; its GELUTanh is the approximation.
    activation = getattr(common_spec.Activation, config.activation.upper())
    options: dict[str, Any] = {"pre_norm": config.norm == "pre", "activation": activation}
    if config.positions == "rotary":
        options |= ROTARY
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(config.encoder_layers, config.heads, **options),
        transformer_spec.TransformerDecoderSpec(config.decoder_layers, config.heads, **options),
    )
    for side, table in ((spec.encoder, model.src_positions), (spec.decoder, model.tgt_positions)):
        side.scale_embeddings = config.scale_embedding  # E[x] * sqrt(D) + P
        if table.turns:
            # Encoder specifications always have a table. CTranslate2 would not read it, and refuses an empty one.
            vars(side).pop("position_encodings", None)
            continue
        encodings = _array(table(positions) if isinstance(table, ComputedPositions) else table.weight)
        # A comparison scores a translation with EOS appended. The copied row gives EOS a position after an unfinished
        # translation that fills the table; its log-probability is not used.
        side.position_encodings.encodings = np.concatenate((encodings, encodings[-1:]))
    weights = model.state_dict()
    layers = {name: stored for name, (stored,), _ in layer_weights(config, WEIGHTS)}
    for name, stored in (layers | WEIGHTS.of_tables("none")).items():
        scope, _, kind = stored.replace("encoder/embeddings/", "encoder/embeddings_0/").rpartition("/")
        setattr(model_spec.index_spec(spec, scope), kind, _array(weights[name]))
    bias_V = model.projection.bias
    bias = np.zeros(len(loaded.tgt_vocab), dtype=np.float32) if bias_V is None else _array(bias_V)
    bias[PAD_ID] = PAD_BIAS
    spec.decoder.projection.bias = bias
    spec.register_source_vocabulary([loaded.src_vocab.piece(i) for i in range(len(loaded.src_vocab))])
    spec.register_target_vocabulary([loaded.tgt_vocab.piece(i) for i in range(len(loaded.tgt_vocab))])
    names = {"unk_token": UNK_ID, "bos_token": BOS_ID, "eos_token": EOS_ID, "decoder_start_token": BOS_ID}
    for name, number in names.items():
        setattr(spec.config, name, SPECIAL_PIECES[number])
    spec.config.add_source_eos = config.source_eos
    spec.config.layer_norm_epsilon = config.norm_eps
    return spec


def _array(weight: Tensor) -> NDArray[np.float32]:
    copy: NDArray[np.float32] = weight.detach().float().cpu().numpy().copy()
    return copy


def ctranslate2() -> Any:
    """Returns the optional package CTranslate2. Raises InputError if it is not installed."""
    need_packages("CTranslate2 is not installed", "ctranslate2", "ctranslate2")
    return importlib.import_module("ctranslate2")


class CTranslate2Model(Program):
    """CTranslate2 on the CPU. Raises InputError if it is not installed, and VtransError for a folder that it cannot
    load."""

    search = DEFAULTS

    def __init__(
        self, folder: Path, tokens: tuple[list[str], list[str]], source_end: Sequence[str] = (), exported: str = ""
    ) -> None:
        """`tokens` are CTranslate2's tokens by our ids, for source and target. `source_end` is appended to sources if
        CTranslate2 does not append EOS itself. `exported` is the type of an export's weights."""
        self._package, self._folder, self._weights = ctranslate2(), folder, exported or "float32"
        self.name = f"ctranslate2 {self._package.__version__} with {self._weights} weights"
        self.tolerance = TOLERANCES.get(exported, Program.tolerance)
        self._src_tokens, self._tgt_tokens = tokens
        self._source_end = source_end

    @cached_property
    def _translator(self) -> Any:
        # On a CPU, CTranslate2 computes in float32 with float16 weights, and warns unless float32 is requested.
        kind = "default" if self._weights == "int8" else "float32"
        threads = {"inter_threads": torch.get_num_threads(), "intra_threads": 1}
        try:
            return self._package.Translator(str(self._folder), device="cpu", compute_type=kind, **threads)
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise VtransError(f"CTranslate2 cannot load {self._folder}: {reason}.") from None

    def logprobs(self, pairs: Sequence[IdPair]) -> list[list[float]]:
        sources = [self._source(source) for source, _ in pairs]
        targets = [[self._tgt_tokens[i] for i in target[:-1]] for _, target in pairs]
        options = {"max_batch_size": SCORED_TOKENS, "batch_type": "tokens", "max_input_length": 0}  # no truncation
        return [list(result.log_probs) for result in self._translator.score_batch(sources, targets, **options)]

    def translate(self, ours: Outputs) -> list[list[int]]:
        ids = {token: i for i, token in enumerate(self._tgt_tokens)}
        options = {"beam_size": ours.search.beam, "min_decoding_length": ours.search.min_length}
        options |= {"max_decoding_length": max(ours.limits), "max_input_length": 0, "max_batch_size": 32}
        results = self._translator.translate_batch(list(map(self._source, ours.sources)), **options)
        return [[ids[token] for token in result.hypotheses[0]] for result in results]

    def _source(self, tokens: Sequence[int]) -> list[str]:
        """Returns the tokens of a source without EOS, which CTranslate2 appends, and with `source_end`."""
        return [*(self._src_tokens[i] for i in tokens[:-1]), *self._source_end]
