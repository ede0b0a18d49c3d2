"""Computes what training and translating cost at a size that no single machine reaches.

    python recipes/at-scale/cost.py             # the tables of docs/at-scale.md

All of it is arithmetic; the assumptions are the constants below. The page compares the formulas with measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# WMT14 English-German with a joint vocabulary; subwords per sentence with EOS, both sides.
PAIRS, VOCABULARY, LENGTH = 4_500_000, 37_000, 30
# A GPU: the peak of its bfloat16 products in FLOP/s, and the shares of it that training and a beam search reach.
PEAK, TRAINING_SHARE, SEARCH_SHARE = 312e12, 0.30, 0.03
# Bytes per second that each GPU sends: within a machine of eight, and between machines.
WITHIN, BETWEEN = 300e9, 25e9
BEAM, LINES, BYTES_PER_LINE = 4, 10**9, 130


@dataclass(frozen=True)
class Shape:
    """A model, and its training as in the paper: `steps` updates of 25,000 target tokens."""

    name: str
    D: int
    F: int
    layers: int  # of the encoder, and of the decoder
    steps: int
    vocabulary: int = VOCABULARY

    def products(self) -> tuple[int, int]:
        """Returns the weights that a source token and a target token are multiplied by."""
        D, F, n = self.D, self.F, self.layers
        source = n * (4 * D * D + 2 * D * F) + n * 2 * D * D  # the encoder, and the decoder's keys and values of it
        target = n * (4 * D * D + 2 * D * D + 2 * D * F) + D * self.vocabulary
        return source, target

    def parameters(self) -> int:
        """Returns the weights and biases, with one matrix for both embeddings and the projection."""
        D, F, n = self.D, self.F, self.layers
        attention, ffn, norm = 4 * (D * D + D), 2 * D * F + D + F, 2 * D
        return n * (attention + ffn + 2 * norm) + n * (2 * attention + ffn + 3 * norm) + self.vocabulary * D

    def forward(self, S: float, T: float) -> float:
        """Returns the FLOPs of a forward pass of a pair of S and T tokens: 2 per weight, and attention."""
        source, target = self.products()
        attention = 4 * self.D * self.layers * (S * S + T * T + S * T)
        return 2 * (source * S + target * T) + attention

    def training(self, S: float, T: float) -> float:
        """Returns the FLOPs of a pair in training; the backward pass costs twice the forward pass."""
        return 3 * self.forward(S, T)

    def search(self, S: float, T: float, beam: int) -> float:
        """Returns the FLOPs of a beam search: the source once, each step for all hypotheses."""
        source, target = self.products()
        attention = 4 * self.D * self.layers * (S * S + beam * (T * T / 2 + S * T))
        return 2 * (source * S + target * T * beam) + attention


SHAPES = (Shape("base", 512, 2048, 6, 100_000), Shape("big", 1024, 4096, 6, 300_000))
BATCH = 25_000  # target tokens per update


def store_bytes(pairs: float, tokens: float) -> float:
    """Returns the size of a data folder's ids: 2 bytes per token (4 above 65,536 subwords), 8 per sentence."""
    return 2 * tokens + 2 * 8 * pairs


def checkpoint_bytes(parameters: int) -> tuple[int, int]:
    """Returns the sizes of a model file (float32) and of the state of Adam, without vocabulary and header."""
    return 4 * parameters, 8 * parameters


def gradient_bytes(parameters: int, ranks: int) -> float:
    """Returns what each rank sends per update: a ring all-reduce of float32 gradients."""
    return 2 * (ranks - 1) / ranks * 4 * parameters


def training_row(shape: Shape, gpus: int) -> Sequence[str]:
    parameters = shape.parameters()
    per_update = shape.training(LENGTH, LENGTH) * BATCH / LENGTH
    compute = per_update / gpus / (PEAK * TRAINING_SHARE)
    sent = gradient_bytes(parameters, gpus)
    network = sent / (WITHIN if gpus <= 8 else BETWEEN)
    hours = shape.steps * max(compute, network) / 3600
    return (
        shape.name,
        str(gpus),
        f"{parameters / 1e6:.1f} M",
        f"{per_update / 1e12:.1f} T",
        f"{1000 * compute:.1f} ms",
        f"{sent / 1e6:.0f} MB",
        f"{1000 * network:.1f} ms",
        f"{hours:.1f} h",
        f"{hours * gpus:.0f}",
    )


def storage_row(shape: Shape) -> Sequence[str]:
    parameters = shape.parameters()
    model, state = checkpoint_bytes(parameters)
    return (
        shape.name,
        f"{model / 1e9:.2f} GB",
        f"{state / 1e9:.2f} GB",
        f"{16 * parameters / 1e9:.2f} GB",
        f"{shape.steps * BATCH / 1e9:.1f} G ({shape.steps * BATCH / (PAIRS * LENGTH):.0f} epochs)",
    )


def translation_row(shape: Shape, gpus: int) -> Sequence[str]:
    operations = LINES * shape.search(LENGTH, LENGTH, BEAM)
    days = operations / (gpus * PEAK * SEARCH_SHARE) / 86400
    return shape.name, str(gpus), f"{operations / 1e18:.1f} E", f"{LINES / days / 86400:,.0f}", f"{days:.1f} days"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (header, ["---"] + ["---:"] * (len(header) - 1), *rows)]
    return "\n".join(lines)


def report() -> str:
    """Returns the tables of docs/at-scale.md."""
    sizes = [(shape, gpus) for shape in SHAPES for gpus in (8, 64)]
    training = table(
        ("training", "GPUs", "weights", "FLOPs/update", "computing", "sent per GPU", "sending", "time", "GPU hours"),
        (training_row(*size) for size in sizes),
    )
    storage = table(
        ("model", "model file", "training state", "weights, gradients and Adam in memory", "target tokens"),
        (storage_row(shape) for shape in SHAPES),
    )
    translation = table(
        (f"{LINES:,} lines", "GPUs", "FLOPs", "lines/s", "time"), (translation_row(*size) for size in sizes)
    )
    store = store_bytes(PAIRS, 2 * PAIRS * LENGTH) / 1e9
    text = LINES * BYTES_PER_LINE / 1e9
    return (
        f"{training}\n\n{storage}\n\nThe data folder of {PAIRS:,} pairs takes {store:.2f} GB.\n\n{translation}\n\n"
        f"The text and its translation take {text:,.0f} GB each, in {LINES // 100_000:,} chunks of 100,000 lines."
    )


if __name__ == "__main__":
    print(report())
