"""Study files: named rows, each a model to train and measure alike. `load_study` reads and checks one.

A study is a TOML file with a table [rows.NAME] per row. Its keys are `words`, `prepare` if need be, and values that
replace those of the recipe, such as model.tie = "none". The keys `recipe` and `experiment`, whose text is used if the
user gives none, have defaults. recipes/README.md has an example.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtrans.config import DEFAULT_RECIPE, SECTIONS
from vtrans.config.keys import check_value, choice, keys_of, nearest, text, texts, toml_value
from vtrans.system.errors import FileError, InputError
from vtrans.system.files import reason

from ..experiment import EXPERIMENTS

SHIPPED = Path(__file__).parent
OF_THE_STUDY = ("train.max_steps", "train.max_minutes", "train.seed")


@dataclass(frozen=True)
class Row:
    """A model to train and measure. `settings` are the recipe keys of the row with their values, as for `--set`."""

    name: str
    words: str = text("", "What the table says about the row.")
    prepare: tuple[str, ...] = texts("Options of prepare-bpe, such as --separate.")
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class StudyFile:
    """The content of a study file. `rows` are in the order of the file."""

    name: str
    rows: dict[str, Row]
    experiment: str = choice("multi30k", tuple(EXPERIMENTS), "Experiment whose text is used without DATA.")
    recipe: str = text(DEFAULT_RECIPE, "Recipe of all rows.")


def names_in(folder: Path) -> list[str]:
    """Returns the names of the shipped files in a folder, sorted."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def file_of(name: str, folder: Path, what: str) -> Path:
    """Returns the path of a shipped file of that name, or of the user's file if it ends in .toml or has a slash."""
    if name.endswith(".toml") or "/" in name:
        return Path(name)
    if name not in names_in(folder):
        known = nearest(name, names_in(folder))
        raise InputError(f"there is no {what} {name!r} (a {what} of your own must end in .toml); {known}")
    return folder / f"{name}.toml"


def load_study(name: str) -> StudyFile:
    """The study of that name, or in that file. Raises InputError for an unknown name, key, row or value. The values of
    the recipe are not checked here."""
    path = file_of(name, SHIPPED, "study")
    table = read_table(path, "study")
    keys = keys_of(StudyFile)
    check_keys(table, [*keys, "rows"], str(path))
    made = {key: check_value(keys[key], f"{path}: {key}", table[key]) for key in keys if key in table}
    if not isinstance(table.get("rows"), dict) or not table["rows"]:
        raise InputError(f"{path}: there are no rows; write a table [rows.NAME] per row.")
    rows = {row: _row(row, values, f"{path}: rows.{row}") for row, values in table["rows"].items()}
    return StudyFile(path.stem, rows, **made)


def _row(name: str, values: Any, where: str) -> Row:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise InputError(f"{where}: a row's name must consist of letters, digits and - _ ., because it names a folder.")
    made = checked(Row, values, where, SECTIONS)
    if not made.get("words") or "|" in made["words"]:
        raise InputError(f"{where}.words must be a text without |, which the table shows, got {made.get('words')!r}.")
    settings = settings_of(values, where)
    for setting in settings:
        if (key := setting.partition("=")[0]) in OF_THE_STUDY:
            raise InputError(f"{where}.{key} is the same for all rows; remove it, and give the study a budget.")
    return Row(name, **made, settings=tuple(settings))


def read_table(path: Path, what: str) -> dict[str, Any]:
    """Returns the content of a TOML file."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise FileError(f"the {what} {path} cannot be read: {reason(error)}.") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"the {what} {path} is not TOML: {str(error).rstrip('.')}.") from None


def checked(kind: type[Any], values: Any, where: str, others: Iterable[str] = ()) -> dict[str, Any]:
    """Returns the values of the keys of a dataclass in a table, which may have `others`, too."""
    if not isinstance(values, Mapping):
        raise InputError(f"{where} must be a table.")
    keys = keys_of(kind)
    check_keys(values, [*keys, *others], where)
    return {key: check_value(keys[key], f"{where}.{key}", value) for key, value in values.items() if key in keys}


def settings_of(values: Mapping[str, Any], where: str) -> list[str]:
    """Returns the recipe keys in the tables `model`, `train` and `search` as for `--set`. They are not checked."""
    settings = []
    for section in SECTIONS:
        table = values.get(section, {})
        if not isinstance(table, dict):
            raise InputError(f"{where}.{section} must be written {section}.KEY = VALUE, got {table!r}.")
        for key, value in table.items():
            settings.append(f"{section}.{key}={toml_value(tuple(value) if isinstance(value, list) else value)}")
    return settings


def check_keys(table: Mapping[str, Any], known: tuple[str, ...] | list[str], where: str) -> None:
    """Raises InputError for the first key of a table that is not known."""
    for key in table:
        if key not in known:
            raise InputError(f"{where}: unknown key {key}; {nearest(key, known)}")
