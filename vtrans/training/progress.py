"""The progress of a run, apart from the weights: its place in the data, its best checkpoints, and its metrics."""

from __future__ import annotations

import importlib
import json
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from vtrans.config import TrainConfig
from vtrans.model.kernels import Kernels
from vtrans.storage.run_folder import RunFolder
from vtrans.system.console import Console
from vtrans.system.errors import FileError, InputError, install_command
from vtrans.system.files import named_os_errors, write_atomically


@dataclass
class Progress:
    """The state for resuming, apart from the weights and the optimizer's tensors. A training state stores it as
    JSON."""

    data: str  # digest of the data folder
    recipe: dict[str, dict[str, Any]]  # every value; recipe.toml is for users, who may edit it
    step: int = 0  # updates made
    epoch: int = 1
    drawn: int = 0  # if pairs are drawn: complete windows of this epoch (data/augmentation.py)
    position: int = 0  # batches used of this epoch, or of the current window if pairs are drawn
    validated: list[int] = field(default_factory=list)  # steps of the newest keep_last checkpoints
    best: list[tuple[float, int]] = field(default_factory=list)  # (quality, step), best first
    since_best: int = 0  # validations without a new best
    stopped_early: bool = False
    seconds: float = 0.0  # of training, including validations
    skipped: int = 0  # updates whose gradient was not finite
    skipped_in_row: int = 0  # consecutive ones up to this step
    metrics_bytes: int = 0  # length of metrics.jsonl
    window: dict[str, float] = field(default_factory=dict)  # sums since the last line of metrics.jsonl
    environment: dict[str, Any] = field(default_factory=dict)
    kernels: Kernels = field(default_factory=Kernels)
    signature_end: str = ""  # identifies the scores that rank `best` (validation.py)
    init_from: str = ""  # the model whose weights the run started from, if any, as the user named it

    def rank(self, record: Mapping[str, Any], config: TrainConfig) -> None:
        """Ranks this step by its validation record, and sets `stopped_early` if patience has run out."""
        quality = _quality(record, config.best_metric)
        improved = quality > (self.best[0][0] if self.best else -math.inf)
        self.since_best = 0 if improved else self.since_best + 1
        self.best = _ranked([*self.best, (quality, self.step)])[: config.keep_best]
        self.validated = [*self.validated, self.step][-config.keep_last :]
        if 0 < config.patience <= self.since_best:
            self.stopped_early = True

    def rank_again(
        self,
        records: Sequence[Mapping[str, Any]],
        there: Collection[int],
        config: TrainConfig,
        signature_end: str,
    ) -> None:
        """Ranks the existing checkpoints `there` again after a change of the metric or of validation's translation
        settings (`signature_end` in validation.py). `records` are the lines of metrics.jsonl."""
        records = [record for record in records if record["kind"] == "valid"]
        if config.best_metric != "nll":
            records = [record for record in records if record["signature"].endswith(signature_end)]
        kept = [(_quality(r, config.best_metric), r["step"]) for r in records if r["step"] in there]
        self.best = _ranked(kept)[: config.keep_best]
        self.since_best = sum(r["step"] > self.best[0][1] for r in records) if self.best else 0

    def link_and_prune(self, run: RunFolder) -> None:
        """Links `last` and `best`, and removes the files that are not kept. If a crash interrupts this, resuming
        repeats it."""
        run.link(self.step, run.last)
        there = run.steps()
        best = [step for _, step in self.best if step in there]
        if best:
            run.link(best[0], run.best)
        run.prune([*self.validated, *best, self.step], self.step)


