"""The folder that `vtrans export` writes for CTranslate2, and the optional package that runs it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtrans.config import SearchConfig, section_from
from vtrans.data.vocabulary import JOINT_FILE, SRC_FILE, TGT_FILE, Vocabulary
from vtrans.errors import FileError, missing_extra
from vtrans.files import check_path, file_sha256
from vtrans.languages import Languages, languages_from, tags_from

KIND = "ctranslate2"
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
    if not isinstance(description, dict) or description.get("kind") != KIND:
        raise FileError(f"{file} does not describe an export of vtrans; export the model again.")
    if description.get("format") != FORMAT:
        raise FileError(f"{folder} must have format {FORMAT}, got {description.get('format')}; export the model again.")
    for key, kind in {"files": dict, "model": dict, "vocabularies": list, "search": dict, "training": dict}.items():
        if not isinstance(description.get(key), kind):
            raise FileError(f"{file} lacks {key}; export the model again.")
    names = description["vocabularies"]
    if names not in ([JOINT_FILE], [SRC_FILE, TGT_FILE]) or not set(names) <= set(description["files"]):
        raise FileError(f"{file} names no vocabulary; export the model again.")
    return description
