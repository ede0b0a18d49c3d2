"""A recipe: its sections, and values that are laid over them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from vtrans.config.model import ModelConfig, contradiction
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


def check_together(recipe: Recipe, where: str) -> Recipe:
    """The recipe. Raises RecipeError, which begins with `where`, if its values contradict each other."""
    if reason := contradiction(recipe.model) or recipe.search.contradiction():
        raise RecipeError(f"{where}: {reason}")
    if recipe.train.guided_alignment > 0 and recipe.model.architecture == "decoder-only":
        raise RecipeError(
            f"{where}: train.guided_alignment must be 0 for a decoder-only model, which has no cross-attention, got "
            f"{recipe.train.guided_alignment:g}."
        )
    if recipe.train.learning_rate == 0 and recipe.train.scale == 0:
        raise RecipeError(f"{where}: train.learning_rate or train.scale must be above 0, got 0 for both.")
    model, search = recipe.model, recipe.search
    if recipe.train.r_drop > 0 and not model.dropout + model.attention_dropout + model.activation_dropout:
        raise RecipeError(
            f"{where}: train.r_drop must be 0 without dropout, which is what makes its two passes differ, got "
            f"{recipe.train.r_drop}; set model.dropout above 0."
        )
    for name, longest in (("search.max_length", search.max_length), ("model.max_positions", model.max_length)):
        if longest and search.min_length >= longest:
            raise RecipeError(
                f"{where}: search.min_length must be less than {longest}, the most tokens with EOS that {name} allows, "
                f"got {search.min_length}; lower it or raise {name}."
            )
    return recipe
