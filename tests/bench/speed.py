"""Training and decoding speed beside the machine's matrix-product rate, measured before and after.

    python tests/bench/speed.py train [--shape base|tiny] [--batch-tokens 4096] [--updates 30]
    python tests/bench/speed.py decode --model RUN|FILE --input TEXT [--beam 4] [--batch-tokens 2048]

Training is of random ids with the length distribution of captions, three-way tying, 8,000 subwords: real
target tokens a second, and their share of the limit, 6 FLOPs a weight a token at the matrix-product rate:
that of torch's `@` or of vtrans.linear, whichever is the faster on this machine.
Decoding is of a real model and text, model loading excluded: the median of three passes. Quote medians and
shares, never one absolute time: machines are noisy.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from vtrans.batching import collate, plan_epoch
from vtrans.cli import _keep_freed_memory
from vtrans.config import ModelConfig, TrainConfig
from vtrans.linear import linear
from vtrans.loss import Objective
from vtrans.model import Transformer
from vtrans.optim import make_optimizer

VOCAB, PAD = 8000, 0
SHAPES = {
    "base": ModelConfig(d_model=256, d_ff=1024, heads=4, encoder_layers=3, decoder_layers=3, tie="src-tgt-softmax"),
    "tiny": ModelConfig(
        d_model=128, d_ff=256, heads=4, encoder_layers=4, decoder_layers=4, dropout=0.3, tie="src-tgt-softmax"
    ),
}


def matrix_rate(seconds: float = 2.0) -> float:
    """FLOPs a second of [4096, 256] x [256, 1024] in float32, by torch's `@` or by vtrans.linear, whichever is the
    faster here: the median over about `seconds`. A limit by the slower of them could be passed."""
    a, b = torch.randn(4096, 256), torch.randn(1024, 256)
    return max(_rate(lambda: a @ b.t(), seconds / 2), _rate(lambda: linear(a, b), seconds / 2))


def _rate(product: Callable[[], object], seconds: float) -> float:
    rates, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        for _ in range(10):
            product()
        rates.append(10 * 2 * 4096 * 256 * 1024 / (time.perf_counter() - began))
    return statistics.median(rates)


def between_rates(measure: Callable[[], float]) -> tuple[float, float]:
    """What `measure` gives, and the mean of the matrix-product rate before and after it."""
    before = matrix_rate()
    value = measure()
    return value, (before + matrix_rate()) / 2


def train_speed(shape: str, batch_tokens: int, updates: int) -> None:
    torch.manual_seed(0)
    model = Transformer(SHAPES[shape], VOCAB, VOCAB, joint=True, pad_id=PAD).train()
    objective = Objective(model, 0.1)
    optimizer = make_optimizer(model.parameters(), TrainConfig())
    src = (torch.randn(20_000) * 4 + 14).clamp(3, 45).long()
    tgt = (src + torch.randn(20_000) * 2).clamp(3, 50).long()
    plan = plan_epoch(src, tgt, batch_tokens, 1, 2)
    batches = [
        collate(
            [torch.randint(4, VOCAB, (int(src[i]),)) for i in numbers],
            [torch.randint(4, VOCAB, (int(tgt[i]),)) for i in numbers],
        )
        for numbers in plan[: updates + 3]
    ]

    def updates_a_second() -> float:
        rates = []
        for batch in batches:
            began = time.perf_counter()
            loss, _ = objective(batch)
            (loss / batch.tgt_tokens).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            rates.append(batch.tgt_tokens / (time.perf_counter() - began))
        return statistics.median(rates[3:])

    speed, rate = between_rates(updates_a_second)
    # A source token meets the encoder (as many of them as target tokens), a target token the rest.
    weights = sum(p.numel() for name, p in model.named_parameters() if p.ndim == 2)
    limit = rate / (6 * weights)
    print(
        f"{shape}: {speed:,.0f} target tokens/s, {speed / limit:.0%} of the limit of {limit:,.0f} "
        f"({rate / 1e9:.0f} GFLOP/s, {torch.get_num_threads()} threads, torch {torch.__version__})"
    )


def decode_speed(model: str, text: Path, beam: int, batch_tokens: int) -> None:
    from vtrans.text import open_bytes, read_lines
    from vtrans.translate import load

    translator = load(model, device="cpu", beam=beam, batch_tokens=batch_tokens)
    with open_bytes(text) as stream:
        lines = list(read_lines(stream, str(text)))
    list(translator.translate(lines[:50]))

    def lines_a_second() -> float:
        rates = []
        for _ in range(3):
            began = time.perf_counter()
            count = len(list(translator.translate(lines)))
            rates.append(count / (time.perf_counter() - began))
        return statistics.median(rates)

    speed, rate = between_rates(lines_a_second)
    print(
        f"{model}: {speed:.0f} lines/s, beam {beam}, batches of {batch_tokens:,} source tokens "
        f"({rate / 1e9:.0f} GFLOP/s, {torch.get_num_threads()} threads, torch {torch.__version__})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("--shape", choices=sorted(SHAPES), default="base")
    training.add_argument("--batch-tokens", type=int, default=4096)
    training.add_argument("--updates", type=int, default=30)
    decoding = commands.add_parser("decode")
    decoding.add_argument("--model", required=True)
    decoding.add_argument("--input", type=Path, required=True)
    decoding.add_argument("--beam", type=int, default=4)
    decoding.add_argument("--batch-tokens", type=int, default=2048)
    options = parser.parse_args()
    _keep_freed_memory()
    if options.command == "train":
        train_speed(options.shape, options.batch_tokens, options.updates)
    else:
        decode_speed(options.model, options.input, options.beam, options.batch_tokens)


if __name__ == "__main__":
    main()
