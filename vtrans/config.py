"""Recipes: frozen dataclasses read from TOML. Every default has its one address here.

A recipe says everything about a model and its training but the vocabulary, which comes
from the data folder. Unknown keys are refused with the nearest known one, values are
checked against the ranges that the fields below declare.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from vtrans.errors import InputError, RecipeError

Subword = Literal["bpe", "unigram"]
NORMALIZATIONS = ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity")
"""SentencePiece's rules: NFKC with or without its care for odd spaces, `_cf` folds case; identity: none."""

T = TypeVar("T", "ModelConfig", "TrainConfig", "SearchConfig")

DEFAULT_RECIPE = "small"
DEFAULT_RUN = "run"
DEFAULT_AVERAGE = 5  # checkpoints, as for the base model of the paper (section 6.1)
SMALLEST_VOCAB_SIZE = 5  # the special ids and one subword; what a text needs at least, the learner says
DEFAULT_VOCAB_SIZE = 8000  # pieces where the user names no number; fewer if the text does not hold as many
PRECISIONS = ("float32", "bfloat16")
# Of translating; the first is the default.
DECODING_PRECISIONS = ("float32", "bfloat16", "float16", "int8")
# Of a shortlist: target subwords for each source subword, and for every sentence.
DEFAULT_TRANSLATIONS, DEFAULT_FREQUENT = 8, 1500
# Rows of the embeddings that `vtrans inspect` shows for a subword, and for a step of a translation.
NEAREST, NEAREST_OF_STEP = 10, 3
LONGEST_SHOWN = 80  # characters of a wrong value in an error
TIE_FORMS = ("src-tgt-softmax", "tgt-softmax", "src-tgt", "none")


def _number(default: float, low: float, high: float, doc: str) -> Any:
    """A field whose value lies in [low, high]; an int default asks for whole numbers."""
    return field(default=default, metadata={"low": low, "high": high, "doc": doc})


def _choice(default: str, values: tuple[str, ...], doc: str) -> Any:
    """A field whose value is one of `values`."""
    return field(default=default, metadata={"values": values, "doc": doc})


def _weights(doc: str) -> Any:
    """A field of numbers with commas between them, none by default; a TOML list is read as well."""
    return field(default="", metadata={"low": 0.0, "high": 1000.0, "doc": doc})


def weights_of(text: str) -> tuple[float, ...]:
    """The numbers of such a field."""
    return tuple(float(number) for number in text.split(",")) if text else ()


def _flag(default: bool, doc: str) -> Any:
    """A field that is true or false."""
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True)
class ModelConfig:
    """The architecture; the defaults are the recipe `small`."""

    d_model: int = _number(256, 2, 65536, "width of embeddings and layers, D")
    d_ff: int = _number(1024, 1, 1 << 20, "width of the feed-forward layers, F")
    heads: int = _number(4, 1, 1024, "attention heads, H; must divide d_model")
    architecture: str = _choice(
        "encoder-decoder",
        ("encoder-decoder", "decoder-only"),
        "decoder-only: one stack over source and target (GPT, Radford et al. 2018), of decoder_layers layers",
    )
    source_mask: str = _choice(
        "prefix",
        ("prefix", "causal"),
        "of decoder-only: the source sees all of itself (Raffel et al. 2019, section 3.2), or what came before",
    )
    encoder_layers: int = _number(3, 0, 1000, "layers of the encoder; 0 for decoder-only")
    decoder_layers: int = _number(3, 1, 1000, "layers of the decoder")
    dropout: float = _number(0.1, 0.0, 0.95, "after embeddings and sublayers (paper, section 5.4)")
    attention_dropout: float = _number(0.0, 0.0, 0.95, "on the attention weights")
    activation_dropout: float = _number(0.0, 0.0, 0.95, "after the feed-forward activation")
    activation: str = _choice("relu", ("relu", "gelu"), "of the feed-forward layers")
    norm: str = _choice("post", ("post", "pre"), "layer norm after the residual sum (paper), or before")
    tie: str = _choice(
        "auto",
        ("auto", *TIE_FORMS),
        "which embeddings are one matrix; auto: src-tgt-softmax for a joint vocabulary, else tgt-softmax",
    )
    positions: str = _choice("sinusoidal", ("sinusoidal", "learned"), "position encoding")
    max_positions: int = _number(
        1024, 2, 1 << 20, "rows of a learned position table; of decoder-only a half is for either side"
    )
    share_positions: bool = _flag(False, "one learned position table for encoder and decoder")
    share_layers: str = _choice(
        "none",
        ("none", "attention", "feed-forward", "all"),
        "what the layers of a stack share, each sublayer with its norm (ALBERT, Lan et al. 2019)",
    )
    share_group: int = _number(0, 0, 1000, "consecutive layers that share_layers makes one; 0: the whole stack")
    share_stacks: bool = _flag(
        False, "encoder layer i = decoder layer i but for cross-attention (Raffel et al. 2019, section 3.2)"
    )
    scale_embedding: bool = _flag(True, "sqrt(D) on the embeddings (paper, section 3.4); they start alike without")
    cross_attention_residual: bool = _flag(True, "the residual around cross-attention; false is an ablation")

    @property
    def reach(self) -> int | None:
        """The longest sequence of either side, BOS or EOS counted, that the positions reach; None: no limit."""
        if self.positions != "learned":
            return None
        return self.max_positions if self.architecture == "encoder-decoder" else self.max_positions // 2

    def sublayer(self, part: str, layer: int) -> int:
        """The number of the sublayer that a layer of a stack uses; layers of one number share it. `part` is
        attention or feed-forward."""
        if self.share_layers not in (part, "all"):
            return layer
        return layer // self.share_group if self.share_group else 0


