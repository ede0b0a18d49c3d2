"""How far a run has come, and what its folder keeps of that beside the weights: found again when it goes on."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vtrans.checkpoint import RunFolder, load_model, read_progress
from vtrans.config import TrainConfig
from vtrans.console import Console
from vtrans.errors import FileError
from vtrans.text import write_atomically
from vtrans.training.tensorboard import Events, remove


@dataclass
class Progress:
    """All that resuming needs beside the weights and the optimizer's tensors."""

    data: str  # digest of the data folder
    recipe: dict[str, dict[str, Any]]  # resolved; recipe.toml is for people, who may edit it
    step: int = 0  # updates done
    epoch: int = 1
    drawn: int = 0  # windows of this epoch done, where segmentations are drawn; see segmentation.py
    position: int = 0  # batches of this epoch done, or of the window after them
    validated: list[int] = field(default_factory=list)  # steps of the newest keep_last checkpoints
    best: list[tuple[float, int]] = field(default_factory=list)  # (quality, step), best first
    since_best: int = 0  # validations without a new best
    stopped_early: bool = False
    skipped: int = 0  # updates skipped for a gradient that was not finite
    skipped_in_row: int = 0
    metrics_bytes: int = 0  # length of metrics.jsonl
    window: dict[str, float] = field(default_factory=dict)  # sums since the last line of metrics.jsonl
    environment: dict[str, Any] = field(default_factory=dict)
    init_from: dict[str, str] = field(default_factory=dict)  # the model whose weights the run began with, if any

    def rank(self, record: Mapping[str, Any], config: TrainConfig) -> None:
        """Takes in this step's validation: whether it is among the best, and whether patience has run out."""
        quality = _quality(record, config.best_metric)
        improved = not self.best or quality > self.best[0][0]
        self.since_best = 0 if improved else self.since_best + 1
        self.best = _ranked([*self.best, (quality, self.step)])[: config.keep_best]
        self.validated = [*self.validated, self.step][-config.keep_last :]
        if 0 < config.patience <= self.since_best:
            self.stopped_early = True

    def rank_anew(
        self, records: Sequence[Mapping[str, Any]], there: Collection[int], config: TrainConfig, manner: str
    ) -> None:
        """The best by another metric, or of translations made in another `manner` (validation.py), from the lines of
        metrics.jsonl and the steps whose checkpoints are there."""
        records = [record for record in records if record["kind"] == "valid"]
        if config.best_metric != "nll":
            records = [record for record in records if record["signature"].endswith(manner)]
        kept = [(_quality(r, config.best_metric), r["step"]) for r in records if r["step"] in there]
        self.best = _ranked(kept)[: config.keep_best]
        self.since_best = sum(r["step"] > self.best[0][1] for r in records) if self.best else 0

    def settle(self, run: RunFolder) -> None:
        """What follows from the newest state: `last`, `best`, and which files stay. Done again on
        resuming, it gives the same."""
        run.link(self.step, run.last)
        there = run.steps()
        best = [step for _, step in self.best if step in there]
        if best:
            run.link(best[0], run.best)
        run.prune([*self.validated, *best, self.step], self.step)


def newest_progress(run: RunFolder) -> Progress | None:
    """That of the newest state whose model file is whole; None where a run has saved none yet."""
    reason = ""
    for step in reversed(run.state_steps()):
        try:
            raw = read_progress(run.state_file(step))
            load_model(run.step_file(step))
        except FileError as error:
            reason = reason or f" ({str(error).rstrip('.')})"
            continue  # a crash came between the two files: the pair before it is whole
        raw["best"] = [(quality, at) for quality, at in raw["best"]]
        try:
            return Progress(**raw)
        except TypeError:
            raise FileError(
                f"{run.state_file(step)} is of another version of vtrans; go on with that one, give another --out, "
                "or --fresh to start over."
            ) from None
    # The model of step 0 alone is what a crash in the first moment leaves.
    if run.state_steps() or max(run.steps(), default=0) > 0:
        raise FileError(
            f"{run.path} holds a run, but no training state with its model to go on from{reason}; "
            "give another --out, or --fresh to start over."
        )
    return None


def clear(run: RunFolder) -> None:
    """Removes a run's own files but recipe.toml, which the new run replaces, and nothing else; the states first, so
    that no half of it is resumed."""
    run.prune((), -1)
    for path in (run.metrics, run.last, run.best, run.averaged):
        path.unlink(missing_ok=True)
    remove(run.events)


class Metrics:
    """metrics.jsonl, as far as the run has come, and the same for TensorBoard where it is given `events`."""

    def __init__(self, run: RunFolder, progress: Progress, events: Events | None) -> None:
        self.file, self.progress, self.events = run.metrics, progress, events

    def begin(self) -> None:
        """Without a line."""
        write_atomically(self.file, b"")
        if self.events is not None:
            self.events.begin(())

    def go_on(self, console: Console) -> None:
        """Cut back to where the run goes on from."""
        size = self.file.stat().st_size if self.file.exists() else 0
        if size < self.progress.metrics_bytes:
            console.warn(f"{self.file} is shorter than the run; its lost lines stay lost")
            self.progress.metrics_bytes = size
        with self.file.open("ab") as file:
            file.truncate(self.progress.metrics_bytes)
        if self.events is not None:
            self.events.begin(self.records())

    def records(self) -> list[dict[str, Any]]:
        """What it holds of the run, as far as that goes on from."""
        written = self.file.read_bytes() if self.file.exists() else b""
        lines = written[: self.progress.metrics_bytes].split(b"\n")[:-1]
        return [json.loads(line) for line in lines]

    def write(self, record: Mapping[str, Any]) -> None:
        with self.file.open("ab") as file:
            file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            self.progress.metrics_bytes = file.tell()
        if self.events is not None:
            self.events.write(record)

    def close(self) -> None:
        if self.events is not None:
            self.events.close()


def _quality(record: Mapping[str, Any], metric: str) -> float:
    """A validation by `best_metric`, larger is better."""
    value = record[metric]
    if value is None:
        return -math.inf
    return -value if metric == "nll" else float(value)


def _ranked(entries: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """(quality, step), best first; of equals the earlier."""
    return sorted(entries, key=lambda entry: (-entry[0], entry[1]))
