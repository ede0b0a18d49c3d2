"""The folder that `vtrans export` writes for CTranslate2, and the optional package that runs it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from vtrans.system.errors import importing

KIND = "ctranslate2"
DESCRIPTION = "vtrans.json"  # architecture, search settings, origin: what CTranslate2 does not read
FORMAT = 1


def ctranslate2() -> Any:
    """Returns the optional package CTranslate2. Raises InputError if it cannot be imported."""
    with importing("CTranslate2"):
        return importlib.import_module("ctranslate2")


def is_exported(path: str | Path) -> bool:
    """Returns whether the path is a folder that `vtrans export` wrote."""
    return (Path(path) / DESCRIPTION).is_file()
