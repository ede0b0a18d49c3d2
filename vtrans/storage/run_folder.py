"""Run folders: file names, the lock of a training, and the choice of a run's model."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from vtrans.storage.tensors import open_tensors
from vtrans.system.errors import FileError, InputError
from vtrans.system.files import atomic_path, check_path, locked, named_os_errors, no_file, shipped

# Temporary files that training makes in a run folder (files.py).
_TRAINING_FILE = re.compile(
    r"\.((step-\d+|best|last)\.safetensors|recipe\.toml|metrics\.jsonl|(step-\d+|source|reference)\.txt)\.\d+\.tmp"
)
_STEP_FILE = re.compile(r"step-(\d{8,})\.safetensors")


class ChosenModel(NamedTuple):
    """A model file, and why it was chosen from its run folder (empty if the file was named)."""

    file: Path
    reason: str

    @property
    def words(self) -> str:
        """The file and the reason, as commands print them."""
        return f"model: {self.file}{f' ({self.reason})' if self.reason else ''}"


class RunFolder:
    """The folder of a run, with the files that `vtrans train` and `vtrans average` write.

    These are recipe.toml, metrics.jsonl, step-*.safetensors, best, last and averaged.safetensors; validation/, with the
    translations of each validation; state/, which only resuming needs; tensorboard/ on request. Raises
    FileError for a path that is not UTF-8."""

    def __init__(self, path: str | Path) -> None:
        check_path(path)
        self.path = Path(path)
        self.recipe = self.path / "recipe.toml"
        self.metrics = self.path / "metrics.jsonl"
        self.last = self.path / "last.safetensors"
        self.best = self.path / "best.safetensors"
        self.averaged = self.path / "averaged.safetensors"
        self.events = self.path / "tensorboard"
        self.validation = self.path / "validation"
        self.valid_src = self.validation / "source.txt"
        self.valid_ref = self.validation / "reference.txt"
        self.states = self.path / "state"
        self.lock = self.states / "lock"

    def step_file(self, step: int) -> Path:
        return self.path / f"step-{step:08d}.safetensors"

    def state_file(self, step: int) -> Path:
        return self.states / f"step-{step:08d}.safetensors"

    def translations(self, step: int) -> Path:
        """The file with the translations of a validation, one line for each of `valid_src`."""
        return self.validation / f"step-{step:08d}.txt"

    def steps(self) -> list[int]:
        """The steps of the existing checkpoints, in order."""
        return _numbered(self.path)

    def state_steps(self) -> list[int]:
        """The steps of the existing training states, in order."""
        return _numbered(self.states)

    def holds_run(self) -> bool:
        return self.recipe.exists() or bool(self.steps()) or bool(self.state_steps())

    def link(self, step: int, name: Path) -> None:
        """Makes `name` (best or last) a hard link to the step's file, or a copy if the disk has no links."""
        file = self.step_file(step)
        with atomic_path(name) as temporary, named_os_errors(name):
            try:
                os.link(file, temporary)
            except OSError:
                shutil.copyfile(file, temporary)

    def prune(self, keep: Collection[int], state_step: int) -> None:
        """Removes all states except `state_step`, all checkpoints not in `keep`, and files left by a crash."""
        for step in self.state_steps():
            if step != state_step:
                self.state_file(step).unlink()
        for step in self.steps():
            if step not in keep:
                self.step_file(step).unlink()
        for folder in (self.path, self.states, self.validation):
            for leftover in folder.glob(".*.tmp"):
                if _TRAINING_FILE.match(leftover.name):  # otherwise an average or a translation may be running
                    shutil.rmtree(leftover)

    def choose_model(self) -> ChosenModel:
        """Returns the run's model and the reason for the choice: the average unless older than the last checkpoint,
        else the best checkpoint, else the last one. Raises FileError if there is none."""
        last_step = max(self.steps(), default=0)
        if self.averaged.exists():
            with open_tensors(self.averaged, "model") as (_, header):
                steps = header["training"].get("average_of", [0])
                made_at = header["training"].get("run_step", max(steps))
            if made_at >= last_step or not self.last.exists():
                several = f"average of {len(steps)} checkpoints up to step {max(steps):,}"
                reason = f"the {several if len(steps) > 1 else f'checkpoint of step {steps[0]:,}'}"
                return ChosenModel(self.averaged, reason)
            stale = f"; averaged.safetensors was made at step {made_at:,}, but training has reached {last_step:,}"
        else:
            stale = "; there is no averaged.safetensors"
        if self.best.exists():
            return ChosenModel(self.best, "the best checkpoint" + stale)
        if self.last.exists():
            return ChosenModel(self.last, "the last checkpoint" + stale)
        if not self.holds_run() and any(self.path.iterdir()):
            raise FileError(
                f"{self.path} is not a run folder; name one that `vtrans train` made, or a model file. `vtrans import` "
                "makes a model file from a folder of another program, and from an export of vtrans."
            )
        raise FileError(f"{self.path} has no model; train one there first.")


def run_of(file: Path) -> RunFolder | None:
    """Returns the run folder of `file` if `vtrans train` or `vtrans average` writes to this path, else None. The file
    need not exist."""
    file = Path(os.path.realpath(file))
    for entry in (file, file.parent):
        run = RunFolder(entry.parent)
        if (entry in vars(run).values() or _STEP_FILE.fullmatch(entry.name)) and run.recipe.exists():
            return run
    return None


class RunLock(ExitStack):
    """Keeps a second `vtrans train` out of a run folder.

    A crash releases the lock (`files.locked`). The lock file is never removed: otherwise two processes could lock two
    different files of the same name.
    """

    def __init__(self, run: RunFolder) -> None:
        super().__init__()
        self.run, self.taken = run, False

    def take(self) -> None:
        """Takes the lock unless this object already holds it. Raises InputError if another process holds it."""
        if self.taken:
            return
        with named_os_errors(self.run.lock):
            file = self.enter_context(self.run.lock.open("ab"))
        self.taken = locked(file)
        if not self.taken:
            raise InputError(
                f"another `vtrans train` is running in {self.run.path}; wait, stop it, or use another run folder."
            )


def _numbered(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(m[1]) for f in folder.iterdir() if (m := _STEP_FILE.fullmatch(f.name)))


def choose_model(path: str | Path) -> ChosenModel:
    """Returns the model of a run folder, with the reason for the choice. For a model file, or the name of a model that
    ships with vtrans, the reason is empty. Raises FileError if there is no such model."""
    path = Path(path)
    if path.is_dir():
        return RunFolder(path).choose_model()
    if path.exists():
        return ChosenModel(path, "")
    models = shipped_models()
    if str(path) not in models:
        names = f", or a model that ships with vtrans ({', '.join(sorted(models))})" if models else ""
        raise no_file(path, "model", models, f"name a run folder that `vtrans train` made, or a model file{names}")
    return ChosenModel(models[str(path)], "")


def names_model(path: Path) -> bool:
    """Returns whether `path`, which may also be a document, is a model: a run folder with a model, a model file, or the
    name of a model that ships with vtrans if there is no file of this name."""
    if path.is_dir():
        return any((path / f"{name}.safetensors").exists() for name in ("averaged", "best", "last"))
    return path.suffix == ".safetensors" or (not path.exists() and str(path) in shipped_models())


def shipped_models() -> dict[str, Path]:
    """Returns the files of the models that ship with vtrans, by name. Each is in a subfolder of the recipes."""
    return {file.stem: file for file in sorted(shipped().glob("*/*.safetensors"))}
