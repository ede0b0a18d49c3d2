"""Settings as frozen dataclasses: recipes and sampling.

Each default of a recipe has its one address here; data/options.py has those of prepare-bpe. The metadata of a field is
a `Key`, which holds everything else that the program knows about the setting: its range, its help, whether a resumed
run may change it, whether CTranslate2 can express it. A recipe describes a model and its training completely, except
the vocabulary, which comes from the data folder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from vtrans.errors import InputError, RecipeError
from vtrans.keys import check_value, choice, flag, keys_of, nearest, number, numbers, texts, toml_value

T = TypeVar("T", bound="ModelConfig | TrainConfig | SearchConfig")

DEFAULT_RECIPE = "small"
DEFAULT_RUN = "run"
PRECISIONS = ("float32", "bfloat16")
SCHEDULES = ("inverse-sqrt", "cosine", "linear", "wsd")  # the first is the default
KERNELS = ("auto", "onednn", "blas")  # the first is the default
KERNELS_VARIABLE = "VTRANS_KERNELS"  # the environment variable with the default for translating
CACHE_VARIABLE = "VTRANS_CACHE"  # the environment variable with the folder of compiled code
DECODING_PRECISIONS = ("float32", "bfloat16", "float16", "int8")  # the first is the default
MBR_METRICS = ("chrf", "bleu")
MBR_BEAM, MBR_SAMPLES = 16, 64  # candidates of a search by `vtrans translate`, and samples
# Sizes of a shortlist: target subwords per source subword, and those that every sentence may use.
DEFAULT_TRANSLATIONS, DEFAULT_FREQUENT = 8, 1500
# Neighbours that `vtrans inspect` shows of a subword, and of a step of a translation.
NEAREST, NEAREST_OF_STEP = 10, 3
TIE_FORMS = ("src-tgt-softmax", "tgt-softmax", "src-tgt", "none")


def _decoder_only(architecture: str) -> bool:
    return architecture == "decoder-only"


def _without_table(positions: str) -> bool:
    return positions in ("sinusoidal", "rotary")


@dataclass(frozen=True)
class ModelConfig:
    """The architecture. The defaults are those of Vaswani et al. 2017, with 3+3 layers and D 256."""

    d_model: int = number(256, 2, 65536, "width of the embeddings and layers, D", exportable=True, summary="D {}")
    d_ff: int = number(1024, 1, 1 << 20, "width of the feed-forward layers, F", exportable=True, summary="F {}")
    heads: int = number(4, 1, 1024, "attention heads, H; must divide d_model", "heads", exportable=True, summary="H {}")
    architecture: str = choice(
        "encoder-decoder",
        ("encoder-decoder", "decoder-only"),
        "decoder-only: one stack of decoder_layers layers for source and target (GPT, Radford et al. 2018)",
    )
    source_mask: str = choice(
        "prefix",
        ("prefix", "causal"),
        "decoder-only: a source token attends to the whole source (Raffel et al. 2019, section 3.2) or to its prefix",
        idle_if={"architecture": lambda value: not _decoder_only(value)},
    )
    encoder_layers: int = number(
        3, 0, 1000, "layers of the encoder; 0 for decoder-only", "layers", exportable=True, summary="{} encoder layers"
    )
    decoder_layers: int = number(
        3, 1, 1000, "layers of the decoder", "layers", exportable=True, summary="{} decoder layers"
    )
    dropout: float = number(
        0.1,
        0.0,
        0.95,
        "dropout after the embeddings and the sublayers (paper, section 5.4)",
        training_only=True,
        exportable=True,
        summary="dropout {}",
    )
    attention_dropout: float = number(
        0.0, 0.0, 0.95, "dropout on the attention weights", training_only=True, exportable=True
    )
    activation_dropout: float = number(
        0.0, 0.0, 0.95, "dropout after the feed-forward activation", training_only=True, exportable=True
    )
    activation: str = choice(
        "relu",
        ("relu", "gelu", "swish"),
        "activation of the feed-forward layers; swish: x * sigmoid(x)",
        exportable=True,
    )
    norm: str = choice(
        "post",
        ("post", "pre"),
        "where the layer norms are: post: after the residual sum (paper); pre: before the sublayer",
        exportable=True,
        summary="{}-norm",
    )
    norm_eps: float = number(
        1e-5, 1e-12, 1.0, "added to the variance in a layer norm; Marian's is 1e-6", exportable=True
    )
    tie: str = choice(
        "auto",
        ("auto", *TIE_FORMS),
        "which embeddings are one matrix; auto: src-tgt-softmax for a joint vocabulary, else tgt-softmax",
        adaptable=True,
        exportable=True,
        summary="tie {}",
    )
    positions: str = choice(
        "sinusoidal",
        ("sinusoidal", "learned", "stored", "rotary"),
        "position encoding; rotary: turns the queries and keys of self-attention (Su et al. 2021); stored: a fixed "
        "table in the model file, for imported models; it starts as sinusoidal",
        exportable=True,
    )
    max_positions: int = number(
        1024,
        2,
        1 << 20,
        "rows of a learned or stored position table; decoder-only uses half of them for each side",
        "rows",
        idle_if={"positions": _without_table},
        adaptable=True,
        exportable=True,
    )
    share_positions: bool = flag(
        False,
        "one learned or stored position table for encoder and decoder",
        idle_if={"positions": _without_table, "architecture": _decoder_only},
        exportable=True,
    )
    share_layers: str = choice(
        "none",
        ("none", "attention", "feed-forward", "all"),
        "what the layers of a stack share, each sublayer with its norm (ALBERT, Lan et al. 2019)",
        exportable=True,  # as copies, which CTranslate2 finds equal and keeps once
    )
    share_group: int = number(
        0,
        0,
        1000,
        "consecutive layers that share_layers makes one; 0: the whole stack",
        "layers",
        idle_if={"share_layers": lambda value: value == "none"},
        exportable=True,
    )
    share_stacks: bool = flag(
        False,
        "encoder layer i = decoder layer i except cross-attention (Raffel et al. 2019, section 3.2)",
        idle_if={"architecture": _decoder_only},
        exportable=True,
    )
    scale_embedding: bool = flag(
        True,
        "multiply embeddings by sqrt(D) (paper, section 3.4); without it they start at the same size",
        exportable=True,
    )
    projection_bias: bool = flag(False, "a learned bias on the logits, as in Marian", exportable=True)
    source_eos: bool = flag(
        True,
        "the EOS that ends each source is attended to; false for imported models whose sources had none",
        idle_if={"architecture": _decoder_only},
        exportable=True,
    )
    autoregression: str = choice(
        "self-attention",
        ("self-attention", "ssru"),
        "how a decoder layer reads the earlier subwords; ssru: a recurrence, faster step by step (Kim et al. 2019)",
        idle_if={"architecture": _decoder_only},
    )
    cross_attention_residual: bool = flag(
        True,
        "residual connection around cross-attention; false is an ablation",
        idle_if={"architecture": _decoder_only},
    )
    alignment_layer: int = number(
        0, 0, 1000, "decoder layer, from 1, whose first head aligns words; 0: none", adaptable=True, exportable=True
    )

    @property
    def reach(self) -> int | None:
        """The longest source or target, with its BOS or EOS, for which there are positions; None: no limit."""
        if _without_table(self.positions):
            return None
        return self.max_positions if self.architecture == "encoder-decoder" else self.max_positions // 2

    @property
    def summary(self) -> str:
        """The keys that every model's description has, and the others that differ from their defaults."""
        said, others = [], []
        for spec in dataclasses.fields(self):
            value, key = getattr(self, spec.name), spec.metadata["key"]
            if key.summary:
                said.append(key.summary.format(value))
            elif value != spec.default:
                others.append(f"{spec.name} {toml_value(value)}")
        return ", ".join(said + others)

    def sublayer(self, part: str, layer: int) -> int:
        """The number of the sublayer that a layer of a stack uses; layers with the same number share it. `part` is
        "attention" or "feed-forward"."""
        if self.share_layers not in (part, "all"):
            return layer
        return layer // self.share_group if self.share_group else 0


