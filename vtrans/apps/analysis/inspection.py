"""The report of `vtrans inspect` on a model file: its facts, its parts and what they share, as JSON or as tables."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from vtrans.apps.analysis.model_parts import Part, SharedGroup, part_tree, shared_groups
from vtrans.config import SearchConfig
from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import LoadedModel, load_model, weights_of
from vtrans.model.network import count_parameters
from vtrans.storage.model_file import VOCABULARIES
from vtrans.storage.run_folder import choose_model
from vtrans.storage.tensors import open_tensors
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.text.vocabulary import FORMALITY, Vocabulary

WIDTH = 112  # the most columns that the facts fill


@dataclass(frozen=True)
class Inspection:
    """A model file and what was read from it. The file does not hold the overlap of its training data: `overlap` is
    taken from the data folder, if the user names it."""

    file: Path
    chosen: str  # why this file of a run folder; "" if the user named the file
    loaded: LoadedModel
    overlap: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, path: Path, data: Path | None, code: Path | None = None) -> Inspection:
        """Reads a model file, or the one of a run folder that `vtrans translate` would choose."""
        file, chosen = choose_model(path)
        loaded = load_model(file, code=code)
        return cls(file, chosen, loaded, training_overlap(data, loaded) if data else None)

    @property
    def parameters(self) -> int:
        return count_parameters(self.loaded.model)

    @property
    def parameters_without_sharing(self) -> int:
        """The number of parameters if every part had weights of its own."""
        return self.parameters + sum(group.saved for group in shared_groups(self.loaded.model))

    def bytes(self) -> dict[str, int]:
        """Returns the size of the file and of its contents, by kind."""
        with open_tensors(self.file, "model") as (file, _):
            tensors = {name: file.get_tensor(name).nbytes for name in file.keys()}  # noqa: SIM118 - not a mapping
        total = self.file.stat().st_size
        weights = sum(tensors[name] for name in weights_of(self.loaded.model))
        vocabulary = sum(size for name, size in tensors.items() if name in VOCABULARIES)
        sizes = {"file": total, "weights": weights, "vocabulary": vocabulary, "header": total - sum(tensors.values())}
        shortlist = sum(tensors.values()) - weights - vocabulary
        return sizes | ({"shortlist": shortlist} if shortlist else {})

    def as_dict(self) -> dict[str, Any]:
        loaded = self.loaded
        return {
            "file": str(self.file),
            "chosen": self.chosen or None,
            "bytes": self.bytes(),
            **loaded.record(),
            "tags": dict(loaded.tags),
            "vocabulary": {
                "joint": loaded.joint,
                "src": _vocabulary_facts(loaded.src_vocab),
                "tgt": _vocabulary_facts(loaded.tgt_vocab),
                "pieces_in_both": len(_subwords(loaded.src_vocab) & _subwords(loaded.tgt_vocab)),
            },
            "overlap": self.overlap,
            "parameters": self.parameters,
            "parameters_without_sharing": self.parameters_without_sharing,
            "shared": [
                {"places": list(group.places), "parameters": group.parameters, "saved": group.saved}
                for group in shared_groups(loaded.model)
            ],
            "tree": part_tree(loaded.model).as_dict(),
        }

    def show(self, console: Console, *, full: bool = False, width: int | None = None) -> None:
        """Prints the facts, wrapped at `width` columns, the parts, and what they share. Layers that are alike have one
        row unless `full`."""
        for name, text in self._facts().items():
            lines = textwrap.wrap(
                text, min(WIDTH, width or WIDTH), initial_indent=f"{name:<14}", subsequent_indent=" " * 14,
                break_on_hyphens=False, break_long_words=False,
            )  # fmt: skip
            console.info("\n".join(lines))
        rows = part_rows(part_tree(self.loaded.model), full=full)
        console.table("parts", rows, header=("part", "parameters", "shape in the file", "weights"))
        if groups := shared_groups(self.loaded.model):
            console.table("shared", shared_rows(groups, full=full), header=("parameters", "saved", "places"))

    def _facts(self) -> dict[str, str]:
        report, defaults = self.as_dict(), dataclasses.asdict(SearchConfig())
        sizes = ", ".join(f"{kind} {size:,}" for kind, size in report["bytes"].items() if kind != "file")
        parameters, unshared = report["parameters"], report["parameters_without_sharing"]
        sharing = "nothing is shared"
        if unshared > parameters:
            sharing = f"{unshared:,} without sharing, which saves {1 - parameters / unshared:.0%}"
        overlap = "stored in the data folder, not in the model file"
        if self.overlap is not None:
            shares = [f"{row['share']:.0%} of types seen {row['threshold']}+ times" for row in self.overlap["rows"]]
            overlap = ", ".join(shares)
        return {
            "file": f"{self.file} ({self.chosen})" if self.chosen else str(self.file),
            "bytes": f"{report['bytes']['file']:,}: {sizes}",
            "parameters": f"{parameters:,}; {sharing}",
            "model": _settings(report["model"]),
            "training": _settings(report["training"]) or "unknown",
            "languages": ", ".join(" to ".join(pair) for pair in self.loaded.languages) or "unknown",
            "tags": ", ".join(f"{tag} for {code}" for code, tag in report["tags"].items()) or "none",
            "fuzzy matches": "used" if self.loaded.matches else "not used",
            "codes": "learned: protected text is copied by default" if self.loaded.codes else "not learned",
            "usual length": f"{self.loaded.usual_length:,} subwords" if self.loaded.usual_length else "unknown",
            "formality": " and ".join(FORMALITY.values()) if self.loaded.src_vocab.formality else "not learned",
            "search": _settings({k: v for k, v in report["search"].items() if v != defaults[k]}) or "the defaults",
            "vocabulary": _vocabulary_text(report["vocabulary"]),
            "overlap": overlap,
        }


def training_overlap(folder: Path, loaded: LoadedModel) -> Mapping[str, Any]:
    """Returns the vocabulary overlap from the report of the model's data folder.

    Raises InputError for the folder of other data. An averaged model does not record its data, so only the vocabulary
    is compared.
    """
    data = DataFolder.open(folder)
    if (data.src_vocab.digest, data.tgt_vocab.digest) != (loaded.src_vocab.digest, loaded.tgt_vocab.digest):
        raise InputError(f"`data` must be the model's training data, but {folder} has a different vocabulary.")
    if loaded.training.get("data", data.digest) != data.digest:
        raise InputError(f"`data` must be the model's training data, but {folder} holds different sentence pairs.")
    overlap: Mapping[str, Any] = data.report["overlap"]
    return overlap


def _vocabulary_facts(vocabulary: Vocabulary) -> dict[str, Any]:
    return {"pieces": len(vocabulary), "normalization": vocabulary.normalization, "sha256": vocabulary.digest}


def _vocabulary_text(facts: Mapping[str, Any]) -> str:
    src, tgt = (
        f"{side['pieces']:,} pieces, normalization {side['normalization']}, sha256 {side['sha256'][:12]}"
        for side in (facts["src"], facts["tgt"])
    )
    if facts["joint"]:
        return f"joint, {src}"
    return f"source {src}; target {tgt}; {facts['pieces_in_both']:,} subwords are in both"


def _subwords(vocabulary: Vocabulary) -> set[str]:
    return {vocabulary.piece(i) for i in range(len(vocabulary)) if vocabulary.is_subword(i)}


def _settings(values: Mapping[str, Any]) -> str:
    texts = {key: " ".join(map(str, v)) if isinstance(v, list) else str(v).lower() for key, v in values.items()}
    return ", ".join(f"{key} {text}" for key, text in texts.items())


def part_rows(*alike: Part, full: bool, depth: int = 0, layers: bool = False) -> Iterator[tuple[str, str, str, str]]:
    """Yields the rows of the table of parts: name, number of parameters, shapes in the file, note on the weights. Parts
    that differ only in their layer number have one row, which the rows of the parts below them follow.

    Layers count from 1. If `full`, each layer and the matrices of each head have their own rows.
    """
    part = alike[0]
    name, count = part.name, "" if part.same_as else f"{part.parameters:,}"
    notes = list(_notes(alike, full))
    if layers:
        numbers = [int(layer.name) for layer in alike]
        counted = _ranges(number + 1 for number in numbers)
        name = f"layer{'s' if len(alike) > 1 else ''} {counted} (layers.{_ranges(numbers)} in the file)"
    if layers and len(alike) > 1:
        count = f"{len(alike)} x {count}" if part.parameters else count
        notes = notes or ([] if _shares(part) else ["not shared"])
    yield "  " * depth + name, count, " + ".join(str(list(shape)) for shape in part.shapes), "; ".join(notes)
    if full:
        for h in part.slices:
            note = f"rows {h.rows[0]}-{h.rows[1]}, transposed"
            yield "  " * (depth + 1) + f"{h.matrix} of head {h.head}", "", str(list(h.shape)), note
    children = list(zip(*(each.parts for each in alike), strict=True))  # for each child, that child of every layer
    if part.kind != "ModuleList":
        for child in children:
            yield from part_rows(*child, full=full, depth=depth + 1)
        return
    stack: dict[object, list[Part]] = {}
    for child in children:
        stack.setdefault(child[0].name if full else _form(child[0]), []).extend(child)
    for group in stack.values():
        yield from part_rows(*group, full=full, depth=depth + 1, layers=True)


def _notes(alike: Sequence[Part], full: bool) -> Iterator[str]:
    """Yields what the parts share, and the paper's names for their weights."""
    part = alike[0]
    if same_as := _folded(each.same_as for each in alike if each.same_as):
        yield f"same as {', '.join(same_as)}"
    if shared_with := _folded(place for each in alike for place in each.shared_with):
        yield f"shared with {', '.join(shared_with)}"
    if part.slices and not full:
        heads = part.slices[-1].head
        each = f" of {heads} head{'s' if heads > 1 else ''}: {list(part.slices[0].shape)} each"
        yield ", ".join(part.matrices) + each
    elif part.matrices:
        yield ", ".join(part.matrices)


