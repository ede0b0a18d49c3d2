"""The training of a model: the section [train] of a recipe."""

from __future__ import annotations

from dataclasses import dataclass

from vtrans.keys import choice, flag, number, numbers

PRECISIONS = ("float32", "bfloat16")
SCHEDULES = ("inverse-sqrt", "cosine", "linear", "wsd")  # the first is the default
KERNELS = ("auto", "onednn", "blas")  # the first is the default


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
        "precision of matrix products; auto: bfloat16 where the GPU or CPU computes it in hardware",
        may_change=True,
    )
    kernels: str = choice(
        KERNELS[0],
        KERNELS,
        "library of float32 products on a CPU; auto: by the processor; blas: MKL on x86",
        may_change=True,
    )
    attention: str = choice(
        "auto",
        ("auto", "fused", "bmm"),
        "how training computes attention on a CPU; auto: by the processor; bmm: batched products",
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
