"""Settings: the facts that a dataclass declares about its fields, and the check of their values.

The metadata of a field is a `Key`, made by `number`, `choice`, `text`, `path`, `numbers`, `texts`, `paths` or `flag`.
`keys_of` returns the keys of a dataclass, and `check_value` checks a value against one.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vtrans.system.errors import InputError
from vtrans.system.own_code import is_own

LONGEST_SHOWN = 80  # characters of a wrong value in an error


@dataclass(frozen=True)
class Key:
    """The facts of a setting, in the metadata of its field under "key".

    Recipes, the command line, `vtrans.load`, the server and records of runs read them.
    """

    help: str
    """The help text. It names other options in backticks; the command line shows them as flags."""
    kind: type
    """The type: bool, int, float, str (one of `choices`, or any line), Path, tuple (a list of numbers), or list."""
    low: float = 0
    high: float = 0
    unit: str = ""
    """The unit of an integer."""
    excluded: tuple[float, ...] = ()
    """Exclusive bounds."""
    choices: Mapping[str, str] | None = None
    """The allowed values, each with its meaning, which may be empty. None: any line."""
    may_be_own: bool = False
    """Whether the value may also name a user-defined class in a file, instead of one of `choices`."""
    item: type = str
    """The type of an item of a list: str, Path or float."""
    idle_if: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    """Conditions under which this key has no effect: other keys of the section, each with a test of its value."""
    may_change: bool = False
    """Whether a resumed run may change the value."""
    summary: str = ""
    """The format in a model's summary. If empty, the key is shown only when it differs from its default."""
    training_only: bool = False
    """Whether the trained weights compute the same function for every value."""
    adaptable: bool = False
    """Whether a warm start can adapt the weights of a model with another value."""
    option: str = ""
    """The name of the option in errors, if it differs from the field's name."""
    flag: str = ""
    """The flag on the command line, if it is not derived from the name."""
    metavar: str = ""
    """The placeholder of the value in the help of the command line."""
    panel: str = ""
    """The group of the option in the help, if it differs from the PANEL of the dataclass."""
    advanced: bool = False
    """Whether `--help` of a command with many options omits the option. `--help-all` shows it."""
    unset: str = ""
    """The description of the default in the help, if it is not the value itself."""
    speed_only: bool = False
    """Whether the value changes only the speed, and translations at most by rounding."""
    search_only: bool = False
    """Whether the key has no effect on sampling."""
    ranks_only: bool = False
    """Whether the key only affects the ranking of finished hypotheses."""

    @property
    def described(self) -> str:
        """The help and the meanings of the choices, on one line."""
        return f"{self.help} {'; '.join(self.meanings)}." if self.meanings else self.help

    @property
    def meanings(self) -> list[str]:
        """The choices that have a meaning, each followed by its meaning."""
        return [f"{value}: {meaning}" for value, meaning in (self.choices or {}).items() if meaning]


Choices = Mapping[str, str] | tuple[str, ...]
Bounds = tuple[float, float]


def number(default: float | None, bounds: Bounds, help: str, unit: str = "", **facts: Any) -> Any:
    """A field with a number within inclusive bounds; an integer if the lower bound is an int."""
    return field(default=default, metadata={"key": Key(help, type(bounds[0]), *bounds, unit=unit, **facts)})


def choice(default: str | None, choices: Choices, help: str, **facts: Any) -> Any:
    """A field whose value is one of `choices`."""
    meanings = choices if isinstance(choices, Mapping) else dict.fromkeys(choices, "")
    return field(default=default, metadata={"key": Key(help, str, choices=meanings, **facts)})


def text(default: str | None, help: str, **facts: Any) -> Any:
    """A field with a text without line ends."""
    return field(default=default, metadata={"key": Key(help, str, **facts)})


def path(default: Path | str | None, help: str, **facts: Any) -> Any:
    """A field with the path of a file or a folder."""
    return field(default=default, metadata={"key": Key(help, Path, **facts)})


def numbers(bounds: Bounds, help: str, **facts: Any) -> Any:
    """A field with a list of numbers within inclusive bounds, empty by default."""
    return field(default=(), metadata={"key": Key(help, tuple, *bounds, item=float, **facts)})


def texts(help: str, **facts: Any) -> Any:
    """A field with a list of texts without line ends, empty by default."""
    return field(default=(), metadata={"key": Key(help, list, **facts)})


def paths(help: str, **facts: Any) -> Any:
    """A field with a list of paths, empty by default."""
    return field(default=(), metadata={"key": Key(help, list, item=Path, **facts)})


def flag(default: bool, help: str, **facts: Any) -> Any:
    """A field that is true or false."""
    return field(default=default, metadata={"key": Key(help, bool, **facts)})


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns the end of an error message: the known word most similar to `word`, or all known words."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}."


