"""Print how the cost of training grows with width, depth, vocabulary, corpus and number of processes.

    python tests/bench/scaling.py shapes [--updates 6]
    python tests/bench/scaling.py corpus [--pairs 100000 1000000 10000000]
    python tests/bench/scaling.py processes --data DATA [--recipe small] [--updates 20] [--rounds 3]
    python tests/bench/scaling.py memory [--ranks 1 2 3] [--vocab 8000]

`shapes` starts from 3+3 layers, D 256, F 1024 and 8,000 subwords and changes one value at a time. It prints the median
of milliseconds per 1,000 real target tokens in batches of 4,096, taken in turns. `corpus` plans an epoch of as many
pairs of random lengths. It prints seconds, the share of padding and the increase of the peak memory; beside 8 bytes of
lengths per pair this is all that grows with a corpus, because the tokens stay on disk. `processes` runs `vtrans train`
on a data folder as one process with one thread, as one with two, as two processes that share memory, and under torchrun
as two with one thread each (gloo). It prints target tokens per second over the same batches, without start-up, and the
ratio to the first. `memory` has 6+6 layers, D 512, F 2048, one thread per process (gloo), and makes two updates with
`train.parallel` ddp and fsdp. It prints the bytes of the weights, the gradient and Adam's state that the last rank
holds between the backward pass and the update, and its peak resident memory.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import torch
from speed import PAD, SHAPES
from train_peers import CLIP, SMOOTHING, batches

from vtrans.config import ModelConfig, TrainConfig
from vtrans.data.batches import Batch, plan_epoch
from vtrans.model import Transformer
from vtrans.processes.memory import manage_memory, peak_memory
from vtrans.processes.ranks import CPU, Ranks
from vtrans.training.optimization.job import Learner
from vtrans.training.optimization.loss import Objective
from vtrans.training.optimization.optimizer import make_optimizer

BASE = SHAPES["base"]
LAYERS = {f"{n}+{n}": dataclasses.replace(BASE, encoder_layers=n, decoder_layers=n) for n in (1, 3, 6)}
DEEP = {"6+1": dataclasses.replace(BASE, encoder_layers=6, decoder_layers=1)}
WIDTHS = {f"D {d}, F {4 * d}": dataclasses.replace(BASE, d_model=d, d_ff=4 * d) for d in (128, 256, 512)}
LARGE = dataclasses.replace(BASE, d_model=512, d_ff=2048, heads=8, encoder_layers=6, decoder_layers=6)
VOCABULARIES = (4_000, 8_000, 16_000, 32_000)


class Subject:
    """A model and its optimizer, trained on random ids with the length distribution of captions."""

    def __init__(
        self, name: str, config: ModelConfig, vocab: int, updates: int, budget: int = 4096, *, joint: bool = True
    ) -> None:
        torch.manual_seed(0)
        self.name, self.times = name, list[float]()
        self.model = Transformer(config, vocab, vocab, joint=joint, pad_id=PAD).train()
        self.objective = Objective(self.model, SMOOTHING)
        self.optimizer = make_optimizer(self.model.parameters(), TrainConfig())
        self.batches = batches(budget, updates, vocab)

    def update(self, batch: Batch) -> None:
        began = time.perf_counter()
        loss, _ = self.objective(batch)
        (loss / batch.tgt_tokens).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.times.append((time.perf_counter() - began) / batch.tgt_tokens * 1e6)


def shapes(updates: int) -> None:
    subjects = [Subject(name, config, 8_000, updates + 1) for name, config in {**WIDTHS, **LAYERS, **DEEP}.items()] + [
        Subject(f"V {vocab:,}", BASE, vocab, updates + 1) for vocab in VOCABULARIES
    ]
    for k in range(updates + 1):
        for subject in subjects:
            subject.update(subject.batches[k])
    base = statistics.median(next(s for s in subjects if s.name == "3+3").times[1:])
    for subject in subjects:
        median, weights = statistics.median(subject.times[1:]), sum(p.numel() for p in subject.model.parameters())
        print(
            f"{subject.name:16} {weights / 1e6:6.1f} M weights {median:7.1f} ms per 1,000 tokens {median / base:5.2f}"
        )


def corpus(sizes: Sequence[int]) -> None:
    for pairs in sizes:
        # One process per size, because the peak memory of a process never falls.
        process = multiprocessing.get_context("spawn").Process(target=planned, args=(pairs,))
        process.start()
        process.join()


def planned(pairs: int) -> None:
    """Plan an epoch of `pairs` pairs; print its time, memory and padding."""
    torch.manual_seed(0)
    src = (torch.randn(pairs) * 4 + 14).clamp_(3, 45).int()
    tgt = (src + torch.randn(pairs) * 2).clamp_(3, 50).int()
    plan_epoch(src[:1000], tgt[:1000], 4096, 1, 2)
    before, began = resident(), time.perf_counter()
    batches = plan_epoch(src, tgt, 4096, 1, 2)
    seconds, peak = time.perf_counter() - began, peak_memory(torch.device("cpu")) - before
    real, padded = 0, 0
    for numbers in batches[:: max(1, len(batches) // 1000)]:
        lengths = (src[numbers] + 1, tgt[numbers] + 1)
        real += sum(int(side.sum()) for side in lengths)
        padded += sum(int(side.max()) * len(side) for side in lengths)
    tokens = int(tgt.sum()) + pairs
    print(
        f"{pairs:12,} pairs: an epoch planned in {seconds:6.2f} s, {seconds / tokens * 1e6:.3f} ms per 1,000 tokens, "
        f"{peak / pairs:.0f} bytes per pair, {1 - real / padded:.1%} padding"
    )


def resident() -> int:
    """Return the resident memory of this process in bytes. Linux only."""
    size = re.search(r"VmRSS:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert size
    return int(size[1]) * 1024


def processes(data: str, recipe: str, updates: int, rounds: int) -> None:
    """Compare the ways of starting a run. Each is a new run, timed from the second line of its log."""
    ways = {
        "1 process, 1 thread": (1, 1, 1),
        "1 process, 2 threads": (1, 1, 2),
        "2 processes, 1 thread": (1, 2, 1),
        "2 ranks, 1 thread": (2, 1, 1),
    }
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, division in ways.items():
            speeds[name].append(tokens_a_second(data, recipe, updates, *division))
    first = statistics.median(speeds["1 process, 1 thread"])
    for name, values in speeds.items():
        median = statistics.median(values)
        print(
            f"{name:24} {median:8,.0f} target tokens/s ({min(values):,.0f} to {max(values):,.0f}) {median / first:5.2f}"
        )


def tokens_a_second(data: str, recipe: str, updates: int, ranks: int, processes: int, threads: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        start = [sys.executable, "-m"]
        if ranks > 1:
            start += ["torch.distributed.run", "--nproc-per-node", str(ranks), "-m"]
        settings = [f"train.max_steps={2 * updates}", f"train.log_every={updates}", "train.valid_sentences=1"]
        command = [*start, "vtrans", "train", "--data", data, "--out", str(run), "--recipe", recipe]
        command += [word for setting in settings for word in ("--set", setting)]
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        command += ["--quiet", "--device", "cpu", "--processes", str(processes)]
        subprocess.run(command, check=True, env=environment)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["kind"] == "train"][-1]
    return float(last["tgt_tokens"] / last["seconds"])


def memory(counts: Sequence[int], vocab: int) -> None:
    for kind in ("ddp", "fsdp"):
        for count in counts:
            together(count, hold, kind, vocab)


def together(count: int, work: Callable[..., None], *values: object) -> None:
    """Run `work(ranks, *values)` in as many processes, which can communicate."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=join, args=(rank, count, port, work, *values)) for rank in range(count)]
    for process in started:
        process.start()
    for process in started:
        process.join()


