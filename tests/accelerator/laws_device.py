"""The pretended device is as strict as a GPU. test_pretended.py runs this file."""

from collections.abc import Callable

import pretended
import pytest
import torch
from pretended import waits
from torch import Tensor

pretended.register()
HOST = torch.arange(6.0).view(2, 3)
DEVICE, OTHER = "pretended", "pretended:1"


@pytest.mark.parametrize(
    "mixed",
    [
        lambda x: x + HOST,
        lambda x: HOST + x,
        lambda x: torch.cat([x, HOST]),
        lambda x: x @ HOST.T,
        lambda x: x.index_select(1, torch.tensor([0])),
        lambda x: torch.stack([x[0, 0], HOST[0, 0]]),
        lambda x: x + HOST.to(OTHER),
        lambda x: HOST[x[0].long()],
        lambda x: torch._foreach_add_([x], [HOST]),
    ],
)
def test_an_operation_that_mixes_devices_raises(mixed: Callable[[Tensor], object]) -> None:
    with pytest.raises(RuntimeError, match="pretended"):
        mixed(HOST.to(DEVICE))


@pytest.mark.parametrize(
    ("operation", "count"),
    [
        (lambda x: x.sum().item(), 1),
        (lambda x: x.tolist(), 1),
        (lambda x: x.cpu(), 1),
        (lambda x: bool((x > 2).any()), 1),
        (lambda x: x.nonzero(), 1),
        (lambda x: x[x > 2], 1),
        (lambda x: x[[0, 1]], 1),
        (lambda x: x[:, torch.tensor([0, 1])], 1),
        (lambda x: torch.tensor([1, 2], device=x.device), 1),
        (lambda x: HOST.to(x.device), 1),
        (lambda x: HOST.to(x.device, non_blocking=True), 0),
        (lambda x: x.to(OTHER), 0),
        (lambda x: x.masked_fill(x > 2, 0.0).sort().values.softmax(-1) * HOST[0, 0], 0),
        (lambda x: torch.arange(3, device=x.device) + x.new_zeros(3), 0),
    ],
)
def test_what_waits_for_a_gpu_is_counted(operation: Callable[[Tensor], object], count: int) -> None:
    x = HOST.to(DEVICE)
    with waits() as waited:
        operation(x)
    assert len(waited) == count, waited
