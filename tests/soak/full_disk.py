"""Fills the disk under every command that writes: with exit code 1 and one sentence, and nothing damaged.

    python tests/soak/full_disk.py                       # needs root, because it mounts small tmpfs disks
    python tests/soak/full_disk.py --only train --steps 60

Each command runs on disks with room for a part of its output, from none to all of it, and on disks with few free names
(inodes). Unless it succeeds, it must end with exit code 1 and one sentence on stderr that names a file on the disk, or
stdout, and the reason. No temporary file may stay. The output of an earlier command, which lies in the same place, must
keep its bytes or have the new ones. Then the disk gets room, and the same command must succeed with the bytes that it
writes on a large disk; for a training, these are the models, the state and the metrics (apart from times).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("", "helpers"))

import torch
from conftest import TRAIN_PAIRS, VALID_PAIRS, make_data, write_pairs
from kills import same_runs, train_words

import vtrans.commands.export  # before the copies of this process are made, which would each import it
import vtrans.interop.formats
import vtrans.training.trainer  # noqa: F401
from vtrans import cli
from vtrans.storage.run_folder import RunFolder

LARGE, MANY = 1 << 28, 100_000  # bytes, files
STDOUT = "stdout"


@dataclass(frozen=True)
class Command:
    """A command that writes to a disk: its words, given the place of its output, and the name of that place. The words
    do not name the place if it is stdout."""

    words: Callable[[Path], Sequence[str]]
    out: str
    to_stdout: bool = False
    earlier: Callable[[Path], Sequence[str]] | None = None
    """The words of a command whose output is there already; without it, an output that is one file is."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    said: str


def run(command: Command, disk: Path) -> Ended:
    """Runs a command in a copy of this process, which has imported torch already."""
    out, messages = disk / command.out, disk.parent / "messages"
    child = os.fork()
    if not child:
        code = 70
        try:
            with messages.open("wb") as file:
                os.dup2(file.fileno(), 2)
            with (out if command.to_stdout else Path(os.devnull)).open("wb") as file:
                os.dup2(file.fileno(), 1)
            sys.argv = ["vtrans", *command.words(out)]
            try:
                cli.main()
            except SystemExit as ended:
                code = int(ended.code or 0)
            try:  # as Python does at exit
                sys.stdout.flush()
            except OSError:
                code = 120
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Ended(code, messages.read_text())


@contextmanager
def disk_with(command: Command, disk: Path) -> Iterator[None]:
    """A large tmpfs with the output of an earlier command."""
    disk.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], check=True)
    try:
        resize(disk, LARGE, MANY)
        (disk / "other").write_bytes(b"other")  # the disk is never empty: a size of 0 would be unlimited
        if command.earlier:
            assert run(Command(command.earlier, command.out), disk).code == 0
        elif Path(command.out).suffix and not command.to_stdout:
            (disk / command.out).write_bytes(b"old\n")
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)  # a killed command may still have a file open


def resize(disk: Path, size: int, names: int) -> None:
    """Gives a disk room for so many more bytes, and files and folders."""
    now = os.statvfs(disk)
    size += (now.f_blocks - now.f_bfree) * now.f_bsize
    names += now.f_files - now.f_ffree
    subprocess.run(["mount", "-o", f"remount,size={size},nr_inodes={names}", str(disk)], check=True)


def contents(disk: Path) -> dict[str, bytes]:
    return {str(path.relative_to(disk)): path.read_bytes() for path in sorted(disk.rglob("*")) if path.is_file()}


