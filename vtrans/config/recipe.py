"""A recipe: its sections, and values that are laid over them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from vtrans.config.model import ModelConfig
from vtrans.config.search import SearchConfig
from vtrans.config.train import TrainConfig
from vtrans.errors import InputError, RecipeError
from vtrans.keys import check_value, keys_of, nearest

T = TypeVar("T", bound=ModelConfig | TrainConfig | SearchConfig)


@dataclass(frozen=True)
class Recipe:
    """What `vtrans train` is asked to do."""

    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    search: SearchConfig = field(default_factory=SearchConfig)


SECTIONS: dict[str, type[ModelConfig] | type[TrainConfig] | type[SearchConfig]] = {
    "model": ModelConfig,
    "train": TrainConfig,
    "search": SearchConfig,
}


def section_from(kind: type[T], section: str, values: Mapping[str, Any], where: str, base: T | None = None) -> T:
    """A section of a recipe with these values. The other keys have the values of `base`, or else the defaults.

    Raises RecipeError, which begins with `where`, for an unknown key or a value that is not allowed.
    """
    keys = keys_of(kind)
    checked = {}
    for name, value in values.items():
        if name not in keys:
            raise RecipeError(f"{where}: unknown key {section}.{name}; {nearest(name, keys)}")
        try:
            checked[name] = check_value(keys[name], f"{section}.{name}", value)
        except InputError as error:
            raise RecipeError(f"{where}: {error}") from None
    return dataclasses.replace(base if base is not None else kind(), **checked)
