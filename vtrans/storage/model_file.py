"""Model files. A file contains each weight once, under the name of its first owner, the SentencePiece models as U8
tensors, and a header with the configuration and the aliases of shared weights.

Reading a file here does not need torch. checkpoint.py reads a file into a torch network, and writes files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from vtrans.config import ModelConfig, SearchConfig, section_from
from vtrans.storage.layout import Layout, layout_of
from vtrans.storage.pair_counts import PairCounts
from vtrans.storage.tensors import TensorFile, open_tensors
from vtrans.system.errors import FileError, InputError, RecipeError
from vtrans.text.languages import Languages, languages_from, languages_record, tags_from
from vtrans.text.vocabulary import Vocabulary, have_one_table

JOINT, SOURCE, TARGET = "vocabulary.joint", "vocabulary.source", "vocabulary.target"
VOCABULARIES = (JOINT, SOURCE, TARGET)
TRANSLATIONS, FREQUENT = "shortlist.translations", "shortlist.frequent"
FLOATS = ("F64", "F32", "F16")  # types of weights, as safetensors names them

Section = TypeVar("Section", ModelConfig, SearchConfig)


@dataclass(frozen=True)
class Shortlist:
    """The target subwords that translations may contain; data/aligner.py learns them, and engines/ use them.
    `translations` [source vocabulary, k] has the ids of the most likely ones per source subword, in order, padded with
    EOS. `frequent` [f] has the ids that every translation may contain."""

    translations: NDArray[np.int32]
    frequent: NDArray[np.int32]


class Network(Protocol):
    """The weights of a model: a torch network, or arrays."""

    @property
    def config(self) -> ModelConfig: ...


N = TypeVar("N", bound=Network)


@dataclass(frozen=True)
class Model(Generic[N]):
    """A model with everything needed to translate.

    `training` records how it was made: `step`, or `average_of` with the averaged steps. `languages` are the language
    pairs that it translates, if known. `tags` are the subwords that begin its sources, by target language. `matches`
    says whether it has learned to use fuzzy matches (data/matches.py), and `codes` whether it has learned to copy the
    codes of protected text (translate/wording/protection.py). `usual_length` is the 90th percentile of its training
    sources' lengths in subwords; 0 if unknown. `pair` has the counts of its language pair in the training text, or
    None. `code` is the digest of the file of a user-defined network.
    """

    model: N
    src_vocab: Vocabulary
    tgt_vocab: Vocabulary
    search: SearchConfig
    training: Mapping[str, Any]
    shortlist: Shortlist | None = None
    languages: Sequence[Languages] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    matches: bool = False
    codes: bool = False
    usual_length: int = 0
    pair: PairCounts | None = None
    code: str = ""

    @property
    def joint(self) -> bool:
        return have_one_table(self.src_vocab, self.tgt_vocab)

    def record(self) -> dict[str, Any]:
        """Everything except weights and vocabularies, as recorded in files."""
        record = {
            "model": dataclasses.asdict(self.model.config),
            "search": dataclasses.asdict(self.search),
            "training": dict(self.training),
            "languages": languages_record(self.languages),
        }
        more = {name: getattr(self, name) for name in ("matches", "codes", "usual_length", "code")}
        more |= {"tags": dict(self.tags), "pair": self.pair and dataclasses.asdict(self.pair)}
        return record | {name: value for name, value in more.items() if value}


@dataclass(frozen=True)
class Blueprint:
    """The architecture in a model file, which matches the names, shapes and types of the file's weights."""

    config: ModelConfig
    layout: Layout


@dataclass(frozen=True)
class Weights(Blueprint):
    """The weights of a model as arrays in float32."""

    arrays: Mapping[str, NDArray[np.float32]]
    """By the name of the first owner."""

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        return self.arrays[self.layout.aliases.get(name, name)]

    def get(self, name: str) -> NDArray[np.float32] | None:
        """Returns a weight, or None if the model does not have it."""
        return self.arrays.get(self.layout.aliases.get(name, name))


def read_weights(path: str | Path) -> Model[Weights]:
    """Returns the model in a file, with its weights as arrays. Raises FileError as `load_model` does."""
    with open_tensors(path, "model") as (file, header):
        checked = check_model(path, file, header)
        arrays = {name: file.get_tensor(name).astype(np.float32, copy=False) for name in checked.model.layout.shapes}
    for name, array in arrays.items():
        check_finite(path, name, array)
    weights = Weights(checked.model.config, checked.model.layout, arrays)
    return with_network(checked, weights)


def with_network(model: Model[Any], network: N) -> Model[N]:
    """Returns the model with `network` as its weights."""
    return Model(**{**vars(model), "model": network})