@dataclass(frozen=True)
class TrainConfig:
    """The training; the defaults are the recipe `small`."""

    max_steps: int = _number(20_000, 1, 10**9, "updates in all")
    batch_tokens: int = _number(4096, 1, 10**8, "padded tokens of the larger side of a batch")
    accumulate: int = _number(1, 1, 10**6, "batches an update")
    learning_rate: float = _number(
        0.0, 0.0, 10.0, "peak, reached at the end of warm-up; 0: the paper's formula times `scale`"
    )
    scale: float = _number(1.0, 0.0, 1000.0, "factor on the paper's formula (section 5.3)")
    warmup: int = _number(2000, 1, 10**9, "updates of linear warm-up")
    beta1: float = _number(0.9, 0.0, 0.999999, "of Adam")
    beta2: float = _number(0.98, 0.0, 0.999999, "of Adam")
    epsilon: float = _number(1e-9, 1e-16, 1.0, "of Adam")
    weight_decay: float = _number(0.0, 0.0, 10.0, "decoupled (AdamW)")
    clip_norm: float = _number(0.0, 0.0, 1e6, "largest norm of the gradient; 0: no clipping")
    label_smoothing: float = _number(0.1, 0.0, 0.99, "share of the target mass spread over the vocabulary")
    log_every: int = _number(100, 1, 10**9, "updates between two lines of metrics.jsonl")
    checkpoint_every: int = _number(1000, 1, 10**9, "updates between two validations, each with a checkpoint")
    keep_last: int = _number(5, 1, 10**6, "newest checkpoints kept")
    keep_best: int = _number(5, 1, 10**6, "best checkpoints kept, beside the newest")
    best_metric: str = _choice("bleu", ("bleu", "chrf", "nll"), "what `best` and `patience` go by")
    patience: int = _number(0, 0, 10**6, "validations without a new best before training ends; 0: never")
    valid_sentences: int = _number(0, 0, 10**9, "sentences translated at a validation for BLEU and chrF; 0: all")
    valid_beam: int = _number(1, 1, 1000, "beam of those translations; 1 is greedy")
    samples: int = _number(3, 0, 1000, "translations shown at a validation")
    ema: float = _number(
        0.0,
        0.0,
        0.999999,
        "decay of a moving average of the weights, which is then what is validated and saved; 0: off",
    )
    bpe_dropout: float = _number(
        0.0,
        0.0,
        0.95,
        "probability that a merge is left out when a pair is cut into subwords, anew each time; 0: off, usual 0.1",
    )
    corpus_weights: str = _weights(
        'how often an epoch has the pairs of each --src of prepare-bpe, such as "2,0.5": a fraction is a random '
        "part, new in each epoch; none: once each"
    )
    precision: str = _choice(
        "auto", ("auto", *PRECISIONS), "of the matrix products; auto: bfloat16 on a GPU that has it, else float32"
    )
    tensorboard: bool = _flag(False, "the figures of metrics.jsonl for TensorBoard too, in RUN/tensorboard")
    seed: int = _number(1, 0, 2**63 - 1, "of every random choice")


