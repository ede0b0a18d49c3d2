"""The training loop: updates, and when to read, log, validate, save and stop.

Its batches are made in feed.py; validation.py says how good the model is, and progress.py what a run keeps to
go on from; resolve.py settles its recipe.

Every random choice is a function of (seed, epoch, position) or (seed, step, rank), so a run that was
interrupted and goes on from its state ends with the bytes of one that never stopped (same machine
type, torch version, thread count and number of ranks). That is promised for the CPU. On CUDA it is not:
some of its kernels add in an order that differs from run to run; a run resumed there goes on from the same
state, but not to the same last bits.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import platform
import signal
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vtrans.checkpoint import (
    LoadedModel,
    RunFolder,
    RunLock,
    choose_model,
    load_state,
    load_weights,
    save_model,
    save_state,
)
from vtrans.config import idle_keys
from vtrans.console import Console, Display, duration
from vtrans.data.batches import Batch, ahead, collate
from vtrans.data.store import DataFolder
from vtrans.data.vocabulary import EOS_ID, PAD_ID
from vtrans.errors import FileError, InputError, VtransError
from vtrans.model import Transformer, count_parameters
from vtrans.runtime.devices import pick_device
from vtrans.runtime.ranks import Ranks
from vtrans.runtime.seeds import derived_seed
from vtrans.runtime.signals import StopSignal
from vtrans.text import write_atomically
from vtrans.training.dry_run import forecast
from vtrans.training.feed import Feed, Place, Share
from vtrans.training.loss import Objective, products
from vtrans.training.optimizer import MovingAverage, begin, learning_rate, make_optimizer
from vtrans.training.progress import Metrics, Progress, clear, newest_progress
from vtrans.training.recipe import (
    changes,
    check_data,
    finished_recipe,
    recipe_to_write,
    recipe_toml,
    recorded_recipe,
    refuse_changes,
    requested_recipe,
    settled,
)
from vtrans.training.tensorboard import Events
from vtrans.training.validation import Validation, manner
from vtrans.training.warm_start import refuse_another, warm_start

NON_FINITE_LIMIT = 10  # updates in a row without a finite gradient, after which the run stops
BATCHES_AHEAD = 8  # made by a thread while the device is at work
# Updates between two readings of the losses, which wait for the device. On a CPU there is nothing to wait for.
READ_EVERY = {"cpu": 1}
READ_EVERY_ELSEWHERE = 10


def train(
    data: DataFolder,
    run: RunFolder,
    console: Console,
    *,
    recipe_name: str | None = None,
    overrides: Sequence[str] = (),
    fresh: bool = False,
    device: str | None = None,
    dry_run: bool = False,
    init_from: Path | None = None,
    compiled: bool = False,
) -> Progress:
    """Trains a model on a data folder, or goes on with the run that `run` holds.

    `init_from` is a model file or a run folder with whose weights a new run begins (warmstart.py). With
    `compiled` the layers are compiled, where that can be done; equal bytes are not promised then.
    With `dry_run` it says what that will take, from a few updates whose result is thrown away, and writes nothing.
    Raises InputError where the run is of other data or another recipe, or another process is at work on it, or its
    folder can't be written;
    VtransError when the run was told to stop (its state is saved first) or has no finite gradient any more
    (its last checkpoint stays), or another rank has died.
    """
    if run.path.resolve() == data.path.resolve():
        raise InputError(f"{run.path} is the data folder; give the run a folder of its own by --out.")
    ranks = Ranks()
    where = pick_device(ranks.device_name(device))
    if ranks.rank > 0:
        console = Console(quiet=True)
    with ranks.joined(where), ranks.watched(lambda: _where_it_goes_on(run)), RunLock(run) as lock:
        if ranks.rank == 0 and run.states.is_dir() and not dry_run:
            lock.take()  # before the state is read, which another process may be about to replace
        training = _Training(data, run, console, ranks, where, recipe_name, overrides, fresh, lock, init_from, compiled)
        try:
            with closing(training):
                return training.rehearse() if dry_run else training.run_to_end()
        except torch.OutOfMemoryError:
            config = training.recipe.train
            raise VtransError(
                f"{where} has not enough memory for these batches; another run with train.batch_tokens = "
                f"{config.batch_tokens // 2} and train.accumulate = {2 * config.accumulate} makes as large updates of "
                "smaller ones."
            ) from None
        except OSError as error:  # a full disk, most likely
            reason = f"{error.strerror or error}; {_where_it_goes_on(run)}"
            file = error.filename if isinstance(error.filename, str) else None
            if file and not Path(file).absolute().is_relative_to(run.path.absolute()):
                raise FileError(f"{file} can't be read or written: {reason}.") from None
            raise FileError(f"the run folder {run.path} can't be written: {reason}.") from None


def _where_it_goes_on(run: RunFolder) -> str:
    """What to do after training has ended before its time."""
    steps = run.state_steps()
    return f"the same command goes on from step {steps[-1]:,}" if steps else "the same command begins anew"


class _Training:
    def __init__(
        self,
        data: DataFolder,
        run: RunFolder,
        console: Console,
        ranks: Ranks,
        device: torch.device,
        recipe_name: str | None,
        overrides: Sequence[str],
        fresh: bool,
        lock: RunLock,
        init_from: Path | None = None,
        compiled: bool = False,
    ) -> None:
        self.data, self.run, self.console, self.ranks, self.device = data, run, console, ranks, device
        self.fresh, self.lock = fresh, lock
        saved = None if fresh else newest_progress(run)
        if saved is not None and saved.data != data.digest:
            raise InputError(
                f"the run in {run.path} was trained on other data than {data.path} holds; "
                "give its own data folder, another --out, or --fresh to start over."
            )
        own = saved.recipe if saved is not None else {}
        asked = requested_recipe(run, own, recipe_name, overrides, fresh=fresh)
        self.recipe = settled(asked, device, joint=data.joint)
        refuse_changes(run, own, self.recipe)
        self.recipe_file = recipe_to_write(run, own, self.recipe)
        check_data(data, self.recipe)
        torch.manual_seed(derived_seed("init", self.recipe.train.seed))
        sizes = len(data.src_vocab), len(data.tgt_vocab)
        model = Transformer(self.recipe.model, *sizes, joint=data.joint, pad_id=PAD_ID)
        self.saved, self.resumed = saved, saved is not None
        self.progress = dataclasses.replace(saved) if saved is not None else Progress(data.digest, {})
        if init_from is not None:
            self._warm_start(model, init_from)
        self.model = model.to(device)
        train = self.recipe.train
        self.optimizer = make_optimizer(self.model.parameters(), train)
        self.average = MovingAverage(self.model.parameters(), train.ema) if train.ema > 0 else None
        self.objective = Objective(self.model, train.label_smoothing)
        events = Events(run.events) if train.tensorboard and ranks.rank == 0 else None
        self.metrics = Metrics(run, self.progress, events)
        if compiled:
            self._compile()
        self.validation = Validation(data, self.recipe, self.objective, device, console)
        if self.resumed:
            self._restore()
        self.progress.environment = self._environment()
        self.feed = Feed(data, self.recipe, ranks, device)
        self.unread: list[tuple[int, Tensor, dict[str, float]]] = []  # see _update
        self.progress.recipe = dataclasses.asdict(self.recipe)
        self.shown: dict[str, str] = {}  # the figures of the newest line of the log
        self.signal = StopSignal()
        self.stopping = False  # whether all ranks know of one
        self.clock = self.log_time = time.monotonic()
        self.log_step = self.progress.step
        self._agree()
        self.wrapped = ranks.wrapped(self.objective, device)

    def close(self) -> None:
        self.metrics.close()

    def run_to_end(self) -> Progress:
        """Updates until max_steps, patience or a signal."""
        config = self.recipe.train
        self._introduce(written=not self._done)
        if self.ranks.rank == 0:
            self._begin_files()
        self.ranks.wait()
        if self._done:
            key = "patience" if self.progress.stopped_early else "max_steps"
            self.console.info(
                f"the run in {self.run.path} is done at step {self.progress.step:,} "
                f"(train.{key} = {getattr(config, key)}); --set train.{key}=N with a larger N goes on, "
                "--fresh starts over"
            )
            self._refuse_changes()
            return self.progress

        def tell(name: str) -> None:
            self.console.info(f"{name}: saving after this step")

        live = self.console.live("training", config.max_steps, self.progress.step)
        with self.signal.caught(tell), live as display, closing(self._stream()) as stream:
            self._updates(stream, display)
        if self.ranks.rank == 0:
            best = self.progress.best
            shown = f"; best {config.best_metric} {abs(best[0][0]):.2f} at step {best[0][1]:,}" if best else ""
            self.console.info(f"done at step {self.progress.step:,}{shown}; next: vtrans average {self.run.path}")
        return self.progress

    def _refuse_changes(self) -> None:
        """Says which settings a finished run does not take over, as its models were made without them."""
        assert self.saved is not None
        recorded = recorded_recipe(self.saved.recipe, str(self.run.path))
        kept = finished_recipe(recorded, self.recipe)
        if self.ranks.rank == 0 and kept != recorded:
            write_atomically(self.run.recipe, recipe_toml(kept).encode())
        if unused := changes(dataclasses.asdict(kept), self.recipe).values():
            self.console.warn(
                f"nothing is left to train, so these changes are ignored: {', '.join(unused)}; the options of "
                "`vtrans translate` override the search settings of a model"
            )

    def rehearse(self) -> Progress:
        """A dry run: says what training will take, and writes nothing."""
        self._introduce(written=False)
        self.wrapped.train()

        def update(group: Sequence[Share]) -> None:
            self._update(group)
            self._read()

        forecast(self.feed, self.recipe.train, self.progress.step, update, self.console.info)
        return self.progress

    # Before the first update.

    def _agree(self) -> None:
        """InputError where the ranks have not read the same data, recipe and state: their gradients would be of
        different models."""
        recipe = hashlib.sha256(recipe_toml(self.recipe).encode()).hexdigest()
        own = f"data {self.data.digest[:8]}, step {self.progress.step:,}, recipe {recipe[:8]}"
        texts = self.ranks.all_texts(own)
        if other := next((rank for rank, text in enumerate(texts) if text != texts[0]), 0):
            raise InputError(
                f"rank {other} has {texts[other]}, but rank 0 {texts[0]}; every process must see the same data folder "
                f"and the same run folder {self.run.path}, on a disk that they share."
            )

    def _environment(self) -> dict[str, Any]:
        return {
            "torch": torch.__version__.partition("+")[0],
            "threads": torch.get_num_threads(),
            "ranks": self.ranks.world,
            "device": self.device.type,
            "machine": platform.machine(),
            "processor": torch.backends.cpu.get_cpu_capability(),
            "compiled": self.objective.compiled is not None,
        }

    def _compile(self) -> None:
        """Compiles the layers, on a batch without meaning; with one warning goes on without where that fails."""
        objective, console = self.objective, self.console
        console.info("compiling, which takes a minute or more")
        # Sentences, lengths and tokens are all of another number: what is equal here would be compiled to be equal.
        ids = torch.full((10,), EOS_ID, dtype=torch.int32)
        batch = collate([ids[:n] for n in (10, 8, 7)], [ids[:n] for n in (4, 5, 6)]).to(self.device)
        objective.compile_states()
        self.model.train()
        try:
            with products(self.device, self.recipe.train.precision):
                objective(batch)[0].backward()
        except Exception as error:  # whatever a missing compiler, or a version that can't, comes to
            objective.compiled = None
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            console.warn(
                f"--compile does not work here ({type(error).__name__}: {reason}); training goes on without it"
            )
        finally:
            self.optimizer.zero_grad(set_to_none=True)

    def _warm_start(self, model: Transformer, path: Path) -> None:
        """Gives the model of a new run the weights of another; on a resumed run they are long its own."""
        if self.resumed:
            refuse_another(self.run, self.progress.init_from, path)
            self.console.info(f"--init-from {path} was for the run's first step; it goes on with its own weights")
            return
        file, reason = choose_model(path)
        taken = warm_start(model, self.data.src_vocab, self.data.tgt_vocab, file)
        self.progress.init_from = {"given": str(path), "file": str(file), "sha256": taken.digest}
        self.console.info(f"{taken}{f' ({reason})' if reason else ''}")

    def _restore(self) -> None:
        """Takes up the state of the checkpoint that `progress` describes."""
        progress, config = self.progress, self.recipe.train
        here = self._environment()
        there = here | {"compiled": False} | progress.environment  # which may be older than some of its keys
        alike = all(there[key] == here[key] for key in ("machine", "ranks", "device"))
        if there["threads"] != here["threads"] and alike:
            torch.set_num_threads(int(there["threads"]))
            self.console.info(f"threads: {there['threads']}, as in the run so far")
        odd = [f"{k} {there[k]} -> {v}" for k, v in self._environment().items() if there[k] != v]
        if odd:
            self.console.warn(f"the run goes on, but not to equal bytes: {', '.join(odd)}")
        if there["device"] != here["device"]:
            self.console.info(
                f"products stay in {config.precision}; --set train.precision=auto chooses for this device"
            )
        load_weights(self.run.step_file(progress.step), self.model)
        if self.average is not None:
            self.average.restart()  # and the weights come from the state
        load_state(self.run.state_file(progress.step), self.optimizer, self.model)
        recorded = recorded_recipe(progress.recipe, str(self.run.path))
        before = recorded.train
        manners = manner(before, recorded.search, len(self.data.valid)), self.validation.manner
        if config.best_metric != before.best_metric or (config.best_metric != "nll" and manners[0] != manners[1]):
            progress.rank_anew(self.metrics.records(), self.run.steps(), config, self.validation.manner)
            if not progress.best:
                self.console.info("no validation so far was measured in this way: `best` begins with the next")
        progress.stopped_early = 0 < config.patience <= progress.since_best

    def _begin_files(self) -> None:
        """Makes the run folder ready: recipe.toml, metrics.jsonl cut back, a checkpoint of step 0."""
        try:
            self.run.states.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"the run folder {self.run.path} can't be made: {error.strerror}.") from None
        self.lock.take()
        if self.fresh:
            clear(self.run)
        elif not self.resumed and self.run.state_steps():
            raise InputError(
                f"another `vtrans train` was at work in {self.run.path} meanwhile; the same command goes on from there."
            )
        if self.recipe_file is not None and not self._done:
            write_atomically(self.run.recipe, self.recipe_file)
        if self.saved is not None:
            self.saved.settle(self.run)  # where a crash came in the middle of it
            self.metrics.go_on(self.console)
        else:
            self.metrics.begin()
            begin(self.optimizer, self.model.parameters())
            self._save()

    def _introduce(self, *, written: bool = True) -> None:
        """Says what will be trained, on what, where."""
        model, train, say = self.recipe.model, self.recipe.train, self.console.info
        ranks = f", {self.ranks.world} ranks" if self.ranks.world > 1 else ""
        threads = f" ({torch.get_num_threads()} threads)" if self.device.type == "cpu" else ""
        say(f"device: {self.device}{threads}{ranks}")
        say(f"data: {self.data.path}, {len(self.data.train):,} pairs, vocabulary {self._vocabulary()}")
        say(f"model: {count_parameters(self.model):,} parameters, {model.summary}")
        peak = learning_rate(train.warmup, train, model.d_model)
        say(
            f"training: {train.max_steps:,} steps of {train.accumulate} x {train.batch_tokens:,} tokens, "
            f"peak learning rate {peak:.2g} after {train.warmup:,} steps, label smoothing "
            f"{train.label_smoothing}, products in {train.precision}, seed {train.seed}"
            + (f", BPE-dropout {train.bpe_dropout}" if train.bpe_dropout else "")
            + (f"; every value is in {self.run.recipe}" if written else "")
        )
        for section in ("train", "search"):
            for sentence in idle_keys(self.recipe, section).values():
                self.console.warn(sentence)
        if train.warmup > train.max_steps:
            self.console.warn(
                f"the training ends at step {train.max_steps:,}, before the warm-up does: train.warmup is "
                f"{train.warmup:,}, so the learning rate never reaches its peak"
            )
        if self.resumed:
            say(f"resuming {self.run.path} after step {self.progress.step:,}, epoch {self.progress.epoch}")
            if self.device.type == "cuda":
                say("on CUDA the run goes on from the same state, but equal bytes are promised on the CPU alone")

    def _vocabulary(self) -> str:
        if self.data.joint:
            return f"{len(self.data.src_vocab):,} (joint)"
        return f"{len(self.data.src_vocab):,} and {len(self.data.tgt_vocab):,} (separate)"

    # The loop.

    def _updates(self, stream: Iterator[Share], display: Display) -> None:
        config = self.recipe.train
        self.wrapped.train()
        done = self._owes_validation and self._checkpoint()
        while self._goes_on:
            self._update(list(islice(stream, config.accumulate)))
            step = self.progress.step
            saving = step % config.checkpoint_every == 0 or step == config.max_steps
            logging = step % config.log_every == 0 or step == config.max_steps
            if saving or logging or len(self.unread) >= READ_EVERY.get(self.device.type, READ_EVERY_ELSEWHERE):
                self._read()
            if logging:
                self._log()
            display.update(self.shown, step)
            if self.stopping:
                done = False
                if self.ranks.rank == 0:
                    self._save()
                self.ranks.wait()
            elif saving:
                done = self._checkpoint()
        if self.stopping and not (done and self._complete):
            name = signal.Signals(self.signal.number or signal.SIGTERM).name
            raise VtransError(
                f"stopped by {name} after step {self.progress.step:,}, with the state saved; the same command goes on "
                "from there."
            )

    @property
    def _goes_on(self) -> bool:
        return not (self._complete or self.stopping)

    @property
    def _complete(self) -> bool:
        """Whether there is no update to make any more."""
        return self.progress.step >= self.recipe.train.max_steps or self.progress.stopped_early

    @property
    def _done(self) -> bool:
        """Whether there is nothing left to do."""
        return self._complete and not self._owes_validation

    @property
    def _owes_validation(self) -> bool:
        """Whether a signal came before the model of this step was validated."""
        step, config = self.progress.step, self.recipe.train
        due = step % config.checkpoint_every == 0 or step >= config.max_steps
        return step > 0 and due and step not in self.progress.validated

    def _stream(self) -> Generator[Share, None, None]:
        """This rank's batches from the run's place on, over the epochs. Moves `progress` on as it goes; a thread is
        some batches ahead."""
        progress = self.progress
        made = self.feed.shares(Place(progress.epoch, progress.drawn, progress.position))
        with closing(ahead(made, BATCHES_AHEAD)) as shares:
            for (progress.epoch, progress.drawn, progress.position), share in shares:
                yield share

    def _update(self, group: Sequence[Share]) -> None:
        """One update from the batches of `group`: the gradient of the mean loss a target token.

        Nothing here waits for the device: a gradient that is not finite is left out by the optimizer's own
        kernel, and the losses are put aside, for `_read`.
        """
        config, progress, ranks = self.recipe.train, self.progress, self.ranks
        step = progress.step + 1
        rate = learning_rate(step, config, self.recipe.model.d_model)
        for settings in self.optimizer.param_groups:
            settings["lr"] = rate
        torch.manual_seed(derived_seed("dropout", config.seed, step, ranks.rank))
        tokens = sum(total for _, total, _ in group)
        counted = {"src_tokens": 0.0, "tgt_tokens": 0.0, "real": 0.0, "padded": 0.0}
        loss_sum = nll_sum = torch.zeros((), dtype=self._wide, device=self.device)
        for number, (batch, _, counts) in enumerate(group, 1):
            # DDP averages gradients over the ranks; times `world` they add up to those of one big batch.
            weight = ranks.world / tokens if counts else 0.0
            last = number == len(group)
            with nullcontext() if last or ranks.world == 1 else self.wrapped.no_sync():  # type: ignore[operator]  # DDP
                loss, nll = self._forward(batch.to(self.device))
                (loss * weight).backward()  # type: ignore[no-untyped-call]
            if counts:
                loss_sum, nll_sum = loss_sum + loss.detach(), nll_sum + nll
                counted["src_tokens"] += batch.src_tokens
                counted["tgt_tokens"] += batch.tgt_tokens
                counted["real"] += batch.real
                counted["padded"] += batch.padded
        # The gradient, and so the verdict on it, is the same on every rank.
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        bad = (~norm.isfinite()).float()
        if config.clip_norm > 0:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), config.clip_norm, norm)
        self.optimizer.found_inf = bad  # type: ignore[attr-defined]  # what the fused kernel heeds
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(step)
        self.unread.append((step, torch.stack([loss_sum, nll_sum, bad.to(self._wide)]), counted))
        progress.step = step

    @property
    def _wide(self) -> torch.dtype:
        return torch.float32 if self.device.type == "mps" else torch.float64

    def _forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        with products(self.device, self.recipe.train.precision):
            loss, nll = self.wrapped(batch)
        return loss, nll

    def _read(self) -> None:
        """Waits for the updates so far, and takes in their losses and whether their gradients were finite."""
        progress = self.progress
        read = torch.stack([sums for _, sums, _ in self.unread]).tolist()
        steps, names = [step for step, _, _ in self.unread], ("loss", "nll", *self.unread[0][2])
        rows = [[loss, nll, *counts.values()] for (loss, nll, _), (_, _, counts) in zip(read, self.unread, strict=True)]
        summed = self.ranks.summed([self.signal.number, *(value for row in rows for value in row)], self.device)
        # What one rank alone knows of would leave the others waiting: it counts once all have heard.
        self.stopping = summed[0] > 0
        self.unread = []
        for number, step in enumerate(steps):
            if read[number][2]:
                self._count_non_finite(step)
                continue
            progress.skipped_in_row = 0
            row = summed[1 + number * len(names) : 1 + (number + 1) * len(names)]
            for key, value in zip(names, row, strict=True):
                progress.window[key] = progress.window.get(key, 0) + value
        now = time.monotonic()
        progress.window["seconds"] = progress.window.get("seconds", 0) + now - self.clock
        self.clock = now

    def _count_non_finite(self, step: int) -> None:
        self.progress.skipped += 1
        self.progress.skipped_in_row += 1
        self.progress.window["skipped"] = self.progress.window.get("skipped", 0) + 1
        self.console.warn(f"step {step:,}: the gradient is not finite; the update is skipped")
        if self.progress.skipped_in_row >= NON_FINITE_LIMIT:
            good = self.run.step_file(max(self.run.steps(), default=0))
            raise VtransError(
                f"{NON_FINITE_LIMIT} updates in a row had no finite gradient; the last checkpoint is good: begin "
                f"another run with --init-from {good} and another --out, and with a lower learning rate, a longer "
                "warmup or train.clip_norm = 1.0."
            )

    def _log(self) -> None:
        """A line of metrics.jsonl and of the log, with sums since the line before."""
        progress, window = self.progress, self.progress.window
        tokens = window.get("tgt_tokens", 0)
        if not tokens:  # every update was skipped: the next line counts them
            return
        progress.window = {}
        if self.ranks.rank > 0:
            return
        seconds = window["seconds"]
        loss, nll = window["loss"] / tokens, window["nll"] / tokens
        rate = learning_rate(progress.step, self.recipe.train, self.recipe.model.d_model)
        padding = 1 - window["real"] / window["padded"]
        self.metrics.write(
            {
                "kind": "train",
                "step": progress.step,
                "epoch": progress.epoch,
                "loss": loss,
                "nll": nll,
                "lr": rate,
                "src_tokens": int(window["src_tokens"]),
                "tgt_tokens": int(tokens),
                "padding": padding,
                "seconds": seconds,
                "skipped": int(window.get("skipped", 0)),
            }
        )
        done = progress.step - self.log_step
        left = (self.recipe.train.max_steps - progress.step) * (time.monotonic() - self.log_time) / done
        self.shown = {
            "epoch": str(progress.epoch),
            "loss": f"{loss:.3f}",
            "ppl": f"{math.exp(min(nll, 50)):.2f}",
            "lr": f"{rate:.2e}",
            "tokens/s": f"{tokens / seconds:,.0f}",
            "padding": f"{padding:.1%}",
        }
        line = "  ".join(f"{name} {value}" for name, value in self.shown.items())
        self.console.info(f"step {progress.step:,}  {line}  left {duration(left)}")

    # Checkpoints.

    def _checkpoint(self) -> bool:
        """Saves and validates on rank 0, while the other ranks wait. Returns False if a signal came before the end of
        the validation: the run that resumes validates then, as little time may be left."""
        progress, config, record = self.progress, self.recipe.train, None
        if self.ranks.rank == 0:
            self._save()  # first, so that no failure of the validation can lose updates
            with self._averaged():
                record = self.validation.measure(progress.step, self._signalled)
            if record is not None:
                self.metrics.write(record)
                progress.rank(record, config)
                if progress.stopped_early:
                    self.console.info(f"no better {config.best_metric} in {config.patience} validations: training ends")
                self._save_state()
        values = self.ranks.summed([record is not None, progress.stopped_early, self.signal.number], self.device)
        validated, progress.stopped_early, self.stopping = (value > 0 for value in values)
        self.clock = time.monotonic()  # validation is no training time
        return validated

    def _signalled(self) -> bool:
        return self.signal.number > 0

    def _save(self) -> None:
        """The model and the state of this step; at every moment an older pair or this one is whole."""
        progress = self.progress
        training = {"step": progress.step, "epoch": progress.epoch, "data": self.data.digest}
        loaded = LoadedModel(self.model, self.data.src_vocab, self.data.tgt_vocab, self.recipe.search, training)
        with self._averaged():
            save_model(self.run.step_file(progress.step), loaded)
        self._save_state()

    def _save_state(self) -> None:
        """The state of this step, whose model is saved; what follows from it comes after."""
        progress = self.progress
        raw = None if self.average is None else {n: p.detach() for n, p in self.model.named_parameters()}
        save_state(self.run.state_file(progress.step), self.optimizer, self.model, dataclasses.asdict(progress), raw)
        progress.settle(self.run)

    def _averaged(self) -> AbstractContextManager[None]:
        """Inside, the model has the moving average for its weights, if the recipe asks for one: that is the model
        that is validated and saved. The weights themselves change places with it, and are in the state."""
        return nullcontext() if self.average is None else self.average.in_place()
