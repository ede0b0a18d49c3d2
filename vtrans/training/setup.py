"""Prepares a run for its first update: determines the recipe, builds or restores the model, prepares the run folder."""

from __future__ import annotations

import dataclasses
import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from vtrans.data.store import DataFolder
from vtrans.model import kernels
from vtrans.model.checkpoint import load_weights
from vtrans.model.network import Transformer
from vtrans.storage.run_folder import RunFolder, RunLock, choose_model
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.system.files import named_os_errors, overwritten, write_atomically
from vtrans.system.own_code import class_of
from vtrans.system.ranks import Ranks
from vtrans.system.seeds import derived_seed
from vtrans.training.cooccurrence import initialise_embeddings
from vtrans.training.machine import choose_kernels, divide, precision_of
from vtrans.training.optimization.learner import Learner, learner_of
from vtrans.training.optimization.optimizer import begin
from vtrans.training.parts import Job, Parts, TrainOptions
from vtrans.training.progress import Metrics, Progress, remove_events
from vtrans.training.recipe import (
    changes,
    check_data,
    recipe_to_write,
    recipe_toml,
    refuse_changes,
    requested_recipe,
    resolved,
)
from vtrans.training.resume import environment, newest_progress, restore
from vtrans.training.validation import metric_of, signature_end
from vtrans.training.warm_start import warm_start


@dataclass
class SetUp:
    """A run that is ready to train. All checks have passed, and nothing has been written."""

    job: Job
    learner: Learner
    progress: Progress
    metrics: Metrics
    saved: Progress | None  # the unchanged progress from which the run resumes; None for a new run
    recipe_text: bytes | None  # the new content of recipe.toml; None: keep the file


def set_up(
    data: DataFolder,
    run: RunFolder,
    console: Console,
    ranks: Ranks,
    device: torch.device,
    options: TrainOptions,
    parts: type[Parts] = Parts,
) -> SetUp:
    """Builds a new run, or restores the one in the folder. Raises InputError if it cannot be trained or resumed."""
    saved = None if options.fresh else newest_progress(run)
    if saved is not None and saved.data != data.digest:
        raise InputError(
            f"the run in {run.path} was not trained on the data in {data.path}; give the data folder of the run, "
            "choose another run folder, or start over with `fresh`."
        )
    before = saved.recipe if saved is not None else {}
    asked = requested_recipe(run, before, options, joint=data.joint)
    precision = precision_of(device, ranks, saved)
    recipe = resolved(asked, joint=data.joint, precision=precision, metric=metric_of(data))
    refuse_changes(run, before, recipe)
    options.check(recipe.model)
    check_data(data, recipe)
    ranks = divide(ranks, device, recipe.train.batch_tokens, saved, console, options)
    kind_of_learner = learner_of(recipe, ranks, compiled=options.compile)
    job = Job(data, run, console, ranks, device, recipe)
    torch.manual_seed(derived_seed("init", recipe.train.seed))
    sizes = len(data.src_vocab), len(data.tgt_vocab)
    model = parts.make_network(recipe.model, *sizes, joint=data.joint)
    if type(model) is not (kind := class_of(recipe.model, "network", Transformer)):
        raise InputError(
            f"`make_network` must return a {kind.__name__}, as model.network = {recipe.model.network} says, got "
            f"{type(model).__name__}; name that class in model.network, so that model files name it."
        )
    if saved is None and recipe.train.embeddings == "pmi":
        initialise_embeddings(model, data, derived_seed("embeddings", recipe.train.seed))
    choose_kernels(job, saved)
    recipe_text = recipe_to_write(run, before, recipe)
    progress = dataclasses.replace(saved, data=data.digest) if saved is not None else Progress(data.digest, {})
    if options.init_from is not None:
        _initialise_from(options.init_from, job, model, progress, resumed=saved is not None)
    if saved is not None:  # the file may hold the moving average, with which the learner starts; `restore` follows
        load_weights(run.step_file(saved.step), model)
    learner = kind_of_learner(model, recipe.train, ranks, device, parts)
    metrics = Metrics(run, progress, tensorboard=recipe.train.tensorboard and job.leads)
    if options.compile:
        learner.compile(console)
    if saved is not None:
        restore(job, learner, progress, metrics)
    else:
        begin(learner.optimizer, learner.parameters.values())
    progress.environment, progress.kernels = environment(job, learner), kernels.current()
    progress.recipe = dataclasses.asdict(recipe)
    progress.signature_end = signature_end(recipe.train, recipe.search, data)
    _check_ranks_agree(job, progress)
    return SetUp(job, learner, progress, metrics, saved, recipe_text)


