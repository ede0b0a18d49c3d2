"""Kills trainings at random instants, resumes them and compares their bytes with those of a run that nothing stopped.

    python tests/soak/kills.py --kills 50                # SIGKILL, also while a checkpoint is being written
    python tests/soak/kills.py --full-disk               # needs root, because it mounts a small tmpfs
    python tests/soak/kills.py --folders                 # a read-only run folder, and one that vanishes

Each training makes 22 updates with checkpoints at 7, 14, 21 and 22. Nothing may be lost: after any number of kills, the
same command ends with the model, the state and the metrics (apart from times) of the run that was never killed.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from conftest import EVERY_STEP, TINY, TRAIN_PAIRS, VALID_PAIRS, make_data, write_pairs

from vtrans.checkpoint import RunFolder, load_model
from vtrans.states import read_progress

VTRANS = [sys.executable, "-m", "vtrans"]
SETTINGS = (*TINY, *EVERY_STEP, "train.ema=0.9")
TIMES = ("seconds", "metrics_bytes", "window", "environment")  # what may differ between equal runs


def train_words(data: Path, run: Path) -> list[str]:
    words = [*VTRANS, "train", "--data", str(data), "--out", str(run), "--device", "cpu", "--threads", "1"]
    return [*words, *(word for value in SETTINGS for word in ("--set", value))]


def run_command(words: Sequence[str], **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, **how)


def same_runs(first: RunFolder, second: RunFolder) -> bool:
    """Whether two runs have equal models, states and figures."""

    def figures(run: RunFolder) -> list[dict[str, Any]]:
        records = [json.loads(line) for line in run.metrics.read_text().splitlines()]
        return [{k: v for k, v in record.items() if k not in TIMES} for record in records]

    def progress(run: RunFolder) -> dict[str, Any]:
        return {k: v for k, v in read_progress(run.state_file(22)).items() if k not in TIMES}

    files = [run.path.glob("*.safetensors") for run in (first, second)]
    names = [sorted(path.name for path in paths) for paths in files]
    return (
        names[0] == names[1]
        and all(filecmp.cmp(first.path / name, second.path / name, shallow=False) for name in names[0])
        and tensors_of(first.state_file(22)) == tensors_of(second.state_file(22))
        and progress(first) == progress(second)
        and figures(first) == figures(second)
    )


def tensors_of(path: Path) -> bytes:
    """The bytes of a safetensors file after its header, which counts seconds."""
    raw = path.read_bytes()
    return raw[8 + int.from_bytes(raw[:8], "little") :]


def kills(folder: Path, count: int, seed: int) -> bool:
    """Kills trainings `count` times in all. A run is killed until it reaches its end, then the next one starts."""
    draw = random.Random(seed)
    data = make_data(folder).path
    whole, run = RunFolder(folder / "whole"), RunFolder(folder / "run")
    started = time.monotonic()
    assert run_command(train_words(data, whole.path)).returncode == 0
    longest = time.monotonic() - started
    done = equal = finished = writing = 0
    while done < count:
        with subprocess.Popen(train_words(data, run.path), stderr=subprocess.DEVNULL) as child:
            # Half of the kills come at a random instant, the others as soon as a file is being written.
            if draw.random() < 0.5:
                with_file, until = False, time.monotonic() + draw.uniform(0.5 * longest, longest)
            else:
                with_file, until = True, time.monotonic() + longest
                skipped = draw.randrange(40)
            while child.poll() is None and time.monotonic() < until:
                if with_file and leftovers(run):
                    skipped -= 1
                    if skipped < 0:
                        break
                time.sleep(0.0005)
            ended = child.poll()
            child.kill()
        if ended is None:
            done += 1
            writing += bool(leftovers(run))
            print(f"kill {done}: {writing} inside a write, {equal} of {finished} runs equal", flush=True)
            if run.last.exists():
                load_model(run.last)
        elif ended:
            print(f"a resumed training ended with exit code {ended}")
            return False
        else:
            finished += 1
            equal += same_runs(run, whole)
            shutil.rmtree(run.path)
    if run.path.exists() or not finished:
        result = run_command(train_words(data, run.path))
        finished += 1
        equal += result.returncode == 0 and same_runs(run, whole)
    print(f"{done} kills, {writing} of them inside a write; {equal} of {finished} runs are equal to the unkilled one")
    return equal == finished


def leftovers(run: RunFolder) -> list[Path]:
    """The temporary files in a run folder."""
    return [path for place in (run.path, run.states) if place.is_dir() for path in place.glob(".*.tmp")]


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A tmpfs of `size` bytes."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def full_disk(folder: Path, steps: int) -> bool:
    """Runs each writing command on disks that are full after 0, 1/steps, 2/steps, ... of what the command needs."""
    if os.geteuid() != 0 or run_command(["mount", "-t", "tmpfs", "tmpfs", str(folder)]).returncode:
        print("skipped: this user may not mount a tmpfs")
        return True
    subprocess.run(["umount", str(folder)], check=True)
    data = make_data(folder).path
    whole = folder / "whole"
    assert run_command(train_words(data, whole)).returncode == 0
    src, tgt = write_pairs(folder, "text", [*TRAIN_PAIRS, *VALID_PAIRS])
    many = folder / "many.en"
    many.write_bytes(src.read_bytes() * 5)
    prepare = [*VTRANS, "prepare-bpe", "--src", str(src), "--tgt", str(tgt), "--vocab-size", "320", "--out"]
    average = [*VTRANS, "average", str(whole), "--out"]
    translate = [*VTRANS, "translate", "--model", str(whole), "--input", str(many), "--beam", "1", "--output"]
    commands: dict[str, tuple[Callable[[Path], list[str]], str]] = {
        "train": (lambda out: train_words(data, out), "run"),
        "prepare-bpe": (lambda out: [*prepare, str(out)], "data"),
        "average": (lambda out: [*average, str(out)], "mean.safetensors"),
        "translate --output": (lambda out: [*translate, str(out)], "out.de"),
    }
    good = True
    for name, (words, out) in commands.items():
        with small_disk(folder / "disk", 1 << 30) as disk:
            assert run_command(words(disk / out)).returncode == 0, name
            needed = sum(p.stat().st_size for p in disk.rglob("*") if p.is_file())
        for part in range(steps):
            size = max(4096, needed * part // steps) // 4096 * 4096
            with small_disk(folder / "disk", size) as disk:
                result = run_command(words(disk / out))
                said = result.stderr.strip().split("\n")[-1]
                clear = result.returncode in (0, 1, 2) and "Traceback" not in result.stderr
                clear &= not result.returncode or ("No space left" in said and said.startswith("error: "))
                left = [p.name for p in disk.iterdir() if p.name.endswith(".tmp")]
                if name == "train" and clear and result.returncode:
                    subprocess.run(["mount", "-o", f"remount,size={1 << 30}", str(disk)], check=True)
                    again = run_command(words(disk / out))
                    clear &= again.returncode == 0 and same_runs(RunFolder(disk / out), RunFolder(whole))
            if not clear or left:
                print(f"{name} on {size:,} of {needed:,} bytes: exit code {result.returncode}, {left}: {said}")
                good = False
        print(f"{name}: {steps} disks of up to {needed:,} bytes")
    return good


def folders(folder: Path) -> bool:
    """Trains into a folder that nobody can write to, and into one that vanishes."""
    data = make_data(folder).path
    good = True
    blocked = folder / "file"
    blocked.write_text("")
    for place in (blocked / "run", Path("/proc/run"), Path("/dev/null/run")):
        result = run_command(train_words(data, place))
        print(f"{place}: exit code {result.returncode}: {result.stderr.strip().split(chr(10))[-1]}")
        good &= result.returncode == 2 and "Traceback" not in result.stderr
    for after in (1, 4, 8, 15, 20):
        run = RunFolder(folder / f"vanishing-{after}")
        with subprocess.Popen(train_words(data, run.path), stderr=subprocess.PIPE, text=True) as child:
            while child.poll() is None:
                if run.metrics.exists() and run.metrics.read_bytes().count(b"\n") >= after:
                    run.path.rename(folder / f"moved-{after}")
                    break
                time.sleep(0.0005)
            said = child.stderr.read().strip() if child.stderr else ""
        last = said.split("\n")[-1]
        print(f"vanished after {after} lines: exit code {child.returncode}: {last}")
        good &= child.returncode in (1, 2) and last.startswith("error: ") and "Traceback" not in said
        moved = folder / f"moved-{after}"
        good &= run_command(train_words(data, moved)).returncode == 0
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--full-disk", action="store_true")
    parser.add_argument("--steps", type=int, default=8, help="disks per command")
    parser.add_argument("--folders", action="store_true")
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder:
        if options.kills:
            good &= kills(Path(folder), options.kills, options.seed)
        if options.full_disk:
            good &= full_disk(Path(folder), options.steps)
        if options.folders:
            good &= folders(Path(folder))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
