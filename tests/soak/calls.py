"""Calls a translator many times from Python, one line at a time, and checks that memory stays flat.

    python tests/soak/calls.py --calls 10000

The model is the tiny one of the tests. Linux only (/proc). The exit code is 1 if the second half of the calls added
more than 5 MB.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import vtrans

vtrans.configure_process()

MODEL = Path(__file__).parents[1] / "models" / "tiny.safetensors"
WORDS = ("ab", "ba", "a", "b", "abba")
ALLOWED = 5.0  # megabytes


def megabytes() -> float:
    lines = Path("/proc/self/status").read_text().split("\n")
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    calls = parser.parse_args().calls
    translator = vtrans.load(MODEL, beam=2, max_length=8)
    began, sizes = time.monotonic(), []
    for call in range(1, calls + 1):
        line = " ".join(WORDS[call // 5**place % 5] for place in range(1 + call % 6))
        assert len(list(translator.translate([line]))) == 1
        if call % (calls // 10) == 0:
            sizes.append(megabytes())
            print(f"{call:,} calls, {time.monotonic() - began:.0f} s, {sizes[-1]:.1f} MB", flush=True)
    sys.exit(0 if sizes[-1] - sizes[len(sizes) // 2 - 1] <= ALLOWED else 1)


if __name__ == "__main__":
    main()
