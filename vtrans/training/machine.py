"""Chooses the processes and threads of a run on a CPU, its kernels and its precision.

Kernels and precision are fixed by the recipe, else kept from the run so far, else chosen by `auto` on rank 0's machine.
All ranks use the same.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import threading

import torch

from vtrans.config import TrainConfig
from vtrans.config.threads import MEMORY, check_processes, default_processes, why_not_forked
from vtrans.model import kernels
from vtrans.model.automatic import automatic_kernels, automatic_precision
from vtrans.model.kernels import Kernels
from vtrans.model.products import HAS_ONEDNN
from vtrans.system.console import Console
from vtrans.system.errors import RecipeError
from vtrans.system.ranks import ADVICE, LocalRanks, Ranks
from vtrans.system.resources import available_memory, total_memory
from vtrans.training.optimization.compiled import compiled_training
from vtrans.training.parts import Job, TrainOptions
from vtrans.training.progress import Progress

TOKENS = 512  # minimum number of batch tokens per process; with fewer, the fixed work outweighs the gain


def divide(
    ranks: Ranks,
    device: torch.device,
    batch_tokens: int,
    saved: Progress | None,
    console: Console,
    options: TrainOptions,
) -> Ranks:
    """Returns the ranks that train, and sets the threads of this process. Call this before the first computation.

    By default, there is one single-threaded process per core, but at most one per TOKENS tokens of a batch and per
    MEMORY bytes. If this process cannot be forked, it uses several threads instead. A run resumed on a machine of the
    same kind keeps its numbers. Raises InputError if several processes are not possible.
    """
    processes, threads = options.processes, options.threads
    reason, usual = _why_one(ranks, device, compiled=options.compile), torch.get_num_threads()
    check_processes(processes, reason)
    # Another thread may hold a lock for which a fork would wait forever.
    alone = reason or threading.active_count() > 1
    # Total, not free memory: the number of processes affects the bytes of a run.
    number = 1 if alone else default_processes(min(usual, batch_tokens // TOKENS), total_memory())
    chosen = automatic = (number, 1) if number > 1 else (1, usual)
    if processes is not None:
        chosen = processes, threads or (1 if processes > 1 else usual)
    elif threads is not None:
        chosen = 1, threads
    elif saved is not None and _alike(ranks, device, saved):
        before = saved.environment.get("processes", 1), int(saved.environment["threads"])
        chosen = automatic if reason and before[0] > 1 else before
        if chosen != automatic:
            console.info(f"processes: {chosen[0]}, threads: {chosen[1]}, as in the run so far")
    torch.set_num_threads(1 if chosen[0] > 1 else chosen[1])  # the kernel choice sees the threads of a rank
    if chosen[0] == 1:
        return ranks
    if processes is None and chosen[0] * MEMORY > (free := available_memory()):
        console.warn(
            f"{chosen[0]} processes may need {chosen[0] * MEMORY / 1e9:.0f} GB, but {free / 1e9:.1f} GB are free; if "
            f"memory runs out, {ADVICE}"
        )
    return LocalRanks(*chosen)


def _why_one(ranks: Ranks, device: torch.device, *, compiled: bool) -> str:
    """Returns why this process cannot be forked to train, or an empty string."""
    reasons = {
        f"the model is on {device}": device.type != "cpu",
        f"torchrun has started {ranks.world} processes": ranks.world > 1,
        "this machine has a GPU, whose libraries do not work in a forked process": torch.cuda.is_available(),
        "`compile` starts threads, which a forked process lacks": compiled,
    }
    return next((reason for reason, applies in reasons.items() if applies), why_not_forked())


def _alike(ranks: Ranks, device: torch.device, saved: Progress) -> bool:
    """Returns whether the run so far used a machine of this kind."""
    here = {"machine": platform.machine(), "ranks": ranks.world, "device": device.type}
    return all(saved.environment.get(key) == value for key, value in here.items())


def choose_kernels(job: Job, saved: Progress | None) -> None:
    """Sets the kernels for training on a CPU. `saved` is None for a new run.

    Raises RecipeError if the recipe asks for a library that this build of torch lacks.
    """
    if job.device.type != "cpu":
        return
    before = None if saved is None or not _trained_on(job.device, saved) else saved.kernels
    wanted = job.recipe.train.compiled and (before is None or before.compiled)
    compiled = compiled_training(job.console) if wanted else None
    chosen = dataclasses.replace(_chosen(job.recipe.train, before), compiled=compiled is not None)
    records = [Kernels(**json.loads(text)) for text in job.ranks.all_texts(json.dumps(dataclasses.asdict(chosen)))]
    kernels.use(dataclasses.replace(records[0], compiled=all(record.compiled for record in records)), compiled)
    if before not in (None, kernels.current()):
        job.console.warn("resuming, but not bit-exactly: other kernels than in the run so far")


def precision_of(device: torch.device, ranks: Ranks, saved: Progress | None) -> str:
    """Returns the precision for `auto`: the run's precision so far if it used this type of device, else the best for
    rank 0's device."""
    before = saved.recipe["train"]["precision"] if saved is not None and _trained_on(device, saved) else None
    return ranks.all_texts(before or automatic_precision(device))[0]


def _trained_on(device: torch.device, saved: Progress) -> bool:
    return bool(saved.environment.get("device") == device.type)


def _chosen(config: TrainConfig, before: Kernels | None) -> Kernels:
    if config.kernels == "onednn" and not HAS_ONEDNN:
        raise RecipeError("train.kernels must be auto or blas, got onednn, which this build of torch lacks.")
    if config.kernels != "auto":
        return Kernels(config.kernels)
    if before is not None and (HAS_ONEDNN or before.library != "onednn"):
        return before
    return automatic_kernels()
