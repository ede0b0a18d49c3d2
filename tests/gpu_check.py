"""Check vtrans on a GPU and measure it, in at most ten minutes, and write one file to send to the project.

    python tests/gpu_check.py [--device cuda] [--output gpu-check.json]

It needs no data: it trains on random words. On a GPU it uses the base model of the paper, elsewhere a small one, whose
figures say little. docs/gpus.md explains the parts of the file. A part that fails is recorded with its error.
"""

import argparse
import io
import json
import platform
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from vtrans import __version__
from vtrans.apps.analysis.commands.doctor import torch_facts
from vtrans.config import SearchConfig
from vtrans.data.batches import Cursor, RankBatch, prefetch
from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.prepare import prepare
from vtrans.data.store import DataFolder
from vtrans.engines.incremental import IncrementalDecoder
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model.cache import Cache
from vtrans.model.checkpoint import load_model
from vtrans.model.network import Transformer
from vtrans.search.history import Ints
from vtrans.storage.run_folder import RunFolder, RunLock
from vtrans.system.console import Console
from vtrans.system.devices import pick_device
from vtrans.system.errors import InputError
from vtrans.system.process import manage_memory, peak_memory
from vtrans.system.ranks import Ranks
from vtrans.training.parts import TrainOptions
from vtrans.training.setup import set_up
from vtrans.training.trainer import Trainer
from vtrans.translate.translator import Translator

CPU, SILENT = torch.device("cpu"), Console(stream=io.StringIO())
LIMIT = 540.0  # seconds after which no further part begins
LONGEST = 30  # subwords of a translation; models that have hardly learned do not end theirs
TOLERANCE = {"loss": 1e-4, "weights": 1e-3, "translations": 0.02}
Counter = Callable[[], AbstractContextManager[list[str]]]
"""Yields the list of what has waited for the device in the block."""


@dataclass(frozen=True)
class Size:
    """How much is computed."""

    pairs: int
    updates: int  # of the small model that is trained on the CPU, too
    recipe: tuple[str, ...]
    lines: int  # to translate
    batch_tokens: tuple[int, ...]  # of a search
    seconds: float  # of each measurement of speed
    product: int  # rows of the square matrices whose product gives the peak rate


LARGE = Size(
    40_000,
    20,
    (
        *("model.d_model=512", "model.d_ff=2048", "model.heads=8", "model.encoder_layers=6", "model.decoder_layers=6"),
        *("train.batch_tokens=25000", "train.valid_sentences=100"),
    ),
    1000,
    (2048, 16_384),
    20.0,
    8192,
)
SMALL = Size(
    600,
    20,
    ("model.d_model=64", "model.d_ff=128", "model.heads=2", "train.batch_tokens=500", "train.valid_sentences=10"),
    20,
    (2048,),
    1.0,
    512,
)
TWIN = (  # a training whose results are compared with those of the CPU
    *("model.d_model=64", "model.d_ff=128", "model.heads=4", "model.encoder_layers=2", "model.decoder_layers=2"),
    *("model.dropout=0.0", "model.activation=gelu", "train.batch_tokens=1000", "train.epsilon=1e-3"),
    *("train.warmup=5", "train.valid_sentences=5"),
    *('train.precision="float32"', "search.max_length=10"),
)


