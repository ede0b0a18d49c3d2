"""Model files and run folders: their names and their content.

A model is one file (tensor_files.py): each weight once, under the name of its first owner, the SentencePiece models as
U8 tensors, and a header with the configuration and the aliases of shared weights.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vtrans.config import ModelConfig, SearchConfig, section_from
from vtrans.errors import FileError, InputError, RecipeError
from vtrans.files import aside, check_path, explained, locked, shipped
from vtrans.model import Transformer
from vtrans.tensor_files import FORMAT, TensorFile, open_tensors, write_tensors
from vtrans.text.languages import Languages, languages_from, languages_record, tags_from
from vtrans.text.vocabulary import PAD_ID, Vocabulary, have_one_table

JOINT, SOURCE, TARGET = "vocabulary.joint", "vocabulary.source", "vocabulary.target"
VOCABULARIES = (JOINT, SOURCE, TARGET)
TRANSLATIONS, FREQUENT = "shortlist.translations", "shortlist.frequent"
FLOATS = ("F64", "F32", "F16", "BF16")  # types of weights, as safetensors names them
# Temporary files that training makes in a run folder (files.py).
_TRAINING_FILE = re.compile(
    r"\.((step-\d+|best|last)\.safetensors|recipe\.toml|metrics\.jsonl|(step-\d+|source|reference)\.txt)\.\d+\.tmp"
)
_STEP_FILE = re.compile(r"step-(\d{8,})\.safetensors")

Section = TypeVar("Section", ModelConfig, SearchConfig)


@dataclass(frozen=True)
class Shortlist:
    """The target subwords that translations may contain (engines/shortlist.py learns and uses it). `translations`
    [source vocabulary, k] int32 has the likeliest ones of each source subword in order, padded with EOS; `frequent` [f]
    int32 has those that every translation may contain."""

    translations: Tensor
    frequent: Tensor


@dataclass(frozen=True)
class LoadedModel:
    """A model with everything that translating needs. `training` records how it was made: `step`, or `average_of` with
    the steps averaged. `languages` are the pairs that it translates, if known. `tags` are the subwords with which its
    sources begin, by target language. `matches` says whether it has learned to use fuzzy matches (text/matches.py)."""

    model: Transformer
    src_vocab: Vocabulary
    tgt_vocab: Vocabulary
    search: SearchConfig
    training: Mapping[str, Any]
    shortlist: Shortlist | None = None
    languages: Sequence[Languages] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    matches: bool = False

    @property
    def joint(self) -> bool:
        return have_one_table(self.src_vocab, self.tgt_vocab)

    def record(self) -> dict[str, Any]:
        """Everything but weights and vocabularies, as files record it."""
        record = {
            "model": dataclasses.asdict(self.model.config),
            "search": dataclasses.asdict(self.search),
            "training": dict(self.training),
            "languages": languages_record(self.languages),
        }
        more = {"tags": dict(self.tags), "matches": self.matches}
        return record | {name: value for name, value in more.items() if value}


def aliases(model: torch.nn.Module) -> dict[str, str]:
    """The additional names of shared weights, each with the name of its first owner."""
    first: dict[int, str] = {}
    names = {}
    for name, weight in model.state_dict(keep_vars=True).items():
        owner = first.setdefault(id(weight), name)
        if owner != name:
            names[name] = owner
    return names


def weights_of(model: torch.nn.Module) -> dict[str, Tensor]:
    """The tensors that a model file holds: each parameter, and each table that is stored but not trained, once, under
    the name of its first owner."""
    named: dict[str, Tensor] = model.state_dict(keep_vars=True)
    others = aliases(model)
    return {name: weight for name, weight in named.items() if name not in others}


def save_model(path: Path, loaded: LoadedModel) -> None:
    """Writes a model file, with each shared weight once."""
    model = loaded.model
    tensors = {name: weight.detach().contiguous().cpu() for name, weight in weights_of(model).items()}
    if loaded.src_vocab is loaded.tgt_vocab:
        tensors[JOINT] = _bytes_tensor(loaded.src_vocab.proto)
    else:
        tensors[SOURCE] = _bytes_tensor(loaded.src_vocab.proto)
        tensors[TARGET] = _bytes_tensor(loaded.tgt_vocab.proto)
    if loaded.shortlist is not None:
        tensors |= {TRANSLATIONS: loaded.shortlist.translations, FREQUENT: loaded.shortlist.frequent}
    header = {**loaded.record(), "format": FORMAT, "kind": "model", "aliases": aliases(model)}
    write_tensors(path, tensors, header)


class Unfilled(TorchFunctionMode):
    """Skips the initialization of a model whose weights a file replaces. On the meta device, drawing numbers would
    import torch's compiler, which takes 1.3 s."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.normal_, Tensor.uniform_) or getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def load_model(path: str | Path, device: torch.device | str = "cpu") -> LoadedModel:
    """The model of a file, on `device`. The constructor ties its weights.

    Raises FileError for a missing, truncated, damaged or foreign file, one whose tensors are not exactly those of its
    architecture, and one whose weights are not all finite. Names, shapes and types are compared before the weights are
    allocated, so that a wrong header cannot exhaust the memory.
    """
    with open_tensors(path, "model") as (file, header):
        config, search, src_vocab, tgt_vocab, shortlist = check_model(path, file, header)
        joint = have_one_table(src_vocab, tgt_vocab)
        with Unfilled():
            model = Transformer(config, len(src_vocab), len(tgt_vocab), joint=joint, pad_id=PAD_ID)
        for name, weight in weights_of(model).items():
            weight.data.copy_(file.get_tensor(name))
            check_finite(path, name, weight.data)
    model.to(device).eval()
    languages, tags = languages_from(header.get("languages")), tags_from(header.get("tags"), src_vocab.tags)
    more = languages, tags, header.get("matches") is True
    return LoadedModel(model, src_vocab, tgt_vocab, search, header["training"], shortlist, *more)


