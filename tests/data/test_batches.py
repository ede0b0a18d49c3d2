"""Batches are complete and within the budget; their order is a function of (seed, epoch)."""

import hashlib
import time
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from vtrans.data.batches import collate, prefetch
from vtrans.data.epochs import Mixture, plan_epoch
from vtrans.system.errors import RecipeError
from vtrans.system.seeds import derived_seed
from vtrans.text.vocabulary import BOS_ID, EOS_ID, PAD_ID

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=80)


def lengths(pairs: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    return torch.tensor([s for s, _ in pairs]), torch.tensor([t for _, t in pairs])


@given(LENGTHS, st.integers(41, 300), st.integers(1, 5))
def test_an_epoch_has_every_pair_once_within_the_budget(pairs: list[tuple[int, int]], budget: int, epoch: int) -> None:
    src, tgt = lengths(pairs)
    plan = plan_epoch(src, tgt, budget, 1, epoch)
    assert sorted(torch.cat(plan).tolist()) == list(range(len(pairs)))
    for numbers in plan:
        assert len(numbers) * (int(torch.maximum(src[numbers], tgt[numbers]).max()) + 1) <= budget


PLACES = torch.arange(2000, dtype=torch.int32)
MANY = PLACES * 7919 % 40 + 1, PLACES * 104_729 % 37 + PLACES % 4 + 1  # lengths of the two sides


@pytest.mark.parametrize(
    ("budget", "epoch", "numbers", "digest"),
    [
        (300, 1, None, "d0a57f068562eb92"),
        (41, 2, None, "2d0b372d0b664701"),
        (1000, 3, torch.arange(3000) // 2, "643f59181291b34a"),
    ],
)
def test_a_plan_never_changes(budget: int, epoch: int, numbers: Tensor | None, digest: str) -> None:
    """Resumed and repeated runs depend on it. The generator of the process is left alone."""
    state = torch.get_rng_state()
    plan = [part.tolist() for part in plan_epoch(*MANY, budget, 1, epoch, numbers)]
    assert hashlib.sha256(str(plan).encode()).hexdigest().startswith(digest)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("epoch", [1, 2])
def test_batches_have_little_padding_and_the_largest_one_comes_first(epoch: int) -> None:
    plan = plan_epoch(*MANY, 1000, 1, epoch)
    padded = [len(part) * sum(int(side[part].max()) + 1 for side in MANY) for part in plan]
    assert sum(int(side.sum()) + len(PLACES) for side in MANY) > 0.85 * sum(padded)
    assert (padded[0] == max(padded)) == (epoch == 1)
    assert sum(len(part) % 4 == 0 for part in plan) > 0.9 * len(plan), "round numbers of pairs"


def test_a_pair_over_the_budget_is_refused_with_the_smallest_budget_that_works() -> None:
    src, tgt = lengths([(5, 6), (30, 49)])
    with pytest.raises(RecipeError, match=r"train\.batch_tokens must be at least 50"):
        plan_epoch(src, tgt, 49, 1, 1)
    assert len(plan_epoch(src, tgt, 50, 1, 1)) == 2


def test_a_mixture_has_each_pair_as_often_as_the_weight_of_its_corpus_says() -> None:
    mixture = Mixture((40, 100, 7, 5), (2, 0.25, 0, 1.4), seed=3)
    epochs = []
    for epoch in (1, 2):
        numbers = mixture.pairs(epoch)
        assert numbers is not None
        assert len(numbers) == len(mixture) == 2 * 40 + 25 + 5 + 2
        counts = torch.bincount(numbers, minlength=152)
        assert counts[:40].tolist() == [2] * 40
        assert sorted(counts[40:140].tolist()) == [0] * 75 + [1] * 25
        assert counts[140:147].tolist() == [0] * 7
        assert sorted(counts[147:].tolist()) == [1, 1, 1, 2, 2]
        again = Mixture((40, 100, 7, 5), (2, 0.25, 0, 1.4), seed=3).pairs(epoch)
        assert again is not None
        assert torch.equal(numbers, again)
        epochs.append(counts)
    other = Mixture((40, 100, 7, 5), (2, 0.25, 0, 1.4), seed=4).pairs(1)
    assert other is not None
    assert not torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[0], torch.bincount(other, minlength=152))


def test_collate_pads_and_adds_special_ids() -> None:
    batch = collate([torch.tensor([5, 6]), torch.tensor([7])], [torch.tensor([8]), torch.tensor([9, 10, 11])])
    assert batch.src_BS.tolist() == [[5, 6, EOS_ID], [7, EOS_ID, PAD_ID]]
    assert batch.keep_BS.tolist() == [[True, True, True], [True, True, False]]
    assert batch.tgt_in_BT.tolist() == [[BOS_ID, 8, PAD_ID, PAD_ID], [BOS_ID, 9, 10, 11]]
    assert batch.targets_N.tolist() == [8, EOS_ID, 9, 10, 11, EOS_ID]
    assert batch.real_N.tolist() == [0, 1, 4, 5, 6, 7]
    assert (batch.src_tokens, batch.tgt_tokens, batch.real, batch.padded) == (3, 6, 11, 14)


def test_derived_seeds_never_change() -> None:
    """Other seeds would change every resumed run."""
    assert derived_seed("epoch", 1, 1) == 7122790889077348357
    assert derived_seed("epoch", 1, 1) != derived_seed("epoch", 11, "")
    assert 0 <= derived_seed("x") < 2**63


def test_items_made_in_advance_come_in_order_and_are_limited() -> None:
    made: list[int] = []

    def count() -> Iterator[int]:
        for i in range(50):
            made.append(i)
            yield i

    stream = prefetch(count(), 3)
    assert next(stream) == 0
    time.sleep(0.2)
    assert made == [0, 1, 2, 3]  # one taken and three waiting
    assert list(stream) == list(range(1, 50))


def test_an_exception_is_raised_in_place_of_its_item() -> None:
    def broken() -> Iterator[int]:
        yield 1
        yield 2
        raise OSError("the disk went away")

    stream = prefetch(broken(), 8)
    assert (next(stream), next(stream)) == (1, 2)
    with pytest.raises(OSError, match="the disk went away"):
        next(stream)
