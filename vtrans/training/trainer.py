"""The training loop: makes updates, and decides when to read, log, validate, save and stop.

setup.py builds or restores a run from the parts in parts.py. `Trainer` then reads batches from data/batches.py, makes
updates with optimization/learner.py, saves checkpoints with resume.py and validates them with validation.py.

Every random choice is a function of (seed, epoch, position) or (seed, step, rank). On a CPU, an interrupted and resumed
run therefore ends with the same bytes as an uninterrupted one, given the same machine type, torch version, number of
threads and number of ranks, but for `train.max_minutes`, by which the clock sets the learning rate, and `--compile`.
Some CUDA kernels sum in a varying order, so on a GPU the last bits may differ.
"""

from __future__ import annotations

import copy
import math
import signal
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vtrans.config import DEFAULT_RUN
from vtrans.config.threads import set_threads
from vtrans.data.aligner import aligned
from vtrans.data.batches import Cursor, RankBatch, prefetch
from vtrans.data.matches import SEPARATOR_ID
from vtrans.data.store import DataFolder
from vtrans.storage.run_folder import RunFolder, RunLock
from vtrans.system.console import Console, Counter, duration
from vtrans.system.devices import pick_device
from vtrans.system.errors import FileError, InputError, VtransError, WriteError
from vtrans.system.files import reason, unwritable
from vtrans.system.process import release_memory
from vtrans.system.ranks import Ranks
from vtrans.system.signals import StopSignal
from vtrans.training.log import Log, estimate, introduce
from vtrans.training.optimization.optimizer import learning_rate
from vtrans.training.parts import Job, Parts, TrainOptions
from vtrans.training.progress import Progress
from vtrans.training.resume import diverged, save, save_progress
from vtrans.training.setup import SetUp, prepare_folder, set_up, warn_of_ignored
from vtrans.training.validation import Validation, unigram_nll

# Training saves and stops on these signals even if they are ignored, as in a shell's background job: `kill -INT` must
# reach it.
STOPPING = (signal.SIGINT, signal.SIGTERM)
MEETING = timedelta(hours=1)  # how long ranks wait for each other until the recipe sets train.rank_timeout
BATCHES_AHEAD = 8  # batches that a thread prefetches while the device computes
NON_FINITE_LIMIT = 10  # the run ends after this many consecutive updates without a finite gradient
# Updates between two reads of the losses. A read synchronises the device, which costs nothing on a CPU.
READ_EVERY = {"cpu": 1}
READ_EVERY_ELSEWHERE = 10


def train(
    data: str | Path | DataFolder,
    recipe: str | None = None,
    *,
    out: str | Path = DEFAULT_RUN,
    trainer: type[Trainer] | None = None,
    console: Console | None = None,
    **options: Any,
) -> Progress:
    """Trains a model on a data folder, or resumes the run in the folder `out`, like `vtrans train`. Returns the run's
    progress, including its last step and best checkpoints.

    `recipe` is the name of a recipe or a TOML file; by default, the run's own recipe or else the command's default.
    `trainer` is a subclass of `vtrans.Trainer` with other parts; resume a run with the same subclass. `console`
    receives the command's messages. Further keyword arguments are the other fields of `TrainOptions`:
    `vtrans.train("data", "small", overrides=["train.max_steps=500"], device="cpu")`.

    Raises InputError if the run's data or recipe differs, or if another process trains in its folder; FileError if a
    file cannot be read or written; VtransError if a signal stopped the run (its state is saved), if the gradients are
    no longer finite (the last checkpoint is kept), if the device has too little memory, or if another rank died.
    """
    made, chosen = trainer or Trainer, TrainOptions(recipe, **options)
    data, run = data if isinstance(data, DataFolder) else DataFolder.open(Path(data)), RunFolder(out)
    console = console or Console(quiet=True)
    if run.path.resolve() == data.path.resolve():
        raise InputError(f"{run.path} is the data folder; choose another folder for the run (`out`).")
    there = next(path for path in (run.path, *run.path.absolute().parents) if path.exists())
    if not there.is_dir():
        raise InputError(f"`out` must be a folder, got {run.path}, but {there} is a file; choose another run folder.")
    set_threads(chosen.threads)
    ranks = Ranks()
    device = pick_device(ranks.device_name(chosen.device))
    if ranks.rank > 0:
        console = Console(quiet=True)
    with ranks.joined(device, MEETING), ranks.watched(lambda: _how_to_resume(run)), RunLock(run) as lock:
        if ranks.rank == 0 and run.states.is_dir() and not chosen.dry_run:
            lock.take()  # before reading the state: another process may be about to replace it
        ready = set_up(data, run, console, ranks, device, chosen, made)
        ready.job.ranks.limit_silence(ready.job.recipe.train.rank_timeout)
        with closing(ready.metrics), _memory_advice(ready.job), _resume_advice(run):
            loop = made(ready)
            return loop.dry_run() if chosen.dry_run else loop.run(lock, fresh=chosen.fresh)