class Check:
    """The parts of the check, with what they share."""

    def __init__(self, device: torch.device, size: Size, folder: Path, count: Counter) -> None:
        self.device, self.size, self.folder, self.count = device, size, folder, count
        self.lines = random_text(folder, size.pairs)
        self.few = self.lines[: min(50, size.lines)]
        self.data = DataFolder.open(folder / "data")

    def parts(self) -> dict[str, Callable[[], dict[str, Any]]]:
        """Returns the parts in order: what matters most comes first."""
        return {
            "the results of the CPU": self.equal_results,
            "waits": self.waits,
            "training": self.training,
            "memory": self.memory,
            "translating": self.translating,
        }

    def trainer(self, name: str, *overrides: str, device: torch.device | None = None) -> Trainer:
        device = device or self.device
        processes = 1 if device.type == "cpu" else None
        options = TrainOptions(recipe="narrow", overrides=overrides, processes=processes)
        run = RunFolder(self.folder / name)
        return Trainer(set_up(self.data, run, SILENT, Ranks(), device, options))

    def equal_results(self) -> dict[str, Any]:
        """Trains a small model on the device and on the CPU, and translates with one model on both."""
        steps, devices = self.size.updates, (self.device, CPU)
        runs = [self.trained(f"twin-{device.type}", steps, *TWIN, device=device) for device in devices]
        losses = [json.loads(run.metrics.read_text().split("\n")[0])["loss"] for run in runs]
        ours, theirs = (load_file(run.last) for run in runs)
        texts = []
        for device in devices:
            engine = TorchEngine([load_model(runs[0].last, device)])
            texts.append(translated(engine, self.few))
        apart = {
            "loss": abs(losses[0] / losses[1] - 1),
            "weights": max(float((ours[name].float() - theirs[name].float()).abs().max()) for name in ours),
            "translations": sum(a != b for a, b in zip(*texts, strict=True)) / len(texts[0]),
        }
        passed = all(apart[name] <= limit for name, limit in TOLERANCE.items())
        return {"passed": passed, "differences": apart, "tolerated": TOLERANCE}

    def trained(self, name: str, steps: int, *overrides: str, device: torch.device | None = None) -> RunFolder:
        ends = (f"train.{key}={steps}" for key in ("max_steps", "checkpoint_every", "log_every"))
        trainer = self.trainer(name, *overrides, *ends, device=device)
        with RunLock(trainer.job.run) as lock:
            trainer.run(lock)
        return trainer.job.run

    def waits(self) -> dict[str, Any]:
        """Counts what waits for the device: in updates, in reading their losses, and in the steps of a search."""
        trainer = self.trainer("waits", *TWIN)
        with closing(batches(trainer)) as groups:
            trainer.update(next(groups))  # the first update of a process makes more
            trainer.read()
            some = [*islice(groups, 5)]
        with self.count() as updates:
            for group in some:
                trainer.update(group)
        with self.count() as reads:
            trainer.read()
        engine = TorchEngine([load_model(self.folder / f"twin-{self.device.type}/last.safetensors", self.device)])
        decoder = Counting(engine.models[0].model)
        engine.decoders = [decoder]
        with self.count() as steps:
            translated(engine, self.few)
        return {
            "per update": len(updates) / len(some),
            "per read of losses": len(reads),
            "per step of a search": len(steps) / decoder.steps,
            "lines": sorted({*updates, *reads, *steps}),
        }

    def training(self) -> dict[str, Any]:
        """Measures tokens per second and the share of the peak rate of matrix products."""
        return {precision: self.speed(precision) for precision in ("float32", "bfloat16")}

    def speed(self, precision: str) -> dict[str, float]:
        peak = product_rate(self.device, self.size.product, getattr(torch, precision))
        trainer = self.trainer(f"speed-{precision}", *self.size.recipe, f'train.precision="{precision}"')
        counted: list[RankBatch] = []
        began = time.monotonic()
        with closing(batches(trainer)) as groups:
            for number, group in enumerate(groups, 1):
                trainer.update(group)
                counted += group
                if number % 10 == 0:
                    trainer.read()  # waits for the device
                    if number > 10 and time.monotonic() - began > self.size.seconds:
                        break
                    if number == 10:  # the kernels are warm
                        counted, began = [], time.monotonic()
        seconds = time.monotonic() - began
        return {
            "updates per second": len(counted) / seconds,
            "target tokens per second": sum(each.batch.tgt_tokens for each in counted) / seconds,
            "MFU": sum(flops(trainer.learner.model, each) for each in counted) / seconds / peak,
            "products, TFLOP/s": peak / 1e12,
            "peak memory, GB": peak_memory(self.device) / 1e9,
        }

    def memory(self) -> dict[str, Any]:
        """Compares the memory of a dry run, which the user is told, with that of the training."""
        self.forget()
        self.trainer("memory", *self.size.recipe).dry_run()
        told = peak_memory(self.device)
        self.forget()
        self.trained("memory", 2 * self.size.updates, *self.size.recipe)
        true = peak_memory(self.device)
        return {"dry run, GB": told / 1e9, "training, GB": true / 1e9, "training / dry run": true / told}

    def forget(self) -> None:
        """Begins to measure the peak of the memory again. That of main memory cannot be."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)

    def translating(self) -> dict[str, Any]:
        """Measures lines per second with the model that `memory` has trained."""
        found, lines, path = {}, self.lines[: self.size.lines], self.folder / "memory/last.safetensors"
        for precision in ("float32", "bfloat16", "float16"):
            engine = TorchEngine([load_model(path, self.device)], precision=precision)
            for beam in (1, 4):
                for tokens in self.size.batch_tokens:
                    translated(engine, lines[:20], beam, tokens)
                    began = time.monotonic()
                    translated(engine, lines, beam, tokens)
                    rate = len(lines) / (time.monotonic() - began)
                    found[f"{precision}, beam {beam}, batches of {tokens:,} tokens"] = rate
        return {"lines per second": found}


class Counting(IncrementalDecoder):
    """Counts its steps."""

    steps = 0

    def hidden(self, cache: Cache, tokens_BK: Ints, live_r: Ints) -> Tensor:
        self.steps += 1
        return super().hidden(cache, tokens_BK, live_r)


def random_text(folder: Path, pairs: int) -> list[str]:
    """Writes a data folder of random words, whose translations are these words from behind. Returns the sources."""
    numbers = random.Random(1)
    words = ["".join(numbers.choices("abcdefghijklmnopqrstuvwxyz", k=numbers.randint(2, 9))) for _ in range(5000)]
    lengths = (min(60, max(1, round(numbers.gauss(20, 12)))) for _ in range(pairs))
    lines = [" ".join(numbers.choices(words, k=length)) for length in lengths]
    files = folder / "text.src", folder / "text.tgt"
    for path, side in zip(files, (lines, [line[::-1] for line in lines]), strict=True):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    src, tgt = ((path,) for path in files)
    size = 500 if pairs < 10_000 else 8000
    prepare(PrepareOptions(src, tgt, out=folder / "data", vocab_size=size), SILENT)
    return lines


def batches(trainer: Trainer) -> Generator[list[RankBatch], None, None]:
    """Yields the batch of each update, which a thread prepares, and puts the model in training mode."""
    trainer.learner.model.train()
    with closing(prefetch(trainer.loader.batches(Cursor()), 8)) as made:
        for _, batch in made:
            yield [batch]


def translated(engine: TorchEngine, lines: list[str], beam: int = 4, batch_tokens: int = 2048) -> list[str]:
    search = SearchConfig(beam=beam, batch_tokens=batch_tokens, max_length=LONGEST)
    return [*Translator(engine, search, retry=False).translate(lines, raw=True)]


def flops(model: Transformer, each: RankBatch) -> float:
    """Returns the FLOPs of the products of a batch with weights, forward and backward: 6 per weight and token. Those of
    attention, a few per cent, are left out."""
    encoder, decoder = (sum(p.numel() for p in part.parameters()) for part in (model.encoder, model.decoder))
    src_tokens = each.batch.src_tokens + len(each.batch.src_BS)  # with EOS
    return 6.0 * (encoder * src_tokens + (decoder + model.projection.weight.numel()) * each.batch.tgt_tokens)


def product_rate(device: torch.device, rows: int, dtype: torch.dtype) -> float:
    """Returns the FLOPs per second of the product of two square matrices: the best of three times ten."""
    a, rates = torch.randn(rows, rows, device=device).to(dtype), []
    for _ in range(4):
        began = time.monotonic()
        for _ in range(10):
            b = a @ a
        float(b[0, 0])  # waits for the device
        rates.append(10 * 2 * rows**3 / (time.monotonic() - began))
    return max(rates[1:])


@contextmanager
def cuda_waits() -> Iterator[list[str]]:
    """Yields the list of what has waited for CUDA in the block, as torch warns about it."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode("default")
    found += [f"{w.filename}:{w.lineno}" for w in caught if "synchronizing CUDA operation" in str(w.message)]


