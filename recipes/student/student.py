"""From parallel text to a small translation model: `make student`.

Its argument is a chain of this folder, a TOML file (chain.py describes it), or the folder of a chain that was stopped,
which may be a copy from another machine. Each command is printed before it runs in WORK, the folder of the chain. Run
the script again to resume: a stage is skipped if its commands and the contents of its files are those of its last run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from vtrans.console import Console
from vtrans.errors import InputError, VtransError
from vtrans.files import file_sha256, locked, write_atomically

from ..experiment import EXPERIMENTS, fetched
from ..running import Run, run
from .chain import COPY, RECORD, Chain, chain_file, chain_names, is_copy, load_chain
from .stages import EXPORT, Files, Stage, Stages

LOCK = ".lock"


class Work:
    """The folder of a chain, with its record: of each stage its key, the digests of its outputs and its seconds."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.stages, self.seconds = dict[str, dict[str, Any]](), dict[str, float]()
        if (folder / RECORD).exists():
            other, self.stages, self.seconds = read_record(folder)
            if other != name:
                raise InputError(f"{folder} holds the chain {other}, not {name}; name another folder with --work.")
        elif folder.exists() and not (folder.is_dir() and {path.name for path in folder.iterdir()} <= {LOCK}):
            raise InputError(f"{folder} is not the folder of a chain; name a new or empty one with --work.")
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = (folder / LOCK).open("wb")
        if not locked(self.lock):
            self.lock.close()
            raise VtransError(f"another process is working in {folder}; wait until it has ended, or stop it.")

    def save(self) -> None:
        record = {"chain": self.name, "stages": self.stages, "seconds": self.seconds}
        write_atomically(self.folder / RECORD, json.dumps(record, indent=1).encode() + b"\n")

    def digests(self, paths: Sequence[str]) -> list[str | None]:
        """Returns the SHA-256 of files, and of the names and contents in folders; None for what does not exist."""
        found = []
        for path in paths:
            whole = self.folder / path
            files = sorted(file for file in whole.rglob("*") if file.is_file())
            listed = json.dumps([(file.relative_to(whole).as_posix(), file_sha256(file)) for file in files])
            found.append(hashlib.sha256(listed.encode()).hexdigest() if whole.is_dir() else file_sha256(whole))
        return found

    def key(self, stage: Stage) -> str:
        """Returns the hash of the commands of a stage and of the contents of its inputs, wherever these are."""
        words = [[Path(word).name if word in stage.inputs else word for word in words] for words in stage.commands]
        return hashlib.sha256(json.dumps([words, self.digests(stage.inputs)]).encode()).hexdigest()

    def is_done(self, stage: Stage, key: str) -> bool:
        """Returns whether the outputs are those of a finished run with this key."""
        record = self.stages.get(stage.name, {})
        return record.get("key") == key and record.get("outputs") == self.digests(stage.outputs)

    def why(self, stage: Stage, key: str) -> str:
        """Returns why a stage that has begun before runs again, in words; empty if it has not."""
        record = self.stages.get(stage.name)
        if record is None:
            return ""
        if record["key"] != key:
            return " again, because its commands or files have changed"
        return " again, because its results have changed" if "outputs" in record else ", which was stopped"

    def run(self, stage: Stage, key: str, start: Run) -> None:
        """Runs the commands of a stage, which resume what an earlier run with this key left, if they can."""
        record = self.stages.get(stage.name, {})
        if not stage.resumes or record.get("key") != key or "outputs" in record:
            for target in (self.folder / path for path in (*stage.outputs, *stage.scratch)):
                shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
            record = self.stages[stage.name] = {"key": key, "seconds": 0.0}
            self.save()
        for path in stage.outputs:
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        try:
            for words in stage.commands:
                start(words)
            record["outputs"] = self.digests(stage.outputs)
        finally:
            record["seconds"] = round(record["seconds"] + time.monotonic() - began, 1)
            if "outputs" in record:
                self.seconds[stage.name] = record["seconds"]
            self.save()


def starter(folder: Path, lock: int) -> Run:
    """Returns what runs a command in a folder. The command holds the lock, too, in case this program is killed."""
    return partial(run, output=sys.stderr, folder=folder, held=[lock])


def read_record(folder: Path) -> tuple[str, dict[str, Any], dict[str, float]]:
    """Returns the name of the chain in a folder, and the record of its stages and seconds."""
    try:
        record = json.loads((folder / RECORD).read_bytes())
        return record["chain"], dict(record["stages"]), dict(record["seconds"])
    except (OSError, ValueError, TypeError, KeyError):
        raise InputError(f"{folder} is not the folder of a chain: it has no valid {RECORD}.") from None


