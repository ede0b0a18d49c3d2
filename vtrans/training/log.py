"""Training messages for the user: an introduction, then a line every few updates, or the estimate of a dry run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import torch

from vtrans.config import TrainConfig
from vtrans.config.keys import idle_messages, keys_of
from vtrans.data.batches import BatchLoader, Cursor, RankBatch
from vtrans.data.store import DataFolder
from vtrans.model import kernels
from vtrans.model.automatic import emulates_bfloat16
from vtrans.model.network import Transformer, count_parameters
from vtrans.system.console import duration
from vtrans.system.devices import is_gpu
from vtrans.system.process import peak_memory
from vtrans.training.optimization.optimizer import learning_rate
from vtrans.training.parts import Job
from vtrans.training.progress import Metrics, Progress

# A dry run ends after this many measured updates or seconds.
UPDATES, SECONDS = 10, 20.0


def planned_steps(train: TrainConfig) -> int | None:
    """Returns the number of steps of the whole training; None if only time limits it, with max_steps at its maximum."""
    unlimited = train.max_minutes > 0 and train.max_steps == keys_of(TrainConfig)["max_steps"].high
    return None if unlimited else train.max_steps


def introduce(job: Job, model: Transformer, progress: Progress, *, resumed: bool, written: bool) -> None:
    """Prints the model, the data, the device and the settings. `written`: whether recipe.toml is written."""
    config, train, say = job.recipe.model, job.recipe.train, job.console.info
    world, processes, count = job.ranks.world, job.ranks.processes, job.ranks.threads
    ranks = f", {world} ranks ({train.parallel})" if world > processes else ""
    threads = f"{count} thread{'' if count == 1 else 's'}"
    division = f" ({f'{processes} processes of ' if processes > 1 else ''}{threads})"
    say(f"device: {job.device}{division if job.device.type == 'cpu' else ''}{ranks}")
    say(f"data: {job.data.path}, {len(job.data.train):,} pairs, vocabulary {_vocabulary(job.data)}")
    say(f"model: {count_parameters(model):,} parameters, {config.summary}")
    peak = learning_rate(train.warmup, train, config.d_model)
    steps = planned_steps(train)
    limits = (f"{steps:,} steps" if steps else "", f"{train.max_minutes:g} minutes" if train.max_minutes else "")
    say(
        f"training: {' or '.join(filter(None, limits))}, {train.accumulate} x {train.batch_tokens:,} tokens per step, "
        f"optimizer {train.optimizer}, peak learning rate {peak:.2g} after {train.warmup:,} steps, schedule "
        f"{train.schedule}, label smoothing {train.label_smoothing}, precision {train.precision}, seed {train.seed}"
        + (f", BPE-dropout {train.bpe_dropout}" if train.bpe_dropout else "")
        + (f", noise {train.noise}" if train.noise else "")
        + (f", R-Drop {train.r_drop}" if train.r_drop else "")
        + (f"; every value is in {job.run.recipe}" if written else "")
    )
    if job.device.type == "cpu":
        say(f"kernels: {kernels.current()}")
    for section in ("train", "search"):
        for sentence in idle_messages(getattr(job.recipe, section), section).values():
            job.console.warn(sentence)
    if train.precision == "bfloat16" and emulates_bfloat16(job.device):
        job.console.warn(
            "this processor has no bfloat16 instructions, so training may take ten times as long as in "
            "float32: set train.precision to float32"
        )
    if train.warmup > train.max_steps:
        job.console.warn(
            f"the learning rate never reaches its peak: train.warmup is {train.warmup:,}, but training ends at step "
            f"{train.max_steps:,}"
        )
    if resumed:
        say(f"resuming {job.run.path} after step {progress.step:,}, epoch {progress.epoch}")
        if is_gpu(job.device):
            say("resuming is bit-exact on the CPU only; on a GPU the last bits may differ")


def _vocabulary(data: DataFolder) -> str:
    if data.joint:
        return f"{len(data.src_vocab):,} (joint)"
    return f"{len(data.src_vocab):,} and {len(data.tgt_vocab):,} (separate)"


class Log:
    """Reports training progress on the console and in metrics.jsonl. `rate` returns the learning rate of a step."""

    def __init__(self, job: Job, metrics: Metrics, progress: Progress, rate: Callable[[int], float]) -> None:
        self.job, self.metrics, self.progress, self.rate = job, metrics, progress, rate
        self._figures = ""  # the newest figures
        self.begin()

    def begin(self) -> None:
        """Starts the clock for estimating the remaining time."""
        self._began, self._first = time.monotonic(), self.progress.step

    def write(self) -> None:
        """Writes one line with the means over all updates since the previous line."""
        record = self._record()
        if record is None:  # every update was skipped; the next line counts them
            return
        if self.job.leads:
            self.show()
            self.metrics.write(record)
        self.progress.window = {}

    def show(self) -> None:
        """Prints the same line without writing a record."""
        self.job.console.info(f"step {self.progress.step:,}  left {duration(self.left)}  {self.figures}")

    def _record(self) -> dict[str, Any] | None:
        """Returns a record for metrics.jsonl of the updates since the previous record; None if all were skipped."""
        progress, window = self.progress, self.progress.window
        tokens = window.get("tgt_tokens", 0)
        if not tokens:
            return None
        return {
            "kind": "train",
            "step": progress.step,
            "epoch": progress.epoch,
            "loss": window["loss"] / tokens,
            "nll": window["nll"] / tokens,
            "lr": self.rate(progress.step),
            "src_tokens": int(window["src_tokens"]),
            "tgt_tokens": int(tokens),
            "padding": 1 - window["real"] / window["padded"],
            "seconds": window["seconds"],
            "skipped": int(window.get("skipped", 0)),
        }

    @property
    def figures(self) -> str:
        """The means over the updates since the previous line; directly after a line, its own means."""
        if record := self._record():
            self._figures = (
                f"loss {record['loss']:.3f}  ppl {math.exp(min(record['nll'], 50)):.2f}  epoch {record['epoch']}  "
                f"lr {record['lr']:.2e}  tokens/s {record['tgt_tokens'] / record['seconds']:,.0f}  "
                f"padding {record['padding']:.1%}"
            )
        return self._figures

    @property
    def left(self) -> float:
        """The estimated remaining seconds of training, including validations, from this process's updates."""
        progress, train = self.progress, self.job.recipe.train
        if progress.stopped_early:
            return 0.0
        each = (time.monotonic() - self._began) / max(1, progress.step - self._first)
        left = (train.max_steps - progress.step) * each
        return min(left, max(0.0, 60 * train.max_minutes - progress.seconds)) if train.max_minutes else left


