"""Training states: the data needed to resume besides the model file.

A state is one file (tensors.py): the optimizer's tensors, and the progress of the run in the header.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vtrans.storage.tensors import FORMAT, open_tensors, write_tensors
from vtrans.system.errors import FileError

OPTIMIZER_PARTS = ({"step", "exp_avg", "exp_avg_sq"}, {"momentum_buffer"})  # the state of a parameter, Adam's or Muon's
RAW = "weight"  # the parameter itself, see state_of


def state_of(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.nn.Parameter], *, with_weights: bool = False
) -> dict[str, Tensor]:
    """The tensors of a training state by `name:part` of a parameter: the optimizer's and, `with_weights`, the trained
    weights, for a model file with the moving average."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in parameters.items():
        if with_weights:
            tensors[f"{name}:{RAW}"] = parameter.detach()
        tensors |= {f"{name}:{part}": value for part, value in optimizer.state[parameter].items()}
    return tensors


def save_state(path: Path, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
    """Writes the tensors of `state_of`, and `progress` as JSON."""
    write_tensors(path, tensors, {"format": FORMAT, "kind": "state", "progress": dict(progress)})


def read_progress(path: Path) -> dict[str, Any]:
    """The `progress` of a state file."""
    with open_tensors(path, "state") as (_, header):
        progress: dict[str, Any] = header["progress"]
    return progress


def read_state(
    path: Path, model: torch.nn.Module, part_of: Callable[[Tensor], Tensor] = lambda whole: whole
) -> dict[str, dict[str, Tensor]]:
    """The tensors of a state file by parameter and part, each passed through `part_of`. Raises FileError unless the
    file belongs to the parameters of the model."""
    shapes = {name: list(parameter.shape) for name, parameter in model.named_parameters()}
    state: dict[str, dict[str, Tensor]] = {name: {} for name in shapes}
    with open_tensors(path, "state", "pt") as (file, _):
        if {key.rpartition(":")[0] for key in file.keys()} != set(shapes):  # noqa: SIM118 - not a dict
            raise FileError(f"{path} is the state of another architecture.")
        for key in file.keys():  # noqa: SIM118 - not a dict
            name, _, part = key.rpartition(":")
            value = file.get_tensor(key)
            if part != "step" and list(value.shape) != shapes[name]:
                raise FileError(f"{path}: {name} must have the shape {shapes[name]}, got {list(value.shape)}.")
            state[name][part] = part_of(value).clone()
    for name, parts in state.items():
        if set(parts) - {RAW} not in OPTIMIZER_PARTS:
            raise FileError(f"{path}: the optimizer's state of {name} is incomplete.")
    return state
