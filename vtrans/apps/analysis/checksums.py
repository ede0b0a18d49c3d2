"""Whether the model files and training states of a path are whole: `vtrans inspect --verify`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vtrans.storage.model_file import read_weights
from vtrans.storage.run_folder import RunFolder, choose_model
from vtrans.storage.tensors import open_tensors
from vtrans.system.errors import FileError


@dataclass(frozen=True)
class Check:
    """The result of reading a whole file. `problem` is "" for a file that is whole."""

    file: str
    tensors: int = 0
    problem: str = ""
    """A sentence without its full stop."""


def checks(path: Path) -> Iterator[Check]:
    """Yields the result for a model file, or for each model file and training state of a run folder.

    For a model, this also checks that the tensors are those of its architecture and that the weights are finite.
    Raises FileError for a path that is neither a model file nor a run folder.
    """
    run = RunFolder(path)
    if not path.is_dir() or not run.holds_run():
        yield check(choose_model(path).file, "model")
        return
    named = (file for file in (run.best, run.last, run.averaged) if file.exists())
    for file in (*map(run.step_file, run.steps()), *named):
        yield check(file, "model")
    for step in run.state_steps():
        yield check(run.state_file(step), "state")


def check(path: Path, kind: str) -> Check:
    """Returns the result for one file of this kind, "model" or "state"."""
    try:
        with open_tensors(path, kind) as (file, _):
            names = file.keys()
            for name in names:
                file.get_tensor(name)  # raises FileError unless it has its checksum
            result = Check(str(path), len(names))
        if kind == "model":
            read_weights(path)
    except FileError as error:
        return Check(str(path), problem=str(error).rstrip("."))
    return result