def estimate(
    loader: BatchLoader,
    config: TrainConfig,
    progress: Progress,
    update: Callable[[Sequence[RankBatch]], None],
    say: Callable[[str], None],
) -> None:
    """Reports the size of an epoch and the time and memory of the remaining training. `update` makes an update, waits
    for it and changes `progress`."""
    store, plan = loader.first_plan()
    pairs, planned, numbers = len(loader.mixture), sum(map(len, plan)), torch.cat(plan)
    share = planned / pairs  # of an epoch; below 1 for a window of drawn pairs
    src_tokens, tgt_tokens = int(store.src_lengths[numbers].sum()), int(store.tgt_lengths[numbers].sum()) + planned
    padded = sum(len(p) * (int(store.src_lengths[p].max()) + int(store.tgt_lengths[p].max()) + 2) for p in plan)
    updates, left = len(plan) / share / config.accumulate, config.max_steps - progress.step
    in_time = 60 * config.max_minutes - progress.seconds if config.max_minutes else math.inf
    say(
        f"an epoch: {pairs:,} pairs, {src_tokens / share:,.0f} source and {tgt_tokens / share:,.0f} target tokens in "
        f"{len(plan) / share:,.0f} batches, {1 - (src_tokens + planned + tgt_tokens) / padded:.1%} padding; "
        f"{updates:,.1f} updates" + (f" (from {planned:,} pairs)" if planned < pairs else "")
    )
    # The plan starts with its largest batch, which warms up the kernels and sets peak memory.
    positions, seconds, began = 0, 0.0, time.monotonic()
    with closing(loader.batches(Cursor())) as batches:
        for number in range(1 + UPDATES):
            group = [batch for _, batch in islice(batches, config.accumulate)]
            start = time.monotonic()
            update(group)
            if number > 0:
                seconds += time.monotonic() - start
                positions += sum(each.batch.padded for each in group)
                late = float(time.monotonic() - began > SECONDS)
                if loader.ranks.summed([late], loader.device)[0]:  # all ranks stop together
                    break
    each = seconds / positions * padded / share / updates
    # On a CPU, memory later grows with validations and kernels for more shapes: from 0.64 to 0.98 GB (4+4 layers, D
    # 128, 60 updates of 1,024 tokens), from 1.35 to 1.5 GB (3+3 layers, D 256).
    rest = " on the GPU" if is_gpu(loader.device) else "; a long run with its validations takes about 0.3 GB more"
    each_process = f" in each of {loader.ranks.world} processes" if loader.ranks.world > 1 else ""
    peak = peak_memory(loader.device) / 1e9
    say(f"memory: {peak:.2f} GB{each_process}, measured with the largest batch{rest}")
    whole = ""
    if planned_steps(config):
        whole = f"{duration(each * left)} for {left:,} steps ({left / updates:,.1f} epochs), "
    say(
        f"time: {each:.2f} seconds per update (mean of {number}), {duration(each * updates)} per epoch, {whole}without "
        "the start and validations"
    )
    if in_time < each * left:
        steps = in_time / each
        say(
            f"train.max_minutes ends training in {duration(in_time)}, after at most {steps:,.0f} steps "
            f"({steps / updates:,.1f} epochs)"
        )
    say("dry run: nothing was written")
