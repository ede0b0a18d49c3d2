"""The parts of a model, how many parameters each one has, and which parts share weights.

Nothing here knows the model's sharing options. Two places share a weight if they hold the same parameter object,
and what is shared is then named by the largest parts that have all their weights in common.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import nn

from vtrans.model.attention import CrossAttention, SelfAttention
from vtrans.model.checkpoint import aliases
from vtrans.model.layers import FeedForward
from vtrans.model.network import DecoderOnly
from vtrans.model.ssru import SSRU

# The paper's names for the weights of a sublayer, in the order in which a fused weight holds them.
MATRICES: tuple[tuple[type[nn.Module], str, tuple[str, ...]], ...] = (
    (SelfAttention, "qkv", ("W_Q", "W_K", "W_V")),
    (SelfAttention, "out", ("W_O",)),
    (SSRU, "zf", ("W", "W_f")),
    (CrossAttention, "query", ("W_Q",)),
    (CrossAttention, "kv", ("W_K", "W_V")),
    (CrossAttention, "out", ("W_O",)),
    (FeedForward, "inner", ("W_1",)),
    (FeedForward, "outer", ("W_2",)),
)
SPLIT_BY_HEAD = {"W_Q", "W_K", "W_V"}


@dataclass(frozen=True)
class HeadMatrix:
    """The matrix W_i of one head in the paper's form, [D, d]: the rows from the first to the last of `rows` of a fused
    weight [n * D, D], transposed."""

    matrix: str
    head: int  # counted from 1
    rows: tuple[int, int]
    shape: tuple[int, int]


@dataclass(frozen=True)
class Part:
    """A part of the model. Each parameter counts in the first part that has it, so the counts of all parts add up
    to that of the model."""

    name: str  # within its parent
    path: str
    kind: str
    parameters: int = 0
    shapes: tuple[tuple[int, ...], ...] = ()  # only of a part without parts: its tensors, as in the file
    same_as: str | None = None  # the earlier part that has all the weights of this one
    shared_with: tuple[str, ...] = ()  # the later parts that have the weights of this one
    matrices: tuple[str, ...] = ()  # the paper's names
    slices: tuple[HeadMatrix, ...] = ()
    parts: tuple[Part, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields that have a value, without `shared_with`, which can be found from `same_as`."""
        return asdict(
            self, dict_factory=lambda items: {k: v for k, v in items if v not in (None, ()) and k != "shared_with"}
        )


@dataclass(frozen=True)
class SharedGroup:
    """Parts that share all their weights. The first one gives the weights their names in the file."""

    places: tuple[str, ...]
    parameters: int

    @property
    def saved(self) -> int:
        return self.parameters * (len(self.places) - 1)


def part_tree(model: nn.Module) -> Part:
    """Returns the model as a tree of the parts that have parameters."""
    first_names = aliases(model)
    shared_with = {group.places[0]: group.places[1:] for group in shared_groups(model)}

    def visit(module: nn.Module, name: str, path: str, matrices: tuple[str, ...] = (), heads: int = 0) -> Part:
        weights = dict(module.named_parameters(remove_duplicate=False))
        direct = {key: weight for key, weight in weights.items() if "." not in key}
        children = {key: child for key, child in _children(module) if any(True for _ in child.parameters())}
        shapes = tuple(tuple(weight.shape) for weight in direct.values()) if not children else ()
        part = Part(name, path, type(module).__name__, shapes=shapes, shared_with=shared_with.get(path, ()))
        earlier = {_owner(first_names.get(_join(path, key), ""), key) for key in weights}
        if len(earlier) == 1 and (same_as := earlier.pop()):
            return replace(part, same_as=same_as)
        if not children:
            new = sum(weight.numel() for key, weight in direct.items() if _join(path, key) not in first_names)
            by_head = _head_matrices(module, matrices, heads) if SPLIT_BY_HEAD.issuperset(matrices) else ()
            return replace(part, parameters=new, matrices=matrices, slices=by_head)
        parts = []
        for key, weight in direct.items():
            place = _join(path, key)
            first = first_names.get(place)
            new, shape = 0 if first else weight.numel(), (tuple(weight.shape),)
            parts.append(Part(key, place, "Parameter", new, shape, first, shared_with.get(place, ())))
        for key, child in children.items():
            names = next((names for kind, name, names in MATRICES if name == key and isinstance(module, kind)), ())
            parts.append(visit(child, key, _join(path, key), names, getattr(module, "heads", 0)))
        if len(parts) == 1 and not isinstance(module, nn.ModuleList):
            only = parts[0]  # show both on one line, as residual.norm
            return replace(only, name=f"{name}.{only.name}", shared_with=part.shared_with or only.shared_with)
        return replace(part, parameters=sum(part.parameters for part in parts), parts=tuple(parts))

    return visit(model, "model", "")


def _head_matrices(module: nn.Module, matrices: tuple[str, ...], heads: int) -> tuple[HeadMatrix, ...]:
    """Returns the matrices of each head in a fused weight, which holds all heads of W_Q, then all of W_K, and so on."""
    if not matrices:
        return ()
    assert isinstance(module, nn.Linear)
    rows, D = module.weight.shape
    d = rows // (len(matrices) * heads)
    starts = [(matrix, head, (i * heads + head) * d) for i, matrix in enumerate(matrices) for head in range(heads)]
    return tuple(HeadMatrix(matrix, head + 1, (first, first + d - 1), (D, d)) for matrix, head, first in starts)


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
        for key, child in _children(module):
            visit(child, _join(path, key))

    visit(model, "")
    return groups


def _children(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Returns the submodules like `named_children()`, but lists a module again at each of its places."""
    return [(key, child) for key, child in module._modules.items() if child is not None]


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _owner(name: str, key: str) -> str:
    """Returns the path of the part whose weight `key` has this full name, or "" if the name does not end in `key`."""
    return name.removesuffix(f".{key}") if name.endswith(f".{key}") else ""
