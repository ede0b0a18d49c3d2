"""Losses from log-probabilities against the fused loss, and against autograd over all positions at once."""

import pytest
import torch
from networks import SMALL, V, make, sequences
from torch import Tensor

from vtrans.data.batches import Batch, collate
from vtrans.model.products import has_bfloat16
from vtrans.system.errors import InputError
from vtrans.training.optimization.logprob_loss import LogprobLoss
from vtrans.training.optimization.loss import Objective, autocast

CPU = torch.device("cpu")


class Smoothed(LogprobLoss):
    """The label-smoothed cross entropy of loss.py."""

    def losses(self, logprobs_NV: Tensor, targets_N: Tensor) -> Tensor:
        nll_N = -logprobs_NV.gather(1, targets_N[:, None])[:, 0]
        return (1 - self.smoothing) * nll_N - self.smoothing * logprobs_NV[:, 1:].mean(1)


class FocalWithEntropy(LogprobLoss):
    """A loss that records how many positions it gets at a time."""

    def losses(self, logprobs_NV: Tensor, targets_N: Tensor) -> Tensor:
        self.most = max(getattr(self, "most", 0), len(targets_N))
        logprobs_N, known_NV = logprobs_NV.gather(1, targets_N[:, None])[:, 0], logprobs_NV[:, 1:]
        return -((1 - logprobs_N.exp()) ** 2) * logprobs_N + 0.1 * (known_NV.exp() * known_NV).sum(1)


def batch() -> Batch:
    src, tgt = ([torch.tensor(row[:-1], dtype=torch.int32) for row in sequences(5, 3, 7, seed=seed)] for seed in (1, 2))
    return collate(src, tgt)


def measured(objective: Objective, precision: str = "float32") -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Returns the loss, the negative log-likelihood, and the gradients of half of the loss."""
    model = objective.model
    model.zero_grad()
    with autocast(CPU, precision):
        loss, nll = objective(batch())
    (loss / 2).backward()
    return loss.detach(), nll, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("chunk", [0, 1, 4 * V])
def test_smoothed_cross_entropy_equals_the_fused_loss(chunk: int) -> None:
    model = make(SMALL)
    own = Smoothed(model, 0.1)
    own.chunk = chunk
    torch.testing.assert_close(measured(own), measured(Objective(model, 0.1)))


def test_chunks_have_the_gradient_of_the_whole() -> None:
    whole, parts = (FocalWithEntropy(make(SMALL), 0.0) for _ in range(2))
    parts.chunk = 4 * V
    torch.testing.assert_close(measured(parts), measured(whole))
    assert (parts.most, whole.most) == (4, batch().tgt_tokens)


@pytest.mark.skipif(not has_bfloat16(), reason="this processor has no bfloat16")
def test_the_backward_pass_rounds_as_the_forward_pass() -> None:
    model = make(SMALL).float()
    ours, fused = (measured(kind(model, 0.1), "bfloat16") for kind in (Smoothed, Objective))
    torch.testing.assert_close(ours[:2], fused[:2], rtol=0.02, atol=0.02)
    torch.testing.assert_close(ours[2], fused[2], rtol=0.1, atol=0.1)


def test_evaluation_needs_no_gradient() -> None:
    model = make(SMALL)
    with torch.inference_mode():
        torch.testing.assert_close(Smoothed(model, 0.1)(batch()), Objective(model, 0.1)(batch()))


def test_r_drop_is_refused() -> None:
    with pytest.raises(InputError, match="r_drop"):
        Smoothed(make(SMALL), 0.1, r_drop=1.0)


class Mean(Smoothed):
    def losses(self, logprobs_NV: Tensor, targets_N: Tensor) -> Tensor:
        return super().losses(logprobs_NV, targets_N).mean()


def test_a_mean_loss_is_refused() -> None:
    """A mean over a chunk would count only a few positions when summed over chunks."""
    with pytest.raises(InputError, match=r"Mean\.losses must return the loss of each position.*got \[\]\.$"):
        measured(Mean(make(SMALL), 0.1))
