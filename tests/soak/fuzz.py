"""Fuzzes a reader with atheris, guided by coverage: `python tests/soak/fuzz.py TARGET --minutes 10`.

    pip install atheris                              # in the environment of vtrans and its extra `dev`
    python tests/soak/fuzz.py --list
    python tests/soak/fuzz.py model --minutes 10     # the readers are in tests/helpers/fuzz_*.py

Inputs that reach new code are kept in WORK/TARGET, and the next run starts with them. An exception that the reader is
not supposed to raise, more than SECONDS of processor time for an input, or more than MEGABYTES of additional memory
ends the run; the input is then in WORK. A copy of it in tests/fuzz/TARGET makes it a test.
"""

import argparse
import importlib
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "helpers")]

SECONDS, MEGABYTES = 20, 1500


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzzes a reader with atheris.")
    parser.add_argument("target", nargs="?")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "vtrans-fuzz")
    parser.add_argument("--list", action="store_true", help="list the targets")
    options = parser.parse_args()
    if options.list:
        print(*importlib.import_module("fuzz_targets").TARGETS, sep="\n")
    elif options.target is None:
        parser.error("name a target; --list lists them")
    else:
        fuzz(options.target, options.minutes, options.work)


def fuzz(name: str, minutes: float, work: Path) -> None:
    import atheris

    with atheris.instrument_imports(include=["vtrans", "zipfile", "tomllib", "json"], enable_loader_override=False):
        targets = importlib.import_module("fuzz_targets")
    target = targets.TARGETS[name]
    corpus = work / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEGABYTES * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGVTALRM, too_slow)
    began, counts = time.monotonic(), [0, 0]
    with targets.scratch() as folder:

        def one(data: bytes) -> None:
            counts[0] += 1
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            counts[1] += target.check(data, folder / "case")
            if counts[0] % 1000 == 0:
                seconds = time.monotonic() - began
                print(f"{name}: {counts[0]:,} inputs, {counts[1]:,} accepted, {seconds:.0f} s", flush=True)

        arguments = [sys.argv[0], str(corpus), f"-max_total_time={minutes * 60:.0f}", "-timeout=100000"]
        arguments += [f"-artifact_prefix={work}/{name}-", "-rss_limit_mb=0", "-max_len=65536", "-print_final_stats=1"]
        atheris.Setup(arguments, one)
        atheris.Fuzz()


def too_slow(number: int, frame: object) -> None:
    raise TimeoutError(f"more than {SECONDS} seconds for an input")


if __name__ == "__main__":
    main()
