"""The mean of several checkpoints (the paper, section 6.1), streaming: the unique weights, one at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from vtrans.checkpoint import RunFolder, check_finite, check_model, read_progress, section_of
from vtrans.config import ModelConfig
from vtrans.errors import FileError, InputError
from vtrans.files import check_path
from vtrans.keys import keys_of
from vtrans.tensor_files import TensorFile, open_tensors, write_tensors


def average(files: Sequence[Path], out: Path, run_step: int | None = None) -> list[int]:
    """Writes the mean of the model files to `out` and returns their steps.

    `run_step` is how far their run has come, which the best checkpoints alone do not tell.

    A shared weight stands once in a file, and so is counted once. Each mean is taken in float64
    and stored in the type of the first file. Peak memory is one model. The header, and with it the search settings,
    is that of the newest file. Raises InputError when two files are not of the same architecture and vocabulary,
    naming what differs, and where `out` is a checkpoint, FileError for weights that are not finite.
    """
    if not files:
        raise InputError("there is no checkpoint to average.")
    check_path(out)
    if _is_checkpoint(out):
        raise InputError(f"{out} is a checkpoint of training, which may go on from it; give another --out.")
    with ExitStack() as stack:
        opened = [stack.enter_context(open_tensors(f, "model")) for f in files]
        first, header = opened[0]
        check_model(files[0], first, header)
        names = _weights(first)
        for path, (file, other) in zip(files[1:], opened[1:], strict=True):
            _check_same(files[0], names, header, path, _weights(file), other)
        for name in names:  # the vocabularies first: they explain matrices of other shapes
            if name.startswith("vocabulary."):
                for path, (file, _) in zip(files, opened, strict=True):
                    if not torch.equal(file.get_tensor(name), first.get_tensor(name)):
                        raise InputError(f"{files[0]} and {path} have different vocabularies.")
        tensors = {}
        for name in names:
            tensors[name] = first.get_tensor(name)
            if name.startswith("vocabulary."):
                continue
            total = tensors[name].double()
            check_finite(files[0], name, total)
            for path, (file, _) in zip(files[1:], opened[1:], strict=True):
                part = file.get_tensor(name)
                if part.shape != total.shape:
                    raise InputError(
                        f"{name} is of shape {list(total.shape)} in {files[0]}, but {list(part.shape)} in {path}; "
                        "only checkpoints of one run can be averaged."
                    )
                check_finite(path, name, part)
                total += part
            tensors[name] = (total / len(files)).to(tensors[name].dtype)
        newest = max((other for _, other in opened), key=lambda other: max(_steps(other)))
        steps = [step for _, other in opened for step in _steps(other)]
        training = {"average_of": sorted(steps), "run_step": max(steps) if run_step is None else run_step}
        write_tensors(out, tensors, {**newest, "training": training})
    return sorted(steps)


def _is_checkpoint(path: Path) -> bool:
    """Whether training made the file; an average may be replaced, and what is no model of ours."""
    try:
        with open_tensors(path, "model") as (_, header):
            return "average_of" not in header["training"]
    except FileError:
        return False


def _weights(file: TensorFile) -> list[str]:
    """The tensors of a file but its shortlist, which the average does not get: `vtrans shortlist` makes one."""
    return [name for name in file.keys() if not name.startswith("shortlist.")]  # noqa: SIM118 - not a dict


def _steps(header: dict[str, Any]) -> list[int]:
    training = header["training"]
    return list(training.get("average_of", [training.get("step", 0)]))


def _check_same(
    a: Path,
    names: list[str],
    header: dict[str, Any],
    b: Path,
    other: list[str],
    other_header: dict[str, Any],
) -> None:
    if set(names) != set(other):
        odd = sorted(set(names) ^ set(other))[0]
        raise InputError(f"{odd} is in only one of {a} and {b}; only checkpoints of one run can be averaged.")
    mine, theirs = (
        dataclasses.asdict(section_of(ModelConfig, head, "model", path))
        for path, head in ((a, header), (b, other_header))
    )
    for key, facts in keys_of(ModelConfig).items():
        if not facts.training_only and mine[key] != theirs[key]:
            raise InputError(
                f"model.{key} is {mine[key]} in {a}, but {theirs[key]} in {b}; "
                "only checkpoints of one run can be averaged."
            )


def newest_checkpoints(run: RunFolder, count: int) -> list[Path]:
    """The `count` newest checkpoints of a run, oldest first, or all of them if it has fewer."""
    return [run.step_file(step) for step in _trained_steps(run)[-count:]]


def best_checkpoints(run: RunFolder, count: int) -> list[Path]:
    """The `count` best checkpoints of a run, best first, or all that are ranked if those are fewer."""
    steps, states = _trained_steps(run), run.state_steps()
    ranked = [step for _, step in read_progress(run.state_file(states[-1]))["best"]] if states else []
    chosen = [step for step in ranked if step in steps][:count]
    if not chosen:
        raise FileError(f"{run.path} has not been validated yet, so it has no best checkpoint; use `last`.")
    return [run.step_file(step) for step in chosen]


def _trained_steps(run: RunFolder) -> list[int]:
    """The steps of a run's checkpoints but the untrained one of step 0; FileError if there are none."""
    steps = [step for step in run.steps() if step > 0]
    if not run.holds_run() and run.path.is_dir() and any(run.path.iterdir()):
        raise FileError(f"{run.path} is not a run folder; give one that `vtrans train` made, or model files.")
    if not steps:
        raise FileError(f"{run.path} has no trained checkpoint; run `vtrans train` first.")
    return steps