def join(rank: int, count: int, port: str, work: Callable[..., None], *values: object) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    torch.set_num_threads(1)
    manage_memory()
    ranks = Ranks()
    with ranks.joined(CPU, timedelta(hours=1)):
        work(ranks, *values)


def hold(ranks: Ranks, kind: str, vocab: int) -> None:
    """Make two updates; print what the last rank holds."""
    torch.manual_seed(0)
    model = Transformer(LARGE, vocab, vocab, joint=True, pad_id=PAD).train()
    weights = sum(p.numel() for p in model.parameters())
    learner = Learner(model, TrainConfig(parallel=kind, precision="float32"), ranks, CPU)
    batch = batches(256, 1, vocab)[0]
    for _ in range(2):
        learner.parallel.objective(batch)[0].backward()
        learner.parallel.gradient_norm()
        gradient = [p.grad for p in learner.parameters.values() if p.grad is not None]
        learner.optimizer.step()
        learner.optimizer.zero_grad(set_to_none=True)
    adam = [value for state in learner.optimizer.state.values() for value in state.values()]
    if ranks.rank == ranks.world - 1:
        parts = {"weights": learner.parameters.values(), "gradient": gradient, "Adam": adam}
        sizes = {name: sum(tensor.nbytes for tensor in tensors) for name, tensors in parts.items()}
        print(
            f"{kind:5} {ranks.world} ranks, {weights / 1e6:.1f} M weights: "
            + "  ".join(f"{name} {size / 1e6:6.1f} MB" for name, size in sizes.items())
            + f"  together {sum(sizes.values()) / 1e6:6.1f} MB  peak resident {peak_memory(CPU) / 1e6:,.0f} MB",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    shaped = commands.add_parser("shapes")
    shaped.add_argument("--updates", type=int, default=6)
    grown = commands.add_parser("corpus")
    grown.add_argument("--pairs", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    several = commands.add_parser("processes")
    several.add_argument("--data", required=True)
    several.add_argument("--recipe", default="small")
    several.add_argument("--updates", type=int, default=20)
    several.add_argument("--rounds", type=int, default=3)
    held = commands.add_parser("memory")
    held.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3])
    held.add_argument("--vocab", type=int, default=8_000)
    options = parser.parse_args()
    if options.command == "shapes":
        manage_memory()
        shapes(options.updates)
    elif options.command == "corpus":
        corpus(options.pairs)
    elif options.command == "memory":
        memory(options.ranks, options.vocab)
    else:
        processes(options.data, options.recipe, options.updates, options.rounds)


if __name__ == "__main__":
    main()