@dataclass(frozen=True)
class TrainConfig:
    """The training. The defaults are those of Vaswani et al. 2017 where the paper has a value."""

    max_steps: int = number(20_000, 1, 10**9, "updates in all", "updates", may_change=True)
    max_minutes: float = number(
        0.0, 0.0, 1e6, "minutes of training, validations included; 0: no limit", "minutes", may_change=True
    )
    batch_tokens: int = number(4096, 1, 10**8, "padded tokens of the larger side of a batch", "tokens")
    accumulate: int = number(1, 1, 10**6, "batches per update", "batches")
    learning_rate: float = number(
        0.0, 0.0, 10.0, "peak, reached at the end of the warm-up; 0: the paper's formula times `scale`"
    )
    scale: float = number(
        1.0,
        0.0,
        1000.0,
        "factor on the paper's formula (section 5.3)",
        idle_if={"learning_rate": lambda value: value > 0},
    )
    warmup: int = number(2000, 1, 10**9, "updates of linear warm-up", "updates")
    schedule: str = choice(
        SCHEDULES[0],
        SCHEDULES,
        "how the learning rate falls from its peak: in proportion to step^-0.5, along half a cosine, linearly, or, "
        "with wsd (warm-up, stable, decay), linearly over the last part of the training",
    )
    final_rate: float = number(
        0.0,
        0.0,
        1.0,
        "learning rate at the end of the training, as a share of the peak",
        idle_if={"schedule": lambda value: value == "inverse-sqrt"},
    )
    decay: float = number(
        0.2,
        0.01,
        1.0,
        "share of the training in which wsd lowers the rate",
        idle_if={"schedule": lambda value: value != "wsd"},
    )
    optimizer: str = choice(
        "adam",
        ("adam", "muon"),
        "muon: steps of orthogonal matrices for the weights of the layers (Jordan et al. 2024), Adam for the rest",
    )
    momentum: float = number(
        0.95, 0.0, 0.999999, "Muon's decay of the mean gradient", idle_if={"optimizer": lambda value: value != "muon"}
    )
    beta1: float = number(0.9, 0.0, 0.999999, "Adam's decay of the mean gradient")
    beta2: float = number(0.98, 0.0, 0.999999, "Adam's decay of the mean squared gradient")
    epsilon: float = number(1e-9, 1e-16, 1.0, "Adam's epsilon")
    weight_decay: float = number(0.0, 0.0, 10.0, "decoupled weight decay (AdamW)")
    clip_norm: float = number(0.0, 0.0, 1e6, "largest norm of the gradient; 0: no clipping")
    label_smoothing: float = number(0.1, 0.0, 0.99, "share of the target mass spread over the vocabulary")
    r_drop: float = number(
        0.0,
        0.0,
        1000.0,
        "R-Drop (Liang et al. 2021): each pair is read twice, with different dropout, and this weight is on the "
        "divergence of the two predictions; an update computes twice as much; 0: off, usual 1 to 5",
    )
    log_every: int = number(100, 1, 10**9, "updates between two lines of metrics.jsonl", "updates", may_change=True)
    checkpoint_every: int = number(
        1000, 1, 10**9, "updates between two validations, each with a checkpoint", "updates", may_change=True
    )
    keep_last: int = number(
        5, 1, 10**6, "newest checkpoints kept, which `vtrans average` averages", "checkpoints", may_change=True
    )
    keep_best: int = number(
        5, 1, 10**6, "best checkpoints kept, in addition to the newest", "checkpoints", may_change=True
    )
    best_metric: str = choice(
        "bleu", ("bleu", "chrf", "nll"), "what decides which checkpoint is the best", may_change=True
    )
    patience: int = number(
        0, 0, 10**6, "validations without a new best before training ends; 0: never", "validations", may_change=True
    )
    valid_sentences: int = number(
        0, 0, 10**9, "sentences translated per validation for BLEU and chrF; 0: all", "sentences", may_change=True
    )
    valid_beam: int = number(1, 1, 1000, "beam of those translations; 1 is greedy", "hypotheses", may_change=True)
    samples: int = number(3, 0, 1000, "translations shown per validation", "translations", may_change=True)
    ema: float = number(
        0.0, 0.0, 0.999999, "decay of a moving average of the weights, which is validated and saved instead; 0: off"
    )
    guided_alignment: float = number(
        0.0, 0.0, 100.0, "weight of the loss that teaches a head the word alignments of the data; 0: off, usual 0.1"
    )
    bpe_dropout: float = number(
        0.0, 0.0, 0.95, "probability of leaving out a merge, drawn each time a pair is encoded; 0: off, usual 0.1"
    )
    corpus_weights: tuple[float, ...] = numbers(
        0.0,
        1000.0,
        "how often an epoch has the pairs of each --src of prepare-bpe, such as [2, 0.5]; a fraction is a random "
        "part, drawn for each epoch; []: once each",
    )
    corpus_temperature: float = number(
        1.0,
        1.0,
        1e6,
        "a corpus of n pairs has a share of each epoch in proportion to n^(1/T), where T is this value (Arivazhagan et "
        "al. 2019); above 1, small corpora are seen more often and large ones less",
        idle_if={"corpus_weights": bool},
    )
    precision: str = choice(
        "auto",
        ("auto", *PRECISIONS),
        "precision of matrix products; auto: bfloat16 on a GPU that supports it or where a CPU is faster with it",
        may_change=True,
    )
    kernels: str = choice(
        KERNELS[0],
        KERNELS,
        "library of float32 products on a CPU; auto: measured at the start for each shape; blas: MKL on x86",
        may_change=True,
    )
    attention: str = choice(
        "auto",
        ("auto", "fused", "bmm"),
        "how training computes attention on a CPU; auto: measured at the start; bmm: batched products",
        may_change=True,
    )
    tensorboard: bool = flag(False, "write metrics for TensorBoard too, to RUN/tensorboard", may_change=True)
    parallel: str = choice(
        "ddp",
        ("ddp", "fsdp"),
        "what each of several processes holds: ddp: the whole model; fsdp: a part of each weight, which needs less "
        "memory and more communication",
        may_change=True,
    )
    rank_timeout: float = number(
        10.0,
        0.01,
        10_000.0,
        "minutes without a sign of life from one of several processes after which the others end",
        may_change=True,
    )
    seed: int = number(1, 0, 2**63 - 1, "seed of every random choice")


