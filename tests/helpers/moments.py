"""What a crash leaves: the files of a folder before each file operation."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Moment = dict[Path, bytes | None]  # the files of a folder with their bytes, and its subfolders


class Moments:
    """Records what a folder holds before each file operation: that is what a crash at this moment leaves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = folder
        self.recorded: list[Moment] = []
        for name in ("replace", "rename", "link", "unlink", "rmdir", "mkdir"):
            monkeypatch.setattr(os, name, self.recording(getattr(os, name)))

    def recording(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **how: Any) -> Any:
            self.record()
            return operation(*args, **how)

        return call

    def record(self) -> None:
        paths = sorted(self.folder.rglob("*"))
        found = {path.relative_to(self.folder): None if path.is_dir() else path.read_bytes() for path in paths}
        if self.recorded[-1:] != [found]:
            self.recorded.append(found)


def restore(moment: Moment, folder: Path) -> None:
    """Makes a folder with what a crash has left."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path, raw in moment.items():  # a folder comes before what is in it
        if raw is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(raw)
