"""A model as a folder of CTranslate2, through its own API for specifications, and the proof that it is the same.

The folder holds what CTranslate2 reads (model.bin, config.json, the subwords as JSON), so that any program that
runs CTranslate2 can use it, the SentencePiece model(s), and vtrans.json. It is written aside, compared with the
original, and only then gets its name.

Legend: B rows, S source length, T target length, V vocabulary, D model width.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vtrans.checkpoint import LoadedModel
from vtrans.config import ModelConfig, SearchConfig
from vtrans.console import Console
from vtrans.data.vocabulary import (
    BOS_ID,
    EOS_ID,
    JOINT_FILE,
    PAD_ID,
    SPECIAL_PIECES,
    SRC_FILE,
    TGT_FILE,
    UNK_ID,
    Vocabulary,
)
from vtrans.decoding.beam import beam_search
from vtrans.decoding.constraints import Constrained, Prefix, Rules, constrain
from vtrans.decoding.ctranslate2_engine import (
    DESCRIPTION,
    FOLDER,
    FORMAT,
    ExportedModel,
    ctranslate2,
    digest,
    is_exported,
    load_exported,
    unsupported,
)
from vtrans.decoding.forced import token_logprobs
from vtrans.decoding.incremental import IncrementalDecoder
from vtrans.decoding.search import Hypothesis, length_penalty
from vtrans.decoding.translator import EXTRA_LENGTH, cut_long
from vtrans.errors import FileError, InputError, VtransError
from vtrans.model import SinusoidalPositions, Transformer
from vtrans.text import check_path, sync_folder

# Added to the logit of padding, which natively is -inf: its probability is 0 in float32 either way, and unlike
# a larger number this one is finite in float16 too.
PAD_BIAS = -6e4
SAMPLES = 100  # sentences made up for the comparison where the user gives none
LONGEST_SAMPLE = 2048  # positions of the one pair that is as long as the position table, at most


@dataclass(frozen=True)
class Tolerance:
    """What may differ between the original and its export, in natural logarithms.

    `token`: the log-probability of any one subword of a given translation; `mean`: the same, the mean of the
    absolute differences; `lost`: by how much the engine's translations may score less than the original's in the
    mean, both by the original's judgement; `near`: a translation may be another one if a difference of this much
    in the sums that the beam search compares would have made it so.
    """

    token: float
    mean: float
    lost: float
    near: float


# Float32 sums in another order: on a Transformer-Tiny that differs by 6e-6 at most. The others lose digits of the
# weights, and may choose other words, so that the bounds are on what it costs: int8 differs there by 0.02 in the
# mean, 0.16 at most, and loses 0.004 of the score.
TOLERANCES = {
    "float32": Tolerance(token=2e-4, mean=2e-5, lost=1e-3, near=4e-4),
    "float16": Tolerance(token=0.2, mean=0.01, lost=0.01, near=math.inf),
    "int8": Tolerance(token=2.0, mean=0.1, lost=0.02, near=math.inf),
}
QUANTIZATIONS = tuple(TOLERANCES)


@dataclass(frozen=True)
class NearTie:
    """A sentence of which the engine's translation is another one, since its search had to decide so closely."""

    source: str
    original: str
    exported: str
    margin: float  # of the closest decision that the original's search took


@dataclass(frozen=True)
class Comparison:
    """How an export differs from its original on sample sentences; the units are those of Tolerance."""

    quantization: str
    sentences: int
    subwords: int  # of the translations that were scored by both
    token: float
    mean: float
    equal: int
    lost: float
    near_ties: tuple[NearTie, ...]

    @property
    def different(self) -> int:
        return self.sentences - self.equal

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def export(
    loaded: LoadedModel,
    out: Path,
    console: Console,
    *,
    quantization: str = "float32",
    samples: Sequence[str] | None = None,
    source: Path | None = None,
) -> Comparison:
    """Writes `loaded` as a folder of CTranslate2, once it has been seen to translate `samples` as the original.

    `source` is the model file of `loaded`, by whose SHA-256 an export that has become stale is recognised.
    Without `samples` sentences are made up of the vocabulary's words. An export that is there is replaced.
    Raises InputError for what can't be exported, or where `out` is something else; VtransError if the
    two differ by more than TOLERANCES: then nothing is left behind. Warns of the stored search settings that
    the engine does not support.
    """
    check_path(out)
    check_exportable(loaded.model.config)
    if quantization not in QUANTIZATIONS:
        raise InputError(f"--quantization must be one of {', '.join(QUANTIZATIONS)}, but is {quantization!r}.")
    lines = [line for line in (made_up(loaded.src_vocab) if samples is None else samples) if line.strip()]
    if not lines:
        raise InputError("there is no sentence to compare the export with its original on; give some text.")
    ctranslate2()
    with folder_aside(out) as folder:
        write(loaded, folder, quantization, source)
        comparison = compare(loaded, load_exported(folder, "cpu"), lines)
        check(comparison, out)
    say(comparison, out, console)
    for setting in unsupported(loaded.search, len(loaded.tgt_vocab)):
        option = f"--{setting.name.replace('_', '-')} {setting.nearest}"
        console.warn(
            f"the model stores search.{setting.name} = {setting.value}, which the engine ctranslate2 does not support: "
            f"{setting.reason}; translate with {option}, or with the engine torch"
        )
    return comparison


