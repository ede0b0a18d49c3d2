"""Print training and decoding speed, and the machine's matrix-product rate before and after.

    python tests/bench/speed.py train [--shape base|tiny|ssru] [--batch-tokens 4096] [--updates 30]
        [--profile [--precision float32|bfloat16]]
    python tests/bench/speed.py decode --model RUN|FILE --input TEXT [--beam 4] [--batch-tokens 2048] [--profile]

Training uses random ids with the length distribution of captions, three-way tying and 8,000 subwords. For float32 with
BLAS (MKL), with oneDNN and with the kernels that `vtrans train` chooses, and for bfloat16, the latter two with Adam and
with Muon, it prints real target tokens per second, the medians of updates in turns, and their share of the limit: 6
FLOPs per weight and token at the matrix-product rate of torch's `@` or of vtrans.model.products in float32,
whichever is faster on this machine. Decoding uses a real model and text and prints the median of three passes, without
loading the model. Quote medians and shares, never a single absolute time: machines are noisy. --profile shows where the
time of a pass goes, on one thread.
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from vtrans.config import PRECISIONS, ModelConfig, TrainConfig
from vtrans.data.batches import Batch, collate, plan_epoch
from vtrans.model import kernels
from vtrans.model.automatic import automatic_kernels
from vtrans.model.kernels import Kernels
from vtrans.model.network import Transformer
from vtrans.model.products import linear
from vtrans.system.process_memory import manage_memory
from vtrans.training.optimization.loss import Objective, autocast
from vtrans.training.optimization.optimizer import begin, make_optimizer

Result = TypeVar("Result")
CPU = torch.device("cpu")
VOCAB, PAD = 8000, 0
SHAPES = {
    "base": ModelConfig(d_model=256, d_ff=1024, heads=4, encoder_layers=3, decoder_layers=3, tie="src-tgt-softmax"),
    "tiny": ModelConfig(
        d_model=128, d_ff=256, heads=4, encoder_layers=4, decoder_layers=4, dropout=0.3, tie="src-tgt-softmax"
    ),
}
SHAPES["ssru"] = dataclasses.replace(SHAPES["tiny"], autoregression="ssru")


def matrix_rate(seconds: float = 2.0) -> float:
    """Return the larger of `matrix_rates`; a limit computed from the smaller one could be exceeded."""
    return max(matrix_rates(seconds))


def matrix_rates(seconds: float = 2.0) -> tuple[float, float]:
    """Return FLOPs per second of [4096, 256] x [256, 1024] in float32, with torch's `@` and with
    vtrans.model.products: the medians over about `seconds`."""
    a, b = torch.randn(4096, 256), torch.randn(1024, 256)
    return _rate(lambda: a @ b.t(), seconds / 2), _rate(lambda: linear(a, b), seconds / 2)


def _rate(product: Callable[[], object], seconds: float) -> float:
    rates, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        for _ in range(10):
            product()
        rates.append(10 * 2 * 4096 * 256 * 1024 / (time.perf_counter() - began))
    return statistics.median(rates)


def between_rates(measure: Callable[[], Result]) -> tuple[Result, float]:
    """Return the value of `measure`, and the mean of the matrix-product rates before and after it."""
    before = matrix_rate()
    value = measure()
    return value, (before + matrix_rate()) / 2


# Kinds of operators, by parts of their names; the first match counts.
KINDS = {
    "optimizer": ("_fused_adam", "_foreach", "baddbmm"),
    "products of layers": ("linear", "addmm", "::mm"),
    "products of attention": ("bmm", "attention"),
    "softmax": ("softmax", "exp", "amax"),
    "the best subwords": ("topk", "argsort", "::sort"),
    "random masks": ("random_", "::ge", "bernoulli"),
    "layer norm": ("layer_norm",),
    "copies": ("copy_", "cat", "index", "gather", "stack", "embedding", "scatter", "clone"),
    "sums, products, activations": ("add", "mul", "relu", "threshold", "clamp", "sum", "div", "sub", "fill"),
}


def print_profile(work: Callable[[], object]) -> None:
    """Print where the time of `work` goes on this thread: the operators by kind, and the rest, which is Python and call
    overhead. Profiling itself adds to the rest."""
    work()
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        began = time.perf_counter()
        work()
        total = time.perf_counter() - began
    seconds, calls = dict.fromkeys([*KINDS, "other operators"], 0.0), dict.fromkeys([*KINDS, "other operators"], 0)
    for event in recorded.key_averages():
        kind = next((k for k, words in KINDS.items() if any(word in event.key for word in words)), "other operators")
        seconds[kind] += event.self_cpu_time_total / 1e6
        calls[kind] += event.count
    for kind in sorted(seconds, key=lambda k: -seconds[k]):
        print(f"{kind:30} {seconds[kind]:7.2f} s {seconds[kind] / total:5.1%} {calls[kind]:8,} calls")
    rest = total - sum(seconds.values())
    print(f"{'Python and call overhead':30} {rest:7.2f} s {rest / total:5.1%}; total {total:.2f} s")


def train_speed(shape: str, batch_tokens: int, updates: int, precision: str, profiled: bool) -> None:
    torch.manual_seed(0)
    model = Transformer(SHAPES[shape], VOCAB, VOCAB, joint=True, pad_id=PAD).train()
    objective = Objective(model, 0.1)
    optimizers = {
        (name, kind): make_optimizer(
            model.parameters(), TrainConfig(optimizer=name, precision=kind, learning_rate=1e-4), model.matrices()
        )
        for name in ("adam", "muon")
        for kind in PRECISIONS
    }
    for made in optimizers.values():
        begin(made, model.parameters())
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

    def update(batch: Batch, precision: str, name: str = "adam") -> float:
        """Return target tokens per second."""
        optimizer = optimizers[name, precision]
        began = time.perf_counter()
        with autocast(CPU, precision):
            loss, _ = objective(batch)
        (loss / batch.tgt_tokens).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return batch.tgt_tokens / (time.perf_counter() - began)

    chosen = automatic_kernels()
    if profiled:
        kernels.use(chosen)
        print_profile(lambda: [update(batch, precision) for batch in batches])
        return
    ways = {
        "float32, BLAS": (Kernels("blas"), "float32", "adam"),
        "float32, oneDNN": (Kernels(), "float32", "adam"),
        f"float32, chosen: {chosen}": (chosen, "float32", "adam"),
        "float32, chosen, Muon": (chosen, "float32", "muon"),
        "bfloat16, chosen": (chosen, "bfloat16", "adam"),
        "bfloat16, chosen, Muon": (chosen, "bfloat16", "muon"),
    }

    def updates_a_second() -> dict[str, float]:
        rates: dict[str, list[float]] = {way: [] for way in ways}
        for batch in batches:
            for way, (choice, kind, name) in ways.items():
                kernels.use(choice)
                rates[way].append(update(batch, kind, name))
        return {way: statistics.median(found[3:]) for way, found in rates.items()}

    speeds, rate = between_rates(updates_a_second)
    # A source token passes the encoder, a target token the rest; there are about as many of either.
    limit = rate / (6 * sum(p.numel() for p in model.parameters() if p.ndim == 2))
    print(
        f"{shape}: the limit in float32 is {limit:,.0f} target tokens/s "
        f"({rate / 1e9:.0f} GFLOP/s, {torch.get_num_threads()} threads, torch {torch.__version__})"
    )
    for way, speed in speeds.items():
        print(f"{speed:8,.0f} target tokens/s, {speed / limit:.0%} of the limit: {way}")


def decode_speed(model: str, text: Path, beam: int, batch_tokens: int, profiled: bool) -> None:
    from vtrans.text.lines import open_bytes, read_lines
    from vtrans.translate.loading import load

    translator = load(model, device="cpu", engine="torch", beam=beam, batch_tokens=batch_tokens, retry=False)
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

    if profiled:
        print_profile(lambda: list(translator.translate(lines)))
        return
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
    training.add_argument("--precision", choices=PRECISIONS, default=PRECISIONS[0])
    for command in (training, decoding):
        command.add_argument("--profile", action="store_true", help="show where the time goes, on one thread")
    options = parser.parse_args()
    manage_memory()
    if options.profile:
        torch.set_num_threads(1)
    if options.command == "train":
        train_speed(options.shape, options.batch_tokens, options.updates, options.precision, options.profile)
    else:
        decode_speed(options.model, options.input, options.beam, options.batch_tokens, options.profile)


if __name__ == "__main__":
    main()
