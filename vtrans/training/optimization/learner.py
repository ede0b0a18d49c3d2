"""The model that updates change, with its loss and optimizer, in one rank or several.

Each rank computes the loss of its part of a batch. In a `Learner`, it holds the whole model; in a `ShardedLearner`, a
part of each weight; in a `SharedLearner`, all ranks use one copy in shared memory. All give the same gradient and the
same files.
"""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from vtrans.config import Recipe, TrainConfig
from vtrans.data.batches import RankBatch, collate
from vtrans.model.attention import CrossAttention, SelfAttention
from vtrans.model.layers import FeedForward
from vtrans.model.network import Transformer
from vtrans.model.ssru import SSRU
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.system.ranks import Ranks, share_memory
from vtrans.system.seeds import derived_seed
from vtrans.text.vocabulary import BOS_ID, EOS_ID
from vtrans.training.optimization.loss import Objective, autocast
from vtrans.training.optimization.muon import Muon
from vtrans.training.optimization.optimizer import MovingAverage, costs
from vtrans.training.parts import Parts


class Learner:
    """A model with its loss, its optimizer and, if the recipe asks for it, the moving average of its weights.

    `parameters` are the ones this rank updates: here, all of them, like every other rank (DistributedDataParallel, Li
    et al. 2020). `complete` is the objective for validation and checkpoints on rank 0, with the whole model. `parts`
    makes the loss and the optimizer.
    """

    divisor: int
    """The number by which `objective_of_ranks` divides the sum of the ranks' gradients."""

    def __init__(
        self,
        model: Transformer,
        config: TrainConfig,
        ranks: Ranks,
        device: torch.device,
        parts: type[Parts] = Parts,
    ) -> None:
        self.model, self.config, self.parts = model, config, parts
        self.ranks, self.device, self.divisor = ranks, device, ranks.world
        if model.config.positions == "marian":
            keep_zero(model.tgt_embedding.weight, BOS_ID)
        self.objective = self.complete = parts.make_objective(model, config)
        self.parameters: dict[str, nn.Parameter] = self._placed()
        self.optimizer = parts.make_optimizer(self.parameters.values(), config, model.matrices())
        if not isinstance(self.optimizer, (torch.optim.AdamW, Muon)):
            raise InputError(
                f"`make_optimizer` must return AdamW, Muon or a subclass, got {type(self.optimizer).__name__}, "
                "whose state cannot be saved."
            )
        self.average = MovingAverage(self.parameters.values(), config.ema) if config.ema > 0 else None
        # The type of the sums of losses.
        self._wide = torch.float32 if device.type == "mps" else torch.float64

    def _placed(self) -> dict[str, nn.Parameter]:
        """Moves the objective to the device. Returns the parameters that this rank updates."""
        self.objective.to(self.device)
        return dict(self.model.named_parameters())

    @cached_property
    def objective_of_ranks(self) -> nn.Module:
        """The objective whose backward pass combines the gradients of the ranks. Made on first use, because compiling
        runs a backward pass on this rank alone."""
        if self.ranks.world == 1:
            return self.objective
        # The only buffers are position tables, which may have grown on some ranks only. Newer versions of torch renamed
        # the option, and warn about the old name.
        known = inspect.signature(DistributedDataParallel).parameters
        buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        settings: dict[str, Any] = {buffers: False}
        devices = [self.device.index] if self.device.type == "cuda" else None
        wrapped = DistributedDataParallel(self.objective, device_ids=devices, **settings)
        # After its first backward pass, DDP rebuilds its buckets in the order in which gradients became ready. A
        # number's place in its bucket decides in which order three or more ranks sum it. With this extra pass, all
        # updates use the same buckets, so a run resumes bit-exactly.
        ids = torch.full((1,), EOS_ID)
        compiled, self.objective.compiled = self.objective.compiled, None  # a single sentence would recompile it
        wrapped(collate([ids], [ids]).to(self.device))[0].backward()
        self.objective.compiled = compiled
        self.objective.zero_grad(set_to_none=True)
        return wrapped

    def update(self, group: Sequence[RankBatch], step: int, rate: float) -> tuple[Tensor, dict[str, float]]:
        """Makes update `step` (from 1) with the gradient of the mean loss per target token over all batches of `group`.

        Returns this rank's loss and negative log-likelihood, summed in nats, and whether the update was skipped [3];
        and this rank's token counts. Never synchronises the device: the optimizer's kernel skips an update whose
        gradient is not finite.
        """
        for settings in self.optimizer.param_groups:
            settings["lr"] = rate
        objective = self.objective_of_ranks  # before the seed: making it draws random numbers
        torch.manual_seed(derived_seed("dropout", self.config.seed, step, self.ranks.rank))
        sums_2, counts = self._gradient(objective, group)
        # The norm covers the gradients of all ranks, so all ranks skip the same updates.
        norm = self.gradient_norm()
        bad = (~norm.isfinite()).float()
        if self.config.clip_norm > 0:
            torch.nn.utils.clip_grads_with_norm_(self.parameters.values(), self.config.clip_norm, norm)
        self.optimizer.found_inf = bad  # type: ignore[attr-defined]  # the fused kernel skips the update if it is 1
        self.optimizer.step()
        if self.average is not None:
            self.average.update(step, bad)
        self.optimizer.zero_grad(set_to_none=True)
        return torch.cat([sums_2, bad.to(self._wide)[None]]), counts

    def _gradient(self, objective: nn.Module, group: Sequence[RankBatch]) -> tuple[Tensor, dict[str, float]]:
        """Computes the gradient of a group. Returns the sums of loss and nll [2], in nats, and this rank's token
        counts."""
        tokens = sum(each.tokens_of_all for each in group)
        counts = {"src_tokens": 0.0, "tgt_tokens": 0.0, "real": 0.0, "padded": 0.0}
        loss_sum = nll_sum = torch.zeros((), dtype=self._wide, device=self.device)
        for number, (batch, _, counted) in enumerate(group, 1):
            # Multiplied by `divisor`, the ranks' gradients add up to the gradient of one large batch.
            weight = self.divisor / tokens if counted else 0.0
            # DDP sums the gradients in the last batch of an update; shards sum those of each batch.
            alone = number < len(group) and isinstance(objective, DistributedDataParallel)
            with objective.no_sync() if alone else nullcontext():  # type: ignore[operator]  # DDP
                with autocast(self.device, self.config.precision):
                    loss, nll = objective(batch.to(self.device))
                (loss * weight).backward()
            if counted:
                loss_sum, nll_sum = loss_sum + loss.detach(), nll_sum + nll
                counts["src_tokens"] += batch.src_tokens
                counts["tgt_tokens"] += batch.tgt_tokens
                counts["real"] += batch.real
                counts["padded"] += batch.padded
        return torch.stack([loss_sum, nll_sum]), counts

    def gradient_norm(self) -> Tensor:
        """Sets the gradients of `parameters` to the sum over all ranks. Returns the norm []."""
        return torch.nn.utils.get_total_norm([p.grad for p in self.parameters.values() if p.grad is not None])

    @contextmanager
    def together(self, console: Console) -> Iterator[None]:
        """Runs the block on all ranks. Forks of this process end with the block and print nothing."""
        with self.ranks.forked():
            if self.ranks.rank > 0:
                console.silence()
            yield

    @contextmanager
    def whole(self) -> Iterator[Objective]:
        """Yields `complete`, with averaged weights if the recipe asks for an average. The training state holds the
        trained weights. All ranks must enter the block."""
        with nullcontext() if self.average is None else self.average.in_place():
            yield self.complete

    def gathered(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns whole tensors in main memory on rank 0, and nothing on the others. All ranks must call this. A key is
        a parameter's name, optionally followed by a colon and a part of the optimizer's state."""
        if self.ranks.rank > 0:
            return {}
        return {key: value.detach().contiguous().cpu() for key, value in tensors.items()}

    def part(self, whole: Tensor) -> Tensor:
        """Returns this rank's part of a whole tensor; here, all of it."""
        return whole

    def compile(self, console: Console) -> None:
        """Compiles the layers with torch.compile and runs them once; if that fails, warns and uses them uncompiled."""
        console.info("compiling the layers, which takes a minute or more")
        # The numbers of sentences, source tokens and target tokens differ here, because torch.compile would assume that
        # equal sizes are equal in every batch.
        ids = torch.full((10,), EOS_ID, dtype=torch.int32)
        links = [np.zeros((1, 2), np.int64)] * 3
        batch = collate([ids[:n] for n in (10, 8, 7)], [ids[:n] for n in (4, 5, 6)], links).to(self.device)
        self.objective.compile()
        self.model.train()
        try:
            with autocast(self.device, self.config.precision):
                self.objective(batch)[0].backward()
        except Exception as error:  # missing compilers and unsupported versions raise many types
            self.objective.compiled = None
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            console.warn(f"the layers cannot be compiled here ({type(error).__name__}: {reason}); training uncompiled")
        finally:
            self.optimizer.zero_grad(set_to_none=True)


class SharedLearner(Learner):
    """The ranks are processes on one machine that keep the weights, the optimizer's state and the moving average in
    shared memory. For each parameter, one rank sums the gradients of all ranks and makes the update."""

    def _placed(self) -> dict[str, nn.Parameter]:
        self.divisor, self.objective_of_ranks = 1, self.objective
        return super()._placed()

    @contextmanager
    def together(self, console: Console) -> Iterator[None]:
        """See `Learner.together`. Raises VtransError if there is too little memory to share."""
        weights = list(self.parameters.values())
        owned = divided(costs(weights, self.optimizer), self.ranks.world)
        self._owned = [[weights[i] for i in numbers] for numbers in owned]
        # The gradients that ranks exchange, by the rank that computes them and the rank that sums them.
        self._gradients = [
            [[torch.empty_like(p) for p in mine] if giver != taker else [] for taker, mine in enumerate(self._owned)]
            for giver in range(self.ranks.world)
        ]
        states = [list(state.values()) for state in self.optimizer.state.values()]
        sent = [tensors for row in self._gradients for tensors in row]
        share_memory([weights, *states, self.average.means if self.average else [], *sent])
        with super().together(console):
            yield

    def gradient_norm(self) -> Tensor:
        rank = self.ranks.rank
        for taker, weights in enumerate(self._owned):
            if taker != rank and weights:
                torch._foreach_copy_(self._gradients[rank][taker], [_gradient_of(p) for p in weights])
                for weight in weights:
                    weight.grad = None
        self.ranks.wait()
        sums = [_gradient_of(p) for p in self._owned[rank]]
        for giver in self._gradients:
            if giver[rank]:
                torch._foreach_add_(sums, giver[rank])
        square = float(torch.nn.utils.get_total_norm(sums)) ** 2
        return torch.tensor(math.sqrt(self.ranks.summed([square], self.device)[0]))

    def update(self, group: Sequence[RankBatch], step: int, rate: float) -> tuple[Tensor, dict[str, float]]:
        measured = super().update(group, step, rate)
        self.ranks.wait()  # until every rank has updated its parameters
        return measured


def _gradient_of(weight: Tensor) -> Tensor:
    """Returns the gradient of a weight; zeros if this rank's part of the batch has none."""
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    return weight.grad


def divided(costs: Sequence[float], parts: int) -> list[list[int]]:
    """Divides costs into parts with about equal sums. Returns the indices in each part."""
    sums, numbers = [0.0] * parts, [list[int]() for _ in range(parts)]
    for i in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        least = sums.index(min(sums))
        numbers[least].append(i)
        sums[least] += costs[i]
    return [sorted(part) for part in numbers]


class ShardedLearner(Learner):
    """Each rank holds some rows of each weight, of its gradient and of the optimizer's state (FSDP2, Zhao et al. 2023).
    The rows need not divide evenly; a rank may have none.

    The unit of sharding is a sublayer. Its weights are gathered only for its forward and backward pass. A sublayer
    shared by several layers or both stacks is one module and therefore one unit; autograd sums the gradients of its
    uses before the ranks do. Norms, position tables, embeddings and the projection form the objective's own unit, which
    is gathered from the start of the forward pass to the end of the backward pass. Tied weights are therefore in one
    unit, and the loss, which reads the projection's weight outside its module, sees all of it.

    In bfloat16, the weights of a sublayer are gathered in bfloat16 and their gradients summed in float32.
    """

    UNITS = (SelfAttention, SSRU, CrossAttention, FeedForward)

    def _placed(self) -> dict[str, nn.Parameter]:
        # These imports take 0.4 seconds, and most runs have one process.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        # FSDP2 warns about outputs that are views, because changing one in place would lose a hook. No layer does so.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module", UserWarning)
        if self.ranks.rank == 0:
            self.complete = copy.deepcopy(self.objective)  # in main memory
        mesh = init_device_mesh(self.device.type, (self.ranks.world,))
        bfloat16 = torch.bfloat16 if self.config.precision == "bfloat16" else None
        policy = MixedPrecisionPolicy(bfloat16, torch.float32, cast_forward_inputs=False)
        for module in list(self.objective.modules()):
            if isinstance(module, self.UNITS):
                fully_shard(module, mesh=mesh, mp_policy=policy)
        fully_shard(self.objective, mesh=mesh)
        self.objective_of_ranks = self.objective
        self._shards: dict[str, Any] = dict(self.model.named_parameters())  # DTensors
        # The same memory as plain tensors, which every optimizer and version of torch supports.
        return {name: nn.Parameter(shard.detach().to_local()) for name, shard in self._shards.items()}

    def gradient_norm(self) -> Tensor:
        for name, parameter in self.parameters.items():
            shard = self._shards[name]
            parameter.grad, shard.grad = None if shard.grad is None else shard.grad.to_local(), None
        square = super().gradient_norm().square()
        dist.all_reduce(square)
        return square.sqrt()

    @contextmanager
    def whole(self) -> Iterator[Objective]:
        with super().whole() as complete:
            copies = dict(complete.model.named_parameters())
            for name, value in self._wholes(self.parameters):
                copies[name].data.copy_(value)
            if self.ranks.rank > 0:
                yield complete
                return
            complete.to(self.device)
            try:
                yield complete
            finally:
                complete.to("cpu")

    def gathered(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        numbers = {key: value.cpu() for key, value in tensors.items() if value.dim() == 0}  # all ranks have the same
        parts = {key: value for key, value in tensors.items() if key not in numbers}
        wholes = {key: value.cpu() for key, value in self._wholes(parts)}
        return numbers | wholes if self.ranks.rank == 0 else {}

    def _wholes(self, parts: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Yields (key, whole tensor) on rank 0, and nothing on the other ranks. All ranks must exhaust this."""
        from torch.distributed.tensor import DTensor

        for key, part in parts.items():
            like = self._shards[key.partition(":")[0]]
            shard = DTensor.from_local(
                part.detach(), like.device_mesh, like.placements, shape=like.shape, stride=like.stride()
            )
            whole = shard.full_tensor()
            if self.ranks.rank == 0:
                yield key, whole

    def part(self, whole: Tensor) -> Tensor:
        """Returns this rank's rows of a whole tensor, or a scalar unchanged."""
        if whole.dim() == 0:
            return whole
        parts = whole.chunk(self.ranks.world)
        return parts[self.ranks.rank] if self.ranks.rank < len(parts) else whole[:0]


def parallel_of(config: TrainConfig, ranks: Ranks) -> str:
    """Returns the effective `train.parallel`, which applies only to processes started by torchrun."""
    return config.parallel if ranks.world > ranks.processes else "ddp"


def learner_of(recipe: Recipe, ranks: Ranks, *, compiled: bool) -> type[Learner]:
    """Returns the class of the learner. Raises InputError for settings that shards do not support; `compiled` says
    whether the layers will be compiled."""
    if parallel_of(recipe.train, ranks) == "ddp":
        return SharedLearner if ranks.processes > 1 else Learner
    refused = {
        "train.optimizer = muon, whose steps need whole matrices": recipe.train.optimizer == "muon",
        "model.positions = marian, whose embedding of BOS stays zero": recipe.model.positions == "marian",
        "`compile`, because shards gather the weights of one sublayer at a time": compiled,
    }
    for setting, given in refused.items():
        if given:
            raise InputError(f"train.parallel must be ddp, got fsdp, which does not support {setting}.")
    return ShardedLearner


def keep_zero(weight: nn.Parameter, row: int) -> None:
    """Sets a row of a weight to zero, and zeroes its gradient in every backward pass, so that no optimizer changes
    it."""
    weight.data[row] = 0.0
    weight.register_hook(  # type: ignore[no-untyped-call]
        lambda gradient: gradient.index_fill(0, torch.tensor(row, device=gradient.device), 0.0)
    )
