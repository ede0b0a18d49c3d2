"""The figures of metrics.jsonl for TensorBoard, which is an optional extra."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from vtrans.errors import FileError, InputError


class Events:
    """Writes records of metrics.jsonl as scalars, such as train/loss and valid/bleu.

    A run that goes on writes its records anew, in a file that replaces those of before: what TensorBoard shows is what
    metrics.jsonl holds, also where that was cut back, and where the run began without. Raises InputError where
    TensorBoard is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer: Any = None
        try:
            self._module = importlib.import_module("torch.utils.tensorboard")
        except ImportError as error:
            if isinstance(error, ModuleNotFoundError) and error.name == "tensorboard":
                reason = "TensorBoard is not installed"
            else:
                reason = f"TensorBoard can't be imported ({error})"
            raise InputError(
                f"{reason}; install it with `pip install 'vtrans[tensorboard]'`, or set train.tensorboard = false."
            ) from None

    def begin(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Starts the file anew with these records."""
        remove(self.folder)
        try:
            # The step tells a TensorBoard that looks on to forget what the files of before said.
            self._writer = self._module.SummaryWriter(str(self.folder), purge_step=0)
        except OSError as error:
            raise FileError(f"{self.folder} can't be written: {error.strerror}.") from None
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
    """Removes what was written there, and the folder if it holds nothing else."""
    for file in folder.glob("events.out.tfevents.*"):
        file.unlink()
    with suppress(OSError):
        folder.rmdir()