class Metrics:
    """Writes metrics.jsonl and, with `tensorboard`, the same values for TensorBoard, such as train/loss and valid/bleu.

    A resumed run replaces its old files for TensorBoard and writes all its records again, so that TensorBoard shows
    exactly the content of metrics.jsonl, even if this was truncated or the run started without TensorBoard. Raises
    InputError if TensorBoard is not installed.
    """

    def __init__(self, run: RunFolder, progress: Progress, *, tensorboard: bool = False) -> None:
        self.file, self.events, self.progress = run.metrics, run.events, progress
        self._tensorboard: ModuleType | None = None
        self._writer: Any = None
        if tensorboard:
            try:
                self._tensorboard = importlib.import_module("torch.utils.tensorboard")
            except ImportError as error:
                raise InputError(
                    f"TensorBoard is not installed, or cannot be imported ({error}); install it with "
                    f"{install_command('tensorboard')}, or set train.tensorboard = false."
                ) from None

    def begin(self) -> None:
        """Starts an empty file."""
        write_atomically(self.file, b"")
        self._begin_events()

    def resume(self, console: Console) -> None:
        """Truncates the file to the step from which the run resumes."""
        written = self.file.read_bytes() if self.file.exists() else b""
        if len(written) < self.progress.metrics_bytes:
            console.warn(f"{self.file} has become shorter; its lost lines cannot be restored")
            self.progress.metrics_bytes = written.rfind(b"\n") + 1
        with named_os_errors(self.file), self.file.open("ab") as file:
            file.truncate(self.progress.metrics_bytes)
        self._begin_events()

    def _begin_events(self) -> None:
        if self._tensorboard is not None:
            remove_events(self.events)
            with named_os_errors(self.events):
                # `purge_step` tells a running TensorBoard to forget the old files.
                self._writer = self._tensorboard.SummaryWriter(str(self.events), purge_step=0)
            self._write_events(self.records())

    def _write_events(self, records: Iterable[Mapping[str, Any]]) -> None:
        for record in records:
            for key, value in record.items():
                if key != "step" and isinstance(value, (int, float)):
                    self._writer.add_scalar(f"{record['kind']}/{key}", value, record["step"])
        self._writer.flush()

    def records(self) -> list[dict[str, Any]]:
        """Returns the records of the run up to the step from which it resumes."""
        written = self.file.read_bytes() if self.file.exists() else b""
        return list(records_of(written[: self.progress.metrics_bytes], self.file))

    def write(self, record: Mapping[str, Any]) -> None:
        with named_os_errors(self.file), self.file.open("ab") as file:
            file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            self.progress.metrics_bytes = file.tell()
        if self._writer is not None:
            self._write_events([record])

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def remove_events(folder: Path) -> None:
    """Removes TensorBoard's files, and the folder if it is then empty."""
    for file in folder.glob("events.out.tfevents.*"):
        file.unlink()
    with suppress(OSError):
        folder.rmdir()


def records_of(written: bytes, path: Path) -> Iterator[dict[str, Any]]:
    """Yields the records in `written`, the content of the metrics.jsonl at `path`, without an incomplete last line.
    Raises FileError for a line that is not a record."""
    for number, line in enumerate(written.split(b"\n")[:-1], 1):
        try:
            record = json.loads(line)
            steps, seconds = record["step"], record["seconds"] if record["kind"] == "train" else 0
            if not isinstance(steps, int) or not isinstance(seconds, int | float):
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise FileError(
                f"{path}, line {number} is not a record of `vtrans train`; restore the file, or delete it; a run can "
                "resume without it."
            ) from None
        yield record


def _quality(record: Mapping[str, Any], metric: str) -> float:
    """Returns the value of a validation record that ranks checkpoints; larger is better. Negative infinity means that
    the log-probabilities were not finite or the metric was not computed; such a checkpoint is never ranked."""
    if record["nll"] is None:
        return -math.inf
    return -record["nll"] if metric == "nll" else float(record.get(metric, -math.inf))


def _ranked(entries: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Returns the (quality, step) pairs with a finite quality, best first; of equal ones, the earlier first."""
    return sorted((e for e in entries if math.isfinite(e[0])), key=lambda entry: (-entry[0], entry[1]))
