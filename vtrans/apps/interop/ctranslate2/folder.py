"""The folder that `vtrans export` writes for CTranslate2."""

from __future__ import annotations

from pathlib import Path

DESCRIPTION = "vtrans.json"  # architecture, search settings and origin, which CTranslate2 does not read
FORMAT = 1


def is_exported(path: str | Path) -> bool:
    """Returns whether the path is a folder that `vtrans export` wrote."""
    return (Path(path) / DESCRIPTION).is_file()