@dataclass(frozen=True)
class SearchConfig:
    """How translations are searched; `vtrans translate` has a flag for each but `max_source`, which beats it."""

    beam: int = _number(4, 1, 1000, "live hypotheses of a sentence")
    alpha: float = _number(0.6, -10.0, 10.0, "exponent of the length penalty")
    length_penalty: str = _choice(
        "gnmt",
        ("gnmt", "length"),
        "gnmt: ((5 + |Y|) / 6) ** alpha; length: |Y| ** alpha, as fairseq, Marian and CTranslate2 divide",
    )
    stop: str = _choice(
        "count",
        ("count", "exhaustive"),
        "count: when `beam` hypotheses have ended; exhaustive: when no live one can win any more",
    )
    max_length: int = _number(0, 0, 10**6, "cap on target tokens; 0: source tokens + 50 alone")
    min_length: int = _number(0, 0, 10**6, "least target tokens before EOS")
    no_repeat_ngram: int = _number(0, 0, 1000, "no n target tokens twice in a translation; 0: no such rule")
    repetition_penalty: float = _number(
        1.0,
        1.0,
        1000.0,
        "factor on the log-probability of a target token that the translation holds already (Keskar et al. 2019)",
    )
    max_source: int = _number(
        1024,
        1,
        10**6,
        "source tokens translated in one piece; a longer line is cut into pieces, with a warning",
    )
    batch_tokens: int = _number(2048, 1, 10**8, "padded source tokens of a batch; 1: one sentence at a time")


@dataclass(frozen=True)
class Sampling:
    """Draws translations instead of searching the best. Each line has its own generator, seeded from
    (seed, line number), so that no draw depends on the batch. `top_k` 0 and `top_p` 1 filter nothing."""

    seed: int = 1
    top_k: int = 0
    top_p: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.top_k < 0:
            raise InputError(f"--top-k must be 0 or more, but is {self.top_k}.")
        if not 0 < self.top_p <= 1:
            raise InputError(f"--top-p must be above 0 and at most 1, but is {self.top_p}.")
        if not 0 < self.temperature < math.inf:
            raise InputError(f"--temperature must be above 0, but is {self.temperature}.")


@dataclass(frozen=True)
class PrepareOptions:
    """What `vtrans prepare-bpe` is asked to do; its command line reads these defaults."""

    src: tuple[str | Path, ...]
    tgt: tuple[str | Path, ...]
    valid_src: tuple[str | Path, ...] = ()
    valid_tgt: tuple[str | Path, ...] = ()
    out: str | Path = "data"
    vocab_size: int | None = None
    """Pieces of a vocabulary, special ones and bytes included; None: DEFAULT_VOCAB_SIZE, or what the text allows."""
    separate: bool = False
    """One vocabulary a side instead of one for both."""
    subword: Subword = "bpe"
    normalization: str = "nmt_nfkc"
    """SentencePiece's rule; "identity" switches NFKC off."""
    character_coverage: float = 0.9999
    """Share of running characters that have a piece; the rest is spelt in bytes."""
    symbols: tuple[str, ...] = ()
    """Pieces of their own, which are never split, such as the tag of back-translated text (Caswell et al. 2019)."""
    sample: int = 1_000_000
    """Training pairs, drawn at random, from which the vocabulary is learnt."""
    max_tokens: int = 250
    """Training pairs with more subwords on a side are dropped."""
    max_ratio: float = 4.0
    """Training pairs with one side longer than this many times the other are dropped (RATIO_FREE_TOKENS)."""
    on_bad_utf8: Literal["error", "replace"] = "error"
    seed: int = 1
    """Of the pairs held out and sampled."""
    threads: int = 0
    """Processors that encode; 0: all. The result does not depend on it."""
    force: bool = False
    """Replace a data folder made from other inputs or options."""

    def checked(self) -> PrepareOptions:
        """These options, or InputError for the first that can't be."""
        for name, values, allowed in (
            ("--subword", self.subword, ("bpe", "unigram")),
            ("--normalization", self.normalization, NORMALIZATIONS),
            ("--on-bad-utf8", self.on_bad_utf8, ("error", "replace")),
        ):
            if values not in allowed:
                raise InputError(f"{name} must be one of {', '.join(allowed)}, but is {values!r}.")
        for name, number, low, high in (
            (
                "--vocab-size",
                SMALLEST_VOCAB_SIZE if self.vocab_size is None else self.vocab_size,
                SMALLEST_VOCAB_SIZE,
                1 << 24,
            ),
            ("--character-coverage", self.character_coverage, 0.9, 1.0),
            ("--sample", self.sample, 1, 10**9),
            ("--max-tokens", self.max_tokens, 1, 10**6),
            ("--max-ratio", self.max_ratio, 1.0, 10.0**6),
            ("--seed", self.seed, 0, 2**63 - 1),
            ("--threads", self.threads, 0, 1024),
        ):
            if not low <= number <= high:
                raise InputError(f"{name} must be from {low:,} to {high:,}, but is {number:,}.")
        if not self.src:
            raise InputError("there is no corpus to prepare; give --src FILE --tgt FILE.")
        for ours, theirs in (("src", "tgt"), ("valid-src", "valid-tgt")):
            n, m = (len(getattr(self, name.replace("-", "_"))) for name in (ours, theirs))
            if n != m:
                raise InputError(
                    f"--{ours} and --{theirs} go pair by pair, but there are {n} of --{ours} "
                    f"and {m} of --{theirs}; give as many of each."
                )
        return self

    def identity(self) -> dict[str, Any]:
        """The options that decide what the data is, as they stand in data.json."""
        apart = ("src", "tgt", "valid_src", "valid_tgt", "out", "threads", "force")
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in apart}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


