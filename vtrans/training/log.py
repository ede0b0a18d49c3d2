"""Training messages for the user: an introduction, then a line every few updates."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from vtrans.config import TrainConfig
from vtrans.config.keys import idle_messages, keys_of
from vtrans.data.store import DataFolder
from vtrans.model import kernels
from vtrans.model.automatic import emulates_bfloat16
from vtrans.model.network import Transformer, count_parameters
from vtrans.system.console import duration
from vtrans.system.devices import is_gpu
from vtrans.training.optimization.optimizer import learning_rate
from vtrans.training.parts import Job
from vtrans.training.progress import Metrics, Progress


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
