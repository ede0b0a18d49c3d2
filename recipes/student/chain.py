"""Chain files: what `make student` trains, on which text. `load_chain` reads and checks one.

A chain file is a TOML file. Its sections are the dataclasses below, whose fields are the keys. [back_translation],
[teachers] and [student] also take values that replace those of their recipe, such as `train.max_steps = 2000`. A chain
without [back_translation] or [student] leaves out their stages. Without [teachers], the student learns from the pairs.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vtrans.apps.interop.capabilities import PROGRAMS, check_model
from vtrans.config import DEFAULT_RECIPE, SECTIONS, Recipe, resolve_tie
from vtrans.config.keys import choice, flag, number, numbers, text, texts, toml_value
from vtrans.system.errors import InputError, VtransError
from vtrans.training.recipe import load_recipe

from ..experiment import EXPERIMENTS
from ..studies.rows import check_keys, checked, read_table, settings_of

SHIPPED = Path(__file__).parent


@dataclass(frozen=True)
class Text:
    """The section [text]: the languages, the text, and what happens to it before any training."""

    src: str = text("", "Source language, which is the ending of its files.")
    tgt: str = text("", "Target language.")
    folder: str = text("", "Folder with train, valid and test files, relative to the chain file.")
    experiment: str | None = choice(None, tuple(EXPERIMENTS), "Experiment whose text is used if there is no folder.")
    clean: bool = flag(True, "Whether the training pairs are cleaned.")
    without: tuple[str, ...] = texts("Rules of `vtrans clean` that are not applied.")
    vocab_size: int = number(8000, 1, 10**6, "Subwords of the joint vocabulary.", "subwords")
    processes: int = number(0, 0, 1024, "Processes of each training and translation; 0: one per core.", "processes")


@dataclass(frozen=True)
class Model:
    """Settings common to all models of a chain. `resolved` is the recipe with the values of the section."""

    recipe: str = text(DEFAULT_RECIPE, "Recipe, or a file that ends in .toml, relative to the chain file.")
    text: tuple[str, ...] = texts("Monolingual files in the folder of the text that the model translates.")
    precision: str = choice("float32", ("float32", "bfloat16", "int8"), "Precision of its translations.")
    resolved: Recipe = field(default_factory=Recipe)


@dataclass(frozen=True)
class BackTranslation(Model):
    """The section [back_translation]: a model of the opposite direction, which translates target text."""


@dataclass(frozen=True)
class Teachers(Model):
    """The section [teachers]: one model per seed, or given models. Together they translate the training sources, and
    further text."""

    seeds: tuple[float, ...] = numbers(0, 2**31 - 1, "Seeds of the teachers.")
    models: tuple[str, ...] = texts("Model files to use instead of training teachers, relative to the chain file.")
    translate_options: tuple[str, ...] = texts("Further options of `vtrans translate`.")


@dataclass(frozen=True)
class Student(Model):
    """The section [student]: the small model, what it learns besides the translations, and its format."""

    references: bool = flag(False, "Whether it learns from the pairs too.")
    export: str = choice("none", ("none", *PROGRAMS), "Format of `vtrans export`.")
    export_options: tuple[str, ...] = texts("Further options of `vtrans export`.")


@dataclass(frozen=True)
class Chain:
    """The content of a chain file."""

    text: Text
    teachers: Teachers | None = None
    back_translation: BackTranslation | None = None
    student: Student | None = None

    @property
    def models(self) -> dict[str, Model]:
        """The sections of models by name."""
        sections = {name: getattr(self, name) for name in ("back_translation", "teachers", "student")}
        return {name: model for name, model in sections.items() if model}

    @property
    def teacher_names(self) -> list[str]:
        """The run folders of the teachers, or the files of given models, in the folder of the chain."""
        if not self.teachers:
            return []
        ending = ".safetensors" if self.teachers.models else ""
        return [f"teacher-{n}{ending}" for n, _ in enumerate(self.teachers.models or self.teachers.seeds, 1)]


def load_chain(path: Path) -> Chain:
    """Returns the chain in a file. Raises InputError for an unknown or missing key, and for a wrong value."""
    table = read_table(path, "chain")
    kinds = {"text": Text, "back_translation": BackTranslation, "teachers": Teachers, "student": Student}
    check_keys(table, [*kinds], str(path))
    for key, missing in (("text", "text" not in table), ("teachers", not {"teachers", "student"} & {*table})):
        if missing:
            raise InputError(f"{path}: the section [{key}] is missing; add it.")
    sections: dict[str, Any] = {key: _section(kinds[key], values, path, key) for key, values in table.items()}
    chain = Chain(**sections)
    for key in ("src", "tgt"):
        if not getattr(chain.text, key):
            raise InputError(f'{path}: text.{key} is missing; name the language, such as {key} = "en".')
    if chain.text.src == chain.text.tgt:
        raise InputError(f"{path}: text.tgt must be another language than text.src, got {chain.text.src} for both.")
    if chain.back_translation and not chain.back_translation.text:
        raise InputError(f"{path}: back_translation.text is missing; name files of the target language.")
    if chain.back_translation and (not chain.teachers or chain.teachers.models):
        raise InputError(f"{path}: back_translation has no effect without teachers that learn; leave it out.")
    if chain.student and chain.student.text:
        raise InputError(f"{path}: student.text has no effect; teachers.text names files that the teachers translate.")
    return chain


def _section(kind: type[Any], values: Any, path: Path, section: str) -> Any:
    where = f"{path}: {section}"
    is_model = issubclass(kind, Model)
    made = checked(kind, values, where, SECTIONS if is_model else ())
    if kind is Teachers and made.get("models"):
        if unused := {"recipe", "seeds", *SECTIONS} & {*values}:
            raise InputError(f"{where}.{min(unused)} has no effect on the given models; leave it out.")
        for name in made["models"]:
            if not (path.parent / name).is_file():
                raise InputError(f"{where}.models must name model files, but there is no file {path.parent / name}.")
        made["models"] = tuple(str(path.parent / name) for name in made["models"])
    elif kind is Teachers:
        made["seeds"] = seeds = made.get("seeds") or (1.0,)
        if len({int(seed) for seed in seeds if seed == int(seed)}) < len(seeds):
            raise InputError(f"{where}.seeds must be different whole numbers, got {toml_value(seeds)}.")
    if is_model:
        name, settings = made.get("recipe", DEFAULT_RECIPE), settings_of(values, where)
        if section == "student":  # which learns alignments unless it is told otherwise
            settings.insert(0, "train.guided_alignment=0.1")
        try:
            made["resolved"] = load_recipe(str(path.parent / name) if name.endswith(".toml") else name, settings)
        except VtransError as error:
            raise InputError(f"{where}: {error}") from None
    if made.get("export") in PROGRAMS:
        model = made["resolved"].model
        try:
            check_model(dataclasses.replace(model, tie=resolve_tie(model.tie, joint=True)), PROGRAMS[made["export"]])
        except InputError as error:
            raise InputError(f"{where}.export = {toml_value(made['export'])}: {error}") from None
    return kind(**made)
