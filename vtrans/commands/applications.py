"""Applications as commands of the core use them. cli.py says where each one is."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Application:
    """The modules of an application, each of which is imported when it is first used."""

    def __init__(self) -> None:
        self.package = ""

    def __getattr__(self, module: str) -> Any:
        return import_module(f"{self.package}.{module}")


analysis, documents, interop = Application(), Application(), Application()
