"""The parts of a model, how many parameters each one has, and which parts share weights.

Nothing here knows the model's sharing options. Two places share a weight if they hold the same parameter object,
and what is shared is then named by the largest parts that have all their weights in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from torch import nn

from vtrans.checkpoint import aliases
from vtrans.model import DecoderOnly

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Part:
    """A part that has weights itself, such as a linear layer. Each weight counts in the first part that has it, so the
    counts of all parts add up to that of the model."""

    path: str
    parameters: int
    shapes: Shapes  # of its tensors, as in the file


@dataclass(frozen=True)
class SharedGroup:
    """Parts that share all their weights. The first one gives the weights their names in the file."""

    places: tuple[str, ...]
    parameters: int

    @property
    def saved(self) -> int:
        return self.parameters * (len(self.places) - 1)


def parts_of(model: nn.Module) -> Iterator[Part]:
    """Yields the parts of a model at all their places, in order."""
    counted = set[int]()
    for path, module in model.named_modules(remove_duplicate=False):
        if weights := list(module.parameters(recurse=False)):
            new = sum(weight.numel() for weight in weights if id(weight) not in counted)
            counted.update(map(id, weights))
            yield Part(path, new, tuple(tuple(weight.shape) for weight in weights))


def shared_groups(model: nn.Module) -> list[SharedGroup]:
    """Returns the groups of parts that share weights, named by the largest parts with all their weights in common."""
    places: dict[str, set[str]] = {}
    one_table = isinstance(getattr(model, "decoder", None), DecoderOnly)
    for alias, first in aliases(model).items():
        # A decoder-only model has one table of positions in any case, so it saves nothing.
        if not (one_table and alias.startswith("tgt_positions.")):
            places.setdefault(first, {first}).add(alias)
    modules = dict(model.named_modules(remove_duplicate=False))
    order = {name: i for i, name in enumerate(modules)}
    sizes = {name: len(list(part.named_parameters(remove_duplicate=False))) for name, part in modules.items()}
    groups: list[SharedGroup] = []

    def visit(module: nn.Module, path: str) -> None:
        weights = dict(module.named_parameters(remove_duplicate=False))
        # The module is shared as a whole if the same parts own all its weights, and own no others.
        owners = {frozenset(_owner(place, key) for place in places.get(_join(path, key), ())) for key in weights}
        same = owners.pop() if len(owners) == 1 else frozenset[str]()
        if same and "" not in same and all(sizes[owner] == len(weights) for owner in same):
            parameters = sum(weight.numel() for weight in weights.values())
            groups.append(SharedGroup(tuple(sorted(same, key=order.__getitem__)), parameters))
            return
        for key, weight in weights.items():
            if "." not in key and (name := _join(path, key)) in places:
                groups.append(SharedGroup((name, *sorted(places[name] - {name})), weight.numel()))
        for key, child in module._modules.items():  # `named_children()` would list a module only once
            if child is not None:
                visit(child, _join(path, key))

    visit(model, "")
    return groups


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _owner(name: str, key: str) -> str:
    """Returns the path of the part whose weight `key` has this full name, or "" if the name does not end in `key`."""
    return name.removesuffix(f".{key}") if name.endswith(f".{key}") else ""


# Tables.


def part_rows(parts: Iterable[Part]) -> Iterator[tuple[str, str, str]]:
    """Yields the rows of the table of parts: places, number of parameters, shapes in the file. Parts that differ only
    in their layer have one row."""
    alike: dict[tuple[str, Shapes], list[Part]] = {}
    for part in parts:
        alike.setdefault((_layer_of(part.path)[0], part.shapes), []).append(part)
    for (_, shapes), same in alike.items():
        (places,) = _folded(part.path for part in same)
        yield places, f"{sum(part.parameters for part in same):,}", " + ".join(str(list(shape)) for shape in shapes)


def shared_rows(groups: Sequence[SharedGroup]) -> Iterator[tuple[str, str, str]]:
    """Yields the rows of the table of shared weights. Groups that differ only in their layer number have one row."""
    alike: dict[object, list[SharedGroup]] = {}
    for group in groups:
        form = group.parameters, *(_layer_of(place)[0] for place in group.places)
        alike.setdefault(form, []).append(group)
    for same in alike.values():
        first, times = same[0], f"{len(same)} x " if len(same) > 1 else ""
        text = " = ".join(_folded(first.places))
        if times:
            columns = zip(*(group.places for group in same), strict=True)
            text = " = ".join(chain.from_iterable(map(_folded, columns))) + ", layer by layer"
        yield f"{times}{first.parameters:,}", f"{times}{first.saved:,}", text


def _layer_of(place: str) -> tuple[str, int]:
    """Returns a place with `{}` for its layer number, and that number; -1 for a place outside the layers."""
    names = place.split(".")
    layer = next((i for i, name in enumerate(names) if name.isdigit()), None)
    if layer is None:
        return place, -1
    return ".".join((*names[:layer], "{}", *names[layer + 1 :])), int(names[layer])


def _folded(places: Iterable[str]) -> list[str]:
    """Returns the places as text. Those that differ only in their layer are one entry: encoder.layers.0-5."""
    layers: dict[str, list[int]] = {}
    for place in places:
        form, layer = _layer_of(place)
        layers.setdefault(form, []).append(layer)
    return [form.format(_ranges(numbers)) for form, numbers in layers.items()]


def _ranges(numbers: Iterable[int]) -> str:
    """Returns the numbers as text: `0-2, 5` for 0, 1, 2 and 5."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in ranges)