@dataclass(frozen=True)
class SearchConfig:
    """The search for translations. `vtrans translate` has a flag that overrides each key except `max_source`."""

    beam: int = number(4, 1, 1000, "live hypotheses per sentence", "hypotheses", may_change=True)
    beam_groups: int = number(
        1, 1, 1000, "parts of the beam that avoid each other's tokens; must divide beam", "groups", may_change=True
    )
    diversity: float = number(
        0.5,
        0.0,
        1000.0,
        "how much a token ranks lower per row of an earlier group that has chosen it (Vijayakumar et al. 2018)",
        may_change=True,
        idle_if={"beam_groups": lambda value: value == 1},
    )
    alpha: float = number(0.6, -10.0, 10.0, "exponent of the length penalty", may_change=True)
    length_penalty: str = choice(
        "gnmt",
        ("gnmt", "length"),
        "gnmt: ((5 + |Y|) / 6) ** alpha; length: |Y| ** alpha, as in fairseq, Marian and CTranslate2",
        may_change=True,
        idle_if={"alpha": lambda value: value == 0},
    )
    stop: str = choice(
        "count",
        ("count", "current", "exhaustive", "shrink"),
        "when the search stops: count: at `beam` finished hypotheses; current: when, in addition, no live one scores "
        "better at its present length; exhaustive: when no live one can still win; shrink: as count, but each finished "
        "hypothesis makes the beam narrower by one, as in Marian",
        may_change=True,
    )
    max_length: int = number(
        0, 0, 10**6, "most target tokens with EOS; 0: no limit besides that of max_ratio", "tokens", may_change=True
    )
    max_ratio: float = number(
        0.0,
        0.0,
        1000.0,
        "most target tokens per source token, both with EOS, as in Marian; 0: source tokens + 50 instead",
        may_change=True,
    )
    min_length: int = number(0, 0, 10**6, "fewest target tokens before EOS", "tokens", may_change=True)
    no_repeat_ngram: int = number(
        0, 0, 1000, "no sequence of this many target tokens occurs twice; 0: no such rule", "tokens", may_change=True
    )
    repetition_penalty: float = number(
        1.0,
        1.0,
        1000.0,
        "factor on the log-probability of a token that the translation already contains (Keskar et al. 2019)",
        may_change=True,
        idle_if={"no_repeat_ngram": lambda value: value == 1},
    )
    suppress: tuple[str, ...] = texts(
        "subwords that a translation never contains; the probabilities of the others stay as they are", may_change=True
    )
    max_source: int = number(
        1024,
        1,
        10**6,
        "source tokens translated in one piece; a longer line is cut into pieces, with a warning",
        "tokens",
        may_change=True,
    )
    batch_tokens: int = number(
        2048, 1, 10**8, "padded source tokens per batch; 1: one sentence at a time", "tokens", may_change=True
    )


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


def section_from(kind: type[T], section: str, values: Mapping[str, Any], where: str, base: T | None = None) -> T:
    """A section of a recipe with these values. The other keys have the values of `base`, or else the defaults.

    Raises RecipeError, which begins with `where`, for an unknown key or a value that is not allowed.
    """
    keys = keys_of(kind)
    checked = {}
    for name, value in values.items():
        if name not in keys:
            raise RecipeError(f"{where}: unknown key {section}.{name}; {nearest(name, keys)}")
        try:
            checked[name] = check_value(keys[name], f"{section}.{name}", value)
        except InputError as error:
            raise RecipeError(f"{where}: {error}") from None
    return dataclasses.replace(base if base is not None else kind(), **checked)
