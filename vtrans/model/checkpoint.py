"""Loads torch networks from model files (storage/model_file.py) and saves them."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vtrans.model.network import Transformer
from vtrans.storage.model_file import (
    FREQUENT,
    JOINT,
    SOURCE,
    TARGET,
    TRANSLATIONS,
    Blueprint,
    Model,
    Shortlist,
    check_finite,
    check_model,
    needs_code,
    with_network,
)
from vtrans.storage.tensors import FORMAT, open_tensors, write_tensors
from vtrans.system.errors import FileError
from vtrans.system.own_code import class_of, own_digest
from vtrans.text.vocabulary import PAD_ID

LoadedModel: TypeAlias = Model[Transformer]


def aliases(model: torch.nn.Module) -> dict[str, str]:
    """Returns the additional names of shared weights, each with the name of its first owner."""
    first: dict[int, str] = {}
    names = {}
    for name, weight in model.state_dict(keep_vars=True).items():
        owner = first.setdefault(id(weight), name)
        if owner != name:
            names[name] = owner
    return names


def weights_of(model: torch.nn.Module) -> dict[str, Tensor]:
    """Returns the tensors of a model file: each parameter and each fixed table once, under the name of its first
    owner."""
    named: dict[str, Tensor] = model.state_dict(keep_vars=True)
    others = aliases(model)
    return {name: weight for name, weight in named.items() if name not in others}


def save_model(path: Path, loaded: LoadedModel) -> None:
    """Writes a model file, which holds each shared weight once."""
    model = loaded.model
    tensors = {name: weight.detach().contiguous().cpu() for name, weight in weights_of(model).items()}
    if loaded.src_vocab is loaded.tgt_vocab:
        tensors[JOINT] = _bytes_tensor(loaded.src_vocab.proto)
    else:
        tensors[SOURCE] = _bytes_tensor(loaded.src_vocab.proto)
        tensors[TARGET] = _bytes_tensor(loaded.tgt_vocab.proto)
    if loaded.shortlist is not None:
        tensors |= _shortlist_tensors(loaded.shortlist)
    header = {**loaded.record(), "format": FORMAT, "kind": "model", "aliases": aliases(model)}
    write_tensors(path, tensors, header)


class Unfilled(TorchFunctionMode):
    """Skips the initialization of a model whose weights a file replaces."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.normal_, Tensor.uniform_) or getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def load_model(
    path: str | Path,
    device: torch.device | str = "cpu",
    code: str | Path | None = None,
    network: type[Transformer] | None = None,
) -> LoadedModel:
    """Returns the model in a file, on `device`. The constructor ties its weights.

    A user-defined network needs `code`, the file that defines it, which is executed, or its class `network`.

    Raises FileError if the file is missing, truncated, damaged or foreign, if its tensors do not match its architecture
    exactly, or if a weight is not finite; InputError if `code` is missing or lacks the class. Names, shapes and types
    are compared before the weights are allocated, so that a wrong header cannot exhaust the memory.
    """
    with open_tensors(path, "model", "pt") as (file, header):
        checked = check_model(path, file, header)
        sizes = len(checked.src_vocab), len(checked.tgt_vocab)
        own = checked.model.config.is_own
        kind = network or (_own_class(path, checked, code) if own else Transformer)
        with Unfilled():
            model = kind(checked.model.config, *sizes, joint=checked.joint, pad_id=PAD_ID)
        shapes = {name: tuple(weight.shape) for name, weight in weights_of(model).items()}
        if own and (shapes, aliases(model)) != (checked.model.layout.shapes, checked.model.layout.aliases):
            raise FileError(f"{path} has different weights from {kind.__name__}; give the code used in training.")
        for name, weight in weights_of(model).items():
            weight.data.copy_(file.get_tensor(name))
            check_finite(path, name, weight.data.numpy())
    return with_network(checked, model.to(device).eval())


def _own_class(path: str | Path, checked: Model[Blueprint], code: str | Path | None) -> type[Transformer]:
    """Returns the class of a user-defined network. Warns if its code has changed since training."""
    config = checked.model.config
    if code is None:
        raise needs_code(path, config)
    named = dataclasses.replace(config, network=f"{code}:{config.network.rpartition(':')[2]}")
    found = class_of(named, "network", Transformer)
    if checked.code != own_digest(code):
        warnings.warn(f"{code} has changed since {path} was trained", stacklevel=3)
    return found


def add_shortlist(path: Path, shortlist: Shortlist, out: Path) -> None:
    """Writes the model file `path` with this shortlist to `out`, which may be the same file."""
    with open_tensors(path, "model", "pt") as (file, header):
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a dict
    write_tensors(out, tensors | _shortlist_tensors(shortlist), header)


def _shortlist_tensors(shortlist: Shortlist) -> dict[str, Tensor]:
    parts = {TRANSLATIONS: shortlist.translations, FREQUENT: shortlist.frequent}
    return {name: torch.from_numpy(part) for name, part in parts.items()}


def load_weights(path: Path, model: Transformer) -> None:
    """Copies the weights of a model file into `model`. Raises FileError if the architectures differ."""
    loaded = load_model(path, network=type(model))
    if loaded.model.config != model.config:
        raise FileError(f"{path} is a model of another architecture.")
    read = weights_of(loaded.model)
    for name, weight in weights_of(model).items():
        if read[name].shape != weight.shape:
            raise FileError(f"{path}: {name} has another vocabulary size.")
        weight.data.copy_(read[name].data)


def _bytes_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
