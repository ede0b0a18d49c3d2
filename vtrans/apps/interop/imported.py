"""A model read from another program's files, and its conversion to our model.

The `read` function of each importer returns an Imported; `install` turns it into a LoadedModel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from vtrans.apps.interop.comparison import Program
from vtrans.apps.interop.foreign_files import ForeignTensors, Read
from vtrans.apps.interop.weight_names import Format, layer_weights
from vtrans.config import ModelConfig
from vtrans.model.checkpoint import LoadedModel, Unfilled, weights_of
from vtrans.model.network import Transformer
from vtrans.storage.layout import Shape, layout_of
from vtrans.storage.model_file import Model, check_finite, with_network
from vtrans.system.errors import FileError, InputError
from vtrans.system.process import release_memory
from vtrans.text.vocabulary import BOS_ID, PAD_ID, Vocabulary, have_one_table

_LARGE = 1 << 28  # bytes
ABSENT_BIAS = -1e4
"""Projection bias of a subword that the other program lacks. Its probability is exactly 0."""


@dataclass(frozen=True)
class Sources:
    """An architecture, and a function per weight that reads it in our shape. Checks need no weights in memory."""

    config: ModelConfig
    weights: Mapping[str, Read]


@dataclass(frozen=True)
class Imported:
    """A model of another program, before its weights are read."""

    path: Path
    kind: str
    """The recognised format, in words: "a Hugging Face Marian folder"."""
    notes: tuple[str, ...]
    """Further facts for the user, one sentence each, without a full stop."""
    model: Model[Sources]
    original: Callable[[], Program] | None = None
    """Returns the other program for the comparison; it loads the model on first use. Raises InputError if the program
    is not installed. None for a model of vtrans."""


def install(imported: Imported) -> LoadedModel:
    """Returns the model in float32 on the CPU.

    Memory holds the model and one source weight at a time. Raises FileError if the names or shapes of the weights do
    not match the architecture exactly, or if a value is not finite.
    """
    path, given = imported.path, imported.model
    config, weights = given.model.config, given.model.weights
    wanted = shapes_of(path, config, given.src_vocab, given.tgt_vocab)
    if odd := wanted.keys() ^ weights.keys():
        what = "lacks" if min(odd) in wanted else "has the unknown weight"
        raise FileError(f"{path} {what} {min(odd)}; its weights must be exactly those of its architecture.")
    with Unfilled():
        model = Transformer(config, len(given.src_vocab), len(given.tgt_vocab), joint=given.joint, pad_id=PAD_ID)
    for name, weight in weights_of(model).items():
        value = weights[name]()
        if value.shape != weight.shape:
            raise FileError(f"{path}: {name} must have the shape {list(weight.shape)}, got {list(value.shape)}.")
        check_finite(path, name, value.numpy())
        weight.data.copy_(value)
        del value
        if weight.nbytes > _LARGE:
            release_memory()
    return with_network(given, model.eval())


def shapes_of(path: Path, config: ModelConfig, src: Vocabulary, tgt: Vocabulary) -> dict[str, Shape]:
    """Returns the shapes of our weights by name. Raises FileError for an architecture that vtrans cannot express."""
    try:
        return layout_of(config, len(src), len(tgt), joint=have_one_table(src, tgt)).shapes
    except InputError as error:
        raise FileError(f"{path} describes a model that vtrans cannot express: {error}") from None


def weights_in(
    tensors: ForeignTensors,
    names: Format,
    config: ModelConfig,
    vocabs: tuple[Vocabulary, Vocabulary],
    start: int | None = None,
    *,
    transposed: bool = False,
    is_ours: bool = False,
) -> dict[str, Read]:
    """Returns, for each of our weights except positions, a function that reads it from the tensors of another program.

    `start` is the embedding row that starts a translation if the program has no BOS row. If `transposed`, the program's
    matrices are [in, out] and its vectors [1, n]. Embedding rows follow the vocabularies' tables, or our ids if
    `is_ours`. Raises FileError if a tensor is missing or has another shape.
    """
    weights: dict[str, Read] = {}
    for ours, theirs, shape in layer_weights(config, names):
        stored = ((1, *shape) if len(shape) == 1 else shape[::-1]) if transposed else shape
        weights[ours] = partial(_joined, [tensors.get(name, *stored) for name in theirs], transposed, len(shape))
    sizes = [len(vocab) if is_ours else len(vocab.pieces) for vocab in vocabs]
    for name, table in names.of_tables(config.tie).items():
        side = not name.startswith("src")
        read = tensors.get(table, sizes[side], config.d_model)
        row = start if side or config.tie.startswith("src-tgt") else None
        weights[name] = read if is_ours else partial(_in_our_order, read, vocabs[side], row)
    if config.projection_bias:
        bias, size = names.tables["projection.bias"], sizes[1]
        read = partial(torch.zeros, size)
        if bias in tensors:  # [V] or [1, V]
            read = tensors.get(bias, *[1] * (len(tensors.shapes[bias]) - 1), size)
        weights["projection.bias"] = partial(_bias_in_our_order, read, None if is_ours else vocabs[1])
    return weights


def _joined(parts: Sequence[Read], transposed: bool, rank: int) -> Tensor:
    joined = torch.cat([part().T if transposed else part() for part in parts])
    return joined.flatten() if rank == 1 else joined


def _in_our_order(read: Read, vocab: Vocabulary, start: int | None) -> Tensor:
    return rows_of(vocab, read(), start)


def _bias_in_our_order(read: Read, vocab: Vocabulary | None) -> Tensor:
    bias = read().flatten()
    if vocab:
        return rows_of(vocab, bias, absent=ABSENT_BIAS)
    bias[PAD_ID] = 0  # exports store a large negative bias, so that padding is never predicted
    return bias


def rows_there(weight_VD: Tensor, order: Sequence[int | None], count: int) -> Tensor:
    """Returns our rows in the order of another program's table of `count` rows. `order` maps our ids to its rows."""
    ids = {place: id for id, place in enumerate(order)}
    return weight_VD.index_select(0, torch.tensor([ids[place] for place in range(count)]))


def rows_of(vocab: Vocabulary, weight_VD: Tensor, start: int | None = None, *, absent: float = 0.0) -> Tensor:
    """Returns another program's embedding [V, D] or bias [V] in the order of our ids.

    `start` is the row that starts a translation there if the table has no BOS row. Other missing rows are filled with
    `absent`.
    """
    rows = weight_VD.index_select(0, torch.tensor([place or 0 for place in vocab.order]))
    for id, place in enumerate(vocab.order):
        if place is None:
            rows[id] = absent if start is None or id != BOS_ID else weight_VD[start]
    return rows
