"""Checks every law with new cases: `make soak`, or `python tests/soak/laws.py --minutes 180`.

`make test` draws the same cases on every run. This program runs its laws again and again, each time with another
VTRANS_SEED, and starts no further round after the given minutes. It prints a command that repeats each failure, and its
exit code is then 1. Make what it finds an example of the test.
"""

import argparse
import os
import re
import secrets
import subprocess
import sys
import time
from pathlib import Path

TOP = Path(__file__).parents[2]
PYTEST = ["-m", "pytest", "--laws", "-n", "auto", "--maxprocesses", "4", "--dist", "worksteal", "-q", "-r", "fE"]
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*)?(?: - .*)?$", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks every law with new cases.")
    parser.add_argument("--minutes", type=float, default=10.0, help="start no further round after that time")
    parser.add_argument("tests", nargs="*", help="files or folders of tests; without them, all")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    rounds = failures = 0
    try:
        while rounds == 0 or time.monotonic() < end:
            failures += run_round(secrets.randbelow(10**9) + 2, options.tests)
            rounds += 1
    except KeyboardInterrupt:
        print("Stopped in a round, which is not counted.")
    print(f"{rounds} {'round' if rounds == 1 else 'rounds'}, {failures} failures.")
    return int(failures > 0)


def run_round(seed: int, tests: list[str]) -> int:
    """Checks the laws once and prints what failed. Returns the number of failures."""
    print(f"VTRANS_SEED={seed}", flush=True)
    environment = {**os.environ, "VTRANS_SEED": str(seed)}
    done = subprocess.run(
        [sys.executable, *PYTEST, *tests], cwd=TOP, env=environment, stdout=subprocess.PIPE, text=True
    )
    lines = done.stdout.rstrip().split("\n")
    print(lines[-1], flush=True)
    failed = sorted(set(FAILED.findall(done.stdout)))
    if failed or done.returncode:
        print(done.stdout)
    for test in failed:
        print(f'Repeat it: VTRANS_SEED={seed} make test TESTS="{test}"', flush=True)
    return max(len(failed), int(done.returncode != 0))


if __name__ == "__main__":
    sys.exit(main())
