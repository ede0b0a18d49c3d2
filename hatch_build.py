"""Builds the wheel: with the compiled decoder if there is a C++ compiler, and otherwise without.

It imports only hatchling and what vtrans/engines/compiled/compiler.py needs, the standard library.
"""

from __future__ import annotations

import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledDecoder(BuildHookInterface[Any]):
    """Adds a library for each instruction set to the wheel, whose tag then names the platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="vtrans-")
        if version == "editable":  # compiles what it has at the first use
            return
        sys.path.insert(0, self.root)
        from vtrans.engines.compiled import SOURCES
        from vtrans.engines.compiled.compiler import CompilerError, compile_for_wheel, wheel_machine, wheel_platform

        target = sysconfig.get_platform()  # or $_PYTHON_HOST_PLATFORM, for which $CXX must then compile
        try:
            libraries = compile_for_wheel(SOURCES, Path(self.folder.name), wheel_machine(target))
        except CompilerError as error:
            self.app.display_warning(f"the wheel has no compiled decoder: {error}")
            return
        build_data["force_include"] |= {str(path): f"vtrans/engines/compiled/{path.name}" for path in libraries}
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{wheel_platform(target)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self.folder.cleanup()
