"""The options and inputs of a run, and its replaceable parts, which a subclass of `Trainer` may make differently."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from vtrans.config import ModelConfig, Recipe, TrainConfig
from vtrans.data.batches import BatchLoader
from vtrans.data.store import DataFolder
from vtrans.model.network import Transformer
from vtrans.storage.run_folder import RunFolder
from vtrans.system.console import Console
from vtrans.system.own_code import class_of
from vtrans.system.ranks import Ranks
from vtrans.text.vocabulary import PAD_ID
from vtrans.training.optimization.loss import Objective
from vtrans.training.optimization.optimizer import make_optimizer


@dataclass(frozen=True)
class TrainOptions:
    """Training options, except the data folder and the run folder."""

    recipe: str | None = None
    """The name of a recipe or a TOML file; None: the run's own recipe, else the default."""
    overrides: Sequence[str] = ()
    """Recipe values to override, each of the form `section.key=value`."""
    fresh: bool = False
    """Remove the run in the folder and start over."""
    device: str | None = None
    """The name of a device; None: the best available."""
    processes: int | None = None
    """Number of processes that divide each batch on a CPU. None: as in the resumed run, else chosen by `divide`
    (machine.py)."""
    threads: int | None = None
    """Threads per process on a CPU. If given without `processes`, training uses one process."""
    init_from: Path | None = None
    """A model file or run folder from whose weights a new run starts."""
    compile: bool = False
    """Compile the layers. Resuming is then not bit-exact."""
    check: Callable[[ModelConfig], None] = lambda model: None
    """Called with the architecture before training; may raise InputError."""
    dry_run: bool = False
    """Measure a few updates, report the time and memory that training takes, and write nothing."""


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


class Parts:
    """Makes the network, the loss, the optimizer and the batches of a run, each in a method that a subclass may
    override. All ranks call these methods with equal arguments. Parts have no saved state: they must be functions of
    the recipe, epoch and step."""

    @classmethod
    def name(cls) -> str | None:
        """Returns the name of a user-defined subclass, which training states record; None for Trainer itself."""
        return next((each.__qualname__ for each in cls.__mro__[:-1] if not each.__module__.startswith("vtrans.")), None)

    @classmethod
    def make_network(cls, config: ModelConfig, src_size: int, tgt_size: int, *, joint: bool) -> Transformer:
        """Returns the network for vocabularies of these sizes, with initial weights. `model.network` must name its
        class, because model files record this name."""
        kind = class_of(config, "network", Transformer)
        return kind(config, src_size, tgt_size, joint=joint, pad_id=PAD_ID)

    @classmethod
    def make_objective(cls, network: Transformer, config: TrainConfig) -> Objective:
        """Returns the loss of the network, such as a `vtrans.LogprobLoss`: a module that takes a Batch and returns the
        summed loss, with its gradient, and the summed negative log-likelihood, which validation reports."""
        kind = class_of(config, "objective", Objective)
        return kind(network, config.label_smoothing, config.r_drop, config.guided_alignment)

    @classmethod
    def make_optimizer(
        cls, parameters: Iterable[Tensor], config: TrainConfig, matrices: Mapping[Tensor, int]
    ) -> torch.optim.Optimizer:
        """Returns the optimizer: AdamW, Muon or a subclass of these. `matrices` are the weights of the linear layers,
        each with its number of fused projections. A step must change nothing if `found_inf` is 1."""
        return make_optimizer(parameters, config, matrices)

    @classmethod
    def make_loader(cls, data: DataFolder, recipe: Recipe, ranks: Ranks, device: torch.device) -> BatchLoader:
        """Returns the loader of this rank's batches. A subclass of BatchLoader may choose the pairs of each epoch
        (`make_mixture`) or change batches (`batches`)."""
        return BatchLoader(data, recipe, ranks, device)
