"""Makes the options of commands from the keys of dataclasses (keys.py).

A command that is decorated with `generated` gets, for each parameter whose type is a dataclass of keys, an instance of
it with the values from the command line; for one of the type `Annotated[dict[str, Any], Given(...)]`, those that the
user has set; for one with the mark `Models(...)`, the paths of models. All values are checked before the command is
called.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from vtrans.config import DEFAULT_RUN
from vtrans.config.keys import Key, check_value, keys_of
from vtrans.system.errors import InputError

METAVARS: dict[type, str] = {int: "N", float: "X", tuple: "X", Path: "FILE"}


def option(help: str, metavar: str | None = None, panel: str | None = None, *, flag: str = "", **facts: Any) -> Any:
    """Returns an option that is declared in the signature of a command. `flag` is needed if the name of the parameter
    does not give it, and for options without value. `facts` are `min`, `max` and `hidden`, a Key's `advanced`."""
    return typer.Option(*flag.split(), help=help, metavar=metavar, rich_help_panel=panel, **facts)


def option_of(kind: type[Any], name: str) -> Any:
    """Returns the option of a key, declared in the signature of a command that has no other key of the dataclass."""
    (default,) = (spec.default for spec in dataclasses.fields(kind) if spec.name == name)
    return _option(kind, keys_of(kind)[name], name, default, None)


def argument(help: str, metavar: str) -> Any:
    """Returns an argument that is declared in the signature of a command."""
    return typer.Argument(help=help, metavar=metavar)


@dataclass(frozen=True)
class Given:
    """Options of a dataclass, all or some by name, of which a command gets those that the user has set. `otherwise` is
    what takes the place of an option that is not given: the help says so before the default, or once in the title of
    the panel."""

    kind: type[Any]
    names: tuple[str, ...] = ()
    otherwise: str = ""


@dataclass(frozen=True)
class Models:
    """The model of a command, or several: its first arguments, the values of --model, or the default."""

    help: str = "Run folder or model file."
    several: bool = False
    default: str = DEFAULT_RUN

    def parameters(self) -> Iterator[inspect.Parameter]:
        default = f"  [default: {self.default}]" if self.default else ""
        infos = argument(f"{self.help}{default}", "MODEL"), option("The same as MODEL.", "MODEL", "Model")
        for name, info in zip(("models", "model"), infos, strict=True):
            annotation = Annotated[list[Path] | None, info]
            yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)

    def taken(self, values: dict[str, Any]) -> Any:
        """Removes the models from the values of the command line. Raises InputError if there must be one model."""
        given = [*(values.pop("models") or ()), *(values.pop("model") or ())]
        if self.several:
            return given
        if not (given or self.default):
            raise InputError("`model` is missing; name a model.")
        first, *others = dict.fromkeys(given or [Path(self.default)])
        if others:
            raise InputError(f"`model` must be one model, got {first} and {others[0]}.")
        return first


def generated(command: Callable[..., None]) -> Callable[..., None]:
    """Returns the command with a parameter per option, as Typer reads them."""
    hints = get_type_hints(command, include_extras=True)
    takers: dict[str, Callable[[dict[str, Any]], Any]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        hint, name = hints[parameter.name], parameter.name
        if models := [mark for mark in get_args(hint) if isinstance(mark, Models)]:
            takers[name] = models[0].taken
            parameters += models[0].parameters()
        elif marks := [mark for mark in get_args(hint) if isinstance(mark, Given)]:
            takers[name] = functools.partial(_taken, marks[0].kind, names=marks[0].names)
            parameters += _parameters(marks[0].kind, marks[0])
        elif kinds := [kind for kind in (hint, *get_args(hint)) if dataclasses.is_dataclass(kind)]:
            whole: Any = kinds[0]
            takers[name] = functools.partial(lambda kind, values: kind(**_taken(kind, values)), whole)
            parameters += _parameters(whole)
        else:
            parameters.append(parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def run(**values: Any) -> None:
        taken = {name: take(values) for name, take in takers.items()}
        command(**taken, **values)

    changed: Any = run
    changed.__signature__ = inspect.Signature(parameters)
    changed.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameters(kind: type[Any], given: Given | None = None) -> Iterator[inspect.Parameter]:
    """Yields the parameters for the keys of a dataclass."""
    fields = {spec.name: spec for spec in dataclasses.fields(kind)}
    for name, key in keys_of(kind).items():
        if given and given.names and name not in given.names:
            continue
        default = fields[name].default
        annotated: Any = list[key.item] if key.kind in (list, tuple) else key.kind  # type: ignore[name-defined]
        if given or default in (None, ()):
            annotated, default = annotated | None, None
        yield inspect.Parameter(
            key.option or name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is MISSING else default,
            annotation=Annotated[annotated, _option(kind, key, name, fields[name].default, given)],
        )


def _option(kind: type[Any], key: Key, name: str, default: Any, given: Given | None) -> Any:
    """Returns the option for a key. Its help ends with the meanings of the choices, a line each, and the default."""
    flag = key.flag or f"--{(key.option or name).replace('_', '-')}"
    meanings = "".join(f"\n{meaning}" for meaning in key.meanings)
    repeated = " May be repeated." if key.kind is list and given else ""  # a recipe has a list
    shown = key.unset or ("" if default in (None, MISSING, ()) or default is False else str(default))
    gap = "\n" if meanings else "  "
    otherwise, panel = given.otherwise if given else "", key.panel or getattr(kind, "PANEL", None)
    if otherwise and not key.panel:
        otherwise, panel = "", f"{panel} (default: {otherwise}as shown)"
    end = f"{gap}[default: {otherwise}{shown}]" if shown else ""
    if key.kind is bool and (default is True or (given and given.otherwise)):
        flag = f"{flag}/--no-{flag[2:]}"
    names = key.choices
    return typer.Option(
        *flag.split(),
        help=f"{key.help}{repeated}{meanings}{end}",
        metavar=key.metavar or METAVARS.get(key.item if key.kind is list else key.kind),
        rich_help_panel=panel,
        show_default=False,
        hidden=key.advanced,
        autocompletion=(lambda incomplete: [name for name in names if name.startswith(incomplete)]) if names else None,
    )


def _taken(kind: type[Any], values: dict[str, Any], names: tuple[str, ...] = ()) -> dict[str, Any]:
    """Removes the values of a dataclass from those of the command line. Returns those that are set, by the names of
    the fields."""
    taken = {}
    for name, key in keys_of(kind).items():
        if not names or name in names:
            option = key.option or name
            value = values.pop(option)
            if value is not None and value != []:
                taken[name] = check_value(key, f"`{option}`", value)
    return taken
