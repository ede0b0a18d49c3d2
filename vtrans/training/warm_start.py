"""Starts a new run from the weights of another model, which may have another vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from vtrans.config import ModelConfig
from vtrans.config.keys import keys_of, toml_value
from vtrans.model.checkpoint import aliases, load_model, weights_of
from vtrans.model.network import Transformer
from vtrans.storage.model_file import read_blueprint
from vtrans.system.errors import InputError
from vtrans.text.vocabulary import Vocabulary

# The modules whose tensors have a row per subword. If the new model ties some that the old one does not, a row comes
# from the first of them that has its subword.
_BY_SUBWORD = ("projection", "tgt_embedding", "src_embedding")


def warm_start(
    model: Transformer, src_vocab: Vocabulary, tgt_vocab: Vocabulary, path: Path
) -> dict[str, tuple[int, int]]:
    """Copies the weights of a model file into `model`. Returns, for each tensor with a row per subword, the number of
    rows copied and of all rows. Raises InputError if the architectures differ; FileError if the file is damaged.

    Embeddings and the projection's bias are matched by subword: a row is copied if both vocabularies have its subword;
    otherwise it keeps its initial value. A weight that is tied in `model` but not in the file takes each row from the
    projection, else from the target embedding, else from the source embedding.
    """
    ours, theirs = model.config, read_blueprint(path).model.config
    differing = [
        f"model.{name} = {toml_value(getattr(theirs, name))}"
        for name, key in keys_of(ModelConfig).items()
        if not (key.training_only or key.adaptable) and getattr(ours, name) != getattr(theirs, name)
    ]
    if differing:
        raise InputError(
            f"the architecture of {path} differs from the recipe; to start from this model, set {', '.join(differing)}."
        )
    loaded = load_model(path, network=type(model))
    weights = loaded.model.state_dict(keep_vars=True)
    src, tgt = _places(loaded.src_vocab), _places(loaded.tgt_vocab)
    rows, shared = {}, aliases(model)
    for name, parameter in weights_of(model).items():
        module, _, part = name.partition(".")
        if module in _BY_SUBWORD:
            vocabulary = src_vocab if module == "src_embedding" else tgt_vocab
            sources = [
                (weights[f"{kind}.{part}"], src if kind == "src_embedding" else tgt)
                for kind in _BY_SUBWORD
                if name in (f"{kind}.{part}", shared.get(f"{kind}.{part}"))
            ]
            rows[name.removesuffix(".weight")] = (_take_rows(parameter, vocabulary, sources), len(vocabulary))
            continue
        there = weights[name]
        # One position table may be longer than the other.
        reach = min(len(there), len(parameter)) if module.endswith("_positions") else len(parameter)
        assert there[:reach].shape == parameter[:reach].shape, "equal architectures have equal shapes"
        parameter.data[:reach].copy_(there.data[:reach])
    return rows


def _places(vocabulary: Vocabulary) -> dict[str, int]:
    return {vocabulary.piece(i): i for i in range(len(vocabulary))}


def _take_rows(parameter: Tensor, vocabulary: Vocabulary, sources: Sequence[tuple[Tensor, dict[str, int]]]) -> int:
    """Copies each row from the first of `sources` that has its subword. Returns the number of copied rows."""
    left = {vocabulary.piece(row): row for row in range(len(vocabulary))}
    for weight, places in sources:
        places_of_rows = [(left.pop(piece), places[piece]) for piece in list(left) if piece in places]
        if places_of_rows:
            rows, origins = zip(*places_of_rows, strict=True)
            parameter.data[list(rows)] = weight.data[list(origins)]
    return len(vocabulary) - len(left)
