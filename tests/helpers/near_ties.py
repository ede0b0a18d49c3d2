"""Decides whether two programs, precisions, kernels or backends differ by rounding alone.

A search compares sums of log-probabilities. If two candidates are closer than rounding, programs that add in another
order may rank them differently, and everything after that step may differ. So a result is accepted if the search finds
it in float64 with logits that are off by at most STEPS float32 steps: some decision of the search was then that close.
No number of differing sentences is ever allowed without this reason.

The size of a step is the distance of neighbouring float32 numbers at the largest number that enters the comparison: the
largest logit of the row, or the log-probability of the whole translation, to which a step is added.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from drawn import seeded_tensors
from torch import Tensor, nn

from vtrans.model.checkpoint import LoadedModel

Item = TypeVar("Item")
Result = TypeVar("Result")

# Programs differ from float64 by at most 3 steps in the log-probabilities of the models of these tests.
STEPS = 8
# Each close decision turns out one way or the other in about half of the searches.
SEARCHES = 100

Plain = list[tuple[tuple[int, ...], bool]]


def plain(hypotheses: Sequence[Any]) -> Plain:
    """Returns the tokens of hypotheses or translations, and whether they are finished."""
    return [(tuple(h.tokens), h.finished) for h in hypotheses]


def is_near_tie(
    models: Sequence[LoadedModel], search: Callable[[list[LoadedModel]], Result], result: Result, logprob: float
) -> bool:
    """Returns whether `search` gives `result` with some logits that float32 might as well have given.

    `search` is called with the models in float64; `logprob` is the largest log-probability that it sums.
    """
    numbers = seeded_tensors(1)
    exact = [dataclasses.replace(loaded, model=copy.deepcopy(loaded.model).double()) for loaded in models]
    if search(exact) == result:
        return True
    with rounded(exact, logprob, numbers):
        return any(search(exact) == result for _ in range(SEARCHES))


@contextmanager
def rounded(models: Sequence[LoadedModel], logprob: float, numbers: torch.Generator) -> Iterator[None]:
    """The logits of the models are off by random numbers of up to STEPS float32 steps, others in each call."""

    def hook(projection: nn.Module, inputs: tuple[Tensor, ...], logits_nV: Tensor) -> Tensor:
        largest_n1 = logits_nV.abs().amax(-1, keepdim=True).clamp(min=abs(logprob))
        step_n1 = torch.from_numpy(np.spacing(largest_n1.float().numpy())).double()
        share_nV = torch.rand(logits_nV.shape, generator=numbers, dtype=torch.float64) * 2 - 1
        return logits_nV + share_nV * step_n1 * STEPS

    hooks = [loaded.model.projection.register_forward_hook(hook) for loaded in models]
    try:
        yield
    finally:
        for each in hooks:
            each.remove()


def equal_or_tied(
    models: Sequence[LoadedModel],
    search: Callable[[list[LoadedModel], Item], Result],
    items: Sequence[Item],
    ours: Sequence[Result],
    theirs: Sequence[Result],
    logprob: float,
) -> list[bool]:
    """Asserts that two programs' results of each item are equal or near-ties; returns which are equal.

    `search` gives the result of one item with the models in float64. `logprob` is that of `is_near_tie`.
    """
    equal = []
    for item, *results in zip(items, ours, theirs, strict=True):
        equal.append(results[0] == results[1])
        for result in () if equal[-1] else results:
            assert is_near_tie(models, partial(_searched, search, item), result, logprob), (item, *results)
    return equal


def _searched(search: Callable[[list[LoadedModel], Item], Result], item: Item, models: list[LoadedModel]) -> Result:
    return search(models, item)
