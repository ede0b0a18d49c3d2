"""The product of oneDNN equals torch's own product, gradients included."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from vtrans.numerics import products
from vtrans.numerics.kernels import ONEDNN_PRODUCTS
from vtrans.numerics.products import bfloat16_products, linear, padded

needs_onednn = pytest.mark.skipif(not products.HAS_ONEDNN, reason="this torch has no oneDNN")


def operands(*shape: int, outputs: int, requires_grad: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator).requires_grad_(requires_grad)

    return draw(*shape), draw(outputs, shape[-1]), draw(outputs)


@needs_onednn
@pytest.mark.parametrize("shape", [(4096, 32), (8, 512, 32), (2, 2, 1024, 32)])
@pytest.mark.parametrize("outputs", [48, 20])
@pytest.mark.parametrize("biased", [True, False])
def test_outputs_and_gradients_equal_those_of_torch(shape: tuple[int, ...], biased: bool, outputs: int) -> None:
    x, weight, bias = operands(*shape, outputs=outputs, requires_grad=True)
    inputs = [x, weight, bias] if biased else [x, weight]
    assert x.numel() * outputs >= ONEDNN_PRODUCTS
    ours, theirs = linear(*inputs), F.linear(*inputs)
    assert "_Product" in type(ours.grad_fn).__name__
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    upstream = torch.randn(ours.shape, generator=torch.Generator().manual_seed(8))
    for mine, reference in zip(
        torch.autograd.grad(ours, inputs, upstream), torch.autograd.grad(theirs, inputs, upstream), strict=True
    ):
        assert mine.shape == reference.shape
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-3)


@needs_onednn
@pytest.mark.parametrize("wanted", ["x", "weight", "bias"])
def test_only_the_operand_that_requires_a_gradient_gets_one(wanted: str) -> None:
    x, weight, bias = operands(4096, 32, outputs=48)
    named = {"x": x, "weight": weight, "bias": bias}
    named[wanted].requires_grad_()
    linear(x, weight, bias).sum().backward()  # type: ignore[no-untyped-call]  # torch's own
    expected = {"x": weight.sum(0).expand(4096, 32), "weight": x.sum(0).expand(48, 32), "bias": torch.full((48,), 4096)}
    for name, operand in named.items():
        if name != wanted:
            assert operand.grad is None
            continue
        assert operand.grad is not None
        torch.testing.assert_close(operand.grad, expected[name], rtol=1e-4, atol=1e-3, check_dtype=False)


def test_operands_may_be_views_that_are_not_contiguous() -> None:
    x, weight, bias = operands(64, 4096, outputs=48)
    turned = x.t()  # [4096, 64]
    weight = weight[:, :64]
    torch.testing.assert_close(linear(turned, weight, bias), F.linear(turned, weight, bias), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_use_torchs_product(dtype: torch.dtype) -> None:
    x, weight, bias = (t.to(dtype) for t in operands(4096, 32, outputs=48))
    assert torch.equal(linear(x, weight, bias), F.linear(x, weight, bias))


def test_small_products_use_torchs_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_onednn_product", None)
    x, weight, bias = operands(4, 32, outputs=48)
    assert torch.equal(linear(x, weight, bias), F.linear(x, weight, bias))


def test_autocast_applies_to_the_product() -> None:
    x, weight, bias = operands(4096, 32, outputs=48)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(x, weight, bias).dtype is torch.bfloat16


def test_padded_rows_come_from_few_numbers() -> None:
    sizes = [padded(n) for n in range(1, 5000)]
    assert all(n <= size < 1.13 * n + 16 and padded(size) == size for n, size in enumerate(sizes, 1))
    assert len({size for size in sizes if 2048 < size <= 4096}) == 8
    assert padded(0) == 0


@pytest.mark.parametrize("shape", [(3, 40, 32), (128, 32)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_in_bfloat16_differ_by_its_rounding(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, weight, bias = (t.bfloat16().float() for t in operands(*shape, outputs=48))
    x = x.to(dtype)
    for operand in (x, weight, bias):
        operand.requires_grad_()
    with bfloat16_products():
        out = linear(x, weight, bias)
    assert out.dtype is torch.bfloat16
    assert linear(x.float(), weight, bias).dtype is torch.float32
    exact = F.linear(x.float(), weight, bias)
    torch.testing.assert_close(out.float(), exact, rtol=2**-7, atol=0.02)
    upstream = torch.randn(exact.shape).bfloat16()
    ours = torch.autograd.grad(out, (x, weight, bias), upstream)
    theirs = torch.autograd.grad(exact, (x, weight, bias), upstream.float())
    for mine, reference, operand in zip(ours, theirs, (x, weight, bias), strict=True):
        assert mine.dtype is operand.dtype
        assert mine.shape == operand.shape
        torch.testing.assert_close(mine.float(), reference.float(), rtol=2**-6, atol=0.1)


def test_a_product_in_bfloat16_has_a_padded_number_of_rows() -> None:
    """oneDNN builds a kernel for every new number of rows."""
    rows = set()
    for n in range(2000, 2300, 7):
        x, weight = torch.zeros(n, 8, requires_grad=True), torch.zeros(4, 8)
        with bfloat16_products():
            out = linear(x, weight)
        assert out.shape == (n, 4)
        rows.add(len(out.grad_fn.saved_tensors[0]))  # type: ignore[union-attr]  # torch's own
    assert rows == {2048, 2304}
