"""The SSRU, compared with its formula in a plain loop."""

import pytest
import torch
from drawn import seed_of
from torch import Tensor

from vtrans.model.ssru import SSRU, recurrence

D = 6


def unit() -> SSRU:
    """An SSRU in float64 with a nonzero bias."""
    torch.manual_seed(seed_of(3))
    ssru = SSRU(D).double()
    ssru.forget_bias.data.normal_()
    return ssru


def by_definition(ssru: SSRU, x_BTD: Tensor) -> Tensor:
    """Section 3.2 of the paper, one sentence, position and unit at a time."""
    w_DD, wf_DD = ssru.zf.weight.chunk(2)
    sentences = []
    for x_TD in x_BTD:
        state, outputs = torch.zeros(D, dtype=x_BTD.dtype), []
        for x_D in x_TD:
            forget = 1 / (1 + torch.exp(-(wf_DD @ x_D + ssru.forget_bias)))
            state = forget * state + (1 - forget) * (w_DD @ x_D)
            outputs.append(state.clamp(min=0))
        sentences.append(torch.stack(outputs))
    return torch.stack(sentences)


@pytest.mark.parametrize("length", [1, 2, 7])
def test_output_and_gradients_match_the_formula(length: int) -> None:
    ssru = unit()
    x = torch.randn(3, length, D, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, length, D, dtype=torch.float64)
    inputs = (x, *ssru.parameters())
    output, expected = ssru(x), by_definition(ssru, x)
    torch.testing.assert_close(output, expected)
    assert 0 < (output > 0).double().mean() < 1
    torch.testing.assert_close(
        torch.autograd.grad((output * weight).sum(), inputs), torch.autograd.grad((expected * weight).sum(), inputs)
    )


def test_steps_give_the_state_of_the_whole_history() -> None:
    """A step replaces the state in place and in its rows only."""
    ssru = unit()
    x, states = torch.randn(2, 9, D, dtype=torch.float64), torch.zeros(3, D, dtype=torch.float64)
    with torch.no_grad():
        for t in range(9):
            output = ssru(x[:, t], states[:2])
        torch.testing.assert_close(output, ssru(x)[:, -1])
        torch.testing.assert_close(states[:2], recurrence(*ssru.inputs_gates(x))[:, -1])
    assert not states[2].any()