def _initialise_from(path: Path, job: Job, model: Transformer, progress: Progress, *, resumed: bool) -> None:
    """Copies the weights of another model into the model of a new run. A resumed run keeps its own weights."""
    if resumed:
        if str(path) != progress.init_from:
            raise InputError(
                f"the run in {job.run.path} did not start from {path}; leave out `init_from` to resume it, choose "
                "another run folder, or start over with `fresh`."
            )
        job.console.info("the run resumes with its own weights", f"only a new run starts from {path}")
        return
    file, reason = choose_model(path)
    run = job.run
    if overwritten(file, (run.last, run.best, run.averaged, *map(run.step_file, run.steps()))):
        raise InputError(f"`out` must not be {run.path}, where training would replace {file}.")
    copied = warm_start(model, job.data.src_vocab, job.data.tgt_vocab, file)
    progress.init_from = str(path)
    rows = ", ".join(f"{taken:,} of {size:,} rows of {name}" for name, (taken, size) in copied.items())
    job.console.info(f"weights of {file}: every layer, {rows}{f' ({reason})' if reason else ''}")


def _check_ranks_agree(job: Job, progress: Progress) -> None:
    """Raises InputError if the ranks have not read the same data, recipe and state, because they would then train
    different models."""
    recipe = hashlib.sha256(recipe_toml(job.recipe).encode()).hexdigest()
    code = "".join(f", code {name} {digest}" for name, digest in progress.environment.get("code", {}).items())
    ours = f"data {job.data.digest[:8]}, step {progress.step:,}, recipe {recipe[:8]}{code}"
    texts = job.ranks.all_texts(ours)
    if other := next((rank for rank, text in enumerate(texts) if text != texts[0]), 0):
        raise InputError(
            f"rank {other} has {texts[other]}, but rank 0 has {texts[0]}; every rank must see the same data folder "
            f"and the same run folder {job.run.path}, on a shared disk."
        )


def prepare_folder(ready: SetUp, lock: RunLock, *, fresh: bool, finished: bool) -> None:
    """Prepares the run folder for training, on rank 0: lock, recipe.toml, metrics.jsonl.

    Raises InputError if another process has trained in the folder since the state was read.
    """
    run = ready.job.run
    with named_os_errors(f"the run folder {run.path}"):
        run.states.mkdir(parents=True, exist_ok=True)
    lock.take()
    if fresh:
        remove_run(run)
    elif ready.saved is None and run.state_steps():
        raise InputError(
            f"another `vtrans train` has started a run in {run.path} in the meantime; run the command again to resume."
        )
    if ready.recipe_text is not None and not finished:
        write_atomically(run.recipe, ready.recipe_text)
    if ready.saved is not None:
        ready.saved.link_and_prune(run)  # a crash may have interrupted it
        ready.metrics.resume(ready.job.console)
    else:
        ready.metrics.begin()
        _remove_translations(run)  # a crash may have left an earlier run's translations


def remove_run(run: RunFolder) -> None:
    """Removes the files of a run and nothing else. Keeps recipe.toml, which the new run replaces. Removes the states
    first, so that half a run is never resumed."""
    run.prune([], -1)
    for path in (run.metrics, run.last, run.best, run.averaged):
        path.unlink(missing_ok=True)
    remove_events(run.events)
    _remove_translations(run)


def _remove_translations(run: RunFolder) -> None:
    """Removes the translations from validation, and their folder if it is then empty."""
    for path in (run.valid_src, run.valid_ref, *run.validation.glob("step-*.txt")):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        run.validation.rmdir()


def warn_of_ignored(ready: SetUp) -> None:
    """Warns about changes of the recipe that have no effect on a finished run."""
    assert ready.saved is not None, "a new run is not finished"
    read = {("train", key) for key in ("max_steps", "max_minutes", "patience", "tensorboard")}
    changed = changes(ready.saved.recipe, ready.job.recipe)
    if ignored := [text for key, text in changed.items() if key not in read]:
        ready.job.console.warn(
            f"nothing is left to train, so these changes are ignored: {', '.join(ignored)}; to search with other "
            "settings, use the options of `vtrans translate`"
        )