@dataclass(frozen=True)
class Recipe:
    """What `vtrans train` is asked to do."""

    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    search: SearchConfig = SearchConfig()


SECTIONS: dict[str, type[ModelConfig] | type[TrainConfig] | type[SearchConfig]] = {
    "model": ModelConfig,
    "train": TrainConfig,
    "search": SearchConfig,
}


def nearest(word: str, known: Iterable[str]) -> str:
    """A clause that names the known word most like `word`, or all of them."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"


def _shown(value: Any) -> str:
    """A value of a recipe as an error shows it; some are too large to be written out."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, or tables in tables
        return f"a value of type {type(value).__name__} that is too large to show"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _checked(section: str, key: str, value: Any, where: str) -> Any:
    """The value of one key, of the right type and in its range, or a RecipeError."""
    spec = SECTIONS[section].__dataclass_fields__[key]
    default, rule = spec.default, spec.metadata
    name = f"{section}.{key}"
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise RecipeError(f"{where}: {name} must be true or false, but is {_shown(value)}.")
    elif isinstance(default, str) and "values" not in rule:
        value = _weights_checked(name, value, rule["low"], rule["high"], where)
    elif isinstance(default, str):
        if value not in rule["values"]:
            raise RecipeError(f"{where}: {name} must be one of {', '.join(rule['values'])}, but is {_shown(value)}.")
    else:
        whole = isinstance(default, int)
        kind = "a whole number" if whole else "a number"
        right = isinstance(value, int) if whole else isinstance(value, (int, float))
        if not right or isinstance(value, bool) or not rule["low"] <= value <= rule["high"]:
            raise RecipeError(
                f"{where}: {name} must be {kind} from {rule['low']} to {rule['high']}, but is {_shown(value)}."
            )
        value = value if whole else float(value)
    return value


def _weights_checked(name: str, value: Any, low: float, high: float, where: str) -> str:
    """The one way to write these weights, or a RecipeError."""
    numbers = value if isinstance(value, list) else value.split(",") if isinstance(value, str) and value else [value]
    try:
        weights = [] if value in ("", []) else [float(n) for n in numbers if not isinstance(n, bool)]
    except (TypeError, ValueError, OverflowError):
        weights = []
    if value not in ("", []) and (len(weights) != len(numbers) or not all(low <= w <= high for w in weights)):
        raise RecipeError(
            f'{where}: {name} must be numbers from {low:g} to {high:g} with commas between them, such as "2,0.5", '
            f"but is {_shown(value)}."
        )
    if weights and not any(weights):
        raise RecipeError(f"{where}: {name} must have a number above 0, but is {_shown(value)}.")
    return ",".join(repr(w).removesuffix(".0") for w in weights)


def section_from(kind: type[T], section: str, values: Mapping[str, Any], where: str, base: T | None = None) -> T:
    """A section of a recipe from a mapping; RecipeError names what is wrong and `where`."""
    known = [f.name for f in dataclasses.fields(kind)]
    for key in values:
        if key not in known:
            raise RecipeError(f"{where}: unknown key {section}.{key}; {nearest(key, known)}")
    checked = {key: _checked(section, key, value, where) for key, value in values.items()}
    return dataclasses.replace(base if base is not None else kind(), **checked)


