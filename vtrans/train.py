"""The training loop: updates, validation, saving, exact resuming.

Every random choice is a function of (seed, epoch, position) or (seed, step, rank), so a run that was
interrupted and goes on from its state ends with the bytes of one that never stopped (same machine
type, torch version, thread count and number of ranks). That is promised for the CPU. On CUDA it is not:
some of its kernels add in an order that differs from run to run; a run resumed there goes on from the same
state, but not to the same last bits.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import os
import platform
import signal
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from vtrans.batching import Batch, Mixture, ahead, collate, derived_seed, plan_epoch
from vtrans.checkpoint import (
    LoadedModel,
    RunFolder,
    RunLock,
    choose_model,
    load_model,
    load_state,
    load_weights,
    read_progress,
    save_model,
    save_state,
)
from vtrans.config import (
    DEFAULT_RECIPE,
    ModelConfig,
    Recipe,
    forbidden_changes,
    load_recipe,
    recipe_toml,
    weights_of,
)
from vtrans.console import Console, Display, duration
from vtrans.errors import FileError, InputError, RecipeError, VtransError
from vtrans.events import Events, remove
from vtrans.loss import Objective
from vtrans.model import Transformer, count_parameters, make_model, resolve_tie
from vtrans.optim import learning_rate, make_optimizer
from vtrans.ranks import Ranks
from vtrans.score import corpus_scores
from vtrans.segmentation import Segmentations
from vtrans.store import DataFolder, TokenStore, file_sha256
from vtrans.text import write_atomically
from vtrans.translate import Translator, pick_device
from vtrans.vocab import EOS_ID, PAD_ID
from vtrans.warmstart import warm_start

if sys.platform != "win32":
    import resource

NON_FINITE_LIMIT = 10  # updates in a row without a finite gradient, after which the run stops
BATCHES_AHEAD = 8  # made by a thread while the device is at work
# Updates between two readings of the losses, which wait for the device. On a CPU there is nothing to wait for.
READ_EVERY = {"cpu": 1}
READ_EVERY_ELSEWHERE = 10

# A dry run measures that many updates, or as many as end in that many seconds.
REHEARSED, REHEARSAL = 10, 20.0

# A rank's part of a batch, the target tokens of all ranks' parts, and whether it counts.
Share = tuple[Batch, int, bool]


@dataclass
class Progress:
    """All that resuming needs beside the weights and the optimizer's tensors."""

    data: str  # digest of the data folder
    recipe: dict[str, dict[str, Any]]  # resolved; recipe.toml is for people, who may edit it
    step: int = 0  # updates done
    epoch: int = 1
    drawn: int = 0  # windows of this epoch done, where segmentations are drawn; see segmentation.py
    position: int = 0  # batches of this epoch done, or of the window after them
    validated: list[int] = field(default_factory=list)  # steps of the newest keep_last checkpoints
    best: list[tuple[float, int]] = field(default_factory=list)  # (quality, step), best first
    since_best: int = 0  # validations without a new best
    stopped_early: bool = False
    skipped: int = 0  # updates skipped for a gradient that was not finite
    skipped_in_row: int = 0
    metrics_bytes: int = 0  # length of metrics.jsonl
    window: dict[str, float] = field(default_factory=dict)  # sums since the last line of metrics.jsonl
    environment: dict[str, Any] = field(default_factory=dict)
    init_from: dict[str, str] = field(default_factory=dict)  # the model whose weights the run began with, if any


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
    Raises InputError where the run is of other data or another recipe, or another process is at work on it;
    VtransError when the run was told to stop (its state is saved first) or has no finite gradient any more
    (its last checkpoint stays).
    """
    ranks = Ranks()
    where = pick_device(ranks.device_name(device))
    if ranks.rank > 0:
        console = Console(quiet=True)
    with ranks.joined(where), RunLock(run) as lock:
        if ranks.rank == 0 and run.states.is_dir() and not dry_run:
            lock.take()  # before the state is read, which another process may be about to replace
        training = _Training(data, run, console, ranks, where, recipe_name, overrides, fresh, lock, init_from, compiled)
        with closing(training):
            return training.rehearse() if dry_run else training.run_to_end()


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
        saved = None if fresh else _newest_state(run)
        if saved is not None and saved.data != data.digest:
            raise InputError(
                f"the run in {run.path} was trained on other data than {data.path} holds; "
                "give its own data folder, another --out, or --fresh to start over."
            )
        self.recipe = _resolve(run, saved, fresh, data.joint, device, recipe_name, overrides)
        _check_data(data, self.recipe)
        torch.manual_seed(derived_seed("init", self.recipe.train.seed))
        model = make_model(
            self.recipe.model,
            len(data.src_vocab),
            len(data.tgt_vocab),
            joint=data.joint,
            pad_id=PAD_ID,
        )
        self.progress = saved or Progress(data.digest, {})
        self.resumed = saved is not None
        if init_from is not None:
            self._warm_start(model, init_from)
        self.model = model.to(device)
        self.optimizer = make_optimizer(self.model.parameters(), self.recipe.train)
        self.average: list[Tensor] | None = None  # the moving average of the parameters, in their order
        if self.recipe.train.ema > 0:
            self.average = [p.detach().clone() for p in self.model.parameters()]
        self.objective = Objective(self.model, self.recipe.train.label_smoothing)
        if compiled:
            self._compile()
        if self.resumed:
            self._restore()
        self.progress.environment = self._environment()
        train = self.recipe.train
        self.mixture = Mixture(data.corpora, weights_of(train.corpus_weights), train.seed)
        self.segmentations = self._segmentations()
        self.events = Events(run.events) if train.tensorboard and ranks.rank == 0 else None
        self.unread: list[tuple[int, Tensor, dict[str, float]]] = []  # see _update
        self.progress.recipe = dataclasses.asdict(self.recipe)
        self.shown: dict[str, str] = {}  # the figures of the newest line of the log
        self.told_signature = False
        self.signal = 0  # the signal that came, if any
        self.stopping = False  # whether all ranks know of one
        self.clock = self.log_time = time.monotonic()
        self.log_step = self.progress.step
        self.wrapped: torch.nn.Module = self.objective
        if ranks.world > 1:
            # The only buffers are position tables, which a rank may have grown and another not. torch has
            # renamed the option, and warns of the old name where it knows the new one.
            known = inspect.signature(DistributedDataParallel).parameters
            buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
            settings: dict[str, Any] = {buffers: False}
            self.wrapped = DistributedDataParallel(
                self.objective, device_ids=[device.index] if device.type == "cuda" else None, **settings
            )

    def close(self) -> None:
        if self.events is not None:
            self.events.close()

    def run_to_end(self) -> Progress:
        """Updates until max_steps, patience or a signal."""
        config = self.recipe.train
        self._introduce()
        if self.ranks.rank == 0:
            self._begin_files()
        self.ranks.wait()
        if self.progress.stopped_early or self.progress.step >= config.max_steps:
            key = "patience" if self.progress.stopped_early else "max_steps"
            self.console.info(
                f"the run in {self.run.path} is done at step {self.progress.step:,} "
                f"(train.{key} = {getattr(config, key)}); --set train.{key}=N with a larger N goes on, "
                "--fresh starts over"
            )
            return self.progress
        with _signals(self), self.console.live("training", config.max_steps, self.progress.step) as display:
            self._updates(display)
        if self.ranks.rank == 0:
            best = self.progress.best
            shown = f"; best {config.best_metric} {abs(best[0][0]):.2f} at step {best[0][1]:,}" if best else ""
            self.console.info(f"done at step {self.progress.step:,}{shown}; next: vtrans average {self.run.path}")
        return self.progress

    def rehearse(self) -> Progress:
        """A dry run: says what training will take, and writes nothing."""
        config, say = self.recipe.train, self.console.info
        self._introduce(written=False)
        with closing(self._plans(1, 0)) as plans:
            _, _, store, plan = next(plans)
        pairs, planned = len(self.mixture), sum(map(len, plan))
        share = planned / pairs  # of an epoch; below 1 for a window of drawn segmentations
        padded = sum(len(p) * (int(store.src_lengths[p].max()) + int(store.tgt_lengths[p].max()) + 2) for p in plan)
        sources = sum(int(store.src_lengths[p].sum()) for p in plan)
        targets = sum(int(store.tgt_lengths[p].sum()) for p in plan) + planned
        padding, padded = 1 - (sources + planned + targets) / padded, round(padded / share)
        updates, left = len(plan) / share / config.accumulate, config.max_steps - self.progress.step
        say(
            f"an epoch: {pairs:,} pairs, {sources / share:,.0f} source and {targets / share:,.0f} target tokens in "
            f"{len(plan) / share:,.0f} batches, {padding:.1%} padding; {updates:,.1f} updates"
            + (f" (from {planned:,} pairs)" if share < 1 else "")
        )
        if left <= 0:
            say(f"the run is done at step {self.progress.step:,} (train.max_steps = {config.max_steps})")
            return self.progress
        # The plan begins with its largest batch: that is for warming up, and for the peak of memory.
        self.wrapped.train()
        positions, seconds, began = 0, 0.0, time.monotonic()
        with closing(self._batches(1, 0, 0)) as batches:
            for number in range(1 + REHEARSED):
                group = [share for *_, share in islice(batches, config.accumulate)]
                start = time.monotonic()
                self._update(group)
                self._read()
                if number > 0:
                    seconds += time.monotonic() - start
                    positions += sum(batch.padded for batch, _, _ in group)
                    if self.ranks.world == 1 and time.monotonic() - began > REHEARSAL:
                        break
        update = seconds / positions * padded / updates
        say(
            f"memory: at most {peak_memory(self.device) / 1e9:.2f} GB"
            + (" of the GPU" if self.device.type == "cuda" else "")
        )
        say(
            f"time: {update:.2f} seconds an update (of {number} measured), {duration(update * updates)} an epoch, "
            f"{duration(update * left)} for {left:,} steps ({left / updates:,.1f} epochs), validations not counted"
        )
        say("dry run: nothing was written")
        return self.progress

    # Before the first update.

    def _environment(self) -> dict[str, Any]:
        return {
            "torch": torch.__version__.partition("+")[0],
            "threads": torch.get_num_threads(),
            "ranks": self.ranks.world,
            "device": self.device.type,
            "machine": platform.machine(),
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
            with self._products():
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
        began = self.progress.init_from
        if not self.resumed:
            file, reason = choose_model(path)
            taken = warm_start(model, self.data.src_vocab, self.data.tgt_vocab, file)
            self.progress.init_from = {"given": str(path), "file": str(file), "sha256": taken.digest}
            self.console.info(f"{taken}{f' ({reason})' if reason else ''}")
        elif not began:
            raise InputError(
                f"the run in {self.run.path} goes on with its own weights, and did not begin with others; leave out "
                "--init-from, give another --out, or --fresh to start over."
            )
        elif str(path) != began["given"] and file_sha256(path) != began["sha256"]:
            raise InputError(
                f"the run in {self.run.path} began with the weights of {began['file']}, not of {path}; leave out "
                "--init-from, give another --out, or --fresh to start over."
            )
        else:
            self.console.info(f"--init-from {path} was for the run's first step; it goes on with its own weights")

    def _restore(self) -> None:
        """Takes up the state of the checkpoint that `progress` describes."""
        progress, config = self.progress, self.recipe.train
        here, there = self._environment(), {"compiled": False} | progress.environment  # which is younger than some
        if there["threads"] != here["threads"] and there["machine"] == here["machine"]:
            torch.set_num_threads(int(there["threads"]))
            self.console.info(f"threads: {there['threads']}, as in the run so far")
        odd = [f"{k} {there[k]} -> {v}" for k, v in self._environment().items() if there[k] != v]
        if odd:
            self.console.warn(f"the run goes on, but not to equal bytes: {', '.join(odd)}")
        load_weights(self.run.step_file(progress.step), self.model)
        if self.average is not None:
            torch._foreach_copy_(self.average, list(self.model.parameters()))  # and the weights come from the state
        load_state(self.run.state_file(progress.step), self.optimizer, self.model)
        if progress.recipe["train"]["best_metric"] != config.best_metric:
            self._rank_anew()
        progress.stopped_early = 0 < config.patience <= progress.since_best

    def _rank_anew(self) -> None:
        """The best checkpoints by another metric, from the validations in metrics.jsonl."""
        progress, config = self.progress, self.recipe.train
        records = [record for record in self._records() if record["kind"] == "valid"]
        kept = [(_quality(r, config.best_metric), r["step"]) for r in records if r["step"] in self.run.steps()]
        progress.best = _ranked(kept)[: config.keep_best]
        progress.since_best = sum(r["step"] > progress.best[0][1] for r in records) if progress.best else 0

    def _records(self) -> list[dict[str, Any]]:
        """What metrics.jsonl holds of the run, as far as it goes on from."""
        written = self.run.metrics.read_bytes() if self.run.metrics.exists() else b""
        lines = written[: self.progress.metrics_bytes].split(b"\n")[:-1]
        return [json.loads(line) for line in lines]

    def _begin_files(self) -> None:
        """Makes the run folder ready: recipe.toml, metrics.jsonl cut back, a checkpoint of step 0."""
        try:
            self.run.states.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"the run folder {self.run.path} can't be made: {error.strerror}.") from None
        self.lock.take()
        if self.fresh:
            _clear(self.run)
        elif not self.resumed and self.run.state_steps():
            raise InputError(
                f"another `vtrans train` was at work in {self.run.path} meanwhile; the same command goes on from there."
            )
        write_atomically(self.run.recipe, recipe_toml(self.recipe).encode())
        if self.resumed:
            size = self.run.metrics.stat().st_size if self.run.metrics.exists() else 0
            if size < self.progress.metrics_bytes:
                self.console.warn(f"{self.run.metrics} is shorter than the run; its lost lines stay lost")
                self.progress.metrics_bytes = size
            with self.run.metrics.open("ab") as file:
                file.truncate(self.progress.metrics_bytes)
            self._settle()  # where a crash came in the middle of it
            if self.events is not None:
                self.events.begin(self._records())
        else:
            write_atomically(self.run.metrics, b"")
            if self.events is not None:
                self.events.begin(())
            for tensor in self.model.parameters():
                self.optimizer.state[tensor] = _fresh_state(tensor)
            self._save()

    def _introduce(self, *, written: bool = True) -> None:
        """Says what will be trained, on what, where."""
        model, train, say = self.recipe.model, self.recipe.train, self.console.info
        ranks = f", {self.ranks.world} ranks" if self.ranks.world > 1 else ""
        threads = f" ({torch.get_num_threads()} threads)" if self.device.type == "cpu" else ""
        say(f"device: {self.device}{threads}{ranks}")
        say(f"data: {self.data.path}, {len(self.data.train):,} pairs, vocabulary {self._vocabulary()}")
        say(
            f"model: {count_parameters(self.model):,} parameters, tie {model.tie}, {model.encoder_layers}+"
            f"{model.decoder_layers} layers, D {model.d_model}, F {model.d_ff}, H {model.heads}, "
            f"{model.norm}-norm, dropout {model.dropout}{_variant(model)}"
        )
        peak = learning_rate(train.warmup, train, model.d_model)
        say(
            f"training: {train.max_steps:,} steps of {train.accumulate} x {train.batch_tokens:,} tokens, "
            f"peak learning rate {peak:.2g} after {train.warmup:,} steps, label smoothing "
            f"{train.label_smoothing}, products in {train.precision}, seed {train.seed}"
            + (f", BPE-dropout {train.bpe_dropout}" if train.bpe_dropout else "")
            + (f"; every value is in {self.run.recipe}" if written else "")
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

    def _updates(self, display: Display) -> None:
        self.wrapped.train()
        with closing(self._stream()) as stream:
            self._update_from(stream, display)

    def _update_from(self, stream: Iterator[Share], display: Display) -> None:
        config = self.recipe.train
        while self.progress.step < config.max_steps and not self.progress.stopped_early:
            self._update(list(islice(stream, config.accumulate)))
            step = self.progress.step
            saving = step % config.checkpoint_every == 0 or step == config.max_steps
            logging = step % config.log_every == 0 or step == config.max_steps
            if saving or logging or len(self.unread) >= READ_EVERY.get(self.device.type, READ_EVERY_ELSEWHERE):
                self._read()
            if logging:
                self._log()
            display.update(self.shown, step)
            if saving:
                self._checkpoint()
            elif self.stopping:
                if self.ranks.rank == 0:
                    self._save()
                self.ranks.wait()
            if self.stopping and step < config.max_steps and not self.progress.stopped_early:
                name = signal.Signals(self.signal or signal.SIGTERM).name
                raise VtransError(
                    f"stopped by {name} after step {step:,}, with the state saved; the same command goes on from there."
                )

    def _stream(self) -> Generator[Share, None, None]:
        """This rank's batches from the run's position on, over the epochs; with each the target tokens
        of all ranks, and whether it counts (a rank that a small batch leaves without a pair computes
        one that does not). Moves `progress` on as it goes; a thread is some batches ahead."""
        progress = self.progress
        made = self._batches(progress.epoch, progress.drawn, progress.position)
        with closing(ahead(made, BATCHES_AHEAD)) as batches:
            for progress.epoch, progress.drawn, progress.position, batch in batches:
                yield batch

    def _batches(self, epoch: int, drawn: int, position: int) -> Generator[tuple[int, int, int, Share], None, None]:
        """The batches of `_stream`, on the device, each with the epoch, windows drawn and position that follow it."""
        with closing(self._plans(epoch, drawn)) as plans:
            for epoch, drawn, store, plan in plans:
                for following, numbers in enumerate(plan[position:], position + 1):
                    own = numbers[self.ranks.rank :: self.ranks.world].tolist()
                    pairs = own or numbers[:1].tolist()
                    batch = collate([store.src(i) for i in pairs], [store.tgt(i) for i in pairs]).to(self.device)
                    tokens = int(store.tgt_lengths[numbers].sum()) + len(numbers)
                    yield epoch, drawn, following, (batch, tokens, bool(own))
                position = 0

    def _plans(self, epoch: int, drawn: int) -> Generator[tuple[int, int, TokenStore, list[Tensor]], None, None]:
        """Without end, from there on: epoch, windows of it done, and the batches of a store: of the whole epoch,
        or of a window of drawn segmentations."""
        config = self.recipe.train
        if self.segmentations is None:
            store = self.data.train
            for number in count(epoch):
                plan = plan_epoch(
                    store.src_lengths,
                    store.tgt_lengths,
                    config.batch_tokens,
                    config.seed,
                    number,
                    self.mixture.pairs(number),
                )
                yield number, 0, store, plan
        else:
            with closing(self.segmentations.windows(epoch, drawn)) as windows:
                for number, window, store in windows:
                    seed = derived_seed("window", config.seed, window)
                    plan = plan_epoch(store.src_lengths, store.tgt_lengths, config.batch_tokens, seed, number)
                    yield number, window, store, plan

    def _segmentations(self) -> Segmentations | None:
        """Segmentations drawn anew each time, if the recipe asks for BPE-dropout."""
        config, model, data = self.recipe.train, self.recipe.model, self.data
        if config.bpe_dropout == 0:
            return None
        longest = config.batch_tokens - 1  # EOS goes in as well
        if model.positions == "learned":
            longest = min(longest, model.max_positions - 1)
        return Segmentations(
            data.train, data.src_vocab, data.tgt_vocab, config.bpe_dropout, config.seed, longest, self.mixture
        )

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
                loss, nll = self._forward(batch)
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
            decay = min(config.ema, (1 + step) / (10 + step))  # the first weights are soon forgotten
            torch._foreach_lerp_(self.average, list(self.model.parameters()), 1 - decay)
        self.unread.append((step, torch.stack([loss_sum, nll_sum, bad.to(self._wide)]), counted))
        progress.step = step

    @property
    def _wide(self) -> torch.dtype:
        return torch.float32 if self.device.type == "mps" else torch.float64

    def _forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        with self._products():
            loss, nll = self.wrapped(batch)
        return loss, nll

    def _products(self) -> torch.autocast:
        """Matrix products in `train.precision`; weights, norms and loss stay in float32."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.train.precision == "bfloat16")

    def _read(self) -> None:
        """Waits for the updates so far, and takes in their losses and whether their gradients were finite."""
        progress = self.progress
        read = torch.stack([sums for _, sums, _ in self.unread]).tolist()
        steps, names = [step for step, _, _ in self.unread], ("loss", "nll", *self.unread[0][2])
        rows = [[loss, nll, *counts.values()] for (loss, nll, _), (_, _, counts) in zip(read, self.unread, strict=True)]
        summed = self.ranks.summed([self.signal, *(value for row in rows for value in row)], self.device)
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
            raise VtransError(
                f"{NON_FINITE_LIMIT} updates in a row had no finite gradient; the checkpoint of step "
                f"{max(self.run.steps(), default=0):,} is good: go on from it with a lower learning rate, a longer "
                "warmup or train.clip_norm = 1.0, in a run folder of its own."
            )

    def _log(self) -> None:
        """A line of metrics.jsonl and of the log, with sums since the line before."""
        progress, window = self.progress, self.progress.window
        progress.window = {}
        tokens = window.get("tgt_tokens", 0)
        if self.ranks.rank > 0 or not tokens:  # no update, or none that was not skipped
            return
        seconds = window["seconds"]
        loss, nll = window["loss"] / tokens, window["nll"] / tokens
        rate = learning_rate(progress.step, self.recipe.train, self.recipe.model.d_model)
        padding = 1 - window["real"] / window["padded"]
        self._write_metrics(
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

    def _write_metrics(self, record: Mapping[str, Any]) -> None:
        with self.run.metrics.open("ab") as file:
            file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            self.progress.metrics_bytes = file.tell()
        if self.events is not None:
            self.events.write(record)

    # Checkpoints.

    def _checkpoint(self) -> None:
        """Validates and saves, on rank 0; the others wait."""
        progress, config = self.progress, self.recipe.train
        if self.ranks.rank == 0:
            with self._averaged():
                record = self._validate()
            self._write_metrics(record)
            quality = _quality(record, config.best_metric)
            improved = not progress.best or quality > progress.best[0][0]
            progress.since_best = 0 if improved else progress.since_best + 1
            progress.best = _ranked([*progress.best, (quality, progress.step)])[: config.keep_best]
            progress.validated = [*progress.validated, progress.step][-config.keep_last :]
            if 0 < config.patience <= progress.since_best:
                progress.stopped_early = True
                self.console.info(f"no better {config.best_metric} in {config.patience} validations: training ends")
            self._save()
        stopped = self.ranks.summed([progress.stopped_early], self.device)
        progress.stopped_early = bool(stopped[0])
        self.clock = time.monotonic()  # validation is no training time

    def _save(self) -> None:
        """The model and the state of this step; at every moment an older pair or this one is whole."""
        progress = self.progress
        training = {"step": progress.step, "epoch": progress.epoch, "data": self.data.digest}
        raw = None if self.average is None else {n: p.detach() for n, p in self.model.named_parameters()}
        with self._averaged():
            save_model(self.run.step_file(progress.step), self._loaded(training))
        save_state(self.run.state_file(progress.step), self.optimizer, self.model, dataclasses.asdict(progress), raw)
        self._settle()

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Inside, the model has the moving average for its weights, if the recipe asks for one: that is the model
        that is validated and saved. The weights themselves change places with it, and are in the state."""
        average = self.average
        if average is None:
            yield
            return
        parameters = list(self.model.parameters())
        weights = [p.data for p in parameters]
        try:
            for parameter, mean in zip(parameters, average, strict=True):
                parameter.data = mean
            yield
        finally:
            for parameter, weight in zip(parameters, weights, strict=True):
                parameter.data = weight

    def _settle(self) -> None:
        """What follows from the newest state: `last`, `best`, and which files stay. Done again on
        resuming, it gives the same."""
        progress, run = self.progress, self.run
        run.link(progress.step, run.last)
        there = run.steps()
        best = [step for _, step in progress.best if step in there]
        if best:
            run.link(best[0], run.best)
        run.prune([*progress.validated, *best, progress.step], progress.step)

    def _loaded(self, training: Mapping[str, Any]) -> LoadedModel:
        return LoadedModel(self.model, self.data.src_vocab, self.data.tgt_vocab, self.recipe.search, training)

    def _validate(self) -> dict[str, Any]:
        """Negative log-likelihood of the validation pairs, and BLEU and chrF of real translations."""
        began = time.monotonic()
        self.model.eval()
        store, config = self.data.valid, self.recipe.train
        loss, tokens = 0.0, 0
        with torch.inference_mode():
            budget = max(config.batch_tokens, int(torch.maximum(store.src_lengths, store.tgt_lengths).max()) + 1)
            for numbers in plan_epoch(store.src_lengths, store.tgt_lengths, budget, 0, 1):
                pairs = numbers.tolist()
                batch = collate([store.src(i) for i in pairs], [store.tgt(i) for i in pairs]).to(self.device)
                with self._products():
                    loss += self.objective(batch)[1].item()
                tokens += batch.tgt_tokens
        count = min(config.valid_sentences or len(store), len(store))
        search = dataclasses.replace(self.recipe.search, beam=config.valid_beam)
        translator = Translator([self._loaded({"step": self.progress.step})], search)
        sources = [store.src_text(i) for i in range(count)]
        references = [store.tgt_text(i) for i in range(count)]
        hypotheses = list(translator.translate(sources))
        self.model.train()
        scores = corpus_scores(hypotheses, references)
        nll = loss / tokens
        finite = math.isfinite(nll)
        record = {
            "kind": "valid",
            "step": self.progress.step,
            "nll": nll if finite else None,  # JSON knows no other word for it
            "ppl": math.exp(min(nll, 50)) if finite else None,
            "bleu": scores["bleu"],
            "chrf": scores["chrf"],
            "signature": f"{scores['signature']}|beam:{search.beam}|sentences:{count}",
        }
        self.console.info(
            f"valid at step {self.progress.step:,}: ppl {math.exp(min(nll, 50)):.2f}  bleu {scores['bleu']:.2f}  "
            f"chrf {scores['chrf']:.2f}  ({duration(time.monotonic() - began)}"
            + (")" if self.told_signature else f", {record['signature']})")
        )
        self.told_signature = True
        for i in range(min(config.samples, count)):
            self.console.info(f"  src {sources[i]}\n  ref {references[i]}\n  hyp {hypotheses[i]}")
        return record


def peak_memory(device: torch.device) -> float:
    """The most bytes that this process has had: of the GPU it works on, else of main memory."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_reserved(device))
    if sys.platform == "win32":
        return math.nan
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)


