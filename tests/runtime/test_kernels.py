"""The choice of kernels: what it looks up, how it is measured, and that every way computes the same."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from vtrans.runtime import kernels
from vtrans.runtime.attention import batched_attention, dot_product_attention, fused_attention
from vtrans.runtime.kernels import FEW, KEYS, SMALL, Kernels, fastest
from vtrans.runtime.measuring import measured_attention, measured_products
from vtrans.runtime.products import HAS_ONEDNN, linear

needs_onednn = pytest.mark.skipif(not HAS_ONEDNN, reason="this torch has no oneDNN")


class Machine:
    """Candidates whose calls take as long as a list says, one entry per call."""

    def __init__(self, *times: list[float]) -> None:
        self.now, self.calls = 0.0, [0] * len(times)
        self.times = times

    def __call__(self) -> float:
        return self.now

    def candidate(self, number: int) -> None:
        self.now += self.times[number][self.calls[number]]
        self.calls[number] += 1

    def fastest(self, rounds: int) -> int:
        return fastest(
            [lambda number=number: self.candidate(number) for number in range(len(self.times))],  # type: ignore[misc]
            rounds,
            self,
        )


@pytest.mark.parametrize(
    ("default", "other", "winner"),
    [
        ([9, 2, 2, 2], [9, 1, 1, 1], 1),
        ([9, 1, 1, 1], [9, 2, 2, 2], 0),
        ([9, 1.03, 1.03, 1.03], [9, 1, 1, 1], 0),  # a tie is decided for the default
        ([9, 1.2, 1.2, 1.2], [9, 1, 1, 1], 1),
        ([0.1, 2, 2, 2], [9, 1, 1, 1], 1),  # the first call does not count
        ([1, 50, 1, 50], [1, 1.5, 1.5, 1.5], 0),  # disturbances do not count
        ([1, 2, 2, 2], [1, 50, 50, 1], 1),
    ],
)
def test_the_fastest_is_found(default: list[float], other: list[float], winner: int) -> None:
    assert Machine(default, other).fastest(3) == winner


def test_measuring_takes_turns() -> None:
    machine = Machine([1] * 3, [1] * 3, [1] * 3)
    assert machine.fastest(2) == 0
    assert machine.calls == [3, 3, 3]


def test_a_choice_survives_its_record() -> None:
    products = {(32, 48, True): (True, False, True), (8, 4, False): (False, False, False)}
    chosen = Kernels("blas", products, frozenset({1}))
    assert Kernels.from_record(json.loads(json.dumps(chosen.record()))) == chosen
    assert Kernels.from_record(json.loads(json.dumps(Kernels().record()))) == Kernels()


def test_what_was_measured_overrides_the_rule() -> None:
    rows, large, small = SMALL // (32 * 48) + 1, (True,) * 3, (False,) * 3
    assert Kernels().use_onednn(rows, 32, 48) == large
    assert Kernels().use_onednn(rows - 1, 32, 48) == small
    assert Kernels("blas").use_onednn(rows, 32, 48) == small
    chosen = Kernels("onednn", {(32, 48, True): (False, True, False), (32, 48, False): large})
    assert chosen.use_onednn(rows, 32, 48) == chosen.use_onednn(FEW + 1, 32, 48) == (False, True, False)
    assert chosen.use_onednn(FEW, 32, 48) == large
    assert chosen.use_onednn(rows, 48, 32) == large


def test_attention_to_many_keys_is_always_fused() -> None:
    assert not any(Kernels().use_bmm(keys) for keys in (1, *KEYS, 1000))
    short, both = Kernels(bmm=frozenset({0})), Kernels(bmm=frozenset({0, 1}))
    assert [short.use_bmm(keys) for keys in (1, KEYS[0], KEYS[0] + 1, KEYS[1])] == [True, True, False, False]
    assert [both.use_bmm(keys) for keys in (1, KEYS[0] + 1, KEYS[1], KEYS[1] + 1)] == [True, True, True, False]


@needs_onednn
@pytest.mark.parametrize("use", list(itertools.product((False, True), repeat=3)))
@pytest.mark.parametrize("sizes", [(20, 32), (32, 20)])
def test_products_and_gradients_are_the_same_in_every_way(use: tuple[bool, bool, bool], sizes: tuple[int, int]) -> None:
    inputs, outputs = sizes
    kernels.use(Kernels("blas", {(inputs, outputs, True): use}))
    operands = [torch.randn(3, 10, inputs), torch.randn(outputs, inputs), torch.randn(outputs)]
    for operand in operands:
        operand.requires_grad_()
    upstream = torch.randn(3, 10, outputs)
    ours, theirs = linear(*operands), F.linear(*operands)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert ("_Product" in type(ours.grad_fn).__name__) == any(use)
    for mine, reference in zip(
        torch.autograd.grad(ours, operands, upstream), torch.autograd.grad(theirs, operands, upstream), strict=True
    ):
        torch.testing.assert_close(mine, reference, rtol=1e-5, atol=1e-4)


def masks(B: int, Q: int, n: int) -> dict[str, Tensor | None]:
    keep_Bn = torch.arange(n) < torch.randint(1, n + 1, (B, 1))
    return {"causal": None, "keys": keep_Bn[:, None, None], "each query": (torch.ones(B, 1, Q, n) > 0).tril()}


@pytest.mark.parametrize("mask", ["causal", "keys", "each query"])
def test_attention_and_its_gradients_are_the_same_in_both_ways(mask: str) -> None:
    B, H, n, d = 3, 2, 7, 4
    keep = masks(B, n, n)[mask]
    # As the model gives them: views of one product.
    qkv = torch.randn(B, n, 3, H, d, dtype=torch.float64, requires_grad=True)
    found = []
    for compute in (fused_attention, batched_attention):
        q, k, v = qkv.transpose(1, 3).unbind(2)
        out = compute(q, k, v, keep, 0.0)
        found.append((out, torch.autograd.grad(out, qkv, torch.ones_like(out).cumsum(-1))[0]))
    for fused, batched in zip(*found, strict=True):
        torch.testing.assert_close(batched, fused, rtol=1e-10, atol=1e-10)


def test_the_choice_of_attention_is_for_training() -> None:
    q = torch.randn(2, 2, 5, 4, requires_grad=True)
    kernels.use(Kernels(bmm=frozenset({0})))
    assert "View" in type(dot_product_attention(q, q, q).grad_fn).__name__
    with torch.no_grad():
        assert torch.equal(dot_product_attention(q, q, q), fused_attention(q, q, q, None, 0.0))
    kernels.use(Kernels())
    assert "Attention" in type(dot_product_attention(q, q, q).grad_fn).__name__


def test_attention_weights_are_dropped_at_their_rate() -> None:
    n = 32
    v = torch.eye(n).expand(64, 1, n, n)
    zeros = torch.zeros(64, 1, n, n)
    weights = batched_attention(zeros, zeros, v, torch.ones(n, n) > 0, 0.25) * n
    dropped = weights == 0
    torch.testing.assert_close(weights[~dropped], torch.full_like(weights[~dropped], 4 / 3))
    assert abs(float(dropped.float().mean()) - 0.25) < 0.01


@needs_onednn
def test_every_shape_is_measured_once() -> None:
    weights = [torch.ones(8, 4), torch.ones(8, 4), torch.ones(4, 8)]
    for training, classes in ((False, (False, True)), (True, (True,))):
        found = measured_products(weights, training=training)
        assert set(found) == {(*shape, many) for shape in ((4, 8), (8, 4)) for many in classes}
    assert measured_attention(2, 8) <= {0, 1}