def check_exportable(config: ModelConfig) -> None:
    """InputError for an architecture that the conversion can't express, by the name of what it is."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if not field.metadata["key"].exportable and value != field.default:
            raise InputError(
                f"a model with model.{field.name} = {str(value).lower()} can't be exported: CTranslate2 has no such "
                "translator; translate with it as it is."
            )


@contextmanager
def folder_aside(path: Path) -> Iterator[Path]:
    """A folder to write to, which gets the name `path` on leaving, flushed to disk; on an error it is removed.

    What has that name must be an export or an empty folder: it is replaced. Two renames do that, so that a
    crash between them leaves the old one under a name of its own, and never half of one.
    """
    if path.exists() and not (path.is_dir() and (is_exported(path) or not any(path.iterdir()))):
        raise InputError(f"{path} is there and is no export of vtrans; give another --out, or remove it.")
    folder, old = (path.with_name(f".{path.name}.{os.getpid()}.{end}") for end in ("tmp", "old"))
    try:
        try:
            shutil.rmtree(folder, ignore_errors=True)  # of a killed process that had our number
            folder.mkdir(parents=True)
        except OSError as error:
            raise FileError(f"{path} can't be written: {error.strerror}.") from None
        yield folder
        try:
            for file in folder.iterdir():
                with file.open("rb") as stream:
                    os.fsync(stream.fileno())
            if path.exists():
                path.rename(old)
            folder.rename(path)
        except OSError as error:
            raise FileError(f"{path} can't be written: {error.strerror}.") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if old.exists() and not path.exists():
            old.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    sync_folder(path.parent)


# The conversion.


def write(loaded: LoadedModel, folder: Path, quantization: str, source: Path | None = None) -> None:
    """The files of an export into an empty folder."""
    positions = table_length(loaded)
    spec = specification(loaded, positions)
    spec.validate()
    spec.optimize(quantization)
    if loaded.src_vocab is loaded.tgt_vocab:
        vocabularies = {JOINT_FILE: loaded.src_vocab}
    else:
        vocabularies = {SRC_FILE: loaded.src_vocab, TGT_FILE: loaded.tgt_vocab}
    description: dict[str, Any] = {
        "format": FORMAT,
        "kind": FOLDER,
        "model": dataclasses.asdict(loaded.model.config),
        "search": dataclasses.asdict(loaded.search),
        "training": dict(loaded.training),
        "positions": positions,
        "quantization": quantization,
        "vocabularies": sorted(vocabularies),
    }
    if source is not None:
        description["source"] = digest(source)
    try:
        spec.save(str(folder))
        for name, vocabulary in vocabularies.items():
            (folder / name).write_bytes(vocabulary.proto)
        description["files"] = {file.name: digest(file) for file in sorted(folder.iterdir())}
        text = json.dumps(description, sort_keys=True, ensure_ascii=False, indent=2)
        (folder / DESCRIPTION).write_bytes(text.encode() + b"\n")
    except OSError as error:
        raise FileError(f"{folder} can't be written: {error.strerror}.") from None


def table_length(loaded: LoadedModel) -> int:
    """Positions that the exported table reaches: those of the model, or what the longest source that is
    translated in one piece, and its translation, may need."""
    return loaded.model.max_length or loaded.search.max_source + EXTRA_LENGTH


def specification(loaded: LoadedModel, positions: int) -> Any:
    """The model as a `ctranslate2.specs.TransformerSpec`, every weight a copy, as quantising writes into it."""
    ctranslate2()
    from ctranslate2.specs import common_spec, transformer_spec

    model, config = loaded.model, loaded.model.config
    # CTranslate2's GELU is the exact one, by erf, as torch's default is; GELUTanh would be its approximation.
    activation = common_spec.Activation.RELU if config.activation == "relu" else common_spec.Activation.GELU
    spec = transformer_spec.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.heads,
        pre_norm=config.norm == "pre",
        activation=activation,
    )
    sides: tuple[tuple[Any, Any, Any, Any, Any], ...] = (  # nn.ModuleList forgets what its layers are
        (spec.encoder, spec.encoder.embeddings[0], model.encoder, model.src_embedding, model.src_positions),
        (spec.decoder, spec.decoder.embeddings, model.decoder, model.tgt_embedding, model.tgt_positions),
    )
    for side, embeddings, stack, embedding, table in sides:
        embeddings.weight = _array(embedding.weight)
        side.scale_embeddings = config.scale_embedding  # E[x] * sqrt(D) + P, as Embedding has it
        if isinstance(table, SinusoidalPositions):
            encodings = _array(table.rows(positions, config.d_model))
        else:
            encodings = _array(table.weight)
        # The copied row lets the engine score an unfinished translation that fills the table, which it does with
        # EOS appended; what it predicts there is not read.
        side.position_encodings.encodings = np.concatenate((encodings, encodings[-1:]))
        if config.norm == "pre":
            _norm(side.layer_norm, stack.final_norm)
        for target, layer in zip(side.layer, stack.layers, strict=True):
            _norm(target.self_attention.layer_norm, layer.self_attention_residual.norm)
            _linear(target.self_attention.linear[0], layer.self_attention.qkv)
            _linear(target.self_attention.linear[1], layer.self_attention.out)
            if side is spec.decoder:
                _norm(target.attention.layer_norm, layer.cross_attention_residual.norm)
                _linear(target.attention.linear[0], layer.cross_attention.query)
                _linear(target.attention.linear[1], layer.cross_attention.kv)
                _linear(target.attention.linear[2], layer.cross_attention.out)
            _norm(target.ffn.layer_norm, layer.feed_forward_residual.norm)
            _linear(target.ffn.linear_0, layer.feed_forward.inner)
            _linear(target.ffn.linear_1, layer.feed_forward.outer)
    spec.decoder.projection.weight = _array(model.projection.weight)
    bias = np.zeros(len(loaded.tgt_vocab), dtype=np.float32)
    bias[PAD_ID] = PAD_BIAS
    spec.decoder.projection.bias = bias
    spec.register_source_vocabulary([loaded.src_vocab.piece(i) for i in range(len(loaded.src_vocab))])
    spec.register_target_vocabulary([loaded.tgt_vocab.piece(i) for i in range(len(loaded.tgt_vocab))])
    names = {"unk_token": UNK_ID, "bos_token": BOS_ID, "eos_token": EOS_ID, "decoder_start_token": BOS_ID}
    for name, number in names.items():
        setattr(spec.config, name, SPECIAL_PIECES[number])
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = _epsilon(model)
    return spec


def _array(weight: Tensor) -> NDArray[np.float32]:
    copy: NDArray[np.float32] = weight.detach().float().cpu().numpy().copy()
    return copy


def _linear(target: Any, layer: nn.Linear) -> None:
    target.weight, target.bias = _array(layer.weight), _array(layer.bias)


def _norm(target: Any, layer: nn.LayerNorm) -> None:
    target.gamma, target.beta = _array(layer.weight), _array(layer.bias)


def _epsilon(model: Transformer) -> float:
    (epsilon,) = {module.eps for module in model.modules() if isinstance(module, nn.LayerNorm)}
    return epsilon


# The comparison.


def made_up(vocab: Vocabulary) -> list[str]:
    """SAMPLES sentences of 1 to 30 words of the vocabulary, frequent ones the most often, the same at each call.

    They mean nothing, but meet all of a network; a file of real sentences is the better sample.
    """
    subwords = [i for i in range(len(vocab)) if vocab.is_subword(i)]
    words = [i for i in subwords if len(vocab.piece(i)) > 1 and vocab.piece(i).startswith("\u2581")] or subwords
    numbers = random.Random("samples")
    lengths = [1 + 30 * k // SAMPLES for k in range(SAMPLES)]
    # Pieces stand by falling frequency, and words have Zipf's: a rank drawn on a logarithmic scale.
    return [vocab.decode(words[int(len(words) ** numbers.random()) - 1] for _ in range(n)) for n in lengths]


def compare(loaded: LoadedModel, exported: ExportedModel, lines: Sequence[str]) -> Comparison:
    """Translates the lines with both, in float32 on the CPU here, and scores the same translations with both."""
    model, vocab = loaded.model.cpu().eval(), loaded.src_vocab
    reach = exported.engine.max_length
    longest = min(loaded.search.max_source, reach - 1)
    pieces = [piece for ids in vocab.encode_batch(list(lines)) for piece in cut_long(ids, longest, vocab)]
    sources = sorted(([*piece, EOS_ID] for piece in pieces), key=len, reverse=True)
    # One short of the table: what has not ended by then is scored with EOS after it, which wants a position too.
    limits = [min(len(source) - 1 + EXTRA_LENGTH, reach - 1) for source in sources]
    nearest = {s.name: s.nearest for s in unsupported(loaded.search, len(loaded.tgt_vocab))}
    search = dataclasses.replace(loaded.search, **nearest)
    decoder = Constrained(IncrementalDecoder(model), _rules(search))
    with torch.inference_mode():
        ours = dict(beam_search(decoder, sources, limits, config=search, nbest=1, bos_id=BOS_ID, eos_id=EOS_ID))
        theirs = dict(exported.engine.beam_search(sources, limits, config=search, nbest=1))
        pairs = [(source, list(ours[i][0].tokens)) for i, source in enumerate(sources)]
        pairs.append(longest_pair(loaded, longest, reach))
        native = np.concatenate(_scores(model, pairs))
        gaps = np.abs(native - np.concatenate(exported.engine.score([s for s, _ in pairs], [t for _, t in pairs])))
        near_ties, equal, lost = [], 0, 0.0
        for i, source in enumerate(sources):
            a, b = ours[i][0], theirs[i][0]
            if a.tokens == b.tokens:
                equal += 1
                continue
            lost += _normalised(model, source, a, search) - _normalised(model, source, b, search)
            if math.isfinite(TOLERANCES[exported.quantization].near):
                margin = closest_decision(model, source, limits[i], search)
                original, theirs_text = (loaded.tgt_vocab.decode(hyp.tokens) for hyp in (a, b))
                near_ties.append(NearTie(vocab.decode(source), original, theirs_text, margin))
    figures = (float(gaps.max()), float(gaps.mean()), equal, lost / len(sources))
    return Comparison(exported.quantization, len(sources), len(gaps), *figures, tuple(near_ties))


def longest_pair(loaded: LoadedModel, longest: int, reach: int) -> tuple[list[int], list[int]]:
    """A source and a target as long as the position table allows, at random, so that all of it is compared."""
    numbers = random.Random("longest")
    sides = []
    for vocab, length in ((loaded.src_vocab, longest), (loaded.tgt_vocab, reach - 1)):
        subwords = [i for i in range(len(vocab)) if vocab.is_subword(i)]
        sides.append([numbers.choice(subwords) for _ in range(min(length, LONGEST_SAMPLE))])
    return [*sides[0], EOS_ID], sides[1]


def _scores(model: Transformer, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[tuple[float, ...]]:
    """The log-probabilities of each target's subwords and of EOS after them; sources end in EOS."""
    return token_logprobs([model], [1.0], [(source[:-1], [*target, EOS_ID]) for source, target in pairs], 1)


