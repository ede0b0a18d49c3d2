"""Muon: orthogonal steps, fused projections, skipped updates and exact resume."""

from __future__ import annotations

import pytest
import torch
from networks import make
from torch import Tensor, nn

from vtrans.config import TrainConfig
from vtrans.training.optimization.muon import Muon
from vtrans.training.optimization.optimizer import begin, make_optimizer

MUON = TrainConfig(optimizer="muon", precision="float32")


def weight(*size: int, seed: int = 0) -> nn.Parameter:
    return nn.Parameter(torch.randn(*size, generator=torch.Generator().manual_seed(seed)))


def stepped(weights: dict[Tensor, int], gradients: list[Tensor], config: TrainConfig = MUON) -> list[Tensor]:
    """The weights after one update of a learning rate of 0.1."""
    optimizer = make_optimizer([*weights, other := weight(3)], config, weights)
    begin(optimizer, [*weights, other])
    for settings in optimizer.param_groups:
        settings["lr"] = 0.1
    for parameter, gradient in zip(weights, gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()
    return [parameter.detach().clone() for parameter in weights]


def test_fused_projections_are_matrices_of_their_own() -> None:
    start, gradient = weight(12, 4).detach(), weight(12, 4, seed=1).detach()
    (fused,) = stepped({nn.Parameter(start.clone()): 3}, [gradient])
    parts: list[dict[Tensor, int]] = [{nn.Parameter(part.clone()): 1} for part in start.chunk(3)]
    apart = [stepped(part, [own])[0] for part, own in zip(parts, gradient.chunk(3), strict=True)]
    torch.testing.assert_close(fused, torch.cat(apart))
    assert not torch.allclose(fused, stepped({nn.Parameter(start.clone()): 1}, [gradient])[0])


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


def test_every_matrix_of_the_layers_and_nothing_else_is_muons() -> None:
    model = make()
    optimizer = make_optimizer(model.parameters(), MUON, model.matrices())
    assert isinstance(optimizer, Muon)
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    muons = {names[p] for p in optimizer.param_groups[0]["params"]}
    adams = {names[p] for p in optimizer.param_groups[1]["params"]}
    assert muons | adams == set(names.values())
    assert not muons & adams
    assert muons == {name for name, p in model.named_parameters() if p.dim() == 2 and "layers" in name}
    assert {names[p].rpartition(".")[0].rpartition(".")[2]: n for p, n in model.matrices().items()} == {
        "qkv": 3, "kv": 2, "query": 1, "out": 1, "inner": 1, "outer": 1,
    }  # fmt: skip
