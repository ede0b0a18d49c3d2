"""Training states: what resuming needs besides the model file.

A state is one file (tensor_files.py): the optimizer's tensors, and the progress of the run in the header.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vtrans.errors import FileError
from vtrans.model import Transformer
from vtrans.tensor_files import FORMAT, open_tensors, write_tensors

OPTIMIZER_PARTS = {"step", "exp_avg", "exp_avg_sq"}  # Adam's state of each parameter
RAW = "weight"  # the parameter itself, see save_state


def save_state(
    path: Path,
    optimizer: torch.optim.Optimizer,
    model: Transformer,
    progress: Mapping[str, Any],
    raw: Mapping[str, Tensor] | None = None,
) -> None:
    """Writes the optimizer's tensors under the names of the parameters, and `progress` as JSON. `raw` has the trained
    weights if the model file has their moving average instead."""
    tensors = {f"{name}:{RAW}": value.detach().contiguous().cpu() for name, value in (raw or {}).items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            tensors[f"{name}:{key}"] = value.detach().contiguous().cpu()
    write_tensors(path, tensors, {"format": FORMAT, "kind": "state", "progress": dict(progress)})


def read_progress(path: Path) -> dict[str, Any]:
    """The `progress` of a state file."""
    with open_tensors(path, "state") as (_, header):
        progress: dict[str, Any] = header["progress"]
    return progress


def load_state(path: Path, optimizer: torch.optim.Optimizer, model: Transformer) -> None:
    """Loads the optimizer's state from a file, and the model's weights if the file has them. Raises FileError if the
    file belongs to other parameters."""
    with open_tensors(path, "state") as (file, _):
        by_parameter: dict[str, dict[str, Tensor]] = {}
        for key in file.keys():  # noqa: SIM118 - not a dict
            name, _, part = key.rpartition(":")
            by_parameter.setdefault(name, {})[part] = file.get_tensor(key).clone()
    parameters = dict(model.named_parameters())
    if set(by_parameter) != set(parameters):
        raise FileError(f"{path} is the state of another architecture.")
    for name, parameter in parameters.items():
        if set(by_parameter[name]) - {RAW} != OPTIMIZER_PARTS:
            raise FileError(f"{path}: the optimizer's state of {name} is incomplete.")
        for part, value in by_parameter[name].items():
            if part != "step" and value.shape != parameter.shape:
                raise FileError(f"{path}: {name} must have the shape {list(parameter.shape)}, got {list(value.shape)}.")
            if part == RAW:
                parameter.data.copy_(value)
            else:
                optimizer.state[parameter][part] = value.to(parameter.device)
