"""The history of a run, read from its folder: curves, scores and translations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vtrans.storage.run_folder import RunFolder
from vtrans.system.errors import FileError, InputError
from vtrans.text.lines import lines_in
from vtrans.training.progress import records_of
from vtrans.training.recipe import recipe_of_run

MOST_POINTS = 400  # of a curve


@dataclass(frozen=True)
class RunHistory:
    """The records of a run, ordered by step. `name` is its path as given. Training records
    also have their `speed` in target tokens per second."""

    name: str
    run: RunFolder
    train: Sequence[Mapping[str, Any]]
    valid: Sequence[Mapping[str, Any]]
    recipe: Mapping[str, Mapping[str, Any]]

    def curve(self, kind: str, key: str) -> list[tuple[int, float]]:
        """Returns the steps and the finite values of the metric `key` in the training or validation records. A long
        curve is thinned to every n-th point and the last one."""
        records = self.train if kind == "train" else self.valid
        values = [(record["step"], record.get(key)) for record in records]
        points = [(step, float(value)) for step, value in values if value is not None and math.isfinite(value)]
        return points[:: -(1 + len(points) // MOST_POINTS)][::-1]

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The best validation by the recipe's metric; the earlier one in a tie."""
        metric = self.recipe.get("train", {}).get("best_metric", "bleu")
        scored = [record for record in self.valid if record.get(metric) is not None]
        return max(scored, key=lambda r: -r[metric] if metric == "nll" else r[metric], default=None)

    def translations(self, step: int) -> list[str] | None:
        """Returns the translations of a validation, or None if the run has not kept them."""
        return _lines(self.run.translations(step))

    @cached_property
    def sources(self) -> list[str] | None:
        return _lines(self.run.valid_src)

    @cached_property
    def references(self) -> list[str] | None:
        return _lines(self.run.valid_ref)


def histories(runs: Sequence[Path]) -> list[RunHistory]:
    """Reads the records of runs. Raises FileError for a folder that holds no run or whose records are damaged, and
    InputError for a run that is given twice."""
    read: list[RunHistory] = []
    for number, path in enumerate(runs):
        run = RunFolder(path)
        if path.resolve() in [other.resolve() for other in runs[:number]]:
            raise InputError(f"`runs` must be different folders, got {path} twice.")
        if not path.is_dir():
            raise FileError(f"there is no run folder {path}; make one with `vtrans train`.")
        if not run.metrics.is_file():
            raise FileError(f"{path} has no metrics.jsonl; name a folder that `vtrans train` wrote.")
        # A running training may be writing to it.
        records = list(records_of(run.metrics.read_bytes(), run.metrics))
        train = [
            {**record, "speed": record["tgt_tokens"] / record["seconds"] if record["seconds"] > 0 else None}
            for record in records
            if record["kind"] == "train"
        ]
        valid = [record for record in records if record["kind"] == "valid"]
        if not train and not valid:
            raise FileError(f"{run.metrics} has no records yet; try again once training has written a line.")
        recipe = recipe_of_run(run)
        read.append(RunHistory(str(path), run, train, valid, asdict(recipe) if recipe else {}))
    return read


def _lines(path: Path) -> list[str] | None:
    return list(lines_in(path, "replace")) if path.is_file() else None
