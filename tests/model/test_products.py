"""The product of oneDNN equals torch's own product, gradients included."""

import pytest
import torch
from drawn import seeded_tensors
from torch.nn import functional as F

from vtrans.model import products
from vtrans.model.kernels import ONEDNN_PRODUCTS
from vtrans.model.products import linear

needs_onednn = pytest.mark.skipif(not products.HAS_ONEDNN, reason="this torch has no oneDNN")


def operands(*shape: int, outputs: int, requires_grad: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = seeded_tensors(7)

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
    upstream = torch.randn(ours.shape, generator=seeded_tensors(8))
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