def _fresh_state(parameter: Tensor) -> dict[str, Tensor]:
    """Adam's state before its first update, so that step 0 can be saved like any other."""
    return {
        "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }


def _quality(record: Mapping[str, Any], metric: str) -> float:
    """A validation by `best_metric`, larger is better."""
    value = record[metric]
    if value is None:
        return -math.inf
    return -value if metric == "nll" else float(value)


def _ranked(entries: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """(quality, step), best first; of equals the earlier."""
    return sorted(entries, key=lambda entry: (-entry[0], entry[1]))


def _newest_state(run: RunFolder) -> Progress | None:
    """The newest state whose model file is whole; None where a run has saved none yet."""
    reason = ""
    for step in reversed(run.state_steps()):
        try:
            raw = read_progress(run.state_file(step))
            load_model(run.step_file(step))
        except FileError as error:
            reason = reason or f" ({str(error).rstrip('.')})"
            continue  # a crash came between the two files: the pair before it is whole
        raw["best"] = [(quality, at) for quality, at in raw["best"]]
        try:
            return Progress(**raw)
        except TypeError:
            raise FileError(
                f"{run.state_file(step)} is of another version of vtrans; go on with that one, give another --out, "
                "or --fresh to start over."
            ) from None
    # The model of step 0 alone is what a crash in the first moment leaves.
    if run.state_steps() or max(run.steps(), default=0) > 0:
        raise FileError(
            f"{run.path} holds a run, but no training state with its model to go on from{reason}; "
            "give another --out, or --fresh to start over."
        )
    return None


def _resolve(
    run: RunFolder,
    saved: Progress | None,
    fresh: bool,
    joint: bool,
    device: torch.device,
    name: str | None,
    overrides: Sequence[str],
) -> Recipe:
    """The recipe with nothing left open. Without a `name` it starts from the run's own, if there is one;
    what differs from that of the `saved` state must be among MAY_CHANGE. InputError lists what is not."""
    own = saved.recipe if saved is not None else {}
    if name is None and not fresh and run.recipe.exists():
        name = str(run.recipe)
    elif name is None:  # of a run whose recipe.toml is lost, the state knows every value
        values = [f"{s}.{key}={json.dumps(value)}" for s in own for key, value in own[s].items()]
        overrides = [*values, *overrides]
    recipe = load_recipe(name or DEFAULT_RECIPE, overrides)
    tie = resolve_tie(recipe.model.tie, joint)
    precision = recipe.train.precision
    if precision == "auto":
        bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bfloat16" if bfloat16 else "float32"
    recipe = dataclasses.replace(
        recipe,
        model=dataclasses.replace(recipe.model, tie=tie),
        train=dataclasses.replace(recipe.train, precision=precision),
    )
    differences = forbidden_changes(own, recipe)
    if differences:
        raise InputError(
            f"the run in {run.path} can't go on with another recipe: {', '.join(differences)}; "
            "give another --out, or --fresh to start over."
        )
    return recipe


def _variant(model: ModelConfig) -> str:
    """What of the architecture is not as in the paper, and not said otherwise."""
    said = ("d_model", "d_ff", "heads", "encoder_layers", "decoder_layers", "dropout", "norm", "tie")
    others = [f for f in dataclasses.fields(model) if f.name not in said and getattr(model, f.name) != f.default]
    return "".join(f", {f.name} {str(getattr(model, f.name)).lower()}" for f in others)


def _check_data(data: DataFolder, recipe: Recipe) -> None:
    """InputError, before anything is written, where the data can't be trained on by this recipe."""
    for store, what in ((data.train, "training"), (data.valid, "validation")):
        if not len(store):
            raise InputError(f"{data.path} holds no {what} pair; prepare it from text that has some.")
    _check_weights(data, recipe.train.corpus_weights)
    kinds = {data.src_vocab.kind, data.tgt_vocab.kind}
    if recipe.train.bpe_dropout > 0 and kinds != {"bpe"}:
        raise RecipeError(
            f"train.bpe_dropout = {recipe.train.bpe_dropout} leaves out merges, which a unigram vocabulary has none "
            f"of, as {data.path} holds; prepare the text with --subword bpe, or set it to 0."
        )
    longest = max(int(lengths.max()) for lengths in (data.train.src_lengths, data.train.tgt_lengths)) + 1
    if longest > recipe.train.batch_tokens:
        raise RecipeError(
            f"train.batch_tokens must be at least {longest}, the longest side of a pair with EOS, "
            f"but is {recipe.train.batch_tokens}."
        )
    valid = max(int(lengths.max()) for lengths in (data.valid.src_lengths, data.valid.tgt_lengths)) + 1
    reach, longest = recipe.model.reach, max(longest, valid)
    if reach is not None and longest > reach:
        needed = longest * (recipe.model.max_positions // reach)
        raise InputError(
            f"model.max_positions = {recipe.model.max_positions} is too small for this data, whose longest side "
            f"has {longest} subwords with EOS; --set model.max_positions={needed} works."
        )


def _check_weights(data: DataFolder, text: str) -> None:
    """RecipeError where the weights of a recipe are not those of the corpora that the data was made of."""
    weights, sizes = weights_of(text), data.corpora
    names = [files["src"]["name"] for files in data.report["inputs"]["train"]]
    if not weights:
        return
    if len(sizes) != len(names):
        raise InputError(
            f"train.corpus_weights is {text}, but {data.path} was made by a version of vtrans that did not record "
            "which pairs are of which corpus; make it anew with `vtrans prepare-bpe --force`."
        )
    if len(weights) != len(sizes):
        kept = ", ".join(f"{name} {n:,} pairs" for name, n in zip(names, sizes, strict=True))
        raise RecipeError(
            f"train.corpus_weights must have a number for each corpus of {data.path} ({kept}), {len(sizes)} in all, "
            f"but is {text}."
        )
    if not len(Mixture(sizes, weights)):
        raise RecipeError(f"train.corpus_weights is {text}, which leaves no pair of {data.path}; give larger ones.")


def _clear(run: RunFolder) -> None:
    """Removes a run's own files, and nothing else; the states first, so that no half of it is resumed."""
    run.prune((), -1)
    for path in (run.metrics, run.last, run.best, run.averaged, run.recipe):
        path.unlink(missing_ok=True)
    remove(run.events)


@contextmanager
def _signals(training: _Training) -> Iterator[None]:
    """SIGTERM and Ctrl-C let the update finish and save; a second one ends at once."""

    def ask(number: int, frame: object) -> None:
        if training.signal:
            raise KeyboardInterrupt
        training.signal = number
        with suppress(RuntimeError):  # it may have come in the middle of writing to stderr
            training.console.info(f"{signal.Signals(number).name}: saving after this step")

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
