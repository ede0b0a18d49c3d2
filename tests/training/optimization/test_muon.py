"""Muon: its updates, skipped ones, and exact resume."""

import pytest
import torch
from drawn import seeded_tensors
from torch import nn

from vtrans.config import TrainConfig
from vtrans.training.optimization.optimizer import begin, make_optimizer

MUON = TrainConfig(optimizer="muon", precision="float32")


def weight(*size: int, seed: int = 0) -> nn.Parameter:
    return nn.Parameter(torch.randn(*size, generator=seeded_tensors(seed)))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this version of torch has no Muon to compare with")
def test_updates_equal_those_of_torch() -> None:
    config = TrainConfig(optimizer="muon", precision="bfloat16", weight_decay=0.1)  # torch's products are in bfloat16
    ours, theirs = (nn.Parameter(weight(8, 6).detach().clone()) for _ in range(2))
    optimizer = make_optimizer([ours, other := weight(2)], config, {ours: 1})
    begin(optimizer, [ours, other])
    reference = torch.optim.Muon([theirs], 0.1, 0.1, config.momentum, adjust_lr_fn="match_rms_adamw")
    for settings in optimizer.param_groups:
        settings["lr"] = 0.1
    for seed in range(3):
        ours.grad, theirs.grad = weight(8, 6, seed=seed).detach(), weight(8, 6, seed=seed).detach()
        optimizer.step()
        reference.step()  # type: ignore[no-untyped-call]  # torch's own
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-3)


def test_an_update_without_a_finite_gradient_changes_nothing() -> None:
    matrix, vector = weight(4, 4), weight(4)
    optimizer = make_optimizer([matrix, vector], MUON, {matrix: 1})
    begin(optimizer, [matrix, vector])
    optimizer.found_inf = torch.ones(())  # type: ignore[attr-defined]
    before = [matrix.detach().clone(), vector.detach().clone()]
    for settings in optimizer.param_groups:
        settings["lr"] = 0.1
    matrix.grad, vector.grad = torch.full((4, 4), torch.inf), torch.full((4,), torch.nan)
    optimizer.step()
    assert torch.equal(matrix, before[0])
    assert torch.equal(vector, before[1])
    assert not optimizer.state[matrix]["momentum_buffer"].any()
