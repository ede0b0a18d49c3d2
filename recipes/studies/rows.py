"""Study files: named rows, each a model to train and measure alike. `load_study` reads and checks one.

A study is a TOML file with the recipe of all rows, the experiment whose text is used if the user gives none, and a
table [rows.NAME] per row. Its keys are the fields of Row, of which only `words` is needed, and values that replace
those of the recipe, such as model.tie = "none".
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vtrans.config import SECTIONS
from vtrans.errors import FileError, InputError
from vtrans.files import reason
from vtrans.keys import Key, check_value, keys_of, nearest, number, text, texts, toml_value

from ..experiment import EXPERIMENTS

SHIPPED = Path(__file__).parent
OF_THE_STUDY = ("train.max_steps", "train.max_minutes", "train.seed")
WITHOUT_TRAINING = ("words", "run_of", "average")  # the keys that a row with `run_of` may have


@dataclass(frozen=True)
class Row:
    """A model to train and measure. `settings` are the recipe keys of the row with their values."""

    name: str
    words: str = text("", "What the table says about the row.")
    prepare: tuple[str, ...] = texts("Options of prepare-bpe, such as --separate.")
    target: str = text("", "Python program through which the target text goes, relative to the study file.")
    run_of: str = text("", "Row above whose run this one uses instead of training.")
    average: int = number(0, 1, 10**6, "Newest checkpoints that are averaged; as by `vtrans average` without it.")
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def overrides(self) -> list[str]:
        """The settings as `--set` values."""
        return [f"{key}={toml_value(value)}" for key, value in self.settings.items()]


@dataclass(frozen=True)
class StudyFile:
    """What a study file says. `rows` are in the order of the file."""

    name: str
    experiment: str
    recipe: str
    rows: dict[str, Row]


def study_names() -> list[str]:
    """The names of the shipped studies, sorted."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load_study(name: str) -> StudyFile:
    """The study of that name, or of that file if it ends in .toml or has a slash. Raises InputError for an unknown
    name, key, row or value. The values of the recipe are not checked here."""
    path = Path(name)
    if not (name.endswith(".toml") or "/" in name):
        if name not in study_names():
            raise InputError(
                f"there is no study {name!r} (a study file must end in .toml); {nearest(name, study_names())}"
            )
        path = SHIPPED / f"{name}.toml"
    table = read_table(path, "study")
    check_keys(table, ("experiment", "recipe", "rows"), str(path))
    if not isinstance(table.get("recipe"), str):
        raise InputError(f"{path}: recipe must name the recipe of the rows, got {table.get('recipe')!r}.")
    known = Key("", str, choices=dict.fromkeys(EXPERIMENTS, ""))
    experiment = check_value(known, f"{path}: experiment", table.get("experiment"))
    if not isinstance(table.get("rows"), dict) or not table["rows"]:
        raise InputError(f"{path}: there are no rows; write a table [rows.NAME] per row.")
    rows: dict[str, Row] = {}
    for row, values in table["rows"].items():
        rows[row] = _row(row, values, rows, path)
    return StudyFile(path.stem, experiment, table["recipe"], rows)


def _row(name: str, values: Any, above: Mapping[str, Row], path: Path) -> Row:
    where = f"{path}: rows.{name}"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise InputError(f"{where}: a row's name must consist of letters, digits and - _ ., because it names a folder.")
    made = checked(Row, values, where, SECTIONS)
    if not made.get("words") or "|" in made["words"]:
        raise InputError(f"{where}.words must be a text without |, which the table shows, got {made.get('words')!r}.")
    if "run_of" in made:
        if other := [key for key in values if key not in WITHOUT_TRAINING]:
            raise InputError(f"{where}.{other[0]} has no effect with run_of, which trains nothing; remove one of them.")
        trained = Key("", str, choices={row.name: "" for row in above.values() if not row.run_of})
        check_value(trained, f"{where}.run_of", made["run_of"])
    if "target" in made:
        made["target"] = str((path.parent / made["target"]).resolve())
        if not Path(made["target"]).is_file():
            raise InputError(f"{where}.target must be a Python program, got {made['target']}, which is no file.")
    settings = settings_of(values, where)
    if forbidden := [key for key in OF_THE_STUDY if key in settings]:
        raise InputError(f"{where}.{forbidden[0]} is the same for all rows; remove it, and give the study a budget.")
    return Row(name, **made, settings=settings)


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


def settings_of(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Returns the recipe keys in the tables `model`, `train` and `search` with their values, which are not checked."""
    settings = {}
    for section in SECTIONS:
        table = values.get(section, {})
        if not isinstance(table, dict):
            raise InputError(f"{where}.{section} must be written {section}.KEY = VALUE, got {table!r}.")
        for key, value in table.items():
            settings[f"{section}.{key}"] = tuple(value) if isinstance(value, list) else value
    return settings


def check_keys(table: Mapping[str, Any], known: tuple[str, ...] | list[str], where: str) -> None:
    """Raises InputError for the first key of a table that is not known."""
    for key in table:
        if key not in known:
            raise InputError(f"{where}: unknown key {key}; {nearest(key, known)}")
