"""Saves and restores runs.

`save` writes a checkpoint: the model file and the training state, which holds the optimizer's tensors and the
`Progress`. `newest_progress` finds the newest complete pair, and `restore` loads it.
"""

from __future__ import annotations

import dataclasses
import platform
from typing import Any

import numpy as np
import torch

from vtrans.config import Recipe
from vtrans.model.checkpoint import LoadedModel, save_model
from vtrans.model.kernels import Kernels
from vtrans.storage.model_file import read_weights
from vtrans.storage.run_folder import RunFolder
from vtrans.storage.states import RAW, read_progress, read_state, save_state, state_of
from vtrans.system.errors import FileError, VtransError
from vtrans.system.own_code import own_digests
from vtrans.training.optimization.learner import Learner, parallel_of
from vtrans.training.parts import Job
from vtrans.training.progress import Metrics, Progress
from vtrans.training.recipe import merged
from vtrans.training.validation import signature_end


def save(job: Job, learner: Learner, progress: Progress) -> None:
    """Writes the model and the training state of this step, on rank 0; all ranks must call this. At any moment, this
    pair of files or an older one is complete.

    Raises VtransError, and writes nothing, if a weight is not finite, from which no run could resume, or if the data
    has changed.
    """
    data, run = job.data, job.run
    data.check_unchanged()
    finite = torch.stack([weight.isfinite().all() for weight in learner.parameters.values()])
    spoilt = (~finite).float().tolist()  # synchronises the device once, not per weight
    for name, ranks in zip(learner.parameters, job.ranks.summed(spoilt, job.device), strict=True):
        if ranks:
            what = f"after step {progress.step:,} {name} has values that are not finite (NaN or infinity)"
            raise diverged(run, what)
    training = {"step": progress.step, "epoch": progress.epoch, "data": data.digest}
    with learner.whole() as whole:
        if job.leads:
            model = LoadedModel(
                whole.model,
                data.src_vocab,
                data.tgt_vocab,
                job.recipe.search,
                training,
                languages=data.languages,
                tags=data.tags,
                matches=data.matches,
                codes=job.recipe.train.noise > 0 and job.recipe.train.changes == "usual",
                usual_length=int(np.quantile(data.train.src_lengths, 0.9)),
                pair=data.pair,
                code=progress.environment.get("code", {}).get(job.recipe.model.network, ""),
            )
            save_model(run.step_file(progress.step), model)
    save_progress(job, learner, progress)


def diverged(run: RunFolder, what: str) -> VtransError:
    """Returns the error for diverged training; names the last checkpoint."""
    return VtransError(
        f"{what}; train again with a lower learning rate, a longer warm-up or train.clip_norm = 1.0, or start another "
        f"run with the last checkpoint, which is good, as `init_from` ({run.step_file(max(run.steps(), default=0))})."
    )


def save_progress(job: Job, learner: Learner, progress: Progress) -> None:
    """Writes the training state of this step, whose model is already saved, then links `last` and `best`. All ranks
    must call this; rank 0 writes."""
    # If the model file holds the moving average, the state holds the weights themselves.
    state = state_of(learner.optimizer, learner.parameters, with_weights=learner.average is not None)
    tensors = learner.gathered(state)
    if job.leads:
        save_state(job.run.state_file(progress.step), tensors, dataclasses.asdict(progress))
        progress.link_and_prune(job.run)


def newest_progress(run: RunFolder) -> Progress | None:
    """Returns the progress in the newest training state whose model file is complete; None for a folder without a run.
    Raises FileError if no state is complete or if another version wrote it."""
    reason = ""
    for step in reversed(run.state_steps()):
        try:
            raw = read_progress(run.state_file(step))
            read_weights(run.step_file(step))
        except FileError as error:
            reason = reason or f" ({str(error).rstrip('.')})"
            continue  # after a crash between the two files, the pair before it is complete
        try:
            raw["best"] = [(quality, at) for quality, at in raw["best"]]
            raw["kernels"] = Kernels(**raw["kernels"])
            return Progress(**raw)
        except (TypeError, KeyError, ValueError):
            raise FileError(
                f"{run.state_file(step)} was written by another version of vtrans; resume with that version, "
                "choose another run folder, or start over with `fresh`."
            ) from None
    # A crash at the start of a run leaves only the model of step 0.
    if run.state_steps() or max(run.steps(), default=0) > 0:
        raise FileError(
            f"{run.path} holds a run, but no complete training state to resume from{reason}; "
            "choose another run folder, or start over with `fresh`."
        )
    return None


def restore(job: Job, learner: Learner, progress: Progress, metrics: Metrics) -> None:
    """Restores the optimizer and the ranking of the checkpoint that `progress` describes; the learner already has its
    model. Warns about differences from the run's environment so far."""
    _compare_environment(job, learner, progress.environment)
    state = read_state(job.run.state_file(progress.step), learner.model, learner.part)
    for name, parts in state.items():
        parameter = learner.parameters[name]
        if RAW in parts:
            parameter.data.copy_(parts.pop(RAW))
        learner.optimizer.state[parameter].update({part: value.to(parameter.device) for part, value in parts.items()})
    config, before = job.recipe.train, merged(Recipe(), progress.recipe, str(job.run.path)).train
    now = signature_end(config, job.recipe.search, job.data)
    if config.best_metric != before.best_metric or (config.best_metric != "nll" and progress.signature_end != now):
        progress.rank_again(metrics.records(), job.run.steps(), config, now)
        if not progress.best:
            job.console.info("no earlier validation used these settings: `best` starts with the next validation")
    progress.stopped_early = 0 < config.patience <= progress.since_best


def environment(job: Job, learner: Learner) -> dict[str, Any]:
    """Returns the settings that must stay equal for a run to resume bit-exactly."""
    train = job.recipe.train
    named = (job.recipe.model.network, train.objective, train.changes, train.best_metric)
    user_code = {"trainer": learner.parts.name(), "code": own_digests(named)}
    return {
        "torch": torch.__version__.partition("+")[0],
        "threads": job.ranks.threads,
        "processes": job.ranks.processes,
        "ranks": job.ranks.world // job.ranks.processes,
        "device": job.device.type,
        "machine": platform.machine(),
        "processor": torch.backends.cpu.get_cpu_capability(),
        "compiled": learner.objective.compiled is not None,
        "parallel": parallel_of(job.recipe.train, job.ranks),
        **{key: value for key, value in user_code.items() if value},
    }


def _compare_environment(job: Job, learner: Learner, recorded: dict[str, Any]) -> None:
    console, here = job.console, environment(job, learner)
    pairs = {key: (recorded.get(key), here.get(key)) for key in (*here, "trainer", "code")}
    if odd := [f"{key} {before} -> {now}" for key, (before, now) in pairs.items() if before != now]:
        console.warn(f"resuming, but not bit-exactly: {', '.join(odd)}")
    if recorded.get("device") != here["device"]:
        precision = job.recipe.train.precision
        console.info(f"train.precision stays {precision}; set it to auto to choose one for this device")
