"""Chain files: the models that `vtrans student` trains, and their text. `load_chain` reads and checks a file.

The sections of the file are the dataclasses below, whose fields are the keys. [back_translation], [teachers] and
[student] also take overrides of their recipe, such as `train.max_steps = 2000`. A chain without [back_translation] or
[student] omits their stages. Without [teachers], the student learns from the pairs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vtrans.apps.experiments.experiment_files import Text, checked, read_table, recipe_beside
from vtrans.apps.interop.capabilities import PROGRAMS, check_model
from vtrans.config import DEFAULT_RECIPE, SECTIONS, ModelConfig, Recipe, check_together, resolve_tie
from vtrans.config.keys import choice, flag, numbers, text, texts, toml_value
from vtrans.system.errors import InputError
from vtrans.training.recipe import load_recipe, merged


@dataclass(frozen=True)
class CleanedText(Text):
    """The section [text]: the text, and how it is cleaned."""

    clean: bool = flag(True, "Whether the training pairs are cleaned.")
    without: tuple[str, ...] = texts("Rules of `vtrans clean` that are not applied.")


@dataclass(frozen=True)
class Model:
    """Settings common to all models of a chain. `resolved` is the recipe with the overrides of the section."""

    recipe: str = text(DEFAULT_RECIPE, "Recipe, or a file that ends in .toml, relative to the chain file.")
    text: tuple[str, ...] = texts("Monolingual files in the folder of the text that the model translates.")
    precision: str = choice("float32", ("float32", "bfloat16", "int8"), "Precision of its translations.")
    resolved: Recipe = field(default_factory=Recipe)


@dataclass(frozen=True)
class BackTranslation(Model):
    """The section [back_translation]: a model of the opposite direction, which translates target text."""


@dataclass(frozen=True)
class Teachers(Model):
    """The section [teachers]: one model per seed, or given models. As an ensemble they translate the training sources
    and further text."""

    seeds: tuple[float, ...] = numbers((0, 2**31 - 1), "Seeds of the teachers.")
    models: tuple[str, ...] = texts("Model files to use instead of training teachers, relative to the chain file.")
    translate_options: tuple[str, ...] = texts("Further options of `vtrans translate`.")


@dataclass(frozen=True)
class Student(Model):
    """The section [student]: the small model, its training data besides the translations, and its format."""

    references: bool = flag(False, "Whether it learns from the pairs too.")
    export: str = choice("none", ("none", *PROGRAMS), "Format of `vtrans export`.")
    export_options: tuple[str, ...] = texts("Further options of `vtrans export`.")


@dataclass(frozen=True)
class Chain:
    """The content of a chain file."""

    text: CleanedText
    teachers: Teachers | None = None
    back_translation: BackTranslation | None = None
    student: Student | None = None

    @property
    def models(self) -> dict[str, Model]:
        """The sections of models by name."""
        sections = {name: getattr(self, name) for name in ("back_translation", "teachers", "student")}
        return {name: model for name, model in sections.items() if model}

    @property
    def teacher_models(self) -> list[str]:
        """The run folders of the teachers in the folder of the chain, or the files of given models."""
        if not self.teachers:
            return []
        return [*self.teachers.models] or [f"teacher-{n}" for n, _ in enumerate(self.teachers.seeds, 1)]


def load_chain(path: Path, given: Mapping[str, Any]) -> Chain:
    """Returns the chain in a file; `given` replaces values of its section [text]. Raises InputError for an unknown or
    missing key, and for a wrong value."""
    kinds = {"back_translation": BackTranslation, "teachers": Teachers, "student": Student}
    table = read_table(path, ("text", *kinds))
    if not {"teachers", "student"} & {*table}:
        raise InputError(f"{path}: the section [teachers] is missing; add it.")
    sections: dict[str, Any] = {key: _section(kinds[key], table[key], path, key) for key in table if key != "text"}
    chain = Chain(CleanedText.of(table, path, given), **sections)
    if chain.back_translation and not chain.back_translation.text:
        raise InputError(f"{path}: back_translation.text is missing; name files of the target language.")
    if chain.back_translation and (not chain.teachers or chain.teachers.models):
        raise InputError(f"{path}: back_translation has no effect without teachers that learn; leave it out.")
    if chain.student and chain.student.text:
        raise InputError(f"{path}: student.text has no effect; teachers.text names files that the teachers translate.")
    return chain


def _section(kind: type[Model], values: Any, path: Path, section: str) -> Model:
    where = f"{path}: {section}"
    made = checked(kind, values, where, SECTIONS)
    if kind is Teachers and made.get("models"):
        if unused := {"recipe", "seeds", *SECTIONS} & {*values}:
            raise InputError(f"{where}.{min(unused)} has no effect on the given models; leave it out.")
        for name in made["models"]:
            if not (path.parent / name).is_file():
                raise InputError(f"{where}.models must name model files, but there is no file {path.parent / name}.")
        made["models"] = tuple(str((path.parent / name).resolve()) for name in made["models"])
    elif kind is Teachers:
        made["seeds"] = seeds = made.get("seeds") or (1.0,)
        if len({int(seed) for seed in seeds if seed == int(seed)}) < len(seeds):
            raise InputError(f"{where}.seeds must be different whole numbers, got {toml_value(seeds)}.")
    recipe = load_recipe(recipe_beside(path, made.get("recipe", DEFAULT_RECIPE)))
    table = {name: values[name] for name in SECTIONS if name in values}
    recipe = check_together(merged(recipe, table, where), where)
    if recipe.model.is_own:
        raise InputError(f"{where}.model.network must be {ModelConfig.network} in a chain, got {recipe.model.network}.")
    if made.get("export") in PROGRAMS:
        model = dataclasses.replace(recipe.model, tie=resolve_tie(recipe.model.tie, joint=True))
        try:
            check_model(model, PROGRAMS[made["export"]])
        except InputError as error:
            raise InputError(f"{where}.export = {toml_value(made['export'])}: {error}") from None
    return kind(**made, resolved=recipe)