def check_model(path: str | Path, file: TensorFile, header: Mapping[str, Any]) -> Model[Blueprint]:
    """Returns everything in a model file except its weights; checks their names, shapes and types. Raises FileError as
    `load_model` does."""
    names = set(file.keys())
    vocabularies = names & set(VOCABULARIES)
    if vocabularies not in ({JOINT}, {SOURCE, TARGET}):
        raise FileError(f"{path} has no vocabulary; it is not a complete model of vtrans.")
    src_vocab = _read_vocabulary(path, file, JOINT if JOINT in vocabularies else SOURCE)
    tgt_vocab = src_vocab if JOINT in vocabularies else _read_vocabulary(path, file, TARGET)
    try:
        config = section_of(ModelConfig, header, "model", path)
        search = section_of(SearchConfig, header, "search", path)
        languages = languages_from(header.get("languages"))
        tags = tags_from(header.get("tags"), src_vocab.tags)
        layout = Layout()
        if not config.is_own:
            layout = layout_of(config, len(src_vocab), len(tgt_vocab), joint=have_one_table(src_vocab, tgt_vocab))
    except (InputError, ValueError, AssertionError) as error:
        raise FileError(
            f"{path} describes a model that this version does not know: {str(error).rstrip('.')}."
        ) from None
    shortlist = _read_shortlist(path, file, names, len(src_vocab), len(tgt_vocab))
    others = {*vocabularies, *((TRANSLATIONS, FREQUENT) if shortlist else ())}
    if config.is_own:  # `load_model` checks these against their class
        layout = Layout({name: tuple(file.facts(name)[1]) for name in names - others}, header.get("aliases", {}))
    _check_names(path, layout, names - others, header.get("aliases", {}))
    for name, wanted in layout.shapes.items():
        dtype, shape = file.facts(name)
        if shape != list(wanted):
            raise FileError(f"{path}: {name} must have the shape {list(wanted)}, got {shape}.")
        if dtype not in FLOATS:
            raise FileError(f"{path}: {name} must have one of the types {', '.join(FLOATS)}, got {dtype}.")
    length = header.get("usual_length")
    return Model(
        Blueprint(config, layout),
        src_vocab,
        tgt_vocab,
        search,
        header["training"],
        shortlist,
        languages,
        tags,
        matches=header.get("matches") is True,
        codes=header.get("codes") is True,
        usual_length=length if isinstance(length, int) else 0,
        pair=PairCounts.of(header.get("pair")),
        code=str(header.get("code", "")),
    )


def read_blueprint(path: str | Path) -> Model[Blueprint]:
    """Returns everything in a model file except its weights. Raises FileError as `load_model` does."""
    with open_tensors(path, "model") as (file, header):
        return check_model(path, file, header)


def training_of(path: Path) -> dict[str, Any] | None:
    """Returns the record of the training in a model file, or None for another file."""
    try:
        with open_tensors(path, "model") as (_, header):
            training: dict[str, Any] = header["training"]
            return training
    except FileError:
        return None


def needs_code(path: str | Path, config: ModelConfig) -> InputError:
    """Returns the error for a model with a user-defined network whose code was not given."""
    return InputError(
        f"{path} has the network {config.network}, which only that file can compute; give it as `code` if you trust it."
    )


def section_of(kind: type[Section], header: Mapping[str, Any], name: str, path: str | Path) -> Section:
    """Returns a section of a model's header. Keys newer than the file have their defaults. Raises RecipeError if the
    section is missing or invalid."""
    values = header.get(name)
    if not isinstance(values, dict):
        raise RecipeError(f"{path}: the section {name} is missing.")
    return section_from(kind, name, values, str(path))


def check_finite(path: str | Path, name: str, array: NDArray[np.floating]) -> None:
    """Raises FileError unless all numbers of a weight are finite."""
    if array.size and not (np.isfinite(array.min()) and np.isfinite(array.max())):  # any NaN makes both NaN
        raise FileError(f"{path}: {name} has values that are not finite (NaN or infinity); use another model file.")


def _read_vocabulary(path: str | Path, file: TensorFile, name: str) -> Vocabulary:
    dtype, shape = file.facts(name)
    if dtype != "U8" or len(shape) != 1:
        raise FileError(f"{path}: {name} must hold the bytes of a SentencePiece model, got {dtype} {shape}.")
    return Vocabulary(np.asarray(file.get_tensor(name)).tobytes(), str(path))


def _read_shortlist(
    path: str | Path, file: TensorFile, names: set[str], src_size: int, tgt_size: int
) -> Shortlist | None:
    if not names & {TRANSLATIONS, FREQUENT}:
        return None
    parts = {name: np.asarray(file.get_tensor(name)) for name in (TRANSLATIONS, FREQUENT) if name in names}
    if (
        [part.ndim for part in parts.values()] != [2, 1]
        or len(parts[TRANSLATIONS]) != src_size
        or any(part.dtype != np.int32 for part in parts.values())
        or any(bool(((part < 0) | (part >= tgt_size)).any()) for part in parts.values())
    ):
        raise FileError(f"{path} has a shortlist for another vocabulary; make its shortlist again.")
    return Shortlist(parts[TRANSLATIONS], parts[FREQUENT])


def _check_names(path: str | Path, layout: Layout, present: set[str], listed: dict[str, str]) -> None:
    wanted = set(layout.shapes)
    if wanted != present:
        missing, extra = sorted(wanted - present), sorted(present - wanted)
        what = f"lacks {missing[0]}" if missing else f"has the unknown tensor {extra[0]}"
        raise FileError(f"{path} {what}; its tensors must be exactly those of its architecture.")
    if layout.aliases != listed:
        raise FileError(f"{path} lists the aliases {listed}, but its architecture has {layout.aliases}.")