def contradiction(model: ModelConfig) -> str | None:
    """What no single key can say: why these values make no model, or None."""
    encoder, decoder = model.encoder_layers, model.decoder_layers
    parts = ("attention", "feed-forward")
    if model.d_model % model.heads:
        return f"model.heads must divide model.d_model, but {model.heads} does not divide {model.d_model}."
    if model.positions == "sinusoidal" and model.d_model % 2:
        return f"model.d_model must be even for sinusoidal positions, but is {model.d_model}."
    if model.architecture == "decoder-only":
        if encoder:
            return (
                f"model.architecture = decoder-only has no encoder, but model.encoder_layers is {encoder}; set "
                "model.encoder_layers = 0, model.decoder_layers is the depth of its one stack."
            )
        for key, reason in (
            ("share_stacks", "there is one stack"),
            ("share_positions", "source and target are one sequence with one table as it is"),
        ):
            if getattr(model, key):
                return f"model.{key} makes no sense with model.architecture = decoder-only: {reason}; leave it out."
        if not model.cross_attention_residual:
            return (
                "model.cross_attention_residual = false makes no sense with model.architecture = decoder-only, which "
                "has no cross-attention; leave it out."
            )
        if model.reach == 1:
            return (
                "model.max_positions must be 4 or more for model.architecture = decoder-only, of which either side has "
                f"a half: room for a subword and EOS, but is {model.max_positions}."
            )
    elif not encoder:
        return "model.encoder_layers must be 1 or more; 0 is for model.architecture = decoder-only."
    elif model.source_mask != "prefix":
        return (
            f"model.source_mask = {model.source_mask} is for model.architecture = decoder-only; an encoder sees the "
            "whole source."
        )
    if model.share_positions and model.positions != "learned":
        return (
            f"model.share_positions shares a learned table, but model.positions is {model.positions}; "
            'set model.positions = "learned".'
        )
    if model.share_layers == "none" and model.share_group:
        return (
            f"model.share_group = {model.share_group} groups the layers that share, but model.share_layers is none; "
            'set model.share_layers = "all", "attention" or "feed-forward", or leave both out.'
        )
    if model.share_layers != "none" and all(
        model.sublayer(part, depth - 1) == depth - 1 for part in parts for depth in (encoder, decoder) if depth
    ):
        return (
            f"model.share_layers = {model.share_layers} would share nothing, as no group has more than one layer "
            f"({encoder}+{decoder} layers, model.share_group {model.share_group}); make the stacks deeper or "
            "the groups larger."
        )
    if model.share_stacks:
        for part in parts:
            depths = [model.sublayer(part, depth - 1) + 1 for depth in (encoder, decoder)]
            if depths[0] != depths[1]:
                return (
                    "model.share_stacks makes layer i of the encoder layer i of the decoder, so both need as many "
                    f"sublayers of their own, but of {part} they have {depths[0]} and {depths[1]}; set "
                    'model.encoder_layers = model.decoder_layers, or model.share_layers = "all".'
                )
    return None


def check_together(recipe: Recipe, where: str) -> Recipe:
    """The recipe, or a RecipeError for values that do not go together."""
    if reason := contradiction(recipe.model):
        raise RecipeError(f"{where}: {reason}")
    model, reach = recipe.model, ModelConfig().max_positions
    if model.positions == "sinusoidal" and model.max_positions != reach:
        raise RecipeError(
            f"{where}: model.max_positions = {model.max_positions} is the size of a learned table, but model.positions "
            f'is sinusoidal, which has no end; set model.positions = "learned", or leave it out ({reach}).'
        )
    if recipe.train.learning_rate == 0 and recipe.train.scale == 0:
        raise RecipeError(f"{where}: one of train.learning_rate and train.scale must be above 0.")
    search = recipe.search
    for name, longest in (("search.max_length", search.max_length), ("model.max_positions", model.reach)):
        if longest and search.min_length >= longest:
            raise RecipeError(
                f"{where}: search.min_length must be less than {longest}, the longest translation that {name} allows, "
                f"EOS included, but is {search.min_length}; lower it or raise {name}."
            )
    return recipe


# What may differ between a run and its resumption; all else would make it another run.
MAY_CHANGE = {
    "train": {
        "max_steps",
        "patience",
        "best_metric",
        "log_every",
        "checkpoint_every",
        "keep_last",
        "keep_best",
        "valid_sentences",
        "valid_beam",
        "samples",
        "tensorboard",
        "precision",
    },
    "search": {f.name for f in dataclasses.fields(SearchConfig)},
}
