"""Prepares a corpus of many pairs, and prints the time and the memory: it must not grow with the corpus.

    python tests/soak/corpus.py --pairs 1000000 10000000

Memory depends on the sample from which the vocabulary is learned, at most a million pairs: compare larger corpora. The
pairs are made up from 2,000 words per language, from 3 to 12 words long. Memory is the largest resident size of a
process of the command. Linux only. The exit code is 1 if the largest corpus took more than 1.3 times the memory of the
smallest, or if a pair was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def write_corpus(folder: Path, pairs: int) -> list[Path]:
    """Writes two files with this number of lines."""
    draw = random.Random(1)
    letters = "abcdefghijklmnoprstuvwz"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(4000)]
    paths = [folder / "corpus.en", folder / "corpus.de"]
    with paths[0].open("w") as src, paths[1].open("w") as tgt:
        for start in range(0, pairs, 100_000):
            for file, known in ((src, words[:2000]), (tgt, words[2000:])):
                made = [" ".join(draw.choices(known, k=draw.randint(3, 12))) for _ in range(1000)]
                count = min(100_000, pairs - start)
                file.writelines(f"{made[i % 1000]} {known[i // 1000]} {start}\n" for i in range(count))
    return paths


def prepare(folder: Path, pairs: int, threads: int) -> tuple[float, float, int]:
    """Returns the seconds, the megabytes and the pairs read."""
    src, tgt = write_corpus(folder, pairs)
    words = [sys.executable, "-m", "vtrans", "prepare-bpe", "--src", str(src), "--tgt", str(tgt), "--quiet"]
    out, began = folder / "data", time.monotonic()
    process = subprocess.Popen([*words, "--out", str(out), "--vocab-size", "8000", "--threads", str(threads)])
    _, status, used = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    seconds = time.monotonic() - began
    report = json.loads((out / "data.json").read_text())
    return seconds, used.ru_maxrss / 1024, report["train"]["read"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    sizes, good = [], True
    for pairs in options.pairs:
        with tempfile.TemporaryDirectory() as folder:
            seconds, megabytes, read = prepare(Path(folder), pairs, options.threads)
        print(f"{pairs:,} pairs: {seconds:.0f} s, {megabytes:.0f} MB, {read:,} pairs read", flush=True)
        sizes.append(megabytes)
        good &= read == pairs
    sys.exit(0 if good and sizes[-1] <= 1.3 * sizes[0] else 1)


if __name__ == "__main__":
    main()
