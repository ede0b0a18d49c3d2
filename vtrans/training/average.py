"""The mean of several checkpoints (the paper, section 6.1), computed one weight at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from vtrans.config import ModelConfig, TrainConfig
from vtrans.config.keys import keys_of
from vtrans.storage.model_file import check_finite, check_model, training_of
from vtrans.storage.run_folder import RunFolder, run_of
from vtrans.storage.states import read_progress
from vtrans.storage.tensors import TensorFile, open_tensors, write_tensors
from vtrans.system.errors import FileError, InputError
from vtrans.system.files import destination, overwritten

ENDING = 20  # if the learning rate decays to its end, only the last 1/ENDING of training is averaged


def average(
    files: Sequence[Path],
    out: Path,
    run_step: int | None = None,
    progress: Callable[[int, float], None] = lambda weights, share: None,
    *,
    float16: bool = False,
) -> list[int]:
    """Writes the mean of the model files to `out` and returns their steps, sorted.

    `run_step` is the last step of their run; the best checkpoints may be older. A file holds a shared weight once, so
    it counts once. Each mean is computed in float64 and stored in the type of the first file, or in float16, which
    halves the file. Peak memory is one model. The header, including the search settings, comes from the newest file,
    but the usual source length is the shortest of all files: if one model saw no long lines, the mean is bad at them.
    `progress` is called with the number of weights read so far and their share of all weights.

    Raises InputError if two files differ in architecture or vocabulary, if `out` is a file that training writes, or if
    a mean is too large for float16; FileError if a weight is not finite.
    """
    if not files:
        raise InputError("no checkpoints to average were given.")
    destination(out, "model")  # fail before the work
    run = run_of(out)
    training = training_of(out)
    if (training is not None and "average_of" not in training) or (run and out.resolve() != run.averaged):
        raise InputError(f"`out` must not be {out}, which training wrote; choose another file.")
    if any(overwritten(file, [out]) for file in files):
        raise InputError(f"`out` must not be one of the averaged files, got {out}.")
    with ExitStack() as stack:
        opened = [stack.enter_context(open_tensors(f, "model", "pt")) for f in files]
        _check_same(files, opened)
        first, _ = opened[0]
        # A shortlist belongs to one model, so the average has none.
        names = [name for name in first.keys() if not name.startswith("shortlist.")]  # noqa: SIM118 - not a dict
        weights = [name for name in names if not name.startswith("vocabulary.")]
        tensors, read = {name: first.get_tensor(name) for name in names if name not in weights}, 0
        for number, name in enumerate(weights, 1):
            tensors[name] = first.get_tensor(name)
            total = tensors[name].double()
            check_finite(files[0], name, total.numpy())
            for path, (file, _) in zip(files[1:], opened[1:], strict=True):
                part = file.get_tensor(name).double()
                check_finite(path, name, part.numpy())
                total += part
            tensors[name] = (total / len(files)).to(torch.float16 if float16 else tensors[name].dtype)
            if float16 and not tensors[name].isfinite().all():
                raise InputError(
                    f"the average of {name} has values beyond 65,504, the largest in float16; leave out `float16`."
                )
            read += total.numel() * len(files)
            progress(read, number / len(weights))
        newest = max((other for _, other in opened), key=lambda other: max(_steps(other)))
        steps = [step for _, other in opened for step in _steps(other)]
        training = {"average_of": sorted(steps), "run_step": max(steps) if run_step is None else run_step}
        lengths = [header["usual_length"] for _, header in opened if "usual_length" in header]
        usual = {"usual_length": min(lengths)} if lengths else {}
        write_tensors(out, tensors, {**newest, **usual, "training": training})
    return sorted(steps)


def _steps(header: dict[str, Any]) -> list[int]:
    training = header["training"]
    return list(training.get("average_of", [training.get("step", 0)]))


def _check_same(files: Sequence[Path], opened: Sequence[tuple[TensorFile, dict[str, Any]]]) -> None:
    """Raises InputError if models differ in their vocabularies or in settings that affect their output; FileError if a
    file's tensors do not match its settings."""
    first, *others = (check_model(path, *content) for path, content in zip(files, opened, strict=True))
    for path, other in zip(files[1:], others, strict=True):
        for key, facts in keys_of(ModelConfig).items():
            ours, theirs = getattr(first.model.config, key), getattr(other.model.config, key)
            if not facts.training_only and ours != theirs:
                raise InputError(
                    f"model.{key} is {ours} in {files[0]}, but {theirs} in {path}; "
                    "only checkpoints of one run can be averaged."
                )
        if (first.src_vocab.digest, first.tgt_vocab.digest) != (other.src_vocab.digest, other.tgt_vocab.digest):
            raise InputError(f"{files[0]} and {path} have different vocabularies.")


def usual_checkpoints(run: RunFolder, config: TrainConfig) -> list[Path]:
    """Returns the checkpoints to average by default, oldest first: the newest `train.keep_last`. If training is
    finished and its learning rate decayed to the end, only its last twentieth counts, because earlier models are
    worse."""
    steps = _trained_steps(run)[-config.keep_last :]
    end = steps[-1]
    falls = config.schedule != "inverse-sqrt" and config.final_rate < 1 and config.warmup < end
    finished = end >= config.max_steps or _out_of_time(run, config)
    first = end - end // ENDING if falls and finished else 0
    return [run.step_file(step) for step in steps if step >= first]


def _out_of_time(run: RunFolder, config: TrainConfig) -> bool:
    states, limit = run.state_steps(), 60 * config.max_minutes
    return limit > 0 and bool(states) and read_progress(run.state_file(states[-1]))["seconds"] >= limit


def newest_checkpoints(run: RunFolder, count: int) -> list[Path]:
    """Returns the `count` newest checkpoints of a run, oldest first, or all if there are fewer."""
    return [run.step_file(step) for step in _trained_steps(run)[-count:]]


def _trained_steps(run: RunFolder) -> list[int]:
    """Returns the steps of a run's checkpoints, without the untrained one of step 0. Raises FileError if there are
    none."""
    steps = [step for step in run.steps() if step > 0]
    if not run.path.is_dir():
        raise FileError(f"there is no run folder {run.path}; make one with `vtrans train`, or give model files.")
    if not run.holds_run() and any(run.path.iterdir()):
        raise FileError(f"{run.path} is not a run folder; give one that `vtrans train` made, or model files.")
    if not steps:
        raise FileError(f"{run.path} has no trained checkpoint; run `vtrans train` first.")
    return steps
