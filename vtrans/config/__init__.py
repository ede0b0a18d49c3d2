"""Settings as frozen dataclasses: recipes and the defaults of commands.

Each recipe default is defined once, here; data/options.py has the defaults of prepare-bpe. The metadata of a field is a
`Key`, which has all other facts of the setting, such as its range, its help, and whether a resumed run may change it. A
recipe describes a model and its training completely, except the vocabulary, which comes from the data folder.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from vtrans.config.keys import check_fields, check_value, choice, flag, keys_of, nearest, path, text, texts
from vtrans.config.model import TIE_FORMS as TIE_FORMS
from vtrans.config.model import ModelConfig as ModelConfig
from vtrans.config.model import check_tie as check_tie
from vtrans.config.model import contradiction as contradiction
from vtrans.config.model import resolve_tie as resolve_tie
from vtrans.config.search import SearchConfig as SearchConfig
from vtrans.config.train import TrainConfig as TrainConfig
from vtrans.system.errors import InputError, RecipeError
from vtrans.system.files import no_file, reason

DEFAULT_RECIPE = "small"
DEFAULT_RUN = "run"
MBR_METRICS = ("chrf", "bleu")
MBR_BEAM, MBR_SAMPLES = 16, 64  # candidates and samples of minimum Bayes risk decoding
RETRY_NGRAM = 3  # `no_repeat_ngram` of a retry
# Sizes of a shortlist: target subwords per source subword, and target subwords allowed in every sentence.
DEFAULT_TRANSLATIONS, DEFAULT_FREQUENT = 8, 1500
DECODING_PRECISIONS = ("float32", "bfloat16", "float16", "int8")  # the first is the default
CACHE_VARIABLE = "VTRANS_CACHE"  # the environment variable with the folder of compiled code

T = TypeVar("T", bound=ModelConfig | TrainConfig | SearchConfig)
_own = partial(texts, metavar="FILE:CLASS", panel="Model", advanced=True, speed_only=True)  # jobs record its digest


@dataclass(frozen=True)
class EngineConfig:
    """Engine and device settings of `vtrans.load`. No file stores them. None means a default that depends on the model
    and the hardware."""

    PANEL: ClassVar[str] = "Speed"

    engine: str | None = choice(
        None,
        {
            "compiled": "C++ on a CPU; several threads divide the sentences of a batch",
            "torch": "any device and precision",
        },
        "Program that runs the model.",
        metavar="NAME",
        panel="Model",
        advanced=True,
        unset="compiled if possible, else torch",
    )
    device: str | None = text(
        None, "Device: cpu, cuda, cuda:N or mps.", metavar="NAME", unset="the best available", speed_only=True
    )
    shortlist: bool = flag(
        False, "Restrict the output to likely subwords, as learned by `vtrans shortlist`.", advanced=True
    )
    precision: str | None = choice(
        None,
        DECODING_PRECISIONS,
        "Precision of matrix products: float32, bfloat16, float16, or int8, which needs the compiled engine.",
        metavar="TYPE",
        unset=DECODING_PRECISIONS[0],
    )

    code: Path | None = path(
        None,
        "Python file with the network of a model that was trained with code of your own. vtrans runs the file.",
        panel="Model",
        advanced=True,
        speed_only=True,  # the model determines the code
    )
    rules: tuple[str, ...] = _own("Rule of the search, such as mine.py:NotAfter. May be repeated.", flag="--rule")
    steps: tuple[str, ...] = _own("First step of each line, such as mine.py:Modern. May be repeated.", flag="--step")

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Recipe:
    """The settings of `vtrans train`."""

    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    search: SearchConfig = field(default_factory=SearchConfig)


SECTIONS: dict[str, type[ModelConfig] | type[TrainConfig] | type[SearchConfig]] = {
    "model": ModelConfig,
    "train": TrainConfig,
    "search": SearchConfig,
}


def section_from(kind: type[T], section: str, values: Mapping[str, Any], where: str, base: T | None = None) -> T:
    """Returns a section of a recipe with these values; other keys are from `base`, or else have their defaults.

    Raises RecipeError, whose message begins with `where`, for an unknown key or an invalid value.
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


def read_toml(path: Path, where: str) -> dict[str, Any]:
    """Returns the content of a TOML file. Raises InputError, which calls the file `where`, if it cannot be read."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise no_file(path) from None
    except OSError as error:
        raise InputError(f"{where} cannot be read: {reason(error)}.") from None
    except RecursionError:
        raise RecipeError(f"{where} has values nested too deeply; a recipe has sections of plain values.") from None
    except ValueError as error:  # not UTF-8, not TOML, or a number with thousands of digits
        raise RecipeError(f"{where} is not TOML: {str(error).rstrip('.')}.") from None


def check_together(recipe: Recipe, where: str) -> Recipe:
    """Returns the recipe. Raises RecipeError, whose message begins with `where`, if its values are contradictory."""
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
