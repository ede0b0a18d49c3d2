"""Settings: the facts that a dataclass declares about its fields, and the values that they allow.

The metadata of a field is a `Key`, made by `number`, `choice`, `numbers`, `texts` or `flag`. `keys_of` returns the keys
of a dataclass, and `check_value` checks a value against one.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vtrans.errors import InputError

LONGEST_SHOWN = 80  # characters of a wrong value in an error


@dataclass(frozen=True)
class Key:
    """The facts of a setting, which the metadata of its field holds under "key"."""

    help: str
    kind: type
    """bool, int, float, str (one of `choices`), tuple (a list of numbers), or list (a list of texts)."""
    low: float = 0
    high: float = 0
    unit: str = ""
    """What a whole number counts."""
    choices: tuple[str, ...] = ()
    idle_if: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    """Other keys of the section, each with the test for values that leave this key without effect."""
    may_change: bool = False
    """Whether a resumed run may have another value."""
    summary: str = ""
    """The format of the value in `ModelConfig.summary`, which shows a key without one only if it is not the default."""
    training_only: bool = False
    """Whether the trained weights compute the same function for every value."""
    adaptable: bool = False
    """Whether a warm start can adapt the weights of a model with another value."""


def number(default: float | None, low: float, high: float, help: str, unit: str = "", **facts: Any) -> Any:
    """A field with a number in [low, high], an integer if `low` is one."""
    return field(default=default, metadata={"key": Key(help, type(low), low, high, unit, **facts)})


def choice(default: str, choices: tuple[str, ...], help: str, **facts: Any) -> Any:
    """A field whose value is one of `choices`."""
    return field(default=default, metadata={"key": Key(help, str, choices=choices, **facts)})


def numbers(low: float, high: float, help: str) -> Any:
    """A field with a list of numbers in [low, high], empty by default."""
    return field(default=(), metadata={"key": Key(help, tuple, low, high)})


def texts(help: str, **facts: Any) -> Any:
    """A field with a list of texts without line ends, empty by default."""
    return field(default=(), metadata={"key": Key(help, list, **facts)})


def flag(default: bool, help: str, **facts: Any) -> Any:
    """A field that is true or false."""
    return field(default=default, metadata={"key": Key(help, bool, **facts)})


def nearest(word: str, known: Iterable[str]) -> str:
    """A clause that names the known word most like `word`, or all of them."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"


def _shown(value: Any) -> str:
    """A value as an error shows it, shortened if it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number with thousands of digits, or deeply nested tables
        return f"a value of type {type(value).__name__} that is too large to show"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def keys_of(kind: type[Any]) -> dict[str, Key]:
    """The keys of a dataclass by name. A field without a key is not a setting."""
    return {f.name: f.metadata["key"] for f in dataclasses.fields(kind) if "key" in f.metadata}


def toml_value(value: Any) -> str:
    """A value of a recipe as TOML."""
    if isinstance(value, tuple):
        return f"[{', '.join(json.dumps(n) if isinstance(n, str) else repr(n).removesuffix('.0') for n in value)}]"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else repr(value)


def check_value(key: Key, name: str, value: Any) -> Any:
    """The value, converted to the type of its key. Raises InputError, which calls the key `name`, if it is not one
    of the values that the key allows."""
    low, high = (int(bound) if key.kind is int else f"{bound:g}" for bound in (key.low, key.high))
    if key.kind is bool:
        right, allowed = isinstance(value, bool), "true or false"
    elif key.kind is str:
        right, allowed = value in key.choices, f"one of {', '.join(key.choices)}"
    elif key.kind is tuple:
        listed = _numbers_in(value)
        right = listed is not None and all(key.low <= n <= key.high for n in listed) and (any(listed) or not listed)
        allowed, value = f"a list of numbers from {low} to {high}, not all 0", listed if right else value
    elif key.kind is list:
        texts = [value] if isinstance(value, str) else value
        right = isinstance(texts, (list, tuple)) and all(isinstance(text, str) and _is_line(text) for text in texts)
        allowed, value = "a list of texts, each of one line", tuple(texts) if right else value
    else:
        whole, kinds = key.kind is int, (int,) if key.kind is int else (int, float)
        right = isinstance(value, kinds) and not isinstance(value, bool) and key.low <= value <= key.high
        of = f" of {key.unit}" if key.unit else ""
        allowed = f"a{' whole' if whole else ''} number{of} from {low} to {high}"
        value = float(value) if right and not whole else value
    if not right:
        raise InputError(f"{name} must be {allowed}, got {_shown(value)}.")
    return value


def _is_line(text: str) -> bool:
    """Whether a text is not empty and can be written on one line of a recipe."""
    return text.isprintable() and text != ""


def _numbers_in(value: Any) -> tuple[float, ...] | None:
    """The numbers of a list, of a text with commas such as "2,0.5" (from an override or an old recipe), or of a
    single number; None for anything else."""
    if isinstance(value, str):
        value = value.split(",") if value else []
    values = value if isinstance(value, (list, tuple)) else [value]
    if any(isinstance(n, bool) or not isinstance(n, (int, float, str)) for n in values):
        return None
    try:
        return tuple(float(n) for n in values)
    except (ValueError, OverflowError):
        return None