@contextmanager
def no_waits() -> Iterator[list[str]]:
    """Counts nothing: torch can tell for CUDA alone."""
    yield []


def check(device: torch.device, size: Size, count: Counter, say: Callable[[str], None]) -> dict[str, Any]:
    """Returns what was found on a device, by part."""
    began = time.monotonic()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    report: dict[str, Any] = {
        "device": f"{device} ({name})",
        "waits are counted": count is not no_waits,
        "vtrans": __version__,
        "torch": torch.__version__,
        "CUDA": torch.version.cuda,
        "machine": torch_facts(),
    }
    with tempfile.TemporaryDirectory() as folder:
        parts = Check(device, size, Path(folder), count).parts()
        for part, measure in parts.items():
            if time.monotonic() - began > LIMIT:
                report[part] = "left out, because the time was over"
                continue
            start = time.monotonic()
            try:
                report[part] = measure()
            except Exception as error:  # the other parts can still be measured
                trace = traceback.format_exc().strip().split("\n")
                report[part] = {"failed": f"{type(error).__name__}: {error}", "trace": trace[-12:]}
            report[part]["seconds"] = time.monotonic() - start
            say(f"{part}: {json.dumps(report[part])}")
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, mps or cpu")
    parser.add_argument("--output", type=Path, default=Path("gpu-check.json"))
    options = parser.parse_args()
    manage_memory()
    try:
        device = pick_device(options.device)
    except InputError as error:
        reason = str(error).rstrip(".")
        print(f"gpu-check needs a GPU: {reason}; DEVICE=cpu tries its steps on the CPU.", file=sys.stderr)
        return 2
    size, count = (LARGE, cuda_waits) if device.type == "cuda" else (SMALL, no_waits)
    report = check(device, size, count, lambda text: print(text, file=sys.stderr))
    options.output.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{options.output} has what was found on {report['device']}. Please send it to the project.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
