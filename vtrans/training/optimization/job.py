"""The fixed inputs of a run (Job), and the model and optimizer that updates change (Learner)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from vtrans.config import Recipe, TrainConfig
from vtrans.data.batches import collate
from vtrans.data.store import DataFolder
from vtrans.model.network import Transformer
from vtrans.storage.run_folder import RunFolder
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.system.ranks import Ranks
from vtrans.text.vocabulary import BOS_ID, EOS_ID
from vtrans.training.optimization.loss import Objective, autocast
from vtrans.training.optimization.muon import Muon
from vtrans.training.optimization.optimizer import MovingAverage
from vtrans.training.optimization.parallel import make_parallel
from vtrans.training.parts import Parts


@dataclass(frozen=True)
class Job:
    """The data, recipe and device of a run, which never change."""

    data: DataFolder
    run: RunFolder
    console: Console
    ranks: Ranks
    device: torch.device
    recipe: Recipe

    @property
    def leads(self) -> bool:
        """Whether this is the rank that writes the run's files."""
        return self.ranks.rank == 0


class Learner:
    """A model with its loss, its optimizer and, if the recipe asks for it, the moving average of its weights.
    `parameters` are the ones this rank updates. `parts` makes the loss and the optimizer."""

    def __init__(
        self,
        model: Transformer,
        config: TrainConfig,
        ranks: Ranks,
        device: torch.device,
        parts: type[Parts] = Parts,
    ) -> None:
        self.model, self.config, self.parts = model, config, parts
        if model.config.positions == "marian":
            if config.parallel == "fsdp":
                raise InputError(
                    'train.parallel must be ddp with model.positions = "marian", got fsdp, which would shard the '
                    "embedding of BOS, which stays zero."
                )
            keep_zero(model.tgt_embedding.weight, BOS_ID)
        self.objective = parts.make_objective(model, config)
        self.parallel = make_parallel(self.objective, config, ranks, device)
        self.parameters = self.parallel.parameters
        self.optimizer = parts.make_optimizer(self.parameters.values(), config, model.matrices())
        if not isinstance(self.optimizer, (torch.optim.AdamW, Muon)):
            raise InputError(
                f"`make_optimizer` must return AdamW, Muon or a subclass, got {type(self.optimizer).__name__}, "
                "whose state cannot be saved."
            )
        self.average = MovingAverage(self.parameters.values(), config.ema) if config.ema > 0 else None

    @contextmanager
    def together(self, job: Job) -> Iterator[None]:
        """Runs the block on all ranks. Forks of this process end with the block and print nothing."""
        self.parallel.share(self.optimizer, self.average)
        with job.ranks.forked():
            if not job.leads:
                job.console.silence()
            yield

    @contextmanager
    def whole(self) -> Iterator[Objective]:
        """Yields the objective for validation and checkpoints on rank 0: with the whole model and, if the recipe asks
        for an average, with averaged weights. The training state holds the trained weights. All ranks must enter the
        block."""
        with nullcontext() if self.average is None else self.average.in_place(), self.parallel.refreshed():
            yield self.parallel.whole

    def compile(self, device: torch.device, console: Console) -> None:
        """Compiles the layers with torch.compile and runs them once; if that fails, warns and uses them uncompiled."""
        console.info("compiling the layers, which takes a minute or more")
        # The numbers of sentences, source tokens and target tokens differ here, because torch.compile would assume that
        # equal sizes are equal in every batch.
        ids = torch.full((10,), EOS_ID, dtype=torch.int32)
        links = [np.zeros((1, 2), np.int64)] * 3
        batch = collate([ids[:n] for n in (10, 8, 7)], [ids[:n] for n in (4, 5, 6)], links).to(device)
        self.objective.compile()
        self.model.train()
        try:
            with autocast(device, self.config.precision):
                self.objective(batch)[0].backward()
        except Exception as error:  # missing compilers and unsupported versions raise many types
            self.objective.compiled = None
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            console.warn(f"the layers cannot be compiled here ({type(error).__name__}: {reason}); training uncompiled")
        finally:
            self.optimizer.zero_grad(set_to_none=True)


def keep_zero(weight: nn.Parameter, row: int) -> None:
    """Sets a row of a weight to zero, and zeroes its gradient in every backward pass, so that no optimizer changes
    it."""

    def without_row(gradient: Tensor) -> Tensor:
        return gradient.index_fill(0, torch.tensor(row, device=gradient.device), 0.0)

    weight.data[row] = 0.0
    weight.register_hook(without_row)  # type: ignore[no-untyped-call]
