"""Work that is done in stages, each a few commands: a stage runs once, until its commands or its files change."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vtrans.config import SECTIONS, Recipe
from vtrans.config.keys import keys_of, toml_value
from vtrans.system.console import Console
from vtrans.system.errors import InputError, VtransError
from vtrans.system.files import file_sha256, locked, write_atomically

from .running import Run, run

RECORD, LOCK = "stages.json", ".lock"

Starter = Callable[[Path, int], Run]
"""Returns what runs a command in a folder. The command holds the file descriptor of the folder's lock, too."""


def starter(folder: Path, lock: int) -> Run:
    """The usual Starter. A command that outlives this program keeps others from the folder."""
    return partial(run, output=sys.stderr, folder=folder, held=[lock])


@dataclass(frozen=True)
class Stage:
    """Commands that run one after the other. They and the contents of `inputs` decide `outputs`.

    `scratch` are other paths that the commands write. If a stage `resumes`, it continues what they left there.
    """

    name: str
    commands: Sequence[Sequence[str]]
    inputs: Sequence[str]
    outputs: Sequence[str]
    scratch: Sequence[str] = ()
    resumes: bool = False


class Work:
    """A folder with a record of the stages that ran in it: the key of each, the digests of its outputs, its seconds.

    The paths of stages are relative to the folder, so it may be moved. VtransError if another process works there, and
    InputError if it holds other work than `name`.
    """

    def __init__(self, folder: Path, name: str, starter: Starter, console: Console) -> None:
        self.folder, self.name, self.console, self.stages = folder, name, console, dict[str, dict[str, Any]]()
        if (folder / RECORD).exists():
            try:
                record = json.loads((folder / RECORD).read_bytes())
                other, self.stages = record["name"], dict(record["stages"])
            except (ValueError, TypeError, KeyError):
                raise InputError(f"{folder / RECORD} is damaged; delete it to run all stages again.") from None
            if other != name:
                raise InputError(f"{folder} holds the results of {other}, not {name}; name another with --work.")
        elif folder.exists() and not (folder.is_dir() and {path.name for path in folder.iterdir()} <= {LOCK}):
            raise InputError(f"{folder} has other files; name a new or empty folder with --work.")
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = (folder / LOCK).open("wb")
        if not locked(self.lock):
            self.lock.close()
            raise VtransError(f"another process is working in {folder}; wait until it has ended, or stop it.")
        self._start = starter(folder, self.lock.fileno())
        self._save()

    def _save(self) -> None:
        record = {"name": self.name, "stages": self.stages}
        write_atomically(self.folder / RECORD, json.dumps(record, indent=1).encode() + b"\n")

    def run(self, stages: Sequence[Stage]) -> None:
        """Runs the stages that are not done."""
        for n, stage in enumerate(stages, 1):
            key, where = self._key(stage), f"stage {n} of {len(stages)}: {stage.name}"
            if self._is_done(stage, key):
                self.console.info(f"{where} is done")
            else:
                self.console.info(f"\n{where}{self._why(stage, key)}")
                self._run(stage, key)

    def minutes(self, stage: Stage) -> float:
        """Returns how long the last run of a stage took."""
        return float(self.stages[stage.name]["seconds"]) / 60

    def _digests(self, paths: Sequence[str]) -> list[str | None]:
        """Returns the SHA-256 of files, and of the names and contents in folders; None for what does not exist."""
        found = []
        for path in paths:
            whole = self.folder / path
            files = sorted(file for file in whole.rglob("*") if file.is_file())
            listed = json.dumps([(file.relative_to(whole).as_posix(), file_sha256(file)) for file in files])
            found.append(hashlib.sha256(listed.encode()).hexdigest() if whole.is_dir() else file_sha256(whole))
        return found

    def _key(self, stage: Stage) -> str:
        """Returns the hash of the commands of a stage and of the contents of its inputs, wherever these are."""
        words = [[Path(word).name if word in stage.inputs else word for word in words] for words in stage.commands]
        return hashlib.sha256(json.dumps([words, self._digests(stage.inputs)]).encode()).hexdigest()

    def _is_done(self, stage: Stage, key: str) -> bool:
        record = self.stages.get(stage.name, {})
        return record.get("key") == key and record.get("outputs") == self._digests(stage.outputs)

    def _why(self, stage: Stage, key: str) -> str:
        """Returns why a stage runs again; empty if it has never ended."""
        record = self.stages.get(stage.name, {})
        if record.get("key", key) != key:
            return " again, because its commands or files have changed"
        return " again, because its results have changed" if "outputs" in record else ""

    def _run(self, stage: Stage, key: str) -> None:
        """Runs the commands of a stage, which resume what an earlier run with this key left, if they can."""
        record = self.stages.get(stage.name, {})
        if not stage.resumes or record.get("key") != key or "outputs" in record:
            for target in (self.folder / path for path in (*stage.outputs, *stage.scratch)):
                shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
            record = self.stages[stage.name] = {"key": key, "seconds": 0.0}
            self._save()
        for path in stage.outputs:
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        try:
            for words in stage.commands:
                self._start(words)
            record["outputs"] = self._digests(stage.outputs)
        finally:
            record["seconds"] = round(record["seconds"] + time.monotonic() - began, 1)
            self._save()


def recipe_toml(recipe: Recipe) -> str:
    """Returns a recipe as a file without defaults, so that a later version of vtrans with more keys changes nothing."""
    lines = []
    for name in SECTIONS:
        section, usual = getattr(recipe, name), getattr(Recipe(), name)
        values = {key: getattr(section, key) for key in keys_of(type(section))}
        lines.append(f"[{name}]\n")
        lines += [f"{key} = {toml_value(value)}\n" for key, value in values.items() if value != getattr(usual, key)]
    return "".join(lines)


def markdown_table(head: Sequence[str], texts: int, rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown whose first columns, `texts` in number, are texts, and the others numbers."""
    lines = [head, ["---"] * texts + ["---:"] * (len(head) - texts), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