def check_model(
    path: str | Path, file: TensorFile, header: Mapping[str, Any]
) -> tuple[ModelConfig, SearchConfig, Vocabulary, Vocabulary, Shortlist | None]:
    """Everything in a model file except its weights, whose names, shapes and types are checked. Raises FileError as
    load_model does."""
    names = set(file.keys())
    vocabularies = names & set(VOCABULARIES)
    if vocabularies not in ({JOINT}, {SOURCE, TARGET}):
        raise FileError(f"{path} has no vocabulary; it is not a complete model of vtrans.")
    src_vocab = _read_vocabulary(path, file, JOINT if JOINT in vocabularies else SOURCE)
    tgt_vocab = src_vocab if JOINT in vocabularies else _read_vocabulary(path, file, TARGET)
    try:
        config = section_of(ModelConfig, header, "model", path)
        search = section_of(SearchConfig, header, "search", path)
        languages_from(header.get("languages"))
        tags_from(header.get("tags"), src_vocab.tags)
        with torch.device("meta"), Unfilled():
            joint = have_one_table(src_vocab, tgt_vocab)
            blueprint = Transformer(config, len(src_vocab), len(tgt_vocab), joint=joint, pad_id=PAD_ID)
    except (InputError, ValueError, AssertionError) as error:
        raise FileError(
            f"{path} describes a model that this version does not know: {str(error).rstrip('.')}."
        ) from None
    wanted = weights_of(blueprint)
    shortlist = _read_shortlist(path, file, names, len(src_vocab), len(tgt_vocab))
    others = {*vocabularies, *((TRANSLATIONS, FREQUENT) if shortlist else ())}
    _check_names(path, set(wanted), names - others, aliases(blueprint), header.get("aliases", {}))
    for name, weight in wanted.items():
        dtype, shape = file.facts(name)
        if shape != list(weight.shape):
            raise FileError(f"{path}: {name} must have the shape {list(weight.shape)}, got {shape}.")
        if dtype not in FLOATS:
            raise FileError(f"{path}: {name} must have one of the types {', '.join(FLOATS)}, got {dtype}.")
    return config, search, src_vocab, tgt_vocab, shortlist


def read_vocabularies(path: str | Path) -> tuple[Vocabulary, Vocabulary]:
    """The vocabularies of a model file: the same object if there is one for both sides."""
    with open_tensors(path, "model") as (file, header):
        return check_model(path, file, header)[2:4]


def read_abilities(path: str | Path) -> tuple[tuple[Languages, ...], bool]:
    """The pairs of languages of a model file, and whether the model has learned to use fuzzy matches."""
    with open_tensors(path, "model") as (_, header):
        return languages_from(header.get("languages")), header.get("matches") is True


def section_of(kind: type[Section], header: Mapping[str, Any], name: str, path: str | Path) -> Section:
    """A section of a model's header. Keys that the file's version did not know have their defaults. Raises RecipeError
    if the section is missing or invalid."""
    values = header.get(name)
    if not isinstance(values, dict):
        raise RecipeError(f"{path}: the section {name} is missing.")
    return section_from(kind, name, values, str(path))


