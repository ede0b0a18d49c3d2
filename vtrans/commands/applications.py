"""Applications as commands of the core use them. cli.py says where each one is."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Application:
    """Imports a module of an application when it is used: `documents("pairs")`."""

    package = ""

    def __call__(self, module: str) -> Any:
        return import_module(f"{self.package}.{module}")


documents, interop = Application(), Application()