def commands(folder: Path) -> dict[str, Command]:
    """The commands, with inputs in `folder`."""
    data = make_data(folder).path
    src, tgt = write_pairs(folder, "text", [*TRAIN_PAIRS, *VALID_PAIRS])
    many = folder / "many.en"
    many.write_bytes(src.read_bytes() * 2)
    whole = folder / "whole"
    made = folder / "huggingface"
    for words in (train_words(data, whole)[3:], ["export", str(whole), "--to", "huggingface", "--out", str(made)]):
        ended = run(Command(lambda _, words=words: words, "made"), folder)  # type: ignore[misc]
        assert ended.code == 0, ended
    pairs = ["--src", str(src), "--tgt", str(tgt), "--threads", "1"]
    model, hyp = ["--model", str(whole)], str(tgt)
    quick = ["--beam", "1", "--input", str(many), "--processes", "1", "--no-retry"]
    plain = ["translate", *model, *quick]
    prepare = ["prepare-bpe", *pairs, "--vocab-size"]
    return {
        "prepare-bpe": Command(lambda out: [*prepare, "320", "--out", str(out)], "data"),
        "prepare-bpe --force": Command(
            lambda out: [*prepare, "320", "--force", "--out", str(out)],
            "data",
            earlier=lambda out: [*prepare, "300", "--out", str(out)],
        ),
        "train": Command(lambda out: train_words(data, out)[3:], "run"),
        "train --report": Command(lambda out: [*train_words(data, out)[3:], "--report"], "run"),
        "average": Command(lambda out: ["average", str(whole), "--out", str(out)], "mean.safetensors"),
        "translate --output": Command(lambda out: [*plain, "--output", str(out)], "out.de"),
        "translate --output x.gz": Command(lambda out: [*plain, "--output", str(out)], "out.de.gz"),
        "translate": Command(lambda out: plain, "out.de", True),
        "translate --json": Command(lambda out: [*plain, "--json"], "out.json", True),
        "logprob": Command(lambda out: ["logprob", str(src), str(tgt), *model], "out.txt", True),
        "score": Command(lambda out: ["score", str(tgt), "--hyp", hyp], "score.txt", True),
        "score --json": Command(lambda out: ["score", str(tgt), "--hyp", hyp, "--json"], "score.json", True),
        "inspect": Command(lambda out: ["inspect", str(whole)], "report.txt", True),
        "inspect --json": Command(lambda out: ["inspect", str(whole), "--json"], "report.json", True),
        "overlap": Command(lambda out: ["overlap", "--data", str(data)], "overlap.txt", True),
        "attend --out": Command(lambda out: ["attend", str(whole), "A dog sees me.", "--out", str(out)], "map.svg"),
        "report": Command(lambda out: ["report", str(whole), "--out", str(out)], "report.html"),
        "shortlist": Command(
            lambda out: ["shortlist", str(whole), "--data", str(data), "--out", str(out)], "short.safetensors"
        ),
        "import": Command(lambda out: ["import", str(made), "--out", str(out)], "imported.safetensors"),
        **{
            f"export --to {kind}": Command(
                lambda out, kind=kind: ["export", str(whole), "--to", kind, "--out", str(out)],  # type: ignore[misc]
                kind,
                # Of earlier exports, only one for CTranslate2 is replaced.
                earlier=(lambda out: ["export", model[1], "--to", "ctranslate2", "--out", str(out)])
                if kind == "ctranslate2"
                else None,
            )
            for kind in ("ctranslate2", "huggingface", "bergamot")
        },
    }


def faults(command: Command, ended: Ended, before: dict[str, bytes], disk: Path, whole: dict[str, bytes]) -> list[str]:
    """What is wrong with how a command ended on a full disk."""
    found = []
    last = ended.said.strip().split("\n")[-1]
    if ended.code not in (0, 1):
        found.append(f"exit code {ended.code}")
    if ended.code:
        if "Traceback" in ended.said or not last.startswith("error: ") or "No space left on device" not in last:
            found.append("no clear sentence")
        if (STDOUT if command.to_stdout else str(disk)) not in last:
            found.append("no name of a file")
    for name, raw in contents(disk).items():
        if ".tmp" in name or ".preparing" in name or ".old" in name:
            found.append(f"{name} was left")
        elif not command.to_stdout and not command.out.startswith("run") and raw not in (before.get(name), whole[name]):
            found.append(f"{name} is damaged")
    if ended.code and set(before) - set(contents(disk)):
        found.append("an earlier file is gone")
    return found


def check(name: str, command: Command, folder: Path, steps: int) -> bool:
    """Runs a command on disks of all sizes."""
    disk = folder / "disk"
    with disk_with(command, disk):
        ended = run(command, disk)
        assert ended.code == 0, (name, ended)
        whole = contents(disk)
        needed = sum(-(-len(raw) // 4096) * 4096 + 4096 for raw in whole.values())
        files = sum(1 for _ in disk.rglob("*")) + 2
    sizes = sorted({0, *(round(1.7 * needed * part / steps / 4096) for part in range(1, steps + 1))})
    disks = [(4096 * pages, MANY) for pages in sizes]
    if not command.to_stdout:  # whose file is there already
        disks += [(LARGE, n) for n in range(files + 4)]
    good, failed = True, 0
    for size, names in disks:
        with disk_with(command, disk):
            if command.to_stdout:
                (disk / command.out).touch()
            before = contents(disk)
            resize(disk, size, names)
            ended = run(command, disk)
            failed += ended.code != 0
            wrong = faults(command, ended, before, disk, whole)
            if ended.code:
                resize(disk, LARGE, MANY)
                again = run(command, disk)
                if again.code:
                    wrong.append(f"again: {again.said.strip()[-300:]}")
                elif command.out == "run":
                    if not same_runs(RunFolder(disk / "run"), RunFolder(folder / "whole")):
                        wrong.append("the resumed run differs")
                elif contents(disk) != whole:
                    wrong.append("the second attempt wrote other bytes")
        if wrong:
            last = ended.said.strip().split("\n")[-1]
            print(f"  {name} on {size:,} of {needed:,} bytes, {names} names: {'; '.join(wrong)}", flush=True)
            print(f"    {last}", flush=True)
            good = False
    print(f"{name}: {len(disks)} disks, {failed} of them too small{'' if good else ': DEFECTS'}", flush=True)
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=16, help="sizes of disks per command")
    parser.add_argument("--only", help="the commands that begin with this")
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("this needs root, because it mounts a tmpfs")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which unmounts the disk
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        all_commands = commands(folder)
        good = [
            check(name, command, folder, options.steps)
            for name, command in all_commands.items()
            if name.startswith(options.only or "")
        ]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