def check_finite(path: str | Path, name: str, tensor: Tensor) -> None:
    """Raises FileError unless all numbers of a weight are finite."""
    if tensor.numel() and not all(bool(bound.isfinite()) for bound in tensor.aminmax()):  # both are NaN if one is
        raise FileError(f"{path}: {name} has values that are not finite (NaN or infinity); use another model file.")


def _read_vocabulary(path: str | Path, file: TensorFile, name: str) -> Vocabulary:
    dtype, shape = file.facts(name)
    if dtype != "U8" or len(shape) != 1:
        raise FileError(f"{path}: {name} must hold the bytes of a SentencePiece model, got {dtype} {shape}.")
    return Vocabulary(file.get_tensor(name).numpy().tobytes(), str(path))


def _read_shortlist(
    path: str | Path, file: TensorFile, names: set[str], src_size: int, tgt_size: int
) -> Shortlist | None:
    if not names & {TRANSLATIONS, FREQUENT}:
        return None
    parts = {name: file.get_tensor(name) for name in (TRANSLATIONS, FREQUENT) if name in names}
    if (
        [part.dim() for part in parts.values()] != [2, 1]
        or len(parts[TRANSLATIONS]) != src_size
        or any(part.dtype != torch.int32 for part in parts.values())
        or any(bool(((part < 0) | (part >= tgt_size)).any()) for part in parts.values())
    ):
        raise FileError(f"{path} has a shortlist for another vocabulary; make its shortlist again.")
    return Shortlist(parts[TRANSLATIONS], parts[FREQUENT])


def add_shortlist(path: Path, shortlist: Shortlist, out: Path) -> None:
    """Writes the model file `path` with this shortlist to `out`, which may be the same file."""
    with open_tensors(path, "model") as (file, header):
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a dict
    write_tensors(out, tensors | {TRANSLATIONS: shortlist.translations, FREQUENT: shortlist.frequent}, header)


def load_weights(path: Path, model: Transformer) -> None:
    """Copies the weights of a model file into `model`. Raises FileError for another architecture."""
    loaded = load_model(path)
    if loaded.model.config != model.config:
        raise FileError(f"{path} is a model of another architecture.")
    read = weights_of(loaded.model)
    for name, weight in weights_of(model).items():
        if read[name].shape != weight.shape:
            raise FileError(f"{path}: {name} has another vocabulary size.")
        weight.data.copy_(read[name].data)


def _check_names(
    path: str | Path, wanted: set[str], present: set[str], tied: dict[str, str], listed: dict[str, str]
) -> None:
    if wanted != present:
        missing, extra = sorted(wanted - present), sorted(present - wanted)
        what = f"lacks {missing[0]}" if missing else f"has the unknown tensor {extra[0]}"
        raise FileError(f"{path} {what}; its tensors must be exactly those of its architecture.")
    if tied != listed:
        raise FileError(f"{path} lists the aliases {listed}, but its architecture has {tied}.")


def _bytes_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


# Run folders.


class ChosenModel(NamedTuple):
    """A model file, and why it was chosen from its run folder (empty if the file was named)."""

    file: Path
    reason: str

    @property
    def words(self) -> str:
        """The file and the reason, as commands print them."""
        return f"model: {self.file}{f' ({self.reason})' if self.reason else ''}"


