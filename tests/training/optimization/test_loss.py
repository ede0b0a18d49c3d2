"""The fused projection and label-smoothed loss against the plain formula."""

from typing import Any

import pytest
import torch
from drawn import seed_of
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vtrans.training.optimization import loss as loss_module
from vtrans.training.optimization.loss import projected_loss

PAD = 2
N, D, V = 7, 5, 11


def plain(
    h_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, smoothing: float, bias_V: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The definition, word for word: cross entropy against a distribution without padding."""
    logits_NV = (h_ND @ weight_VD.t() + (0 if bias_V is None else bias_V)).index_fill(1, torch.tensor(PAD), -torch.inf)
    logprobs = logits_NV.log_softmax(1)
    target = torch.full_like(logits_NV, smoothing / (logits_NV.shape[1] - 1))
    target[:, PAD] = 0
    for n, t in enumerate(targets_N.tolist()):
        target[n, t] += 1 - smoothing
    nll = -logprobs[torch.arange(len(targets_N)), targets_N].sum()
    return -(target * logprobs.masked_fill(target == 0, 0)).sum(), nll


def example(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed_of(0))
    h, weight = torch.randn(N, D, dtype=dtype), torch.randn(V, D, dtype=dtype)
    return h.requires_grad_(), weight.requires_grad_(), torch.tensor([1, 3, 10, 0, 3, 7, 4])


@pytest.fixture(params=[1 << 20, 3 * V], ids=["one block", "blocks of up to three rows"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Computes the softmax of a chunk at once, or of a few rows at a time."""
    monkeypatch.setattr(loss_module, "CHUNK_LOGITS", request.param)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("chunk", [1 << 23, 1, 3 * V, N * V])
@pytest.mark.parametrize(("smoothing", "biased"), [(0.0, False), (0.1, True), (0.5, False)])
def test_value_and_gradient_equal_the_plain_formula(
    monkeypatch: pytest.MonkeyPatch, smoothing: float, biased: bool, chunk: int
) -> None:
    monkeypatch.setitem(loss_module.CHUNK, "cpu", chunk)
    h, weight, targets = example()
    bias = torch.randn(V, dtype=torch.float64, requires_grad=True) if biased else None
    losses = projected_loss(h, weight, targets, smoothing, PAD, bias_V=bias)
    expected = plain(h, weight, targets, smoothing, bias)
    torch.testing.assert_close(losses, expected)
    inputs = [tensor for tensor in (h, weight, bias) if tensor is not None]
    grads = torch.autograd.grad(0.3 * losses[0], inputs)
    torch.testing.assert_close(grads, torch.autograd.grad(0.3 * expected[0], inputs))
    assert not grads[1][PAD].any()


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("chunk", [1 << 23, 1, 3 * V, N * V])
def test_agreement_adds_the_mean_divergence_to_the_mean_of_two_passes(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setitem(loss_module.CHUNK, "cpu", chunk)
    _, weight, targets = example()
    h = torch.randn(2 * N, D, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(V, dtype=torch.float64, requires_grad=True)
    inputs = h, weight, bias
    losses = projected_loss(h, weight, targets.repeat_interleave(2), 0.1, PAD, bias_V=bias, agreement=0.7)
    passes = [plain(part, weight, targets, 0.1, bias) for part in (h[::2], h[1::2])]
    kept = [v for v in range(V) if v != PAD]
    p, q = ((part @ weight.t() + bias)[:, kept].softmax(1) for part in (h[::2], h[1::2]))
    divergence = (p * (p / q).log()).sum() + (q * (q / p).log()).sum()
    expected = (passes[0][0] + passes[1][0] + 0.7 * divergence) / 2
    torch.testing.assert_close(losses, (expected, (passes[0][1] + passes[1][1]) / 2))
    grads = torch.autograd.grad(0.3 * losses[0], inputs)
    torch.testing.assert_close(grads, torch.autograd.grad(0.3 * expected, inputs))


class Largest(TorchDispatchMode):
    """The maximum number of elements of any result."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            self.elements = max(self.elements, out.numel())
        return out


def test_the_logits_never_exist_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(loss_module.CHUNK, "cpu", 30 * 50)
    h, weight, targets = torch.randn(300, 4, requires_grad=True), torch.randn(50, 4), torch.randint(3, 50, (300,))
    with Largest() as largest:
        projected_loss(h, weight, targets, 0.1, PAD)[0].backward()  # type: ignore[no-untyped-call]  # torch
    assert largest.elements == 30 * 50


def test_bfloat16_is_used_for_the_products_of_the_loss_only() -> None:
    h, weight, targets = example(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss, nll = projected_loss(h.bfloat16(), weight, targets, 0.1, PAD)
        in_float, _ = projected_loss(h, weight, targets, 0.1, PAD)
    assert loss.dtype == nll.dtype == torch.float32
    assert torch.equal(loss, in_float)
    exact, _ = projected_loss(h, weight, targets, 0.1, PAD)
    assert loss != exact
    torch.testing.assert_close(loss, exact, rtol=0.02, atol=0)
    grads, expected = torch.autograd.grad(in_float, (h, weight)), torch.autograd.grad(exact, (h, weight))
    for grad, other in zip(grads, expected, strict=True):
        assert grad.dtype == torch.float32
        torch.testing.assert_close(grad, other, rtol=0.05, atol=0.05)