def shared_rows(groups: Sequence[SharedGroup], *, full: bool) -> Iterator[tuple[str, str, str]]:
    """Yields the rows of the table of shared weights. Groups that differ only in their layer number have one
    row unless `full`."""
    alike: dict[object, list[SharedGroup]] = {}
    for group in groups:
        form = group.places if full else (group.parameters, *(_layer_of(place)[0] for place in group.places))
        alike.setdefault(form, []).append(group)
    for same in alike.values():
        first, times = same[0], f"{len(same)} x " if len(same) > 1 else ""
        text = " = ".join(_folded(first.places))
        if times:
            columns = zip(*(group.places for group in same), strict=True)
            text = " = ".join(chain.from_iterable(map(_folded, columns))) + ", layer by layer"
        yield f"{times}{first.parameters:,}", f"{times}{first.saved:,}", text


def _shares(part: Part) -> bool:
    return bool(part.same_as or part.shared_with or any(map(_shares, part.parts)))


def _form(part: Part) -> object:
    """Returns a key that is equal for parts of different layers with equal structure and sharing."""
    sharing = [{_layer_of(place)[0] for place in places} for places in ((part.same_as or "",), part.shared_with)]
    below = tuple((each.name, _form(each)) for each in part.parts)
    return part.kind, part.parameters, part.shapes, *map(frozenset, sharing), below


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