def _linked(job: Job) -> DataFolder:
    """Returns the data with the words of its training pairs aligned, if the recipe needs that. Pairs with a match get
    no links; they also occur without it."""
    data, config = job.data, job.recipe.train
    if data.train.has_links or not (config.guided_alignment or config.noise):
        return data
    store, pairs = data.train, None
    tags = [id for tag in data.tags.values() if (id := data.src_vocab.id_of(tag)) is not None]
    sizes = len(data.src_vocab), len(data.tgt_vocab)
    with job.console.progress("aligning the words", unit="subword pairs") as counter:
        if data.matches:
            pairs = np.array([i for i in range(len(store)) if SEPARATOR_ID not in store.src(i).numpy()], np.int64)
        links = aligned(store, *sizes, counter.update, pairs=pairs, tags=tags)
    data = copy.copy(data)
    data.train = store.linked(*links)
    return data


class Trainer(Parts):
    """The training loop of one run.

    A subclass may override the methods of Parts, which make the network, the loss, the optimizer and the batches, as
    well as `learning_rate`, `after_update` and `after_validation`. Pass the subclass to `vtrans.train`:

    >>> class Constant(vtrans.Trainer):
    ...     def learning_rate(self, step):
    ...         return 1e-3
    >>> vtrans.train("data", "small", trainer=Constant)

    `job` holds the run's data, recipe and device, `learner` its network and optimizer, and `progress` its step and
    epoch. A run resumes bit-exactly if everything that a subclass changes is a function of these.
    """

    def __init__(self, ready: SetUp) -> None:
        self.ready, self.job, self.learner, self.progress = ready, ready.job, ready.learner, ready.progress
        job = self.job
        data = job.data if self._complete else _linked(job)
        release_memory()  # of the alignment, and of the initial embeddings
        self.loader = self.make_loader(data, job.recipe, job.ranks, job.device)
        self.validation = Validation(job, self.learner.complete)
        self.log = Log(job, ready.metrics, self.progress, self.learning_rate)
        self.signal = StopSignal()
        self.stopping = False  # whether all ranks know about a signal
        # Per update whose losses have not been read: its step, and the results of `Learner.update`.
        self._unread: list[tuple[int, Tensor, dict[str, float]]] = []
        self._read_every = READ_EVERY.get(job.device.type, READ_EVERY_ELSEWHERE)
        self._clock = self._counted = time.monotonic()
        self.nll: float | None = None  # from this process's last validation; None if it was not finite

    def learning_rate(self, step: int) -> float:
        """Returns the learning rate of update `step` (from 1), by default from the recipe's schedule."""
        return learning_rate(step, self.job.recipe.train, self.job.recipe.model.d_model, self.progress.seconds)

    def after_update(self) -> None:
        """Called on every rank after update number `self.progress.step`. Does nothing by default."""

    def after_validation(self, record: Mapping[str, Any]) -> None:
        """Called on rank 0 after each validation, with its record in metrics.jsonl. The checkpoint is already saved.
        Does nothing by default."""

    def run(self, lock: RunLock, *, fresh: bool = False) -> Progress:
        """Trains until max_steps or max_minutes is reached or patience runs out. Raises VtransError after a signal."""
        job, progress = self.job, self.progress
        finished = self._complete and not self._owes_validation
        introduce(job, self.learner.model, progress, resumed=self.ready.saved is not None, written=not finished)
        if job.leads:
            prepare_folder(self.ready, lock, fresh=fresh, finished=finished)
        if self.ready.saved is None:
            save(job, self.learner, progress)
        job.ranks.wait()
        if finished:
            self._tell_finished()
            warn_of_ignored(self.ready)
            return progress

        with (
            self.learner.together(job.console),
            self.signal.caught(lambda name: job.console.info(f"{name}: saving after this step"), even_ignored=STOPPING),
            job.console.progress("training", plain=False) as counter,
            closing(self._batches()) as batches,
        ):
            self._loop(batches, counter)
        if job.leads:
            self._close()
        return progress

    def _close(self) -> None:
        """Reports that training is done, or warns if the model has learned nothing.

        A model has learned nothing if its last validation is not finite or not better than the subword frequencies
        (`unigram_nll`). Training that diverges ends at this value or far above, and so may very few updates.
        """
        progress, config = self.progress, self.job.recipe.train
        best = progress.best
        shown = f"; best {config.best_metric} {abs(best[0][0]):.2f} at step {best[0][1]:,}" if best else ""
        done, chance = f"done at step {progress.step:,}{shown}", unigram_nll(self.job.data)
        if self.nll is not None and self.nll < chance:
            self.job.console.info(done, f"next: vtrans average {self.job.run.path}")
            return
        reached = "not finite" if self.nll is None else f"{math.exp(min(self.nll, 50)):.2f}"
        self.job.console.warn(
            f"{done}, but training has diverged or hardly begun: the last validation perplexity is {reached}, and the "
            f"subword frequencies alone reach {math.exp(chance):.2f}; start another run with a smaller "
            "train.learning_rate or a longer train.warmup, or train for longer."
        )

    def dry_run(self) -> Progress:
        """Reports the time and memory that training will take. Writes nothing."""
        introduce(self.job, self.learner.model, self.progress, resumed=self.ready.saved is not None, written=False)
        if self._complete:
            self._tell_finished()
            return self.progress
        self.learner.model.train()

        def update(group: Sequence[RankBatch]) -> None:
            self.update(group)
            self.read()

        with self.learner.together(self.job.console):
            estimate(self.loader, self.job.recipe.train, self.progress, update, self.job.console.info)
        return self.progress

    def _loop(self, batches: Iterator[RankBatch], counter: Counter) -> None:
        config, progress = self.job.recipe.train, self.progress
        self.learner.model.train()
        validated = self._owes_validation and self._checkpoint()
        first = progress.step + 1
        self.log.begin()
        while not (self._complete or self.stopping):
            self.update(list(islice(batches, config.accumulate)))
            self.after_update()
            step = progress.step
            saving, logging = step % config.checkpoint_every == 0, step % config.log_every == 0
            full = len(self._unread) >= self._read_every
            if saving or logging or step == first or full or self._complete:
                self.stopping = self.read(self.signal.number)
            saving, logging = saving or self._complete, logging or self._complete
            if logging:
                self.log.write()
            elif step == first:
                self.log.show()
                self.log.begin()  # again, because the first update warms up the kernels
            if self.job.console.is_terminal:
                note = f"left {duration(self.log.left)}  step {step:,}  {self.log.figures}"
                counter.update(step, self.share, note)
            if self.stopping:
                validated = False
                save(self.job, self.learner, progress)
                self.job.ranks.wait()
            elif saving:
                validated = self._checkpoint()
        if self.stopping and not (validated and self._complete):
            name = signal.Signals(self.signal.number or signal.SIGTERM).name
            raise VtransError(
                f"stopped by {name} after step {progress.step:,}; the state is saved, run the same command to resume."
            )

    def update(self, group: Sequence[RankBatch]) -> None:
        """Makes one update. Its losses stay on the device until `read`."""
        step = self.progress.step + 1
        self._unread.append((step, *self.learner.update(group, step, self.learning_rate(step))))
        self.progress.step = step

    def read(self, signal_number: int = 0) -> bool:
        """Adds the updates since the last call to `progress.window`, summed over the ranks, and the time since then to
        `progress.seconds`. Returns whether any rank has received a signal: if one rank stopped alone, the others would
        hang.

        Raises VtransError after NON_FINITE_LIMIT consecutive updates without a finite gradient.
        """
        window, sums = self.progress.window, dict[str, float]()
        losses = torch.stack([measured for _, measured, _ in self._unread]).tolist()
        for (step, _, counts), (loss, nll, skipped) in zip(self._unread, losses, strict=True):
            if skipped:  # on all ranks
                self._count_skipped(step)
                continue
            self.progress.skipped_in_row = 0
            for key, value in {"loss": loss, "nll": nll, **counts}.items():
                sums[key] = sums.get(key, 0.0) + value
        self._unread = []
        values = [signal_number, self._passed(), *sums.values()]
        stopping, passed, *totals = self.job.ranks.summed(values, self.job.device)
        self.progress.seconds += passed
        for key, total in zip(sums, totals, strict=True):
            window[key] = window.get(key, 0) + total
        now = time.monotonic()
        window["seconds"] = window.get("seconds", 0) + now - self._clock
        self._clock = now
        return stopping > 0

    def _passed(self) -> float:
        """Returns the seconds since the last call; 0 except on rank 0, so that the sum over ranks is rank 0's time."""
        before, self._counted = self._counted, time.monotonic()
        return self._counted - before if self.job.ranks.rank == 0 else 0.0

    def _count_skipped(self, step: int) -> None:
        progress = self.progress
        progress.skipped += 1
        progress.skipped_in_row += 1
        progress.window["skipped"] = progress.window.get("skipped", 0) + 1
        self.job.console.warn(f"step {step:,}: the gradient is not finite; this update is skipped")
        if progress.skipped_in_row >= NON_FINITE_LIMIT:
            raise diverged(self.job.run, f"{NON_FINITE_LIMIT} consecutive updates had no finite gradient")

    @property
    def _complete(self) -> bool:
        """Whether no updates are left."""
        return self.share == 1 or self.progress.stopped_early

    @property
    def share(self) -> float:
        """The completed share of training, from 0 to 1, by the nearer of the two limits."""
        progress, config = self.progress, self.job.recipe.train
        timed = progress.seconds / (60 * config.max_minutes) if config.max_minutes else 0.0
        return min(1.0, max(timed, progress.step / config.max_steps))

    def _tell_finished(self) -> None:
        """Reports why no updates are left, and how to continue."""
        steps = self.progress.step >= self.job.recipe.train.max_steps
        key = "patience" if self.progress.stopped_early else "max_steps" if steps else "max_minutes"
        self.job.console.info(
            f"the run in {self.job.run.path} is finished at step {self.progress.step:,} (train.{key} = "
            f"{getattr(self.job.recipe.train, key)})",
            f"to continue it, set a larger train.{key}",
        )

    @property
    def _owes_validation(self) -> bool:
        """Whether this step's model must still be validated because a signal prevented it."""
        step, config = self.progress.step, self.job.recipe.train
        due = step % config.checkpoint_every == 0 or self.share == 1
        return step > 0 and due and step not in self.progress.validated

    def _batches(self) -> Generator[RankBatch, None, None]:
        """Yields this rank's batches, starting at the run's place in the data, and advances this place in
        `progress`."""
        progress = self.progress
        made = self.loader.batches(Cursor(progress.epoch, progress.drawn, progress.position))
        with closing(prefetch(made, BATCHES_AHEAD)) as batches:
            for (progress.epoch, progress.drawn, progress.position), batch in batches:
                yield batch

    def _interrupted(self) -> bool:
        """Whether a signal has arrived. Validation calls this before each part of its work, which also tells the other
        ranks that rank 0 is still working."""
        self.job.ranks.beat()
        return self.signal.number > 0

    def _checkpoint(self) -> bool:
        """Saves and validates on rank 0 while the other ranks wait. Returns False if a signal ended the validation:
        little time may be left, so the resumed run validates instead."""
        job, progress, config, record = self.job, self.progress, self.job.recipe.train, None
        save(job, self.learner, progress)  # first, so that no failure of the validation loses updates
        with self.learner.whole():
            if job.leads:
                with job.ranks.alone():
                    record = self.validation.measure(progress.step, self._interrupted)
                job.ranks.release()
            else:
                job.ranks.await_leader()
        if record is not None:
            self.ready.metrics.write(record)
            self.nll = record["nll"]
            progress.rank(record, config)
            if progress.stopped_early:
                job.console.info(f"no better {config.best_metric} in {config.patience} validations: training ends")
        flags = [record is not None, progress.stopped_early, self.signal.number, self._passed()]
        *told, passed = job.ranks.summed(flags, job.device)
        validated, progress.stopped_early, self.stopping = (value > 0 for value in told)
        progress.seconds += passed
        if validated:
            if self._complete:
                self.log.write()  # time or patience may end the training between two lines
            save_progress(job, self.learner, progress)
            if record is not None:  # on rank 0
                self.after_validation(record)
        self._clock = time.monotonic()  # validation is not training time
        return validated


def _how_to_resume(run: RunFolder) -> str:
    """Returns advice for after a failure of training."""
    steps = run.state_steps()
    return f"the same command resumes from step {steps[-1]:,}" if steps else "the same command starts over"


@contextmanager
def _memory_advice(job: Job) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:
        config = job.recipe.train
        raise VtransError(
            f"{job.device} has too little memory for these batches; start another run with train.batch_tokens = "
            f"{config.batch_tokens // 2} and train.accumulate = {2 * config.accumulate}, which makes updates of the "
            "same size from smaller batches."
        ) from None


@contextmanager
def _resume_advice(run: RunFolder) -> Iterator[None]:
    """Adds advice on resuming to WriteError, and turns an OSError into an error that names the file."""
    try:
        yield
    except WriteError as error:
        raise WriteError(error.path, f"{error.reason}; {_how_to_resume(run)}") from None
    except OSError as error:
        file, advice = error.filename if isinstance(error.filename, str) else None, f"; {_how_to_resume(run)}"
        if file and not Path(file).absolute().is_relative_to(run.path.absolute()):
            raise FileError(f"{file} cannot be read or written: {reason(error)}{advice}.") from None
        raise unwritable(f"the run folder {run.path}", error, advice) from None
