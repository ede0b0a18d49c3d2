"""Model files, training states and run folders: the only file that knows their names and layouts.

A model is ONE safetensors file: each unique weight once under the name of its first owner, the
SentencePiece model(s) as U8 tensors, and under the metadata key `vtrans` a JSON object with the
configuration, the aliases and checksums. Everything is written aside, flushed to disk and renamed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import stat
import sys
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from vtrans.config import ModelConfig, SearchConfig, section_from
from vtrans.data.vocabulary import PAD_ID, Vocabulary
from vtrans.errors import FileError, InputError, RecipeError
from vtrans.model import Transformer
from vtrans.text import check_path, sync_folder

if sys.platform != "win32":
    import fcntl

FORMAT = 1
JOINT, SOURCE, TARGET = "vocabulary.joint", "vocabulary.source", "vocabulary.target"
VOCABULARIES = (JOINT, SOURCE, TARGET)
TRANSLATIONS, FREQUENT = "shortlist.translations", "shortlist.frequent"
CHECKSUMS = "crc32"  # the key of the header, see `checksums`
FLOATS = ("F64", "F32", "F16", "BF16")  # what weights are stored in, as safetensors names it
OPTIMIZER_PARTS = {"step", "exp_avg", "exp_avg_sq"}  # of Adam, for each parameter
RAW = "weight"  # a part of a state beside them, see save_state
# What training writes aside; see `aside` and `RunFolder.link`.
_TRAINING_FILE = re.compile(
    r"\.(step-\d+\.safetensors|best\.safetensors|last\.safetensors|recipe\.toml|metrics\.jsonl)\.\d+\.tmp"
)
_STEP_FILE = re.compile(r"step-(\d{8,})\.safetensors")

Section = TypeVar("Section", ModelConfig, SearchConfig)


@dataclass(frozen=True)
class Shortlist:
    """Which target subwords can stand in a translation (shortlist.py learns and uses it). `translations`
    [source vocabulary, k] int32 are the likeliest of each source subword, likeliest first, with EOS where there
    are fewer; `frequent` [f] int32 are those that every sentence may use."""

    translations: Tensor
    frequent: Tensor


@dataclass(frozen=True)
class LoadedModel:
    """A model with all that translating needs. `training` says where it comes from: `step`, or
    `average_of` with the steps averaged."""

    model: Transformer
    src_vocab: Vocabulary
    tgt_vocab: Vocabulary
    search: SearchConfig
    training: Mapping[str, Any]
    shortlist: Shortlist | None = None

    @property
    def joint(self) -> bool:
        return self.src_vocab is self.tgt_vocab


def aliases(model: torch.nn.Module) -> dict[str, str]:
    """Each further name of a shared parameter, with the name of its first owner."""
    first: dict[int, str] = {}
    found = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owner = first.setdefault(id(parameter), name)
        if owner != name:
            found[name] = owner
    return found


def save_model(path: Path, loaded: LoadedModel) -> None:
    """Writes one model file; a shared weight goes in once."""
    model = loaded.model
    tensors = {name: p.detach().contiguous().cpu() for name, p in model.named_parameters()}
    if loaded.joint:
        tensors[JOINT] = _bytes_tensor(loaded.src_vocab.proto)
    else:
        tensors[SOURCE] = _bytes_tensor(loaded.src_vocab.proto)
        tensors[TARGET] = _bytes_tensor(loaded.tgt_vocab.proto)
    if loaded.shortlist is not None:
        tensors |= {TRANSLATIONS: loaded.shortlist.translations, FREQUENT: loaded.shortlist.frequent}
    header = {
        "format": FORMAT,
        "kind": "model",
        "model": dataclasses.asdict(model.config),
        "search": dataclasses.asdict(loaded.search),
        "aliases": aliases(model),
        "training": dict(loaded.training),
    }
    write_tensors(path, tensors, header)


def load_model(path: str | Path, device: torch.device | str = "cpu") -> LoadedModel:
    """The model of a file, with its ties made by the constructor; strict in both directions.

    Names, shapes and types are compared with a model on the meta device first: a file takes no more memory than
    its own weights. Raises FileError for a missing, truncated, damaged or foreign file, one whose tensors are not
    exactly those of its architecture, and one whose weights are not all finite.
    """
    with open_tensors(path, "model") as (file, header):
        config, search, src_vocab, tgt_vocab, shortlist = check_model(path, file, header)
        joint = src_vocab is tgt_vocab
        with torch.random.fork_rng(devices=[]):  # the weights drawn here are overwritten below
            model = Transformer(config, len(src_vocab), len(tgt_vocab), joint=joint, pad_id=PAD_ID)
        for name, parameter in model.named_parameters():
            parameter.data.copy_(file.get_tensor(name))
            check_finite(path, name, parameter.data)
    model.to(device).eval()
    return LoadedModel(model, src_vocab, tgt_vocab, search, header["training"], shortlist)


def check_model(
    path: str | Path, file: TensorFile, header: Mapping[str, Any]
) -> tuple[ModelConfig, SearchConfig, Vocabulary, Vocabulary, Shortlist | None]:
    """All that is in a model file but its weights, whose names, shapes and types are compared with the architecture;
    errors as of load_model."""
    names = set(file.keys())
    found = names & set(VOCABULARIES)
    if found not in ({JOINT}, {SOURCE, TARGET}):
        raise FileError(f"{path} holds no vocabulary; it is no complete vtrans model.")
    joint = JOINT in found
    src_vocab = _read_vocabulary(path, file, JOINT if joint else SOURCE)
    tgt_vocab = src_vocab if joint else _read_vocabulary(path, file, TARGET)
    try:
        config = section_of(ModelConfig, header, "model", path)
        search = section_of(SearchConfig, header, "search", path)
        with torch.device("meta"):
            blueprint = Transformer(config, len(src_vocab), len(tgt_vocab), joint=joint, pad_id=PAD_ID)
    except (InputError, ValueError, AssertionError) as error:
        reason = str(error).rstrip(".")
        raise FileError(f"{path} describes no model that this version knows: {reason}.") from None
    wanted = dict(blueprint.named_parameters())
    shortlist = _read_shortlist(path, file, names, len(src_vocab), len(tgt_vocab))
    others = {*found, *((TRANSLATIONS, FREQUENT) if shortlist else ())}
    _check_names(path, set(wanted), names - others, aliases(blueprint), header.get("aliases", {}))
    for name, parameter in wanted.items():
        dtype, shape = file.facts(name)
        if shape != list(parameter.shape):
            raise FileError(f"{path}: {name} must be of shape {list(parameter.shape)}, but is {shape}.")
        if dtype not in FLOATS:
            raise FileError(
                f"{path}: {name} must hold floating-point numbers ({', '.join(FLOATS)}), but holds {dtype}."
            )
    return config, search, src_vocab, tgt_vocab, shortlist


def section_of(kind: type[Section], header: Mapping[str, Any], name: str, path: str | Path) -> Section:
    """A section of a model's header. A key that is younger than the file has its default. RecipeError for what is
    no such section."""
    values = header.get(name)
    if not isinstance(values, dict):
        raise RecipeError(f"{path}: it has no section {name}.")
    return section_from(kind, name, values, str(path))


def check_finite(path: str | Path, name: str, tensor: Tensor) -> None:
    """FileError unless all numbers of a weight are finite."""
    if tensor.numel() and not all(bool(bound.isfinite()) for bound in tensor.aminmax()):  # both are NaN if one is
        raise FileError(f"{path}: {name} holds numbers that are not finite (NaN or infinity); use another model file.")


def _read_vocabulary(path: str | Path, file: TensorFile, name: str) -> Vocabulary:
    dtype, shape = file.facts(name)
    if dtype != "U8" or len(shape) != 1:
        raise FileError(f"{path}: {name} must hold the bytes of a SentencePiece model, but holds {dtype} {shape}.")
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
        raise FileError(f"{path} has a shortlist that does not fit its vocabulary; run `vtrans shortlist` on it again.")
    return Shortlist(parts[TRANSLATIONS], parts[FREQUENT])


def add_shortlist(path: Path, shortlist: Shortlist, out: Path) -> None:
    """Writes the model file `path` as `out`, which may be the same, with this shortlist in it."""
    with open_tensors(path, "model") as (file, header):
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a dict
    write_tensors(out, tensors | {TRANSLATIONS: shortlist.translations, FREQUENT: shortlist.frequent}, header)


def _check_names(
    path: str | Path, wanted: set[str], found: set[str], tied: dict[str, str], listed: dict[str, str]
) -> None:
    if wanted != found:
        missing, extra = sorted(wanted - found), sorted(found - wanted)
        what = f"lacks {missing[0]}" if missing else f"has the unknown tensor {extra[0]}"
        raise FileError(f"{path} {what}; its tensors must be exactly those of its architecture.")
    if tied != listed:
        raise FileError(f"{path} lists the aliases {listed}, but its architecture shares {tied}.")


def _bytes_tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


# Files of tensors with one JSON header.


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A path to write to; on leaving it is flushed to disk and renamed to `path`, on an error removed.

    It lies in a folder of its own, beside `path`: safetensors writes aside in its turn, and what a
    killed process leaves of that must be known for ours.
    """
    folder = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary = folder / path.name
    try:
        shutil.rmtree(folder, ignore_errors=True)  # of a killed process that had our number
        folder.mkdir()
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sync_folder(path.parent)


