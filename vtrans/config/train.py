"""The training of a model: the section [train] of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from vtrans.config.keys import choice, flag, number, numbers, text

PRECISIONS = ("float32", "bfloat16")
SCHEDULES = ("inverse-sqrt", "cosine", "linear", "wsd")  # the first is the default
KERNELS = ("auto", "onednn", "blas")  # the first is the default
# A resumed run may change these keys.
_free_number, _free_choice, _free_flag = (partial(field, may_change=True) for field in (number, choice, flag))


@dataclass(frozen=True)
class TrainConfig:
    """The training. The defaults follow Vaswani et al. 2017 where the paper has a value."""

    max_steps: int = _free_number(20_000, (1, 10**9), "Number of updates.", "updates")
    max_minutes: float = _free_number(
        0.0, (0.0, 1e6), "Maximum minutes of training, validations included; 0 means no limit.", "minutes"
    )
    batch_tokens: int = number(
        4096, (1, 10**8), "Maximum number of tokens of a batch on its larger side, padding included.", "tokens"
    )
    accumulate: int = number(1, (1, 10**6), "Number of batches per update.", "batches")
    learning_rate: float = number(
        0.0,
        (0.0, 10.0),
        "Peak learning rate, reached at the end of the warm-up; 0 means the paper's formula times `scale`.",
    )
    scale: float = number(
        1.0,
        (0.0, 1000.0),
        "Factor on the paper's learning rate (section 5.3).",
        idle_if={"learning_rate": lambda value: value > 0},
    )
    warmup: int = number(2000, (1, 10**9), "Number of updates of linear warm-up.", "updates")
    schedule: str = choice(
        SCHEDULES[0],
        SCHEDULES,
        "How the learning rate falls from its peak: in proportion to step^-0.5, along half a cosine, linearly, or, "
        "with wsd (warm-up, stable, decay), linearly over the last part of the training.",
    )
    final_rate: float = number(
        0.0,
        (0.0, 1.0),
        "Learning rate at the end of the training, as a share of the peak.",
        idle_if={"schedule": lambda value: value == "inverse-sqrt"},
    )
    decay: float = number(
        0.2,
        (0.01, 1.0),
        "Share of the training in which wsd lowers the learning rate.",
        idle_if={"schedule": lambda value: value != "wsd"},
    )
    optimizer: str = choice(
        "adam",
        {
            "adam": "",
            "muon": "orthogonal updates for the matrices of the layers (Jordan et al. 2024), Adam for the rest",
        },
        "Optimizer.",
    )
    momentum: float = number(
        0.95,
        (0.0, 0.999999),
        "Muon's decay of the mean gradient.",
        idle_if={"optimizer": lambda value: value != "muon"},
    )
    beta1: float = number(0.9, (0.0, 0.999999), "Adam's decay of the mean gradient.")
    beta2: float = number(0.98, (0.0, 0.999999), "Adam's decay of the mean squared gradient.")
    epsilon: float = number(1e-9, (1e-16, 1.0), "Adam's epsilon.")
    weight_decay: float = number(0.0, (0.0, 10.0), "Decoupled weight decay (AdamW).")
    clip_norm: float = number(0.0, (0.0, 1e6), "Maximum norm of the gradient; 0 means no clipping.")
    label_smoothing: float = number(0.1, (0.0, 0.99), "Share of the target probability spread over the vocabulary.")
    objective: str = text("cross-entropy", "Loss: cross-entropy, or a class of your own, such as mine.py:FocalLoss.")
    r_drop: float = number(
        0.0,
        (0.0, 1000.0),
        "Weight of the divergence of two predictions of each pair with different dropout (R-Drop, Liang et al. 2021), "
        "which doubles the cost of an update; 0 means off, 1 to 5 is usual.",
    )
    embeddings: str = choice(
        "random",
        {"random": "", "pmi": "from the subwords that occur in the same pairs (Levy et al. 2017)"},
        "How the embeddings of a new run begin.",
    )
    log_every: int = _free_number(100, (1, 10**9), "Number of updates between two lines of metrics.jsonl.", "updates")
    checkpoint_every: int = _free_number(
        1000, (1, 10**9), "Number of updates between two validations, each with a checkpoint.", "updates"
    )
    keep_last: int = _free_number(
        5, (1, 10**6), "Number of newest checkpoints kept, which `vtrans average` averages.", "checkpoints"
    )
    keep_best: int = _free_number(
        5, (1, 10**6), "Number of best checkpoints kept, in addition to the newest.", "checkpoints"
    )
    best_metric: str = _free_choice(
        "auto",
        {"auto": "chrF where BLEU would count characters, else BLEU", **dict.fromkeys(("bleu", "chrf", "nll"), "")},
        "Metric that decides which checkpoint is the best; or a class of your own, such as mine.py:Accuracy.",
        may_be_own=True,
    )
    patience: int = _free_number(
        0,
        (0, 10**6),
        "Number of validations without a new best checkpoint after which training ends; 0 means never.",
        "validations",
    )
    valid_sentences: int = _free_number(
        0, (0, 10**9), "Number of sentences translated per validation for BLEU and chrF; 0 means all.", "sentences"
    )
    valid_beam: int = _free_number(
        1, (1, 1000), "Beam of the translations of a validation; 1 is greedy search.", "hypotheses"
    )
    samples: int = _free_number(3, (0, 1000), "Number of translations shown per validation.", "translations")
    ema: float = number(
        0.0,
        (0.0, 0.999999),
        "Decay of a moving average of the weights, which is validated and saved instead; 0 means off.",
    )
    guided_alignment: float = number(
        0.0,
        (0.0, 100.0),
        "Weight of the loss that trains a head on word alignments; 0 means off, 0.1 to 0.3 is usual.",
    )
    bpe_dropout: float = number(
        0.0, (0.0, 0.95), "Probability of omitting a merge each time a pair is encoded; 0 means off, 0.1 is usual."
    )
    noise: float = number(
        0.0,
        (0.0, 1.0),
        "Share of the pairs that are changed as people type: without capitals or the final mark, with typos, with "
        "symbols to copy, cut, or two in one line; 0 means off, 0.3 is usual.",
    )
    changes: str = text(
        "usual",
        "Changes that `noise` makes: usual, or a class of your own, such as mine.py:Swapped.",
        idle_if={"noise": lambda value: value == 0},
    )
    corpus_weights: tuple[float, ...] = numbers(
        (0.0, 1000.0),
        "How often an epoch contains the pairs of each --src of prepare-bpe, such as [2, 0.5]. A fraction is a random "
        "part, drawn for each epoch; [] means once each.",
    )
    corpus_temperature: float = number(
        1.0,
        (1.0, 1e6),
        "Temperature T: a corpus of n pairs has a share of each epoch in proportion to n^(1/T) (Arivazhagan et al. "
        "2019). Above 1, small corpora are seen more often and large ones less.",
        idle_if={"corpus_weights": bool},
    )
    precision: str = _free_choice(
        "auto",
        {"auto": "bfloat16 where the GPU or CPU computes it faster than float32", **dict.fromkeys(PRECISIONS, "")},
        "Precision of matrix products.",
    )
    kernels: str = _free_choice(
        KERNELS[0],
        KERNELS,
        "Library of float32 products on a CPU: auto (chosen by the processor), onednn, or blas (MKL on x86).",
    )
    compiled: bool = _free_flag(
        True, "On a CPU, use compiled code for attention, residual connections and the loss, if it can be compiled."
    )
    tensorboard: bool = _free_flag(False, "Also write metrics for TensorBoard, to RUN/tensorboard.")
    parallel: str = _free_choice(
        "ddp",
        {"ddp": "the whole model", "fsdp": "a part of each weight, which needs less memory and more communication"},
        "What each of several processes holds.",
    )
    rank_timeout: float = _free_number(
        10.0,
        (0.01, 10_000.0),
        "Minutes without a sign of life from one of torchrun's processes after which the others end.",
    )
    seed: int = number(1, (0, 2**63 - 1), "Seed of every random choice.")
