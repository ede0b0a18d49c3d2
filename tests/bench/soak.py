"""Check that memory stays flat: a long input through `vtrans translate`, its resident size watched from outside.

    python tests/bench/soak.py [--lines 1000000] [--model RUN|FILE] [--input TEXT] [--processes 2]

The input repeats the lines of TEXT, or a few built-in captions, so that new text is no reason for growth. Without
--model the tiny network of the tests translates them into a few subwords per line: the test is of everything around the
network. Linux only (/proc). The exit code is 1 if the second half of the input added more than 4% and 8 MB, or if lines
were lost.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SHORT = ("Two dogs run.", "A man in a blue shirt sings.", "", "Children play in the snow.", "A big old house.")
SHARE, MEGABYTES = 0.04, 8.0
TINY = Path(__file__).parents[1] / "models" / "tiny.safetensors"


def descendants(pid: int) -> list[int]:
    """Return the processes that the main thread of a process has started, and those that they have started."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [process for child in children for process in (child, *descendants(child))]


def megabytes(pid: int) -> float:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().split("\n"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def soak(words: list[str], source: Path, lines: int, processes: int) -> bool:
    """Translate `source` and print the memory; return whether it stayed flat and no line was lost."""
    command = [sys.executable, "-m", "vtrans", "translate", *words, "--quiet", "--input", str(source)]
    process = subprocess.Popen([*command, "--processes", str(processes)], stdout=subprocess.PIPE)
    began, done, step = time.monotonic(), 0, max(1, lines // 10)
    sizes: dict[int, list[float]] = {}  # per tenth of the input
    out = process.stdout
    assert out is not None
    while block := os.read(out.fileno(), 1 << 16):
        done += block.count(b"\n")
        if done // step not in sizes and done < lines:
            sizes[done // step] = [megabytes(pid) for pid in (process.pid, *descendants(process.pid))]
            shown = "  ".join(f"{size:.1f}" for size in sizes[done // step])
            print(f"{done:>12,} lines  {time.monotonic() - began:6.0f} s  resident MB {shown}", flush=True)
    code = process.wait()
    tenths = sorted(sizes)
    middle, end = sizes[tenths[len(tenths) // 2]], sizes[tenths[-1]]
    print(f"{done:,} of {lines:,} lines in {time.monotonic() - began:.0f} s, exit code {code}")
    flat = True
    for number, (a, b) in enumerate(zip(middle, end, strict=True)):
        print(f"process {number}: {a:.1f} MB in the middle, {b:.1f} MB at the end ({b / a - 1:+.1%})")
        flat &= b - a <= max(SHARE * a, MEGABYTES)
    return flat and done == lines and not code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--model")
    parser.add_argument("--input", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        given = options.input.read_bytes().split(b"\n")[:-1] if options.input else [s.encode() for s in SHORT]
        source = Path(folder) / "source"
        with source.open("wb") as file:
            for start in range(0, options.lines, len(given)):
                file.write(b"\n".join(given[: options.lines - start]) + b"\n")
        model = [options.model] if options.model else [str(TINY), "--max-length", "4"]
        words = ["--beam", "1", "--model", *model]
        sys.exit(0 if soak(words, source, options.lines, options.processes) else 1)


if __name__ == "__main__":
    main()
