"""Finds and loads the folder that `vtrans export` writes for CTranslate2."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vtrans.checkpoint import choose_model
from vtrans.config import SearchConfig, section_from
from vtrans.data.vocabulary import JOINT_FILE, SRC_FILE, TGT_FILE, Vocabulary
from vtrans.engines.ctranslate2_engine import CTranslate2Engine
from vtrans.errors import FileError, InputError, missing_extra
from vtrans.files import check_path, file_sha256
from vtrans.languages import Languages, languages_from, tags_from

FOLDER = "ctranslate2"  # the export in a run folder
DESCRIPTION = "vtrans.json"  # vocabularies, search settings, origin: what CTranslate2 does not read
FORMAT = 1
LONGEST_DESCRIPTION = 1 << 20  # bytes


def ctranslate2() -> Any:
    """Returns the optional package CTranslate2. Raises InputError if it cannot be imported."""
    try:
        return importlib.import_module("ctranslate2")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "ctranslate2":
            reason = "CTranslate2 is not installed"
        else:
            reason = f"CTranslate2 cannot be imported ({error})"
        raise missing_extra(reason, "ctranslate2") from None


def is_exported(path: str | Path) -> bool:
    """Returns whether the path is a folder that `vtrans export` wrote."""
    return (Path(path) / DESCRIPTION).is_file()


def exported_folder(path: str | Path, engine: str | None) -> Path | None:
    """Returns the exported folder to run `path` from, or None if another engine runs it.

    An exported folder always runs on CTranslate2; with `engine` "ctranslate2", a run folder stands for the export in
    it. Raises InputError if the engine cannot run what is there.
    """
    path = Path(path)
    if is_exported(path):
        if engine not in (None, "ctranslate2"):
            raise InputError(
                f"{path} is an export for CTranslate2, which the engine {engine} cannot run; "
                "give the run folder or model file that it was made from, or leave out `engine`."
            )
        return path
    if engine != "ctranslate2":
        return None
    if is_exported(path / FOLDER):
        return path / FOLDER
    if not path.exists():
        raise FileError(f"there is no model {path}; give a folder that `vtrans export` wrote.")
    raise InputError(
        f"{path} has no export for CTranslate2; run `vtrans export {path}`, and give the folder that it writes."
    )


def load_exported(folder: str | Path, device: str | None = None, workers: int | None = None) -> CTranslate2Engine:
    """Returns the engine for an exported folder, on `device`: cpu, cuda or cuda:N, by default CUDA if available.

    On a CPU it searches `workers` batches at a time; None: as many as torch has threads.

    Raises FileError if the folder is not a complete export, and InputError without CTranslate2.
    """
    folder = Path(folder)
    exported = read_exported(folder)
    return CTranslate2Engine(
        _ctranslate2_translator(folder, device, exported.description["quantization"], workers),
        exported.src_vocab,
        exported.tgt_vocab,
        exported.search,
        max_length=exported.description["positions"],
        quantization=exported.description["quantization"],
        source=exported.description.get("source"),
        languages=exported.languages,
        tags=exported.tags,
    )


@dataclass(frozen=True)
class Exported:
    """What an exported folder says about its model; `description` is the content of vtrans.json."""

    description: Mapping[str, Any]
    search: SearchConfig
    src_vocab: Vocabulary
    tgt_vocab: Vocabulary
    languages: tuple[Languages, ...]
    tags: Mapping[str, str]


def read_exported(folder: Path) -> Exported:
    """Reads an exported folder except its weights. Raises FileError if it is not a complete export."""
    check_path(folder)
    description = _read_description(folder)
    for name, expected in description["files"].items():
        # The name may be anything, such as that of a device without end.
        digest = file_sha256(folder / name) if name == Path(name).name and (folder / name).is_file() else None
        if digest != expected:
            how = "is missing" if digest is None else "has changed since it was exported"
            raise FileError(f"{folder / name} {how}; export the model again.")
    vocabularies = {name: Vocabulary((folder / name).read_bytes(), str(folder)) for name in description["vocabularies"]}
    joint = vocabularies.get(JOINT_FILE)
    src_vocab = joint or vocabularies[SRC_FILE]
    return Exported(
        description,
        section_from(SearchConfig, "search", description["search"], str(folder / DESCRIPTION)),
        src_vocab,
        joint or vocabularies[TGT_FILE],
        languages_from(description.get("languages")),
        tags_from(description.get("tags"), src_vocab.tags),
    )


def check_fresh(exported: CTranslate2Engine, folder: Path, run: Path) -> None:
    """Raises InputError if `folder` was exported from another model than the one that `run` stands for now."""
    file = choose_model(run).file
    if file_sha256(file) != exported.source:
        raise InputError(
            f"{folder} was not exported from {file} as it is now; run `vtrans export {run}` again, or give {folder} "
            "as the model to translate with the export as it is."
        )


def _read_description(folder: Path) -> dict[str, Any]:
    file = folder / DESCRIPTION
    try:
        if file.stat().st_size > LONGEST_DESCRIPTION:
            raise FileError(f"{file} must have at most {LONGEST_DESCRIPTION:,} bytes; export the model again.")
        description: Any = json.loads(file.read_bytes())
    except OSError as error:
        raise FileError(f"{file} cannot be read: {error.strerror}; give a folder that `vtrans export` wrote.") from None
    except (ValueError, RecursionError):
        description = None
    if not isinstance(description, dict) or description.get("kind") != FOLDER:
        raise FileError(f"{file} does not describe an export of vtrans; export the model again.")
    if description.get("format") != FORMAT:
        raise FileError(f"{folder} must have format {FORMAT}, got {description.get('format')}; export the model again.")
    wanted = {
        "files": dict,
        "model": dict,
        "vocabularies": list,
        "search": dict,
        "training": dict,
        "positions": int,
        "quantization": str,
    }
    for key, kind in wanted.items():
        if not isinstance(description.get(key), kind):
            raise FileError(f"{file} lacks {key}; export the model again.")
    names = description["vocabularies"]
    if names not in ([JOINT_FILE], [SRC_FILE, TGT_FILE]) or not set(names) <= set(description["files"]):
        raise FileError(f"{file} names no vocabulary; export the model again.")
    return description


def _ctranslate2_translator(folder: Path, device: str | None, quantization: str, workers: int | None) -> Any:
    package = ctranslate2()
    if device is None:
        device = "cuda" if package.get_cuda_device_count() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", device):
        raise InputError(f"`device` must be cpu, cuda or cuda:N with the engine ctranslate2, got {device!r}.")
    kind, _, index = device.partition(":")
    try:
        return package.Translator(
            str(folder),
            device=kind,
            device_index=int(index or 0),
            # On a CPU, CTranslate2 computes with float16 weights in float32, and warns unless told so.
            compute_type="float32" if (kind, quantization) == ("cpu", "float16") else "default",
            # Many batches with one thread each are faster than one batch with many threads.
            inter_threads=(workers or torch.get_num_threads()) if kind == "cpu" else 1,
            intra_threads=1,
        )
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        if kind == "cuda":
            raise InputError(f"`device` {device} cannot be used here: {reason}.") from None
        raise FileError(f"{folder} cannot be loaded by CTranslate2: {reason}; export the model again.") from None
