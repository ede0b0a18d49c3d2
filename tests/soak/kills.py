"""Kills trainings at random instants, resumes them and compares their bytes with those of a run that nothing stopped.

    python tests/soak/kills.py --kills 50 --seed 1

Half of the kills come while a checkpoint is being written. Each training makes 22 updates with checkpoints at 7, 14, 21
and 22. Nothing may be lost: after any number of kills, the same command ends with the model, the state and the metrics
(apart from times) of the run that was never killed.
"""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.extend(str(Path(__file__).parents[1] / folder) for folder in ("", "helpers"))

from conftest import EVERY_STEP, make_data
from runs import command, story

from vtrans.model.checkpoint import load_model
from vtrans.storage.run_folder import RunFolder
from vtrans.storage.states import read_progress

TIMES = ("seconds", "metrics_bytes", "window", "environment")  # of a state, what may differ between equal runs


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
    data = make_data(folder)
    whole, run = RunFolder(folder / "whole"), RunFolder(folder / "run")
    words, other = (
        [*command(data, each.path, *EVERY_STEP, "train.ema=0.9"), "--threads", "1"] for each in (run, whole)
    )
    started = time.monotonic()
    subprocess.run(other, stderr=subprocess.DEVNULL, check=True)
    longest = time.monotonic() - started
    done = equal = finished = writing = 0
    while done < count:
        with subprocess.Popen(words, stderr=subprocess.DEVNULL) as child:
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
        code = subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode
        finished += 1
        equal += code == 0 and same_runs(run, whole)
    print(f"{done} kills, {writing} of them inside a write; {equal} of {finished} runs are equal to the unkilled one")
    return equal == finished


def leftovers(run: RunFolder) -> list[Path]:
    """The temporary files in a run folder."""
    return [path for place in (run.path, run.states) if place.is_dir() for path in place.glob(".*.tmp")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if kills(Path(folder), options.kills, options.seed) else 1)


if __name__ == "__main__":
    main()
