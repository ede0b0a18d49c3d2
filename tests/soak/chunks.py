"""Kills translations in chunks at random instants, resumes them, and compares the result with that of one run.

    python tests/soak/chunks.py --kills 10 [--model RUN|FILE] [--input TEXT] [--lines 20000] [--jobs 2]

`--jobs` processes translate a shard each at the same time, and one more the first of these shards. A kill hits any of
them. The input repeats the lines of TEXT, or a few built-in captions, which a tiny network with random weights
translates. The exit code is 1 if a byte differs, or if a process that was not killed failed.
"""

from __future__ import annotations

import argparse
import filecmp
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from soak import SHORT, tiny_model

VTRANS = [sys.executable, "-m", "vtrans"]


def start(words: list[str], out: Path, shard: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*VTRANS, "translate", *words, "--output", str(out), "--shard", shard, "--quiet"])


def chunks(out: Path) -> int:
    return len(list(out.glob("chunk-*")))


def killed(words: list[str], out: Path, whole: Path, kills: int, jobs: int, draw: random.Random) -> bool:
    """Translates in jobs, one of which is killed `kills` times, and compares the result with the folder `whole`."""
    expected = {path.name for path in whole.iterdir()}
    shards = [f"{number}/{jobs}" for number in range(1, jobs + 1)]
    running = {number: start(words, out, shard) for number, shard in enumerate([*shards, shards[0]])}
    for kill in range(1, kills + 1):
        number = draw.randrange(len(running))
        # Kill when some more chunks are there, a random part of a second after the last of them.
        until = chunks(out) + draw.randrange(1, 3)
        while chunks(out) < min(until, len(expected) - 1) and running[number].poll() is None:
            time.sleep(0.01)
        time.sleep(draw.random() * 0.2)
        ended = running[number].poll()
        running[number].kill()
        running[number].wait()
        print(f"kill {kill}: {chunks(out)} of {len(expected) - 1} chunks there, job had ended: {ended}", flush=True)
        if ended:
            return False
        running[number] = start(words, out, [*shards, shards[0]][number])
    codes = [process.wait() for process in running.values()]
    if any(codes) or start(words, out, "1/1").wait():
        return False
    same = {path.name for path in out.iterdir()} == expected
    return same and all(
        filecmp.cmp(out / name, whole / name, shallow=False) for name in expected if name.startswith("chunk-")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--model")
    parser.add_argument("--input", type=Path)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = options.model or str(folder / "tiny.safetensors")
        if options.model is None:
            tiny_model(Path(model))
        given = options.input.read_bytes().split(b"\n")[:-1] if options.input else [s.encode() for s in SHORT]
        text = folder / "text"
        text.write_bytes(b"".join(given[number % len(given)] + b"\n" for number in range(options.lines)))
        size = str(max(1, options.lines // 40))
        words = ["--model", model, "--input", str(text), "--chunk-lines", size, "--processes", "1", "--json"]
        if start(words, folder / "whole", "1/1").wait():
            sys.exit("the run that nothing stopped has failed")
        equal = killed(
            words, folder / "out", folder / "whole", options.kills, options.jobs, random.Random(options.seed)
        )
        collected = subprocess.run(
            [*VTRANS, "collect", str(folder / "out"), "--quiet"], capture_output=True, check=False
        )
        lines = collected.stdout.count(b"\n")
    print(f"{lines:,} of {options.lines:,} lines collected; the chunks are {'equal' if equal else 'NOT EQUAL'}")
    sys.exit(not (equal and lines == options.lines and not collected.returncode))


if __name__ == "__main__":
    main()
