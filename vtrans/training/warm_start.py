"""A new run that begins with the weights of a model, be its vocabulary the same or another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from vtrans.checkpoint import RunFolder, load_model
from vtrans.config import ModelConfig, keys_of
from vtrans.data.store import file_sha256
from vtrans.data.vocabulary import Vocabulary
from vtrans.errors import FileError, InputError
from vtrans.model import Transformer

# The embeddings, in the order in which one that is several of them takes over rows.
_EMBEDDINGS = ("projection.weight", "tgt_embedding.weight", "src_embedding.weight")


@dataclass(frozen=True)
class WarmStart:
    """What a run took over: from which file, and of each embedding matrix how many rows of how many."""

    path: Path
    digest: str
    rows: dict[str, tuple[int, int]]

    def __str__(self) -> str:
        rows = ", ".join(f"{taken:,} of {size:,} rows of {name}" for name, (taken, size) in self.rows.items())
        return f"weights of {self.path}: every layer, {rows}"


def warm_start(model: Transformer, src_vocab: Vocabulary, tgt_vocab: Vocabulary, path: Path) -> WarmStart:
    """Gives `model` the weights of the model file at that path, which must be of the same architecture.

    Embeddings go by subword: rows of those that both vocabularies have are taken over, the others stay as they
    were initialised. An embedding that is tied here and not there takes the row of the projection, else of the
    target embedding, else of the source embedding. InputError where the architectures differ.
    """
    loaded = load_model(path)
    own, theirs = model.config, loaded.model.config
    differing = [
        f"--set model.{name}={str(getattr(theirs, name)).lower()}"
        for name, key in keys_of(ModelConfig).items()
        if not (key.training_only or key.adaptable) and getattr(own, name) != getattr(theirs, name)
    ]
    if differing:
        raise InputError(
            f"--init-from {path} is a model of another architecture than the recipe asks for; it goes with "
            f"{' '.join(differing)}."
        )
    weights = dict(loaded.model.named_parameters(remove_duplicate=False))
    known = {
        "src_embedding.weight": _places(loaded.src_vocab),
        "tgt_embedding.weight": _places(loaded.tgt_vocab),
        "projection.weight": _places(loaded.tgt_vocab),
    }
    rows = {}
    for names, parameter in _owners(model):
        name = names[0]
        if name in known:
            vocabulary = src_vocab if name.startswith("src") else tgt_vocab
            sources = [(weights[kind], known[kind]) for kind in _EMBEDDINGS if kind in names]
            rows[name.removesuffix(".weight")] = (_take_rows(parameter, vocabulary, sources), len(vocabulary))
            continue
        there = weights[name]
        if own.positions == "learned" and there.shape != parameter.shape and there.shape[1:] == parameter.shape[1:]:
            reach = min(len(there), len(parameter))  # positions that both have; only their table has another length
            parameter.data[:reach].copy_(there.data[:reach])
            continue
        assert there.shape == parameter.shape, "one architecture, one shape"
        parameter.data.copy_(there.data)
    digest = file_sha256(path)
    if digest is None:
        raise FileError(f"{path} can't be read any more; give the file again.")
    return WarmStart(path, digest, rows)


def refuse_another(run: RunFolder, began: Mapping[str, str], path: Path) -> None:
    """InputError where a run that goes on did not begin with the weights at that path; `began` is what its state
    says of those that it began with."""
    if not began:
        raise InputError(
            f"the run in {run.path} goes on with its own weights, and did not begin with others; leave out "
            "--init-from, give another --out, or --fresh to start over."
        )
    if str(path) != began["given"] and file_sha256(path) != began["sha256"]:
        raise InputError(
            f"the run in {run.path} began with the weights of {began['file']}, not of {path}; leave out "
            "--init-from, give another --out, or --fresh to start over."
        )


def _owners(model: Transformer) -> Iterator[tuple[list[str], Tensor]]:
    """Each parameter once, with all its names, that of its first owner first."""
    found: dict[int, tuple[list[str], Tensor]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        found.setdefault(id(parameter), ([], parameter))[0].append(name)
    yield from found.values()


def _places(vocabulary: Vocabulary) -> dict[str, int]:
    return {vocabulary.piece(i): i for i in range(len(vocabulary))}


def _take_rows(parameter: Tensor, vocabulary: Vocabulary, sources: Sequence[tuple[Tensor, dict[str, int]]]) -> int:
    """Copies rows by subword, of each from the first source that has it; how many were copied."""
    left = {vocabulary.piece(row): row for row in range(len(vocabulary))}
    for weight, places in sources:
        found = [(left.pop(piece), places[piece]) for piece in list(left) if piece in places]
        if found:
            rows, origins = zip(*found, strict=True)
            parameter.data[list(rows)] = weight.data[list(origins)]
    return len(vocabulary) - len(left)