def checksums(tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> dict[str, Any]:
    """The CRC-32 of each tensor and of the header without its checksums, in hexadecimal."""
    rest = {key: value for key, value in header.items() if key != CHECKSUMS}
    return {
        "header": _hex(zlib.crc32(_header_text(rest).encode("utf-8", "surrogatepass"))),
        "tensors": {name: _checksum(tensor) for name, tensor in tensors.items()},
    }


def _checksum(tensor: Tensor) -> str:
    """Of the values, their type and the shape."""
    kind = zlib.crc32(f"{tensor.dtype} {list(tensor.shape)}".encode())
    return _hex(zlib.crc32(tensor.detach().reshape(-1).view(torch.uint8).numpy().data, kind))


def _hex(number: int) -> str:
    return f"{number:08x}"


def _header_text(header: Mapping[str, Any]) -> str:
    return json.dumps(header, sort_keys=True, ensure_ascii=False)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """One safetensors file, the header as JSON with sorted keys under the one metadata key `vtrans`, with the
    checksums of all that is in it."""
    check_path(path)
    text = _header_text({**header, CHECKSUMS: checksums(tensors, header)})
    try:
        with aside(path) as temporary:
            temporary.touch()
            mode = temporary.stat().st_mode
            save_file(dict(tensors), temporary, metadata={"vtrans": text})
            temporary.chmod(stat.S_IMODE(mode))  # safetensors makes files that only their owner can read
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise FileError(f"{path} can't be written: {reason}.") from None


class TensorFile:
    """The tensors of an open file, each compared with its checksum whenever it is read; FileError for a damaged one.
    Files of earlier versions have no checksums."""

    def __init__(self, path: Path, file: Any, checksums: Mapping[str, str] | None) -> None:
        self.path, self._file, self._checksums = path, file, checksums

    def keys(self) -> list[str]:
        return list(self._file.keys())

    def facts(self, name: str) -> tuple[str, list[int]]:
        """The type, as safetensors names it, and the shape of a tensor, without reading it."""
        part = self._file.get_slice(name)
        return str(part.get_dtype()), list(part.get_shape())

    def get_tensor(self, name: str) -> Tensor:
        try:
            tensor: Tensor = self._file.get_tensor(name)
        except (SafetensorError, OSError, RuntimeError, ValueError, TypeError) as error:
            raise FileError(f"{self.path}: {name} can't be read: {str(error).rstrip('.')}.") from None
        if self._checksums is not None and self._checksums.get(name) != _checksum(tensor):
            raise FileError(f"{self.path} is damaged: {name} does not have its checksum; {_COPY_AGAIN}.")
        return tensor


_COPY_AGAIN = "copy the file again, or make it again"


@contextmanager
def open_tensors(path: str | Path, kind: str) -> Iterator[tuple[TensorFile, dict[str, Any]]]:
    """A memory-mapped file of ours and its header, without the checksums; FileError when it is none, or its header
    is damaged. `kind` is "model", whose header has a valid `training`, or "state", whose header has a `progress`."""
    path = Path(path)
    check_path(path)
    if not path.is_file():
        raise FileError(f"{path} is not there or is no file.")
    try:
        file = safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise FileError(f"{path} is truncated or no safetensors file: {error}.") from None
    with file:
        metadata: dict[str, str] | None = file.metadata()  # type: ignore[no-untyped-call]  # safetensors
        header, sums = _header(path, (metadata or {}).get("vtrans"), kind)
        yield TensorFile(path, file, sums), header


def _header(path: Path, raw: str | None, kind: str) -> tuple[dict[str, Any], dict[str, str] | None]:
    """The header of a file, and the checksums of its tensors, where it has them."""
    try:
        header = json.loads(raw) if raw is not None else None
        if not isinstance(header, dict) or header.get("kind") != kind:
            raise FileError(f"{path} is a safetensors file, but no {kind} of vtrans.")
        if header.get("format") != FORMAT:
            raise FileError(
                f"{path} is of format {header.get('format')}, but this version reads {FORMAT}; "
                "use the version of vtrans that wrote it."
            )
        _header_text(header).encode()  # half of a surrogate pair could be neither shown nor written
        sums = header.pop(CHECKSUMS, None)
        if sums is not None:
            tensors = sums.get("tensors") if isinstance(sums, dict) else None
            if not isinstance(tensors, dict) or sums != {**checksums({}, header), "tensors": tensors}:
                raise FileError(f"{path} is damaged: its header does not have its checksum; {_COPY_AGAIN}.")
            sums = tensors
    except (ValueError, RecursionError):  # no JSON, no Unicode, or lists in lists without end
        raise FileError(f"{path} is a safetensors file, but no {kind} of vtrans.") from None
    if kind == "model":
        header["training"] = _training(path, header.get("training", {}))
    elif not isinstance(header.get("progress"), dict):
        raise FileError(f"{path} is no complete {kind} of vtrans: it has no progress.")
    return header, sums


def _training(path: Path, training: Any) -> dict[str, Any]:
    """What a header says of where its model comes from; FileError for what training and averaging never write."""

    def counts(value: Any) -> bool:
        return type(value) is int and value >= 0

    def sound(key: str, value: Any) -> bool:
        if key == "average_of":
            return isinstance(value, list) and bool(value) and all(map(counts, value))
        return counts(value) if key in ("step", "run_step", "epoch") else isinstance(value, str)

    if not isinstance(training, dict):
        raise FileError(f"{path} is no complete model of vtrans: its training must be a JSON object.")
    for key, value in training.items():
        if not sound(key, value):
            raise FileError(f"{path} is no complete model of vtrans: training.{key} has a value that makes no sense.")
    return training


def tensor_bytes(path: Path) -> dict[str, int]:
    """The bytes that each tensor of a safetensors file takes in it."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    return {
        name: facts["data_offsets"][1] - facts["data_offsets"][0] for name, facts in header.items() if "dtype" in facts
    }


# A run folder.


class ChosenModel(NamedTuple):
    """A model file, and why it stands for its run folder; no reason for a file that was named."""

    file: Path
    reason: str

    @property
    def words(self) -> str:
        """For people."""
        return f"model: {self.file}{f' ({self.reason})' if self.reason else ''}"


class RunFolder:
    """What `vtrans train` and `vtrans average` write: recipe.toml, metrics.jsonl, step-*.safetensors, best, last and
    averaged.safetensors, and state/ with all that resuming needs and translating does not; tensorboard/ where
    the recipe asks for it. FileError for a path that is not UTF-8."""

    def __init__(self, path: str | Path) -> None:
        check_path(path)
        self.path = Path(path)
        self.recipe = self.path / "recipe.toml"
        self.metrics = self.path / "metrics.jsonl"
        self.last = self.path / "last.safetensors"
        self.best = self.path / "best.safetensors"
        self.averaged = self.path / "averaged.safetensors"
        self.events = self.path / "tensorboard"
        self.states = self.path / "state"
        self.lock = self.states / "lock"

    def step_file(self, step: int) -> Path:
        return self.path / f"step-{step:08d}.safetensors"

    def state_file(self, step: int) -> Path:
        return self.states / f"step-{step:08d}.safetensors"

    def steps(self) -> list[int]:
        """Steps of the checkpoints that are there, in order."""
        return _numbered(self.path)

    def state_steps(self) -> list[int]:
        """Steps of the training states that are there, in order."""
        return _numbered(self.states)

    def holds_run(self) -> bool:
        return self.recipe.exists() or bool(self.steps()) or bool(self.state_steps())

    def link(self, step: int, name: Path) -> None:
        """Makes `name` (best, last) the step's file, atomically: a hard link where the disk has them."""
        file = self.step_file(step)
        with aside(name) as temporary:
            try:
                os.link(file, temporary)
            except OSError:
                shutil.copyfile(file, temporary)

    def prune(self, keep: Collection[int], state_step: int) -> None:
        """Removes the states but that of `state_step`, the checkpoints not in `keep`, and what a crash left."""
        for step in self.state_steps():
            if step != state_step:
                self.state_file(step).unlink()
        for step in self.steps():
            if step not in keep:
                self.step_file(step).unlink()
        for folder in (self.path, self.states):
            for leftover in folder.glob(".*.tmp"):
                if not _TRAINING_FILE.match(leftover.name):
                    continue  # an average or a translation may be under way
                if leftover.is_dir():
                    shutil.rmtree(leftover)
                else:
                    leftover.unlink()

    def choose_model(self) -> ChosenModel:
        """The file that stands for the run, and why: the average unless training has gone on since,
        else the best, else the last. FileError when there is none."""
        last_step = max(self.steps(), default=0)
        if self.averaged.exists():
            with open_tensors(self.averaged, "model") as (_, header):
                steps = header["training"].get("average_of", [0])
                made_at = header["training"].get("run_step", max(steps))
            if made_at >= last_step or not self.last.exists():
                return ChosenModel(self.averaged, f"the average of {len(steps)} checkpoints up to step {max(steps)}")
            stale = f"; averaged.safetensors was made at step {made_at}, training has gone on to {last_step}"
        else:
            stale = "; there is no averaged.safetensors"
        if self.best.exists():
            return ChosenModel(self.best, "the best checkpoint" + stale)
        if self.last.exists():
            return ChosenModel(self.last, "the last checkpoint" + stale)
        if not self.holds_run() and any(self.path.iterdir()):
            raise FileError(f"{self.path} is no run folder; give one that `vtrans train` made, or a model file.")
        raise FileError(f"{self.path} holds no model; run `vtrans train --out {self.path}` first.")


def run_of(file: Path) -> RunFolder | None:
    """The run folder in which `file` has the name of a file that `vtrans train` or `vtrans average` writes, whether
    it exists or not; None for any other file."""
    file = Path(os.path.realpath(file))
    for entry in (file, file.parent):
        run = RunFolder(entry.parent)
        names = (run.recipe, run.metrics, run.last, run.best, run.averaged, run.states, run.events)
        if (entry in names or _STEP_FILE.fullmatch(entry.name)) and run.recipe.exists():
            return run
    return None


class RunLock:
    """Keeps a second `vtrans train` out of a run folder.

    The system gives it back when the process ends, however that comes about, so a crash blocks nothing. The
    file stays: were it removed, two processes could hold two files of that name. Windows, and some network
    disks, have no such lock: there nothing is refused.
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
        """Takes the lock, unless it is held already; InputError where another process has it."""
        if sys.platform == "win32" or self.file is not None:
            return
        path = self.run.lock
        try:
            self.file = path.open("ab")
        except OSError as error:
            raise FileError(f"{path} can't be written: {error.strerror}.") from None
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another `vtrans train` is at work in {self.run.path}; let it end, stop it, or give another --out."
            ) from None
        except OSError:  # this disk knows no locks
            return


def _numbered(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(m[1]) for f in folder.iterdir() if (m := _STEP_FILE.fullmatch(f.name)))


def choose_model(path: str | Path) -> ChosenModel:
    """A model file for a run folder (with the reason for the choice) or a file (with none)."""
    path = Path(path)
    if path.is_dir():
        return RunFolder(path).choose_model()
    if not path.exists():
        raise FileError(f"there is no model {path}; give a run folder of `vtrans train`, or a model file.")
    return ChosenModel(path, "")


# Training states.


def save_state(
    path: Path,
    optimizer: torch.optim.Optimizer,
    model: Transformer,
    progress: Mapping[str, Any],
    raw: Mapping[str, Tensor] | None = None,
) -> None:
    """The optimizer's tensors under the names of the parameters, and `progress` as JSON. `raw` are the weights
    that training goes on from, where the model file has their moving average."""
    tensors = {f"{name}:{RAW}": value.detach().contiguous().cpu() for name, value in (raw or {}).items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            tensors[f"{name}:{key}"] = value.detach().contiguous().cpu()
    write_tensors(path, tensors, {"format": FORMAT, "kind": "state", "progress": dict(progress)})


def read_progress(path: Path) -> dict[str, Any]:
    """The `progress` of a state file, without its tensors."""
    with open_tensors(path, "state") as (_, header):
        progress: dict[str, Any] = header["progress"]
    return progress


def load_state(path: Path, optimizer: torch.optim.Optimizer, model: Transformer) -> None:
    """Gives the optimizer the state of a file, and the model the weights in it, where it has them;
    FileError when the file is of other parameters."""
    with open_tensors(path, "state") as (file, _):
        by_parameter: dict[str, dict[str, Tensor]] = {}
        for key in file.keys():  # noqa: SIM118 - a safetensors handle, not a dict
            name, _, part = key.rpartition(":")
            by_parameter.setdefault(name, {})[part] = file.get_tensor(key).clone()
    parameters = dict(model.named_parameters())
    if set(by_parameter) != set(parameters):
        raise FileError(f"{path} is the state of another architecture.")
    for name, parameter in parameters.items():
        if set(by_parameter[name]) - {RAW} != OPTIMIZER_PARTS:
            raise FileError(f"{path}: the optimizer's state of {name} is not whole.")
        for part, value in by_parameter[name].items():
            if part != "step" and value.shape != parameter.shape:
                raise FileError(f"{path}: {name} must be of shape {list(parameter.shape)}, not {list(value.shape)}.")
            if part == RAW:
                parameter.data.copy_(value)
            else:
                optimizer.state[parameter][part] = value.to(parameter.device)


def load_weights(path: Path, model: Transformer) -> None:
    """Puts the weights of a model file of the same architecture into `model`."""
    loaded = load_model(path)
    if loaded.model.config != model.config:
        raise FileError(f"{path} is a model of another architecture.")
    own, theirs = dict(model.named_parameters()), dict(loaded.model.named_parameters())
    for name, parameter in own.items():
        if theirs[name].shape != parameter.shape:
            raise FileError(f"{path}: {name} has another vocabulary size.")
        parameter.data.copy_(theirs[name].data)