def _shown(value: Any) -> str:
    """Returns a value for an error message, shortened if long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number with thousands of digits, or deeply nested tables
        return f"a value of type {type(value).__name__} that is too large to show"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def keys_of(kind: type[Any]) -> dict[str, Key]:
    """Returns the keys of a dataclass by name. A field without a key is not a setting."""
    return {f.name: f.metadata["key"] for f in dataclasses.fields(kind) if "key" in f.metadata}


def output_affecting(settings: Any) -> dict[str, Any]:
    """Returns the values of the keys of a dataclass that affect results, not only speed."""
    return {name: getattr(settings, name) for name, key in keys_of(type(settings)).items() if not key.speed_only}


def idle_because(settings: Any, name: str) -> str | None:
    """Returns the key whose value makes the key `name` idle, or None."""
    conditions = keys_of(type(settings))[name].idle_if.items()
    return next((other for other, idle in conditions if idle(getattr(settings, other))), None)


def idle_messages(settings: Any, section: str) -> dict[str, str]:
    """Returns a message for each key of a section that is set but idle because of another key."""
    messages = {}
    for spec in dataclasses.fields(settings):
        value = getattr(settings, spec.name)
        if value != spec.default and (other := idle_because(settings, spec.name)):
            messages[spec.name] = (
                f"{section}.{spec.name} = {toml_value(value)} has no effect with "
                f"{section}.{other} = {toml_value(getattr(settings, other))}; remove it, or change {section}.{other}."
            )
    return messages


def toml_value(value: Any) -> str:
    """Returns a recipe value as TOML."""
    if isinstance(value, tuple):
        return f"[{', '.join(json.dumps(n) if isinstance(n, str) else repr(n).removesuffix('.0') for n in value)}]"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else repr(value)


def check_value(key: Key, name: str, value: Any) -> Any:
    """Returns the value, converted to the type of its key. Raises InputError, which calls the key `name`, for a value
    that the key does not allow."""
    if key.kind is bool:
        right, allowed = isinstance(value, bool), "true or false"
    elif key.kind is str and key.choices is not None:
        right = value in tuple(key.choices) or (key.may_be_own and is_own(value))
        allowed = f"one of {', '.join(key.choices)}"
    elif key.kind is str:
        right, allowed = isinstance(value, str) and _is_line(value), "a text of one line"
    elif key.kind is Path:
        right, allowed = isinstance(value, (str, Path)), "a path"
    elif key.kind is tuple:
        listed = _numbers_in(value)
        bad = [n for n in listed or () if not _in_range(key, n)]
        right = listed is not None and not bad and (any(listed) or not listed)
        allowed = f"a list of numbers {range_of(key)}{', not all 0' if _in_range(key, 0) else ''}"
        if right:
            value = listed
        elif bad and key.flag:  # a repeatable option with one number each
            allowed, value = f"a number {range_of(key)}", bad[0]
    elif key.kind is list:
        items = [value] if isinstance(value, (str, key.item)) else value
        wrong = [value]
        if isinstance(items, (list, tuple)):
            wrong = [
                item for item in items if not (_is_line(item) if isinstance(item, str) else isinstance(item, key.item))
            ]
        right, allowed = not wrong, "a list of texts, each of one line"
        value = tuple(items) if right else wrong[0]
    else:
        whole, kinds = key.kind is int, (int,) if key.kind is int else (int, float)
        right = isinstance(value, kinds) and not isinstance(value, bool) and _in_range(key, value)
        of = f" of {key.unit}" if key.unit else ""
        allowed = f"a{' whole' if whole else ''} number{of} {range_of(key)}"
        value = float(value) if right and not whole else value
    if not right:
        raise InputError(f"{name} must be {allowed}, got {_shown(value)}.")
    return value


def check_fields(settings: Any) -> None:
    """Raises InputError, which names the option, for the first value of a dataclass that is not allowed."""
    for name, key in keys_of(type(settings)).items():
        value = getattr(settings, name)
        # None is allowed only where it is the default.
        if value is not None or getattr(type(settings), name, None) is not None:
            check_value(key, f"`{key.option or name}`", value)


def _in_range(key: Key, value: float) -> bool:
    return key.low <= value <= key.high and value not in key.excluded


def range_of(key: Key) -> str:
    """Returns the range of a number, such as "from 1 to 10" or "above 0 and at most 1"."""
    low, high = (int(bound) if key.kind is int else f"{bound:g}" for bound in (key.low, key.high))
    if not key.excluded:
        return f"from {low} to {high}"
    if key.high == math.inf:
        return f"{'above' if key.low in key.excluded else 'at least'} {low}"
    least, most = (bound in key.excluded for bound in (key.low, key.high))
    return f"{'above' if least else 'at least'} {low} and {'below' if most else 'at most'} {high}"


def _is_line(text: str) -> bool:
    """Returns whether a text is not empty and fits on one line of a recipe, where tabs and no-break spaces are
    escaped."""
    return text != "" and all(character.isprintable() or character in "\t\u00a0" for character in text)


def _numbers_in(value: Any) -> tuple[float, ...] | None:
    """Returns the numbers in a list, in comma-separated text such as "2,0.5" (from an override), or a single number;
    None for anything else."""
    if isinstance(value, str):
        value = value.split(",") if value else []
    values = value if isinstance(value, (list, tuple)) else [value]
    if any(isinstance(n, bool) or not isinstance(n, (int, float, str)) for n in values):
        return None
    try:
        return tuple(float(n) for n in values)
    except (ValueError, OverflowError):
        return None
