"""Parallel training of one model: which part each process holds, and how gradients are summed.

Each rank computes the loss of its part of a batch. With `DataParallel`, every rank holds the whole model; with
`Shards`, a part of each weight; with `SharedMemory`, all ranks use one copy in shared memory. All give the same
gradient and the same files. Each rank computes the loss of `objective`, and updates those of its `parameters` that have
a gradient after `gradient_norm`.
"""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from vtrans.config import TrainConfig
from vtrans.data.batches import collate
from vtrans.model.attention import CrossAttention, SelfAttention
from vtrans.model.layers import FeedForward
from vtrans.model.ssru import SSRU
from vtrans.system.errors import InputError
from vtrans.system.local_ranks import share_memory
from vtrans.system.ranks import Ranks
from vtrans.text.vocabulary import EOS_ID
from vtrans.training.optimization.loss import Objective
from vtrans.training.optimization.optimizer import MovingAverage, costs

NUMBERS_PER_MESSAGE = 1 << 22  # sent to rank 0 at a time: few messages, in little memory


class DataParallel:
    """Each rank holds the whole model, its gradient and the optimizer's state (DistributedDataParallel, Li et al.
    2020). Gradients are summed in buckets during the backward pass."""

    def __init__(self, whole: Objective, ranks: Ranks, device: torch.device) -> None:
        self.ranks, self.device = ranks, device
        self.whole: Objective = whole.to(device)
        self.parameters: dict[str, nn.Parameter] = dict(whole.model.named_parameters())

    def share(self, optimizer: torch.optim.Optimizer, average: MovingAverage | None) -> None:
        """Moves tensors that the ranks share to shared memory; here there are none. Call this before forking."""

    @property
    def divisor(self) -> int:
        """The number by which `objective` divides the sum of the ranks' gradients."""
        return self.ranks.world

    @cached_property
    def objective(self) -> nn.Module:
        """The module whose backward pass averages the gradient over the ranks. Made on first use, because compiling
        runs a backward pass on this rank alone."""
        if self.ranks.world == 1:
            return self.whole
        # The only buffers are position tables, which may have grown on some ranks only. Newer versions of torch renamed
        # the option, and warn about the old name.
        known = inspect.signature(DistributedDataParallel).parameters
        buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        settings: dict[str, Any] = {buffers: False}
        devices = [self.device.index] if self.device.type == "cuda" else None
        wrapped = DistributedDataParallel(self.whole, device_ids=devices, **settings)
        # After its first backward pass, DDP rebuilds its buckets in the order in which gradients became ready. A
        # number's place in its bucket decides in which order three or more ranks sum it. With this extra pass, all
        # updates use the same buckets, so a run resumes bit-exactly.
        ids = torch.full((1,), EOS_ID)
        compiled, self.whole.compiled = self.whole.compiled, None  # or a single sentence would recompile the layers
        wrapped(collate([ids], [ids]).to(self.device))[0].backward()
        self.whole.compiled = compiled
        self.whole.zero_grad(set_to_none=True)
        return wrapped

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        """Wraps the forward and backward pass of one batch of an update. The ranks sum their gradients in the last
        batch."""
        together = last or self.ranks.world == 1
        return nullcontext() if together else self.objective.no_sync()  # type: ignore[operator]  # DDP

    def gradient_norm(self) -> Tensor:
        """Sets the gradients of `parameters` to the sum over all ranks. Returns the norm []."""
        return torch.nn.utils.get_total_norm([p.grad for p in self.parameters.values() if p.grad is not None])

    def wait_for_updates(self) -> None:
        """Waits until every rank has updated its parameters, if the ranks share memory."""

    def refreshed(self) -> AbstractContextManager[None]:
        """Updates `whole` from `parameters` on rank 0 for the block. All ranks must enter the block."""
        return nullcontext()

    def gathered(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns whole tensors in main memory on rank 0, and nothing on the others. All ranks must call this. A key is
        a parameter's name, optionally followed by a colon and a part of the optimizer's state."""
        if self.ranks.rank > 0:
            return {}
        return {key: value.detach().contiguous().cpu() for key, value in tensors.items()}

    def part(self, whole: Tensor) -> Tensor:
        """Returns this rank's part of a whole tensor; here, all of it."""
        return whole


class SharedMemory(DataParallel):
    """The ranks are processes on one machine that keep the weights, the optimizer's state and the moving average in
    shared memory. For each parameter, one rank sums the gradients of all ranks and makes the update."""

    divisor = 1

    def share(self, optimizer: torch.optim.Optimizer, average: MovingAverage | None) -> None:
        """Moves weights, states and exchanged gradients to shared memory, and divides the parameters among the ranks.
        Raises VtransError if there is too little memory."""
        weights, ranks = list(self.parameters.values()), range(self.ranks.world)
        owned = divided(costs(weights, optimizer), len(ranks))
        self._owned = [[weights[i] for i in numbers] for numbers in owned]
        # By the rank that computes them and the rank that sums them.
        self._gradients = [
            [
                [torch.empty_like(p) for p in weights] if giver != taker else []
                for taker, weights in enumerate(self._owned)
            ]
            for giver in ranks
        ]
        states = [list(state.values()) for state in optimizer.state.values()]
        sent = [tensors for row in self._gradients for tensors in row]
        share_memory([weights, *states, average.means if average else [], *sent])

    @property
    def objective(self) -> nn.Module:
        return self.whole

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def gradient_norm(self) -> Tensor:
        rank = self.ranks.rank
        for taker, weights in enumerate(self._owned):
            if taker != rank and weights:
                torch._foreach_copy_(self._gradients[rank][taker], [_gradient(p) for p in weights])
                for weight in weights:
                    weight.grad = None
        self.ranks.wait()
        sums = [_gradient(p) for p in self._owned[rank]]
        for giver in self._gradients:
            if giver[rank]:
                torch._foreach_add_(sums, giver[rank])
        square = float(torch.nn.utils.get_total_norm(sums)) ** 2
        return torch.tensor(math.sqrt(self.ranks.summed([square], self.device)[0]))

    def wait_for_updates(self) -> None:
        self.ranks.wait()


def _gradient(weight: Tensor) -> Tensor:
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


class Shards(DataParallel):
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

    def __init__(self, objective: Objective, ranks: Ranks, device: torch.device, precision: str) -> None:
        # These imports take 0.4 seconds, and most runs have one process.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        # FSDP2 warns about outputs that are views, because changing one in place would lose a hook. No layer does so.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module", UserWarning)
        self.ranks, self.device = ranks, device
        self.whole = copy.deepcopy(objective) if ranks.rank == 0 else objective  # in main memory
        mesh = init_device_mesh(device.type, (ranks.world,))
        bfloat16 = torch.bfloat16 if precision == "bfloat16" else None
        policy = MixedPrecisionPolicy(bfloat16, torch.float32, cast_forward_inputs=False)
        for module in list(objective.modules()):
            if isinstance(module, self.UNITS):
                fully_shard(module, mesh=mesh, mp_policy=policy)
        fully_shard(objective, mesh=mesh)
        self.objective: nn.Module = objective
        self._shards: dict[str, Any] = dict(objective.model.named_parameters())  # DTensors
        # The same memory as plain tensors, which every optimizer and version of torch supports.
        self.parameters = {name: nn.Parameter(shard.detach().to_local()) for name, shard in self._shards.items()}

    def accumulating(self, *, last: bool) -> AbstractContextManager[None]:
        """See `DataParallel.accumulating`. The ranks sum the gradient of each batch, so no rank ever holds a whole
        gradient."""
        return nullcontext()

    def gradient_norm(self) -> Tensor:
        for name, parameter in self.parameters.items():
            shard = self._shards[name]
            parameter.grad, shard.grad = None if shard.grad is None else shard.grad.to_local(), None
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters.values() if p.grad is not None])
        square = norm.square()
        dist.all_reduce(square)
        return square.sqrt()

    @contextmanager
    def refreshed(self) -> Iterator[None]:
        copies = dict(self.whole.model.named_parameters())
        for name, value in self._whole(self.parameters):
            copies[name].data.copy_(value)
        if self.ranks.rank > 0:
            yield
            return
        self.whole.to(self.device)
        try:
            yield
        finally:
            self.whole.to("cpu")

    def gathered(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        numbers = {key: value.cpu() for key, value in tensors.items() if value.dim() == 0}  # all ranks have the same
        parts = {key: value for key, value in tensors.items() if key not in numbers}
        whole = {key: value.cpu() for key, value in self._whole(parts)}
        return numbers | whole if self.ranks.rank == 0 else {}

    def _whole(self, parts: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Sends the parts of all ranks to rank 0, block by block. Yields (key, whole tensor) on rank 0, and nothing on
        the other ranks. All ranks must exhaust this."""
        shapes = {key: self._shards[key.partition(":")[0]].shape for key in parts}
        # The size of the largest part of each tensor, on the first rank. The other ranks pad theirs with zeros.
        sizes = {key: -(-shape[0] // self.ranks.world) * math.prod(shape[1:]) for key, shape in shapes.items()}
        for block in _blocks(sizes):
            flat = (parts[key].detach().flatten() for key in block)
            sent = torch.cat([F.pad(part, (0, sizes[key] - len(part))) for key, part in zip(block, flat, strict=True)])
            received = [torch.empty_like(sent) for _ in range(self.ranks.world)] if self.ranks.rank == 0 else []
            dist.gather(sent, received or None, 0)
            split = (torch.split(flat, [sizes[key] for key in block]) for flat in received)
            for key, *pieces in zip(block, *split, strict=True) if received else ():
                yield key, torch.cat(pieces)[: shapes[key].numel()].view(shapes[key])

    def part(self, whole: Tensor) -> Tensor:
        """Returns this rank's rows of a whole tensor, or a scalar unchanged."""
        if whole.dim() == 0:
            return whole
        parts = whole.chunk(self.ranks.world)
        return parts[self.ranks.rank] if self.ranks.rank < len(parts) else whole[:0]


def _blocks(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Yields the keys in order, in blocks of at most NUMBERS_PER_MESSAGE numbers, or of a single key."""
    block: list[str] = []
    for key in sizes:
        if block and sum(sizes[k] for k in block) + sizes[key] > NUMBERS_PER_MESSAGE:
            yield block
            block = []
        block.append(key)
    if block:
        yield block


def parallel_of(config: TrainConfig, ranks: Ranks) -> str:
    """Returns the effective `train.parallel`, which applies only to processes started by torchrun."""
    return config.parallel if ranks.world > ranks.processes else "ddp"


def make_parallel(objective: Objective, config: TrainConfig, ranks: Ranks, device: torch.device) -> DataParallel:
    if parallel_of(config, ranks) == "fsdp":
        if config.optimizer == "muon":
            raise InputError(
                "train.optimizer must be adam with train.parallel = fsdp, got muon, whose steps need whole matrices; "
                "set train.parallel to ddp."
            )
        return Shards(objective, ranks, device, config.precision)
    if ranks.processes > 1:
        return SharedMemory(objective, ranks, device)
    return DataParallel(objective, ranks, device)


def check_compilable(config: TrainConfig, ranks: Ranks) -> None:
    """Raises InputError if `train.parallel` does not support compiled layers."""
    if parallel_of(config, ranks) == "fsdp":
        raise InputError(
            "`compile` needs train.parallel = ddp, got fsdp, which gathers the weights of one sublayer at a time; "
            "train without it, or set train.parallel to ddp."
        )
