"""Kills trainings at random instants, resumes them and compares their bytes with those of a run that nothing stopped.

    python tests/soak/kills.py --kills 50                # SIGKILL, also while a checkpoint is being written
    python tests/soak/kills.py --folders                 # run folders that vanish; read-only ones
    python tests/soak/kills.py --together 10             # two commands at a time that write to one place

Each training makes 22 updates with checkpoints at 7, 14, 21 and 22. Nothing may be lost: after any number of kills, the
same command ends with the model, the state and the metrics (apart from times) of the run that was never killed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("", "helpers"))

from conftest import EVERY_STEP, TINY, TRAIN_PAIRS, VALID_PAIRS, make_data, write_pairs
from runs import story, wait_for_line

from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model
from vtrans.storage.run_folder import RunFolder
from vtrans.storage.states import read_progress

VTRANS = [sys.executable, "-m", "vtrans"]
SETTINGS = (*TINY, *EVERY_STEP, "train.ema=0.9")
TIMES = ("seconds", "metrics_bytes", "window", "environment")  # of a state, what may differ between equal runs


def train_words(data: Path, run: Path) -> list[str]:
    words = [*VTRANS, "train", "--data", str(data), "--out", str(run), "--device", "cpu", "--threads", "1"]
    return [*words, *(word for value in SETTINGS for word in ("--set", value))]


def run_command(words: Sequence[str], **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, **how)


def same_runs(first: RunFolder, second: RunFolder) -> bool:
    """Whether two runs have equal models, states and figures."""

    def state(run: RunFolder) -> tuple[bytes, dict[str, Any]]:
        path = run.state_file(22)
        return tensors_of(path), {k: v for k, v in read_progress(path).items() if k not in TIMES}

    return story(first) == story(second) and state(first) == state(second)


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
        moved = folder / f"moved-{after}"
        code, said = at_line(train_words(data, run.path), run, after, partial(run.path.rename, moved))
        last = said.split("\n")[-1]
        print(f"vanished after {after} lines: exit code {code}: {last}")
        good &= code in (1, 2) and last.startswith("error: ") and "Traceback" not in said
        good &= run_command(train_words(data, moved)).returncode == 0
    return good


def at_line(words: Sequence[str], run: RunFolder, line: int, act: Callable[[], object]) -> tuple[int, str]:
    """Runs a training, and calls `act` once metrics.jsonl has that many lines. Returns the exit code and what stderr
    has."""
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as child:
        wait_for_line(child, run, line)
        act()
        said = child.communicate()[1].strip()
    return child.returncode, said


def read_only(folder: Path) -> bool:
    """Makes a run folder read-only during a training, as a disk does that fails. The training resumes once the folder
    can be written again."""
    if os.geteuid():
        print("skipped: only root may mount a disk")
        return True
    data = make_data(folder).path
    whole, good = RunFolder(folder / "whole-read-only"), True
    assert run_command(train_words(data, whole.path)).returncode == 0
    for line in (1, 5, 12):
        run = RunFolder(folder / f"read-only-{line}")
        place = str(run.path)

        def cover(place: str = place) -> None:
            # A disk with a file that is open for writing cannot be made read-only, and the lock of a run always is.
            # A second mount over the folder can; it takes effect for the files that are opened from now on.
            subprocess.run(["mount", "--bind", place, place], check=True)
            while subprocess.run(["mount", "-o", "remount,bind,ro", place], check=False, stderr=-3).returncode:
                pass

        try:
            code, said = at_line(train_words(data, run.path), run, line, cover)
            again = run_command(train_words(data, run.path)).returncode
        finally:
            subprocess.run(["umount", place], check=True)
        resumed = run_command(train_words(data, run.path)).returncode
        last = said.split("\n")[-1]
        fine = (code, again, resumed) == (2, 2, 0) and last.startswith("error: ") and same_runs(run, whole)
        print(f"read-only after {line} lines: exit code {code}; resumed {'equal' if fine else 'DIFFERENT'}: {last}")
        good &= fine
    return good


def together(folder: Path, pairs: int) -> bool:
    """Runs commands two at a time on one output, `pairs` times each: one may be refused, and the output is whole."""
    data = make_data(folder).path
    whole = RunFolder(folder / "whole-together")
    assert run_command(train_words(data, whole.path)).returncode == 0
    src, tgt = write_pairs(folder, "together", [*TRAIN_PAIRS, *VALID_PAIRS])
    prepare = [*VTRANS, "prepare-bpe", "--src", str(src), "--tgt", str(tgt), "--threads", "1"]
    draw, good = random.Random(1), True
    for name in ("train", "prepare-bpe", "average"):
        codes: dict[int, int] = {}
        for _ in range(pairs):
            out = folder / "both"
            words = {
                "train": [train_words(data, out)] * 2,
                "prepare-bpe": [[*prepare, "--vocab-size", size, "--out", str(out)] for size in ("320", "300")],
                "average": [[*VTRANS, "average", str(whole.path), "--last", n, "--out", str(out)] for n in ("1", "2")],
            }[name]
            children = []
            for each in words:
                children.append(subprocess.Popen(each, stderr=subprocess.PIPE, text=True))
                time.sleep(draw.uniform(0, 0.2))
            for child in children:
                _, said = child.communicate()
                codes[child.returncode] = codes.get(child.returncode, 0) + 1
                if child.returncode not in (0, 2) or (child.returncode and "error: " not in said.split("\n")[-2]):
                    print(f"{name} beside another: exit code {child.returncode}: {said.strip()}")
                    good = False
            if name == "train":
                fine = same_runs(RunFolder(out), whole)
            elif name == "average":
                fine = load_model(out) is not None
            else:
                fine = len(DataFolder.open(out).train) > 0
            if not fine or leftovers(RunFolder(out)):
                print(f"{name}: the output of two at once is damaged")
                good = False
            shutil.rmtree(out) if out.is_dir() else out.unlink()
        print(f"{name}: {pairs} times two at once; exit codes {codes}")
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folders", action="store_true")
    parser.add_argument("--together", type=int, default=0, help="pairs of each command")
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder:
        if options.kills:
            good &= kills(Path(folder), options.kills, options.seed)
        if options.folders:
            good &= folders(Path(folder))
            good &= read_only(Path(folder))
        if options.together:
            good &= together(Path(folder), options.together)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