def _normalised(model: Transformer, source: Sequence[int], found: Hypothesis, search: SearchConfig) -> float:
    """The original's score of a translation, whoever found it."""
    length = len(found.tokens) + found.finished
    logprob = math.fsum(_scores(model, [(source, found.tokens)])[0][:length])
    return logprob / length_penalty(max(length, 1), search.alpha, search.length_penalty)


def _rules(search: SearchConfig) -> Rules:
    return Rules(EOS_ID, None, search.min_length, search.no_repeat_ngram, search.repetition_penalty)


def closest_decision(model: Transformer, source: Sequence[int], limit: int, search: SearchConfig) -> float:
    """The smallest difference, in log-probability, on which a beam search of this source has to decide.

    That is the search of `vtrans.decoding.search` without caches, step by step: which extensions are among the first
    K where EOS is one of the two at that edge, which of the others live on, and which hypothesis wins.
    """
    K, closest = search.beam, math.inf
    src_BS = torch.tensor([source])
    keep_BS = torch.ones_like(src_BS, dtype=torch.bool)
    memory_BSD = model.encode(src_BS, keep_BS)
    rows_KT, sums_K = torch.tensor([[BOS_ID]]), torch.zeros(1, dtype=torch.float64)
    ended: list[tuple[float, int]] = []  # logarithm and length of what has finished
    for age in range(1, limit + 1):
        k = len(rows_KT)
        h_KTD = model.decode(rows_KT, memory_BSD.expand(k, -1, -1), keep_BS.expand(k, -1))
        logprobs_KV = model.logits(h_KTD[:, -1]).double().log_softmax(-1)
        constrain(logprobs_KV, rows_KT[:, 1:], [age - 1] * k, [Prefix()] * k, _rules(search))
        sums_KV = sums_K[:, None] + logprobs_KV
        V = sums_KV.shape[1]
        sums_n, places_n = sums_KV.flatten().sort(descending=True, stable=True)
        tokens_n = places_n[: 2 * K + 1] % V
        if len(sums_n) > K and EOS_ID in tokens_n[K - 1 : K + 1]:
            closest = min(closest, float(sums_n[K - 1] - sums_n[K]))
        ended += [(float(sums_n[n]), age) for n in range(K) if tokens_n[n] == EOS_ID]
        others = [n for n in range(len(tokens_n)) if tokens_n[n] != EOS_ID][: K + 1]
        if len(others) > K:
            closest = min(closest, float(sums_n[others[K - 1]] - sums_n[others[K]]))
        if len(ended) >= K:
            break
        live = places_n[others[:K]]
        rows_KT, sums_K = torch.cat((rows_KT[live // V], (live % V)[:, None]), 1), sums_n[others[:K]]
    penalties = [length_penalty(length, search.alpha, search.length_penalty) for _, length in ended]
    scores = sorted((s / p for (s, _), p in zip(ended, penalties, strict=True)), reverse=True)
    if len(scores) > 1:
        closest = min(closest, (scores[0] - scores[1]) * min(penalties))
    if not ended and len(sums_K) > 1:
        closest = min(closest, float(sums_K[0] - sums_K[1]))
    return closest


def check(found: Comparison, out: Path) -> None:
    """VtransError if the two differ by more than TOLERANCES."""
    allowed = TOLERANCES[found.quantization]
    what = ""
    for value, limit, name in (
        (found.token, allowed.token, "the log-probability of a subword differs by {:.2g}, over the tolerance of {:g}"),
        (found.mean, allowed.mean, "log-probabilities differ by {:.2g} in the mean, over the tolerance of {:g}"),
        (found.lost, allowed.lost, "its translations score {:.2g} less in the mean, over the tolerance of {:g}"),
    ):
        if not value <= limit:  # so that NaN is refused
            what = what or name.format(value, limit)
    for tie in found.near_ties:
        if not tie.margin <= allowed.near:
            what = what or (
                f"{tie.source!r} becomes {tie.exported!r} instead of {tie.original!r}, "
                f"though no decision of the search was closer than {tie.margin:.2g}"
            )
    if what:
        raise VtransError(
            f"{out} is not written, since the export ({found.quantization}) is not the model that it was made from: "
            f"{what}; try another --quantization, or translate with the model as it is."
        )


def say(found: Comparison, out: Path, console: Console) -> None:
    console.info(
        f"{out}: {found.equal:,} of {found.sentences:,} sample sentences translated as by the original; "
        f"{found.subwords:,} subwords scored by both, their log-probabilities differ by {found.mean:.2g} in the mean "
        f"and {found.token:.2g} at most"
    )
    if found.near_ties:
        for tie in found.near_ties:
            console.info(
                f"near-tie (a decision by {tie.margin:.1g}): {tie.source!r} becomes {tie.exported!r}, "
                f"not {tie.original!r}"
            )
    elif found.different:
        console.info(
            f"{found.different:,} sentences translated otherwise; over all, the translations score {found.lost:.4f} "
            "less by the original's judgement"
        )
