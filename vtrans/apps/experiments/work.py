"""Work in stages of a few commands. A stage runs again only if its commands or files have changed. Each command runs
in a separate process."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from vtrans.system.console import Console
from vtrans.system.errors import InputError, VtransError
from vtrans.system.files import file_sha256, locked, write_atomically
from vtrans.system.signals import ended_by_signals

RECORD, LOCK = "stages.json", ".lock"
ROOT = str(Path(__file__).resolve().parents[3])
PROGRAMS = {"vtrans": [sys.executable, "-P", "-m", "vtrans"], "python": [sys.executable, "-P"]}
INTO = ">"  # before the last word of a command: redirects stdout to that file
Run = Callable[..., None]  # runs a command as `run` does


class CommandError(VtransError):
    """A command failed and has printed the reason. The exit code is the command's."""

    def __init__(self, words: Sequence[str], code: int) -> None:
        super().__init__(f"the command {' '.join(words[:2])} failed; the lines above say why.")
        self.exit_code = max(code, 1)


def run(
    words: Sequence[str], output: IO[Any] | None = None, *, folder: Path = Path(), held: Sequence[int] = ()
) -> None:
    """Prints a command and runs it in a folder. Raises CommandError if it fails.

    The command is printed to `output` and writes to it; the default is stdout. It inherits the file descriptors `held`.
    It has its own process group, so Ctrl-C reaches only this program, which signals the command once and waits for it:
    a second signal would keep a training from saving its state.
    """
    shown = output or sys.stdout
    into = folder / words[-1] if INTO in words else None
    command = list(words[:-2] if into else words)
    shown.write(f"\n$ {shlex.join(command)}{f' {INTO} {shlex.quote(words[-1])}' if into else ''}\n")
    shown.flush()
    path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    stdout = into.open("wb") if into else output
    try:
        process = subprocess.Popen(
            [*PROGRAMS.get(command[0], command[:1]), *command[1:]], cwd=folder, env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL, stdout=stdout, process_group=0, pass_fds=held,
        )  # fmt: skip
    except FileNotFoundError:
        raise VtransError(f"the command {command[0]} is not installed; install it, and run this again.") from None
    finally:
        if into and stdout:
            stdout.close()
    with ended_by_signals((signal.SIGINT, signal.SIGTERM)):
        try:
            process.wait()
        except BaseException:
            process.send_signal(signal.SIGTERM)
            process.wait()
            raise
    if process.returncode:
        raise CommandError(words, process.returncode)


@dataclass(frozen=True)
class Stage:
    """Commands that run in order. They and the contents of `inputs` determine `outputs`.

    `scratch` are other paths that the commands write. A stage that `resumes` continues from files left there.
    """

    name: str
    commands: Sequence[Sequence[str]]
    inputs: Sequence[str]
    outputs: Sequence[str]
    scratch: Sequence[str] = ()
    resumes: bool = False


def training(name: str, run: str, data: str, recipe: Sequence[str], options: Sequence[str]) -> Stage:
    """Returns the stage that trains a model in the folder `run` and averages its checkpoints. `recipe` are the files
    that `write_recipe` wrote."""
    train = ["vtrans", "train", "--data", data, "--out", run, "--recipe", recipe[0], *options]
    return Stage(name, [train, ["vtrans", "average", run]], [data, *recipe], averaged([run]), [run], True)


def averaged(models: Iterable[str]) -> list[str]:
    """Returns the files of models: a file itself, or the averaged model of a run folder."""
    return [model if model.endswith(".safetensors") else f"{model}/averaged.safetensors" for model in models]


class Work:
    """A folder with a record of the stages run in it: the key, digests of outputs and seconds of each.

    Relative paths of stages are in the folder, which may be moved. Commands inherit the lock of the folder, so one
    that outlives this program keeps others out. Raises VtransError if another process works there, and InputError if
    the folder contains other work than `name`.
    """

    def __init__(self, folder: Path, name: str, console: Console, start: Run = run) -> None:
        self.folder, self.name, self.console, self.stages = folder, name, console, dict[str, dict[str, Any]]()
        self._start = start
        if (folder / RECORD).exists():
            try:
                record = json.loads((folder / RECORD).read_bytes())
                other, self.stages = record["name"], dict(record["stages"])
            except (ValueError, TypeError, KeyError):
                raise InputError(f"{folder / RECORD} is damaged; delete it to run all stages again.") from None
            if other != name:
                raise InputError(f"{folder} holds the results of {other}, not {name}; name another with `out`.")
        elif folder.exists() and not (folder.is_dir() and {path.name for path in folder.iterdir()} <= {LOCK}):
            raise InputError(f"{folder} has other files; name a new or empty one with `out`.")
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = (folder / LOCK).open("wb")
        if not locked(self.lock):
            self.lock.close()
            raise VtransError(f"another process is working in {folder}; wait until it has ended, or stop it.")
        self._save()

    def _save(self) -> None:
        record = {"name": self.name, "stages": self.stages}
        write_atomically(self.folder / RECORD, json.dumps(record, indent=1).encode() + b"\n")

    def run(self, stages: Sequence[Stage]) -> None:
        """Runs the unfinished stages in order."""
        for n, stage in enumerate(stages, 1):
            key, where = self._key(stage), f"stage {n} of {len(stages)}: {stage.name}"
            record = self.stages.get(stage.name, {})
            if record.get("key") == key and record.get("outputs") == self._digests(stage.outputs):
                self.console.info(f"{where} is done")
            else:
                self.console.info(f"\n{where}")
                self._run(stage, key)

    def minutes(self, stage: Stage) -> float:
        """Returns the duration of the last run of a stage, in minutes."""
        return float(self.stages[stage.name]["seconds"]) / 60

    def _digests(self, paths: Sequence[str]) -> list[str | None]:
        """Returns the SHA-256 of each file, or of the names and contents in a folder; None for a missing path."""
        found = []
        for path in paths:
            whole = self.folder / path
            files = sorted(file for file in whole.rglob("*") if file.is_file())
            listed = json.dumps([(file.relative_to(whole).as_posix(), file_sha256(file)) for file in files])
            found.append(hashlib.sha256(listed.encode()).hexdigest() if whole.is_dir() else file_sha256(whole))
        return found

    def _key(self, stage: Stage) -> str:
        """Returns the hash of the commands of a stage and the contents of its inputs, but not their folders."""
        words = [[Path(word).name if word in stage.inputs else word for word in words] for words in stage.commands]
        return hashlib.sha256(json.dumps([words, self._digests(stage.inputs)]).encode()).hexdigest()

    def _run(self, stage: Stage, key: str) -> None:
        """Runs the commands of a stage. A stage that `resumes` continues an earlier run with this key."""
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
                self._start(words, sys.stderr, folder=self.folder, held=[self.lock.fileno()])
            record["outputs"] = self._digests(stage.outputs)
        finally:
            record["seconds"] = round(record["seconds"] + time.monotonic() - began, 1)
            self._save()