def run_chain(chain: Chain, files: Files, work: Work, start: Run, console: Console) -> None:
    """Runs the stages that are not done, and prints the figures."""
    work.save()
    write_atomically(work.folder / COPY, chain.content)
    for section, model in chain.models.items():
        write_atomically(work.folder / f"{section}.toml", model.toml.encode())
    stages = [*files.copied(work.folder), *Stages(chain, files).all()]
    console.info(f"{len(stages)} stages; their commands run in {work.folder}")
    for n, stage in enumerate(stages):
        key, where = work.key(stage), f"stage {n + 1} of {len(stages)}: {stage.name}"
        if work.is_done(stage, key):
            console.info(f"{where} is done")
        else:
            console.info(f"\n{where}{work.why(stage, key)}")
            work.run(stage, key, start)
    lines = "".join(f"{line}\n" for line in figures(chain, files, work, stages))
    write_atomically(work.folder / "report.md", lines.encode())
    sys.stdout.write(f"\n{lines}")


def figures(chain: Chain, files: Files, work: Work, stages: Sequence[Stage]) -> Iterator[str]:
    """Yields the scores, sizes and times of a finished chain as tables in Markdown."""
    models = {"teachers": [f"teacher-{n}/averaged.safetensors" for n, _ in enumerate(chain.teachers.seeds, 1)]}
    if chain.student:
        models |= {"student": ["student.safetensors"], "student-int8": ["student.safetensors"]}
    yield from ("| model | test | BLEU | chrF2 | files, MB |", "|---|---|---:|---:|---:|")
    for name, paths in models.items():
        for stem in files.tests:
            scores = json.loads((work.folder / f"test/{stem}.{name}.json").read_bytes())
            values = " | ".join(f"{score['value']:.2f}" for score in scores)
            yield f"| {name} | {stem} | {values} | {megabytes(work.folder / path for path in paths)} |"
    if chain.student and chain.student.export != "none":
        yield f"| export to {chain.student.export} | | | | {megabytes((work.folder / EXPORT).rglob('*'))} |"
    yield from ("", "| stage | minutes |", "|---|---:|")
    yield from (f"| {stage.name} | {work.seconds[stage.name] / 60:.1f} |" for stage in stages)
    yield f"| all stages | {sum(work.seconds[stage.name] for stage in stages) / 60:.1f} |"


def megabytes(paths: Iterator[Path]) -> str:
    return f"{sum(path.stat().st_size for path in paths if path.is_file()) / 1e6:.1f}"


def text_of(chain: Chain, file: Path, data: str | None, work: Work, console: Console) -> Path:
    """Returns the folder with the text: what the user names, the folder that the chain file names, or a download. If
    that folder is gone, or the chain file is the one in the folder of the chain, the copy made by the first stage."""
    copy, copied = work.folder / "text", work.stages.get("text", {"outputs": []})
    folder = file.parent / chain.text.folder if chain.text.folder and not is_copy(file) else None
    if data or (folder and folder.is_dir()):
        return Path(data or folder or "")
    if copy.is_dir():
        if "outputs" not in copied:
            raise InputError(f"{copy} is incomplete; name the folder with the text with --data.")
        return copy
    if folder or not chain.text.experiment:
        missing = (
            f"the folder {folder}, which text.folder names, does not exist" if folder else "text.folder is missing"
        )
        raise InputError(f"{file}: {missing}; name the folder with the text there, or with --data.")
    return fetched(EXPERIMENTS[chain.text.experiment], copy, chain.text.src, chain.text.tgt, console)


def main(arguments: Sequence[str] | None = None, starter: Callable[[Path, int], Run] = starter) -> int:
    parser = argparse.ArgumentParser(description="Train a small translation model, from parallel text to its export.")
    parser.add_argument("chain", help=f"{', '.join(chain_names())}, a TOML file, or the folder of a chain")
    parser.add_argument("--data", help="folder with train, valid and test files (default: what the chain file names)")
    parser.add_argument("--work", help="folder of the chain (default: work/student-CHAIN)")
    options = parser.parse_args(arguments)

    console, file = Console(), chain_file(options.chain)
    folder, name = Path(options.work or f"work/student-{file.stem}"), file.stem
    if is_copy(file):
        if options.work:
            raise InputError(f"{file.parent} is the folder of a chain; leave out --work.")
        folder, name = file.parent, read_record(file.parent)[0]
    chain = load_chain(file, name)
    work = Work(folder, name)
    with work.lock:
        files = Files.of(chain, text_of(chain, file, options.data, work, console))
        run_chain(chain, files, work, starter(folder, work.lock.fileno()), console)
    return 0
