"""The report of `vtrans inspect` on a model file: facts, weights and weight sharing, as JSON or as tables."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from vtrans.config import SearchConfig
from vtrans.model.checkpoint import LoadedModel, load_model, weights_of
from vtrans.model.network import DecoderOnly, count_parameters
from vtrans.storage.model_file import VOCABULARIES
from vtrans.storage.run_folder import choose_model
from vtrans.storage.tensors import open_tensors
from vtrans.system.console import Console
from vtrans.text.vocabulary import FORMALITY, Vocabulary


@dataclass(frozen=True)
class Weights:
    """The weight and bias of a part of the model, such as a linear layer. All `places` share them; the first one gives
    them their names in the file."""

    places: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def parameters(self) -> int:
        return sum(map(math.prod, self.shapes))

    @property
    def saved(self) -> int:
        """The number of parameters that sharing saves."""
        return self.parameters * (len(self.places) - 1)

    def as_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "parameters": self.parameters, "saved": self.saved}


def weights_in(model: nn.Module) -> list[Weights]:
    """Returns the weights of a model, each once. Places share a weight if they hold the same parameter object."""
    places = defaultdict[nn.Parameter, list[str]](list)
    one_table = isinstance(getattr(model, "decoder", None), DecoderOnly)  # has only one position table: nothing saved
    for name, weight in model.named_parameters(remove_duplicate=False):
        if not (one_table and name.startswith("tgt_positions.")):
            places[weight].append(name.rpartition(".")[0])
    parts = defaultdict[tuple[str, ...], list[tuple[int, ...]]](list)
    for weight, names in places.items():
        parts[tuple(names)].append(tuple(weight.shape))
    return [Weights(names, tuple(shapes)) for names, shapes in parts.items()]


@dataclass(frozen=True)
class Inspection:
    """A model file and its loaded model."""

    file: Path
    chosen: str  # why this file of a run folder was chosen; "" if the user named the file
    loaded: LoadedModel

    @classmethod
    def of(cls, path: Path, code: Path | None = None) -> Inspection:
        """Reads a model file, or the file in a run folder that `vtrans translate` would choose."""
        file, chosen = choose_model(path)
        return cls(file, chosen, load_model(file, code=code))

    @property
    def parameters(self) -> int:
        return count_parameters(self.loaded.model)

    @property
    def parameters_without_sharing(self) -> int:
        """The number of parameters if no weights were shared."""
        return self.parameters + sum(weights.saved for weights in weights_in(self.loaded.model))

    @property
    def sharing(self) -> str:
        """The number of parameters and the saving by sharing, in words."""
        parameters, unshared = self.parameters, self.parameters_without_sharing
        if unshared == parameters:
            return f"{parameters:,}; nothing is shared"
        return f"{parameters:,}; {unshared:,} without sharing, which saves {1 - parameters / unshared:.0%}"

    def bytes(self) -> dict[str, int]:
        """The sizes of the file and of each kind of content, in bytes."""
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
            },
            "parameters": self.parameters,
            "parameters_without_sharing": self.parameters_without_sharing,
            "weights": [weights.as_dict() for weights in weights_in(loaded.model)],
        }

    def show(self, console: Console, *, full: bool = False) -> None:
        """Prints the facts and the weights. Corresponding weights of similar layers have one row unless `full`."""
        console.table(f"{self.file} ({self.chosen})" if self.chosen else str(self.file), self._facts().items())
        rows = weight_rows(weights_in(self.loaded.model), full=full)
        header = ("part", "parameters", "shape in the file", "saved", "shared with")
        console.table("weights", rows, header=header)

    def _facts(self) -> dict[str, str]:
        loaded, defaults, sizes = self.loaded, dataclasses.asdict(SearchConfig()), self.bytes()
        parts = Counter[str]()
        for weights in weights_in(loaded.model):
            parts[weights.places[0].partition(".")[0]] += weights.parameters
        src, tgt = (_vocabulary_facts(vocabulary) for vocabulary in (loaded.src_vocab, loaded.tgt_vocab))
        sides = {"joint vocabulary": src} if loaded.joint else {"source vocabulary": src, "target vocabulary": tgt}
        search = {name: value for name, value in loaded.record()["search"].items() if value != defaults[name]}
        return {
            "bytes": f"{sizes.pop('file'):,}: {_listed(sizes)}",
            "parameters": self.sharing,
            "by part": _listed(parts),
            "model": loaded.model.config.summary,
            "training": _listed(loaded.training) or "unknown",
            "languages": ", ".join(" to ".join(pair) for pair in loaded.languages) or "unknown",
            "tags": ", ".join(f"{tag} for {code}" for code, tag in loaded.tags.items()) or "none",
            "fuzzy matches": "used" if loaded.matches else "not used",
            "codes": "learned: protected text is copied by default" if loaded.codes else "not learned",
            "usual length": f"{loaded.usual_length:,} subwords" if loaded.usual_length else "unknown",
            "formality": " and ".join(FORMALITY.values()) if loaded.src_vocab.formality else "not learned",
            "search": _listed(search) or "the defaults",
            **{name: _listed(facts) for name, facts in sides.items()},
        }


def _vocabulary_facts(vocabulary: Vocabulary) -> dict[str, Any]:
    return {"pieces": len(vocabulary), "normalization": vocabulary.normalization, "sha256": vocabulary.digest}


def _listed(values: Mapping[str, Any]) -> str:
    texts = []
    for name, value in values.items():
        text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        texts.append(f"{name} {value:,}" if type(value) is int else f"{name} {text}")
    return ", ".join(texts)


def weight_rows(weights: Iterable[Weights], *, full: bool = False) -> Iterator[tuple[str, ...]]:
    """Yields the rows of the weight table: the part that names the weights, parameters, shapes, parameters saved by
    sharing, and the other parts that share the weights. Corresponding weights of similar layers have one row unless
    `full`, in which `*` stands for the number of a layer."""
    alike = defaultdict[object, list[Weights]](list)
    for each in weights:
        form = Counter(_LAYER.sub("*", place, count=1) for place in each.places)
        alike[each.places if full else (each.shapes, frozenset(form.items()))].append(each)
    for first, *rest in alike.values():
        times = f"{1 + len(rest)} x " if rest else ""
        whole = full or (len(first.places) == 1 and not rest)
        places = first.places if whole else [_LAYER.sub("*", place, count=1) for place in first.places]
        part, *others = dict.fromkeys(places)
        saved = f"{times}{first.saved:,}" if first.saved else ""
        shapes = " + ".join(str(list(shape)) for shape in first.shapes)
        yield part, f"{times}{first.parameters:,}", shapes, saved, ", ".join(others)


_LAYER = re.compile(r"(?<=layers\.)\d+")
