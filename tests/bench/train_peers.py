"""Compare training with Hugging Face's Transformers: one shape, the same batches, in turns on the same machine.

    python tests/bench/train_peers.py [--shape base|tiny] [--batch-tokens 4096] [--updates 10] [--rounds 5]

Prints real target tokens per second, the median over the rounds; in each round every system has its turn in a process
of its own. The first ratio is to Transformers as its users run it: MarianMT, which is the paper's post-norm model, in
a plain loop over batches sorted by length, with label smoothing by `F.cross_entropy`, AdamW and clipping, in bfloat16
by autocast. The others are to the limit, 6 FLOPs per weight and token at the float32 matrix-product rate that each
process measures before and after its turns: with the faster of torch's `@` and vtrans.numerics.products, and with `@`
alone. "Keeps its memory" is the same system with glibc told not to return freed memory, as the `vtrans` commands tell
it. The peak is the largest resident memory of the process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from speed import CPU, PAD, SHAPES, VOCAB, matrix_rates
from torch.nn import functional as F

from vtrans.config import TrainConfig
from vtrans.data.batches import Batch, collate, plan_epoch
from vtrans.model import Transformer
from vtrans.numerics import kernels
from vtrans.numerics.automatic import automatic_kernels
from vtrans.processes.memory import manage_memory, peak_memory
from vtrans.training.optimization.loss import Objective, autocast
from vtrans.training.optimization.optimizer import make_optimizer

SMOOTHING, CLIP = 0.1, 1.0


def batches(batch_tokens: int, count: int, vocab: int = VOCAB) -> list[Batch]:
    """Return batches of random ids with the length distribution of captions, sorted by length."""
    torch.manual_seed(0)
    src = (torch.randn(20_000) * 4 + 14).clamp(3, 45).long()
    tgt = (src + torch.randn(20_000) * 2).clamp(3, 50).long()
    plan = plan_epoch(src, tgt, batch_tokens, 1, 2)
    return [
        collate(
            [torch.randint(4, vocab, (int(src[i]),)) for i in numbers],
            [torch.randint(4, vocab, (int(tgt[i]),)) for i in numbers],
        )
        for numbers in plan[:count]
    ]


def vtrans_update(shape: str, precision: str) -> Callable[[Batch], None]:
    model = Transformer(SHAPES[shape], VOCAB, VOCAB, joint=True, pad_id=PAD).train()
    kernels.use(automatic_kernels())
    objective, optimizer = Objective(model, SMOOTHING), make_optimizer(model.parameters(), TrainConfig())

    def update(batch: Batch) -> None:
        with autocast(CPU, precision):
            loss, _ = objective(batch)
        (loss / batch.tgt_tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


def transformers_update(shape: str, precision: str) -> Callable[[Batch], None]:
    from transformers import MarianConfig, MarianMTModel

    c = SHAPES[shape]
    config = MarianConfig(
        vocab_size=VOCAB,
        d_model=c.d_model,
        encoder_layers=c.encoder_layers,
        decoder_layers=c.decoder_layers,
        encoder_attention_heads=c.heads,
        decoder_attention_heads=c.heads,
        encoder_ffn_dim=c.d_ff,
        decoder_ffn_dim=c.d_ff,
        activation_function=c.activation,
        dropout=c.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=3,
        decoder_start_token_id=2,
    )
    model: Any = MarianMTModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)

    def update(batch: Batch) -> None:
        labels = torch.full_like(batch.tgt_in_BT, PAD).flatten()
        labels[batch.real_N] = batch.targets_N
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            output = model(
                input_ids=batch.src_BS,
                attention_mask=batch.keep_BS.long(),
                decoder_input_ids=batch.tgt_in_BT,
                use_cache=False,
            )
        loss = F.cross_entropy(output.logits.float().flatten(0, 1), labels, ignore_index=PAD, label_smoothing=SMOOTHING)
        loss.backward()  # type: ignore[no-untyped-call]  # torch
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


@dataclass(frozen=True)
class System:
    name: str
    build: Callable[[str, str], Callable[[Batch], None]]
    precision: str
    keeps_memory: bool


SYSTEMS = (
    System("vtrans", vtrans_update, "float32", True),
    System("vtrans, bfloat16", vtrans_update, "bfloat16", True),
    System("transformers", transformers_update, "float32", False),
    System("transformers, bfloat16", transformers_update, "bfloat16", False),
    System("transformers, keeps its memory", transformers_update, "float32", True),
)


def worker(system: System, shape: str, batch_tokens: int, updates: int, jobs: Any, done: Any) -> None:
    """Answer each job with the tokens per second of its turn, and the last with the rates and the peak memory."""
    if system.keeps_memory:
        manage_memory()
    own = batches(batch_tokens, updates + 2)
    update = system.build(shape, system.precision)
    for batch in own[:2]:
        update(batch)
    done.put("ready")
    rates: list[tuple[float, float]] = []
    while jobs.get():
        rates.append(matrix_rates(0.5))
        began = time.perf_counter()
        for batch in own[2:]:
            update(batch)
        done.put(sum(batch.tgt_tokens for batch in own[2:]) / (time.perf_counter() - began))
        rates.append(matrix_rates(0.5))
        done.put("rested")
    by_torch, fastest = statistics.mean(rate for rate, _ in rates), statistics.mean(max(pair) for pair in rates)
    done.put((fastest, by_torch, peak_memory(torch.device("cpu"))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="base")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--updates", type=int, default=10, help="updates per turn")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    queues: dict[str, tuple[Any, Any]] = {}
    for system in SYSTEMS:
        jobs, done = context.Queue(), context.Queue()
        arguments = (system, options.shape, options.batch_tokens, options.updates, jobs, done)
        context.Process(target=worker, args=arguments, daemon=True).start()
        done.get()
        queues[system.name] = jobs, done
    speeds: dict[str, list[float]] = {name: [] for name in queues}
    for _ in range(options.rounds):
        for name, (jobs, done) in queues.items():
            time.sleep(0.5)  # let the threads of the previous system stop spinning
            jobs.put(True)
            speeds[name].append(done.get())
            done.get()
    model = Transformer(SHAPES[options.shape], VOCAB, VOCAB, joint=True, pad_id=PAD)
    weights = sum(p.numel() for p in model.parameters() if p.ndim == 2)
    anchor = statistics.median(speeds["transformers"])
    print(f"{options.shape}, batches of {options.batch_tokens:,} tokens, {torch.get_num_threads()} threads")
    for name, (jobs, done) in queues.items():
        jobs.put(False)
        fastest, by_torch, peak = done.get()
        speed = statistics.median(speeds[name])
        share, of_torch = (f"{6 * weights * speed / rate:4.0%}" for rate in (fastest, by_torch))
        print(
            f"{name:32} {speed:8,.0f} target tokens/s ({min(speeds[name]):,.0f} to {max(speeds[name]):,.0f})  "
            f"{speed / anchor:5.2f} x transformers  {share} of the limit ({fastest / 1e9:.0f} GFLOP/s), "
            f"{of_torch} with torch's `@` ({by_torch / 1e9:.0f})  "
            f"peak {peak / 1e9:.2f} GB"
        )


if __name__ == "__main__":
    main()
