"""What a model file is made of: the tree of its parts, what is shared between which of them, and its bytes.

Nothing here knows a variant of sharing. The walk goes over every place of every parameter, and two places
share a weight if they hold the same one; what is shared is then named by the largest parts that share all
they have.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from vtrans.checkpoint import VOCABULARIES, LoadedModel, aliases, tensor_bytes
from vtrans.config import SearchConfig
from vtrans.console import Console
from vtrans.data.store import DataFolder
from vtrans.data.vocabulary import Vocabulary
from vtrans.errors import InputError
from vtrans.model import CrossAttention, FeedForward, SelfAttention, count_parameters

# What the paper calls the weights of a layer, in the order in which they lie in a fused one.
MATRICES: tuple[tuple[type[nn.Module], str, tuple[str, ...]], ...] = (
    (SelfAttention, "qkv", ("W_Q", "W_K", "W_V")),
    (SelfAttention, "out", ("W_O",)),
    (CrossAttention, "query", ("W_Q",)),
    (CrossAttention, "kv", ("W_K", "W_V")),
    (CrossAttention, "out", ("W_O",)),
    (FeedForward, "inner", ("W_1",)),
    (FeedForward, "outer", ("W_2",)),
)
BY_HEAD = {"W_Q", "W_K", "W_V"}


@dataclass(frozen=True)
class Slice:
    """The matrix W_i of one head, [D, d] as the paper writes it: the rows from `first` to `last` of a fused
    weight [parts * D, D], transposed."""

    matrix: str
    head: int
    first: int
    last: int
    shape: tuple[int, int]


@dataclass(frozen=True)
class Part:
    """A part of the model. `parameters` are those that are first met in it, so that the numbers of all parts
    add up to those of the model; `same_as` is where all that it has was met before."""

    name: str  # within its parent
    path: str
    kind: str
    parameters: int
    shapes: tuple[tuple[int, ...], ...] = ()  # of a part without parts: its tensors, as they lie in the file
    same_as: str | None = None
    matrices: tuple[str, ...] = ()  # what the paper calls them
    slices: tuple[Slice, ...] = ()
    parts: tuple[Part, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"name": self.name, "path": self.path, "kind": self.kind}
        fields["parameters"] = self.parameters
        if self.shapes:
            fields["shapes"] = [list(shape) for shape in self.shapes]
        if self.same_as:
            fields["same_as"] = self.same_as
        if self.matrices:
            fields["matrices"] = list(self.matrices)
        if self.slices:
            fields["slices"] = [
                {"matrix": s.matrix, "head": s.head, "rows": [s.first, s.last], "shape": list(s.shape)}
                for s in self.slices
            ]
        if self.parts:
            fields["parts"] = [part.as_dict() for part in self.parts]
        return fields


@dataclass(frozen=True)
class Shared:
    """Weights that several places use; the first of them gives them their names in the file."""

    places: tuple[str, ...]
    parameters: int

    @property
    def saved(self) -> int:
        return self.parameters * (len(self.places) - 1)


def tree(model: nn.Module, name: str = "model") -> Part:
    """The parts of the model that have parameters, as deep as they go."""
    return _part(model, name, "", aliases(model), (None, ""))


def _part(
    module: nn.Module, name: str, path: str, tied: Mapping[str, str], owner: tuple[nn.Module | None, str]
) -> Part:
    """`owner` is the module that this one is a part of, and what it is called there."""
    kind = type(module).__name__
    inside = dict(module.named_parameters(remove_duplicate=False))
    own = {key: p for key, p in inside.items() if "." not in key}
    below = [
        (key, child)
        for key, child in module._modules.items()
        if child is not None and next(child.parameters(), None) is not None
    ]
    before = {_without(tied.get(_join(path, key), ""), key) for key in inside}
    if len(before) == 1 and (first := before.pop()):
        return Part(name, path, kind, 0, _shapes(own) if not below else (), same_as=first)
    if not below:
        new = sum(p.numel() for key, p in own.items() if _join(path, key) not in tied)
        matrices = _matrices(owner)
        return Part(name, path, kind, new, _shapes(own), None, matrices, _slices(module, matrices, owner[0]))
    parts = [
        Part(
            key,
            _join(path, key),
            "Parameter",
            0 if _join(path, key) in tied else p.numel(),
            (tuple(p.shape),),
            tied.get(_join(path, key)),
        )
        for key, p in own.items()
    ]
    parts += [_part(child, key, _join(path, key), tied, (module, key)) for key, child in below]
    if len(parts) == 1 and not isinstance(module, nn.ModuleList):  # one line says it
        return replace(parts[0], name=f"{name}.{parts[0].name}")
    return Part(name, path, kind, sum(part.parameters for part in parts), parts=tuple(parts))


def _matrices(owner: tuple[nn.Module | None, str]) -> tuple[str, ...]:
    module, name = owner
    return next((names for kind, key, names in MATRICES if isinstance(module, kind) and key == name), ())


def _slices(weight: nn.Module, matrices: Sequence[str], attention: nn.Module | None) -> tuple[Slice, ...]:
    if not BY_HEAD.issuperset(matrices) or not matrices:
        return ()
    assert isinstance(attention, (SelfAttention, CrossAttention))
    assert isinstance(weight, nn.Linear)
    heads, (rows, D) = attention.heads, weight.weight.shape
    d = rows // (len(matrices) * heads)
    starts = [(matrix, head, (i * heads + head) * d) for i, matrix in enumerate(matrices) for head in range(heads)]
    return tuple(Slice(matrix, head, at, at + d - 1, (D, d)) for matrix, head, at in starts)


def shared(model: nn.Module) -> list[Shared]:
    """What is shared, by the largest parts of which it is all that they have."""
    places: dict[str, set[str]] = {}
    for alias, first in aliases(model).items():
        if _is_one_by_nature(model, alias):
            continue
        places.setdefault(first, {first}).add(alias)
    found: list[Shared] = []
    modules = dict(model.named_modules(remove_duplicate=False))
    order = {name: i for i, name in enumerate(modules)}
    sizes = {name: len(list(part.named_parameters(remove_duplicate=False))) for name, part in modules.items()}

    def visit(module: nn.Module, path: str) -> None:
        inside = dict(module.named_parameters(remove_duplicate=False))
        owned = [key for key in inside if _join(path, key) in places]
        if not owned:
            return
        # A part is shared as a whole if all that it has is, with the same places, which have nothing besides.
        users = {frozenset(_without(place, key) for place in places.get(_join(path, key), ())) for key in inside}
        alike = users.pop() if len(users) == 1 else frozenset("")
        if alike and "" not in alike and all(sizes[place] == len(inside) for place in alike):
            numbers = sum(p.numel() for p in inside.values())
            found.append(Shared(tuple(sorted(alike, key=order.__getitem__)), numbers))
            return
        for key, p in module._parameters.items():
            if p is not None and (name := _join(path, key)) in places:
                found.append(Shared((name, *sorted(places[name] - {name})), p.numel()))
        for key, child in module._modules.items():
            if child is not None:
                visit(child, _join(path, key))

    visit(model, "")
    return found


def _is_one_by_nature(model: nn.Module, name: str) -> bool:
    """Whether a parameter is of such a part as Transformer.one_by_nature."""
    return name.partition(".")[0] in getattr(model, "one_by_nature", ())


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _without(name: str, key: str) -> str:
    """The part that has the weight `key` under this name, "" if it is called otherwise there."""
    return name.removesuffix(f".{key}") if name.endswith(f".{key}") else ""


def _shapes(own: Mapping[str, Tensor]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(p.shape) for p in own.values())


@dataclass(frozen=True)
class Anatomy:
    """All that `vtrans inspect` tells of a model file. `overlap` is that of the data folder it was trained on,
    if it was given: the model file does not know it."""

    file: Path
    chosen: str  # why this file of a run folder, "" if it was named
    loaded: LoadedModel
    overlap: Mapping[str, Any] | None = None

    @property
    def parameters(self) -> int:
        return count_parameters(self.loaded.model)

    @property
    def parameters_unshared(self) -> int:
        """What they would be if every place had its own, but for parts that are one in every such model."""
        model = self.loaded.model
        places = model.named_parameters(remove_duplicate=False)
        return sum(p.numel() for name, p in places if not _is_one_by_nature(model, name))

    def bytes(self) -> dict[str, int]:
        tensors, total = tensor_bytes(self.file), self.file.stat().st_size
        names = {name for name, _ in self.loaded.model.named_parameters()}
        weights = sum(size for name, size in tensors.items() if name in names)
        vocabulary = sum(size for name, size in tensors.items() if name in VOCABULARIES)
        found = {"file": total, "weights": weights, "vocabulary": vocabulary, "header": total - sum(tensors.values())}
        rest = sum(tensors.values()) - weights - vocabulary
        return found | ({"shortlist": rest} if rest else {})

    def as_dict(self) -> dict[str, Any]:
        loaded = self.loaded
        return {
            "file": str(self.file),
            "chosen": self.chosen or None,
            "bytes": self.bytes(),
            "model": dataclasses.asdict(loaded.model.config),
            "search": dataclasses.asdict(loaded.search),
            "training": dict(loaded.training),
            "vocabulary": {
                "joint": loaded.joint,
                "src": _vocabulary_facts(loaded.src_vocab),
                "tgt": _vocabulary_facts(loaded.tgt_vocab),
                "pieces_in_both": len(_pieces(loaded.src_vocab) & _pieces(loaded.tgt_vocab)),
            },
            "overlap": self.overlap,
            "parameters": self.parameters,
            "parameters_without_sharing": self.parameters_unshared,
            "shared": [
                {"places": list(s.places), "parameters": s.parameters, "saved": s.saved} for s in shared(loaded.model)
            ],
            "tree": tree(loaded.model).as_dict(),
        }

    def show(self, console: Console, *, full: bool = False) -> None:
        """For people: the facts, the tree with equal layers folded unless `full`, and what is shared."""
        model, sizes = self.loaded.model, self.bytes()
        unshared = self.parameters_unshared
        without = f"; {unshared:,} without sharing, which saves {1 - self.parameters / unshared:.0%}"
        overlap = (
            "not in the model file; --data FOLDER takes it from the data that it was trained on"
            if self.overlap is None
            else ", ".join(
                f"{row['share']:.0%} of types seen {row['threshold']}+ times" for row in self.overlap["rows"]
            )
        )
        facts = [
            ("file", f"{self.file}{f' ({self.chosen})' if self.chosen else ''}"),
            ("bytes", f"{sizes.pop('file'):,}: " + ", ".join(f"{name} {size:,}" for name, size in sizes.items())),
            ("parameters", f"{self.parameters:,}{without if unshared > self.parameters else '; nothing is shared'}"),
            ("model", _values(dataclasses.asdict(model.config))),
            ("training", _values(self.loaded.training)),
            ("search", _values(_changed(self.loaded.search)) or "the defaults"),
            ("vocabulary", self._vocabulary()),
            ("overlap", overlap),
        ]
        for name, text in facts:
            first, *rest = textwrap.wrap(text, 100, break_on_hyphens=False, break_long_words=False) or ["unknown"]
            console.info("\n".join([f"{name:<12}{first}", *(" " * 12 + line for line in rest)]))
        groups = shared(model)
        also = {group.places[0]: group.places[1:] for group in groups}
        console.table("parts", _rows(tree(model), also, full), header=("part", "parameters", "shape in the file", ""))
        if groups:
            console.table("shared", _groups(groups, full), header=("parameters", "saved", "places"))

    def _vocabulary(self) -> str:
        src, tgt = self.loaded.src_vocab, self.loaded.tgt_vocab
        if self.loaded.joint:
            return f"one joint, {_vocabulary_words(src)}"
        both = len(_pieces(src) & _pieces(tgt))
        return f"source {_vocabulary_words(src)}; target {_vocabulary_words(tgt)}; {both:,} subwords are in both"


def overlap_of(folder: Path, loaded: LoadedModel) -> Mapping[str, Any]:
    """The vocabulary overlap that a data folder reports; InputError unless it is what the model was trained on,
    which an average knows by the vocabulary alone."""
    data = DataFolder.open(folder)
    if (data.src_vocab.digest, data.tgt_vocab.digest) != (loaded.src_vocab.digest, loaded.tgt_vocab.digest):
        raise InputError(f"{folder} has another vocabulary than the model; give the --data that it was trained on.")
    if loaded.training.get("data", data.digest) != data.digest:
        raise InputError(f"{folder} holds other pairs than the model was trained on; give the --data of its training.")
    found: Mapping[str, Any] = data.report["overlap"]
    return found


def _vocabulary_facts(vocabulary: Vocabulary) -> dict[str, Any]:
    return {"pieces": len(vocabulary), "normalization": vocabulary.normalization, "sha256": vocabulary.digest}


def _vocabulary_words(vocabulary: Vocabulary) -> str:
    return f"{len(vocabulary):,} pieces, normalization {vocabulary.normalization}, sha256 {vocabulary.digest[:12]}"


def _pieces(vocabulary: Vocabulary) -> set[str]:
    return {vocabulary.piece(i) for i in range(len(vocabulary)) if vocabulary.is_subword(i)}


def _values(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key} {' '.join(map(str, value)) if isinstance(value, list) else str(value).lower()}"
        for key, value in values.items()
    )


def _changed(search: SearchConfig) -> dict[str, Any]:
    """The settings that are not the defaults."""
    return {key: value for key, value in dataclasses.asdict(search).items() if value != getattr(SearchConfig(), key)}


# The tree as lines.


def _rows(
    part: Part, also: Mapping[str, Sequence[str]], full: bool, depth: int = 0
) -> Iterator[tuple[str, str, str, str]]:
    """Of a part and all below: its name, parameters, shapes, and a note on what it shares or is made of."""
    notes = [f"= {part.same_as}"] if part.same_as else []
    if others := _others(part, also):
        notes.append(f"also {', '.join(_folded(others))}")
    if part.matrices:
        notes.append(_heads(part.slices) if part.slices and not full else ", ".join(part.matrices))
    shapes = " + ".join(str(list(shape)) for shape in part.shapes)
    yield "  " * depth + part.name, "" if part.same_as else f"{part.parameters:,}", shapes, "; ".join(notes)
    if full:
        for s in part.slices:
            rows = f"rows {s.first}-{s.last}, transposed"
            yield "  " * (depth + 1) + f"{s.matrix} of head {s.head}", "", str(list(s.shape)), rows
        for below in part.parts:
            yield from _rows(below, also, full, depth + 1)
        return
    for alike in _alike(part, also):
        below = alike[0]
        if len(alike) == 1:
            yield from _rows(below, also, full, depth + 1)
            continue
        each = [_rows(p, also, full, depth + 1) for p in alike]
        name = "  " * (depth + 1) + f"layers {_runs([int(p.name) for p in alike])}"
        for i, lines in enumerate(zip(*each, strict=True)):
            label, count, shapes, _ = lines[0]
            note = _common([line[3] for line in lines])
            if i == 0:
                label, count = name, f"{len(alike)} x {count}" if count.strip("0") else count
                note = note or ("" if any(_shares(p, also) for p in alike) else "each its own")
            yield label, count, shapes, note


def _groups(groups: Sequence[Shared], full: bool) -> Iterator[tuple[str, str, str]]:
    """What is shared, and where; what is shared layer by layer in one line unless `full`."""
    alike: dict[object, list[Shared]] = {}
    for number, group in enumerate(groups):
        places = [re.sub(r"\d+", "i", place) for place in group.places]
        alike.setdefault(number if full else (*places, group.parameters), []).append(group)
    for found in alike.values():
        times, places = "", _folded(found[0].places)
        if len(found) > 1:
            times = f"{len(found)} x "
            places = [_common(each) for each in zip(*(group.places for group in found), strict=True)]
        text = " = ".join(places) + (", one by one" if times else "")
        yield f"{times}{found[0].parameters:,}", f"{times}{found[0].saved:,}", text


def _shares(part: Part, also: Mapping[str, Sequence[str]]) -> bool:
    return bool(part.same_as or _others(part, also) or any(_shares(below, also) for below in part.parts))


def _others(part: Part, also: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """The other places of what the line of this part shows first: `residual.norm` is two parts on one line."""
    path = part.path
    for _ in range(part.name.count(".")):
        if path in also:
            break
        path = path.rpartition(".")[0]
    return also.get(path, ())


def _alike(part: Part, also: Mapping[str, Sequence[str]]) -> list[list[Part]]:
    """The parts in order, with the layers of a stack that are alike, with like ones sharing, in one group."""
    if part.kind != "ModuleList":
        return [[below] for below in part.parts]
    groups: dict[object, list[Part]] = {}
    for below in part.parts:
        groups.setdefault(_form(below, also), []).append(below)
    return list(groups.values())


def _form(part: Part, also: Mapping[str, Sequence[str]]) -> object:
    """What is equal of parts that are built alike and share in like ways."""
    sharing = [_RUNS.sub("i", text) for text in (part.same_as or "", *_folded(_others(part, also)))]
    return part.kind, part.parameters, part.shapes, *sharing, tuple((p.name, _form(p, also)) for p in part.parts)


# Numbers as _runs writes them.
_RUNS = re.compile(r"(\d+(?:(?:-|, )\d+)*)")


def _common(notes: Sequence[str]) -> str:
    """The notes of layers that are alike, as one: where the numbers differ, with all of them."""
    parts = [_RUNS.split(note) for note in notes]
    assert len({tuple(part[::2]) for part in parts}) == 1, "alike but for their numbers"
    texts = []
    for values in zip(*parts, strict=True):
        same = len(set(values)) == 1
        texts.append(values[0] if same else _runs(sorted({n for runs in values for n in _numbers(runs)})))
    return "".join(texts)


def _numbers(runs: str) -> Iterator[int]:
    """The numbers that _runs has written."""
    for run in runs.split(", "):
        first, _, last = run.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _heads(slices: Sequence[Slice]) -> str:
    matrices = list(dict.fromkeys(s.matrix for s in slices))
    heads = max(s.head for s in slices) + 1
    return f"{', '.join(matrices)} of {heads} head{'s' if heads > 1 else ''}: {list(slices[0].shape)} each"


def _folded(places: Sequence[str]) -> list[str]:
    """Places that differ in one number only as one: encoder.layers.0-5.feed_forward."""
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for place in places:
        words = re.split(r"(\d+)", place)
        groups.setdefault(tuple(words[::2]), []).append(words)
    folded = []
    for words_of in groups.values():
        columns = list(zip(*words_of, strict=True))
        if sum(len(set(column)) > 1 for column in columns) > 1:
            folded += ["".join(words) for words in words_of]
        else:
            folded.append("".join(_runs([int(n) for n in c]) if len(set(c)) > 1 else c[0] for c in columns))
    return folded


def _runs(numbers: Sequence[int]) -> str:
    """0, 1, 2, 5 as `0-2, 5`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
