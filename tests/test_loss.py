"""The fused label-smoothed loss against the plain formula."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vtrans.loss import smoothed_loss

PAD = 0


def plain(logits_NV: Tensor, targets_N: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The definition, word for word: cross entropy against a distribution without padding."""
    logprobs = logits_NV.log_softmax(1)
    target = torch.full_like(logits_NV, smoothing / (logits_NV.shape[1] - 1))
    target[:, PAD] = 0
    for n, t in enumerate(targets_N.tolist()):
        target[n, t] += 1 - smoothing
    nll = -logprobs[torch.arange(len(targets_N)), targets_N].sum()
    return -(target * logprobs.masked_fill(target == 0, 0)).sum(), nll


def example(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    logits = (3 * torch.randn(7, 11, dtype=dtype)).requires_grad_()
    return logits, torch.randint(1, 11, (7,))


def masked(logits: Tensor) -> Tensor:
    out = logits.clone()
    out[:, PAD] = -torch.inf
    return out


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_value_and_gradient_equal_the_plain_formula(smoothing: float) -> None:
    logits, targets = example()
    loss, nll = smoothed_loss(masked(logits), targets, smoothing, PAD)
    expected, expected_nll = plain(masked(logits), targets, smoothing)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(nll, expected_nll)
    (grad,) = torch.autograd.grad(loss, logits)
    (expected_grad,) = torch.autograd.grad(expected, logits)
    torch.testing.assert_close(grad, expected_grad)
    assert not grad[:, PAD].any()


def test_gradient_equals_finite_differences_and_scales() -> None:
    logits, targets = example()

    def loss_of(x: Tensor) -> Tensor:
        return 0.3 * smoothed_loss(masked(x), targets, 0.1, PAD)[0]

    assert torch.autograd.gradcheck(loss_of, logits)


def test_it_equals_torch_cross_entropy_without_the_padding_column() -> None:
    logits, targets = example(torch.float32)
    loss, _ = smoothed_loss(masked(logits), targets, 0.1, PAD)
    expected = torch.nn.functional.cross_entropy(logits[:, 1:], targets - 1, label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(loss, expected)


def test_the_log_likelihood_carries_no_gradient() -> None:
    logits, targets = example()
    assert not smoothed_loss(masked(logits), targets, 0.1, PAD)[1].requires_grad
