"""The folder that `vtrans export` writes for CTranslate2, and the optional package that runs it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from vtrans.errors import FileError, importing
from vtrans.files import file_sha256
from vtrans.interop.foreign_files import read_object
from vtrans.text.vocabulary import JOINT_FILE, SRC_FILE, TGT_FILE, Vocabulary

KIND = "ctranslate2"
DESCRIPTION = "vtrans.json"  # vocabularies, search settings, origin: what CTranslate2 does not read
FORMAT = 1


def ctranslate2() -> Any:
    """Returns the optional package CTranslate2. Raises InputError if it cannot be imported."""
    with importing("CTranslate2"):
        return importlib.import_module("ctranslate2")


def is_exported(path: str | Path) -> bool:
    """Returns whether the path is a folder that `vtrans export` wrote."""
    return (Path(path) / DESCRIPTION).is_file()


def read_exported(folder: Path) -> tuple[dict[str, Any], Vocabulary, Vocabulary]:
    """Returns the description of an exported folder, and its vocabularies of source and target, which may be the same
    object. Raises FileError if it is not a complete export."""
    file = folder / DESCRIPTION
    description = read_object(file)
    if description.get("kind") != KIND:
        raise FileError(f"{file} does not describe an export of vtrans; export the model again.")
    if description.get("format") != FORMAT:
        raise FileError(f"{folder} must have format {FORMAT}, got {description.get('format')}; export the model again.")
    for key, kind in {"files": dict, "model": dict, "vocabularies": list, "search": dict, "training": dict}.items():
        if not isinstance(description.get(key), kind):
            raise FileError(f"{file} lacks {key}; export the model again.")
    names = description["vocabularies"]
    if names not in ([JOINT_FILE], [SRC_FILE, TGT_FILE]) or not set(names) <= set(description["files"]):
        raise FileError(f"{file} names no vocabulary; export the model again.")
    for name, expected in description["files"].items():
        # The name may be anything, such as that of a device without end.
        digest = file_sha256(folder / name) if name == Path(name).name and (folder / name).is_file() else None
        if digest != expected:
            how = "is missing" if digest is None else "has changed since it was exported"
            raise FileError(f"{folder / name} {how}; export the model again.")
    vocabularies = [Vocabulary((folder / name).read_bytes(), str(folder)) for name in names]
    return description, vocabularies[0], vocabularies[-1]
