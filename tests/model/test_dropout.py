"""Dropout: its masks come from 16 random bits per element, four elements per draw."""

import pytest
import torch
from drawn import seed_of
from torch import Tensor

from vtrans.model.dropout import Dropout


def masks(rate: float, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Returns 1 for kept elements and 0 for dropped ones. Checks that all kept elements have the same scale."""
    torch.manual_seed(seed_of(seed))
    out: Tensor = Dropout(rate).train()(torch.ones(shape, dtype=torch.float64))
    scale = (1 << 16) / ((1 << 16) - round(rate * (1 << 16)))
    assert scale == pytest.approx(1 / (1 - rate), rel=1e-3)
    torch.testing.assert_close(out.unique(), torch.tensor([0, scale], dtype=torch.float64))  # type: ignore[no-untyped-call]  # torch
    return out / scale


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.3, 0.5, 0.95])
def test_dropout_has_its_rate_in_every_lane_and_keeps_the_mean(rate: float) -> None:
    keep = masks(rate, (1000, 400))
    sigma = (rate * (1 - rate)) ** 0.5
    assert abs(float(keep.mean()) - (1 - rate)) < 4 * sigma / keep.numel() ** 0.5
    for lane in keep.view(-1, 4).mean(0).tolist():  # one draw decides four elements
        assert abs(lane - (1 - rate)) < 4 * sigma / (keep.numel() / 4) ** 0.5
    assert abs(float(keep.mean(0).std()) - sigma / 1000**0.5) < 0.2 * sigma / 1000**0.5  # columns
    assert abs(float(keep.mean(1).std()) - sigma / 400**0.5) < 0.2 * sigma / 400**0.5  # rows


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_dropout_is_reproducible_and_scales_the_gradient_by_its_mask(dtype: torch.dtype) -> None:
    dropout = Dropout(0.4).train()
    x = torch.randn(7, 5, 3, dtype=dtype, requires_grad=True)  # 105 elements are not a multiple of 4
    state = torch.get_rng_state()
    out = dropout(x)
    after = torch.get_rng_state()
    assert not torch.equal(dropout(x), out)
    torch.set_rng_state(state)
    assert torch.equal(dropout(x), out)
    assert torch.equal(torch.get_rng_state(), after)
    assert out.dtype == dtype
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(grad * x, out)
    assert 0 < int((grad == 0).sum()) < grad.numel()
