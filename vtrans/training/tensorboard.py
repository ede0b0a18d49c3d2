"""Writes the values of metrics.jsonl for TensorBoard, an optional dependency."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from vtrans.system.errors import importing
from vtrans.system.files import named_os_errors


class Events:
    """Writes records of metrics.jsonl as scalars, such as train/loss and valid/bleu.

    A resumed run replaces its old files and writes all its records again, so that TensorBoard shows exactly the content
    of metrics.jsonl, even if this was truncated or the run started without TensorBoard. Raises InputError if
    TensorBoard is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer: Any = None
        with importing("TensorBoard", "set train.tensorboard = false"):
            self._module = importlib.import_module("torch.utils.tensorboard")

    def begin(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Replaces the old files by one with these records."""
        remove(self.folder)
        with named_os_errors(self.folder):
            # `purge_step` tells a running TensorBoard to forget the old files.
            self._writer = self._module.SummaryWriter(str(self.folder), purge_step=0)
        for record in records:
            self._add(record)
        self._writer.flush()

    def write(self, record: Mapping[str, Any]) -> None:
        self._add(record)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _add(self, record: Mapping[str, Any]) -> None:
        for key, value in record.items():
            if key != "step" and isinstance(value, (int, float)):
                self._writer.add_scalar(f"{record['kind']}/{key}", value, record["step"])


def remove(folder: Path) -> None:
    """Removes TensorBoard's files, and the folder if it is then empty."""
    for file in folder.glob("events.out.tfevents.*"):
        file.unlink()
    with suppress(OSError):
        folder.rmdir()
