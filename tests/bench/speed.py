"""Print training speed, and the machine's matrix-product rate before and after.

    python tests/bench/speed.py train [--shape base|tiny|wide|ssru] [--batch-tokens 4096] [--updates 30]
        [--transformers] [--profile [--precision float32|bfloat16]]

It uses random ids with the length distribution of captions, three-way tying and 8,000 subwords. For float32 with BLAS
(MKL) and with oneDNN, and for the kernels that `vtrans train` chooses, in float32 and bfloat16, with Adam and Muon, it
prints real target tokens per second, the medians of updates in turns, and their share of the limit: 6 FLOPs per weight
and token at the matrix-product rate of torch's `@` or of vtrans.model.products in float32, whichever is faster on this
machine. Quote medians and shares, never a single absolute time: machines are noisy. --transformers adds a plain loop
with transformers' Marian model of the same shape and Adam. --profile shows where the time of the updates goes, on one
thread.
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch.profiler import ProfilerActivity, profile

from vtrans.config import ModelConfig, TrainConfig
from vtrans.config.train import PRECISIONS
from vtrans.data.batches import Batch, collate
from vtrans.data.epochs import plan_epoch
from vtrans.model import kernels
from vtrans.model.automatic import automatic_kernels
from vtrans.model.kernels import Kernels
from vtrans.model.network import Transformer
from vtrans.model.products import linear
from vtrans.system.console import Console
from vtrans.system.process import manage_memory
from vtrans.training.optimization.compiled import compiled_training
from vtrans.training.optimization.loss import Objective, autocast
from vtrans.training.optimization.optimizer import begin, make_optimizer

CPU = torch.device("cpu")
VOCAB, PAD = 8000, 0
SHAPES = {
    "base": ModelConfig(d_model=256, d_ff=1024, heads=4, encoder_layers=3, decoder_layers=3, tie="src-tgt-softmax"),
    "tiny": ModelConfig(
        d_model=128, d_ff=256, heads=4, encoder_layers=4, decoder_layers=4, dropout=0.3, tie="src-tgt-softmax"
    ),
}
SHAPES["wide"] = dataclasses.replace(SHAPES["base"], d_ff=512, heads=8, encoder_layers=2, decoder_layers=2)
SHAPES["ssru"] = dataclasses.replace(SHAPES["tiny"], autoregression="ssru")


def matrix_rate(seconds: float = 2.0) -> float:
    """Return FLOPs per second of [4096, 256] x [256, 1024] in float32, measured for about `seconds`: the larger median
    of torch's `@` and of vtrans.model.products. A limit computed from the smaller one could be exceeded."""
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


def random_batches(batch_tokens: int, number: int) -> list[Batch]:
    """Return batches of random ids."""
    src = (torch.randn(20_000) * 4 + 14).clamp(3, 45).long()
    tgt = (src + torch.randn(20_000) * 2).clamp(3, 50).long()
    plan = plan_epoch(src, tgt, batch_tokens, 1, 2)[:number]
    sides = ([[torch.randint(4, VOCAB, (int(side[i]),)) for i in numbers] for numbers in plan] for side in (src, tgt))
    return [collate(sources, targets) for sources, targets in zip(*sides, strict=True)]


def plain_loop(config: ModelConfig, precision: str) -> Callable[[Batch], None]:
    """Return the update of transformers' Marian model of this shape, in a plain loop."""
    from marian_training import marian

    model = marian(config, VOCAB).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def update(batch: Batch) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            out = model(input_ids=batch.src_BS, attention_mask=batch.keep_BS.long(), decoder_input_ids=batch.tgt_in_BT)
        logits_NV = out.logits.flatten(0, 1)[batch.real_N].float()
        loss = torch.nn.functional.cross_entropy(logits_NV, batch.targets_N, label_smoothing=0.1)
        loss.backward()  # type: ignore[no-untyped-call]  # torch
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return update


def train_speed(shape: str, batch_tokens: int, updates: int, precision: str, profiled: bool, beside: bool) -> None:
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
    batches = random_batches(batch_tokens, updates + 3)

    def update(batch: Batch, precision: str, name: str = "adam") -> None:
        optimizer = optimizers[name, precision]
        with autocast(CPU, precision):
            loss, _ = objective(batch)
        (loss / batch.tgt_tokens).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    code = compiled_training(Console())
    chosen = dataclasses.replace(automatic_kernels(), compiled=code is not None)
    if profiled:
        kernels.use(chosen, code)
        update(batches[0], precision)
        with profile(activities=[ProfilerActivity.CPU]) as recorded:
            for batch in batches:
                update(batch, precision)
        print(recorded.key_averages().table("self_cpu_time_total", row_limit=30))
        return
    ways: dict[str, tuple[Kernels, Callable[[Batch], None]]] = {
        "float32, BLAS": (Kernels("blas"), partial(update, precision="float32")),
        "float32, oneDNN": (Kernels(), partial(update, precision="float32")),
        f"float32, chosen: {chosen}": (chosen, partial(update, precision="float32")),
        "float32, chosen, Muon": (chosen, partial(update, precision="float32", name="muon")),
        "bfloat16, chosen": (chosen, partial(update, precision="bfloat16")),
        "bfloat16, chosen, Muon": (chosen, partial(update, precision="bfloat16", name="muon")),
    }
    if beside:
        ways |= {f"{kind}, transformers": (chosen, plain_loop(SHAPES[shape], kind)) for kind in PRECISIONS}

    before = matrix_rate()
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for batch in batches:
        for way, (choice, make_update) in ways.items():
            kernels.use(choice, code)
            began = time.perf_counter()
            make_update(batch)
            rates[way].append(batch.tgt_tokens / (time.perf_counter() - began))
    speeds = {way: statistics.median(found[3:]) for way, found in rates.items()}
    rate = (before + matrix_rate()) / 2
    # A source token passes the encoder, a target token the rest; there are about as many of either.
    limit = rate / (6 * sum(p.numel() for p in model.parameters() if p.ndim == 2))
    print(
        f"{shape}: the limit in float32 is {limit:,.0f} target tokens/s "
        f"({rate / 1e9:.0f} GFLOP/s, {torch.get_num_threads()} threads, torch {torch.__version__})"
    )
    for way, speed in speeds.items():
        print(f"{speed:8,.0f} target tokens/s, {speed / limit:.0%} of the limit: {way}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["train"])
    parser.add_argument("--shape", choices=sorted(SHAPES), default="base")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--precision", choices=PRECISIONS, default=PRECISIONS[0])
    parser.add_argument("--transformers", action="store_true", help="also train with transformers, in the same turns")
    parser.add_argument("--profile", action="store_true", help="show where the time goes, on one thread")
    options = parser.parse_args()
    manage_memory()
    if options.profile:
        torch.set_num_threads(1)
    train_speed(
        options.shape,
        options.batch_tokens,
        options.updates,
        options.precision,
        options.profile,
        options.transformers,
    )


if __name__ == "__main__":
    main()