class RunFolder:
    """The files that `vtrans train` and `vtrans average` write: recipe.toml, metrics.jsonl, step-*.safetensors, best,
    last and averaged.safetensors; validation/, the translations of each validation; state/, which only resuming needs;
    report.html and tensorboard/ if the user asks for them. Raises FileError for a path that is not UTF-8."""

    def __init__(self, path: str | Path) -> None:
        check_path(path)
        self.path = Path(path)
        self.recipe = self.path / "recipe.toml"
        self.metrics = self.path / "metrics.jsonl"
        self.last = self.path / "last.safetensors"
        self.best = self.path / "best.safetensors"
        self.averaged = self.path / "averaged.safetensors"
        self.events = self.path / "tensorboard"
        self.validation = self.path / "validation"
        self.report = self.path / "report.html"
        self.valid_src = self.validation / "source.txt"
        self.valid_ref = self.validation / "reference.txt"
        self.states = self.path / "state"
        self.lock = self.states / "lock"

    def step_file(self, step: int) -> Path:
        return self.path / f"step-{step:08d}.safetensors"

    def state_file(self, step: int) -> Path:
        return self.states / f"step-{step:08d}.safetensors"

    def translations(self, step: int) -> Path:
        """The file with the translations of a validation, one line for each of `valid_src`."""
        return self.validation / f"step-{step:08d}.txt"

    def steps(self) -> list[int]:
        """The steps of the existing checkpoints, in order."""
        return _numbered(self.path)

    def state_steps(self) -> list[int]:
        """The steps of the existing training states, in order."""
        return _numbered(self.states)

    def holds_run(self) -> bool:
        return self.recipe.exists() or bool(self.steps()) or bool(self.state_steps())

    def link(self, step: int, name: Path) -> None:
        """Makes `name` (best or last) a hard link to the step's file, or a copy if the disk has no links."""
        file = self.step_file(step)
        with aside(name) as temporary, explained(name):
            try:
                os.link(file, temporary)
            except OSError:
                shutil.copyfile(file, temporary)

    def prune(self, keep: Collection[int], state_step: int) -> None:
        """Removes the states except that of `state_step`, the checkpoints not in `keep`, and files left by a crash."""
        for step in self.state_steps():
            if step != state_step:
                self.state_file(step).unlink()
        for step in self.steps():
            if step not in keep:
                self.step_file(step).unlink()
        for folder in (self.path, self.states, self.validation):
            for leftover in folder.glob(".*.tmp"):
                if not _TRAINING_FILE.match(leftover.name):
                    continue  # an average or a translation may be running
                if leftover.is_dir():
                    shutil.rmtree(leftover)
                else:
                    leftover.unlink()

    def choose_model(self) -> ChosenModel:
        """The model of the run to use, and why: the average unless it is older than the last checkpoint, else the
        best checkpoint, else the last. Raises FileError if there is none."""
        last_step = max(self.steps(), default=0)
        if self.averaged.exists():
            with open_tensors(self.averaged, "model") as (_, header):
                steps = header["training"].get("average_of", [0])
                made_at = header["training"].get("run_step", max(steps))
            if made_at >= last_step or not self.last.exists():
                several = f"average of {len(steps)} checkpoints up to step {max(steps):,}"
                reason = f"the {several if len(steps) > 1 else f'checkpoint of step {steps[0]:,}'}"
                return ChosenModel(self.averaged, reason)
            stale = f"; averaged.safetensors was made at step {made_at:,}, but training has reached {last_step:,}"
        else:
            stale = "; there is no averaged.safetensors"
        if self.best.exists():
            return ChosenModel(self.best, "the best checkpoint" + stale)
        if self.last.exists():
            return ChosenModel(self.last, "the last checkpoint" + stale)
        if not self.holds_run() and any(self.path.iterdir()):
            raise FileError(
                f"{self.path} is not a run folder; name one that `vtrans train` made, or a model file. `vtrans import` "
                "makes a model file from a folder of another program, and from an export of vtrans."
            )
        raise FileError(f"{self.path} has no model; train one there first.")


def run_of(file: Path) -> RunFolder | None:
    """The run folder in which `file` has a name that `vtrans train` or `vtrans average` writes to, whether the file
    exists or not; None for any other file."""
    file = Path(os.path.realpath(file))
    for entry in (file, file.parent):
        run = RunFolder(entry.parent)
        if (entry in vars(run).values() or _STEP_FILE.fullmatch(entry.name)) and run.recipe.exists():
            return run
    return None


class RunLock:
    """Keeps a second `vtrans train` out of a run folder.

    A crash blocks nothing (`files.locked`). The file stays: if it were removed, two processes could lock two files of
    the same name.
    """

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.file: BinaryIO | None = None

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *_: object) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None

    def take(self) -> None:
        """Takes the lock unless this object holds it. Raises InputError if another process does."""
        if self.file is not None:
            return
        path = self.run.lock
        with explained(path):
            self.file = path.open("ab")
        if not locked(self.file):
            raise InputError(
                f"another `vtrans train` is running in {self.run.path}; wait, stop it, or use another run folder."
            )


def _numbered(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(m[1]) for f in folder.iterdir() if (m := _STEP_FILE.fullmatch(f.name)))


def choose_model(path: str | Path) -> ChosenModel:
    """Returns the model of a run folder, with the reason for the choice. For a model file, or the name of a model that
    ships with vtrans, the reason is empty. Raises FileError if there is no such model."""
    path = Path(path)
    if path.is_dir():
        return RunFolder(path).choose_model()
    if path.exists():
        return ChosenModel(path, "")
    models = shipped_models()
    if str(path) not in models:
        names = f", or a model that ships with vtrans ({', '.join(sorted(models))})" if models else ""
        raise FileError(
            f"there is no model {path}; name a run folder that `vtrans train` made, or a model file{names}."
        )
    return ChosenModel(models[str(path)], "")


def shipped_models() -> dict[str, Path]:
    """Returns the files of the models that ship with vtrans, by name. Each is in a folder of the recipes."""
    return {file.stem: file for file in sorted(shipped().glob("*/*.safetensors"))}
