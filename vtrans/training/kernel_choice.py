"""The kernels and the precision of a run: those that the recipe fixes, else those of the run so far, else what `auto`
means on the machine of rank 0. All ranks use the same."""

from __future__ import annotations

import dataclasses
import json

import torch

from vtrans.config import TrainConfig
from vtrans.errors import RecipeError
from vtrans.numerics import kernels
from vtrans.numerics.automatic import automatic_kernels, automatic_precision
from vtrans.numerics.kernels import Kernels
from vtrans.numerics.products import HAS_ONEDNN
from vtrans.processes.ranks import Ranks
from vtrans.training.optimization.job import Job
from vtrans.training.progress import Progress


def choose_kernels(job: Job, saved: Progress | None) -> None:
    """Makes the choice of kernels for training on a CPU. `saved` is None for a new run.

    Raises RecipeError if the recipe asks for a library that this build of torch lacks.
    """
    if job.device.type != "cpu":
        return
    before = None if saved is None or not _trained_on(job.device, saved) else saved.kernels
    chosen = _chosen(job.recipe.train, before)
    record = job.ranks.all_texts(json.dumps(dataclasses.asdict(chosen)))[0]
    kernels.use(Kernels(**json.loads(record)))
    if before not in (None, kernels.current()):
        job.console.warn("resuming, but not bit-exactly: other kernels than in the run so far")


def precision_of(device: torch.device, ranks: Ranks, saved: Progress | None) -> str:
    """Returns the precision that `auto` stands for: that of the run so far if it was trained on such a device, else
    that of the device of rank 0."""
    before = saved.recipe["train"]["precision"] if saved is not None and _trained_on(device, saved) else None
    return ranks.all_texts(before or automatic_precision(device))[0]


def _trained_on(device: torch.device, saved: Progress) -> bool:
    return bool(saved.environment.get("device") == device.type)


def _chosen(config: TrainConfig, before: Kernels | None) -> Kernels:
    automatic = automatic_kernels()
    if config.kernels == "onednn" and not HAS_ONEDNN:
        raise RecipeError("train.kernels must be auto or blas, got onednn, which this build of torch lacks.")
    if config.kernels != "auto":
        chosen = Kernels(config.kernels)
    elif before is not None and (HAS_ONEDNN or before.library != "onednn"):
        chosen = before
    else:
        chosen = automatic
    by_default = automatic if before is None else before
    bmm = by_default.bmm if config.attention == "auto" else config.attention == "bmm"
    return dataclasses.replace(chosen, bmm=bmm)
