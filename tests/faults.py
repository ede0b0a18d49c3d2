"""Applies small faults to a copy of this checkout, one at a time, and tells which test notices each.

    python tests/faults.py                     # all faults of faults.toml
    python tests/faults.py search/ beam        # those whose file or description contains one of these
    python tests/faults.py --table faults.md   # also writes a table in Markdown

A fault that no test notices is a missing test; the exit code is then 1. So is it for a fault whose text is no longer in
its file, and if the tests fail without a fault.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from pathlib import Path
from typing import NamedTuple

import pytest

TOP = Path(__file__).parents[1]
LOG = "faults.log"
SECONDS = 300  # a fault whose tests take longer makes the program hang
# What tests import; forks of this process need not import it again.
PRELOADED = ("torch", "torch._inductor", "numpy", "sentencepiece", "sacrebleu", "safetensors", "pydantic")


class Fault(NamedTuple):
    """A fault: the text `old` of a file is replaced by `new`. `tests` are the tests of its room."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


class Outcome(NamedTuple):
    """The result of the tests for a fault: the first test that failed, "" if none did."""

    noticed_by: str
    seconds: float  # of processor time


def faults() -> list[Fault]:
    """Returns the faults of faults.toml: a table per file, with the tests of its room and, for each fault, what is
    wrong, the old text and the new one."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return [
        Fault(what, file, texts[0], texts[1], tuple(table["tests"]))
        for file, table in tables.items()
        for what, texts in table.items()
        if what != "tests"
    ]


def copy_of_checkout(folder: Path) -> Path:
    """Copies the files that git knows, or would add, to `folder`."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=TOP, capture_output=True, check=True, text=True)
    for name in listed.stdout.split("\0"):
        if (TOP / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(TOP / name, folder / name)
    return folder


def run_tests(copy: Path, tests: tuple[str, ...]) -> Outcome:
    """Runs tests of the copy in a fork of this process, until one fails."""
    log = copy / LOG
    before, pid = sum(os.times()[2:4]), os.fork()
    if not pid:
        _child(copy, tests, log)
    limit = time.monotonic() + SECONDS
    while not (status := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > limit:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return Outcome(f"no test ends within {SECONDS} seconds", SECONDS)
        time.sleep(0.05)
    seconds = sum(os.times()[2:4]) - before
    if not status[1]:
        return Outcome("", seconds)
    found = re.search(
        r"^(?:FAILED|ERROR) (.+?)(?: - |$)", log.read_text(encoding="utf-8", errors="replace"), re.MULTILINE
    )
    return Outcome(found[1] if found else "an error while tests are collected", seconds)


def _child(copy: Path, tests: tuple[str, ...], log: Path) -> None:
    """Runs tests and exits. Modules are those of the copy."""
    code = 3
    try:
        os.setsid()
        with log.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.chdir(copy)
        sys.path[:0] = [str(copy)]
        os.environ["PYTHONPATH"] = str(copy)
        code = pytest.main(["-x", "-q", "-rfE", "-p", "no:cacheprovider", *tests])
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def tried(copy: Path, fault: Fault) -> Outcome:
    """Applies a fault to the copy, runs its tests, and restores the file."""
    path = copy / fault.file
    original = path.read_text(encoding="utf-8")
    path.write_text(original.replace(fault.old, fault.new), encoding="utf-8")
    try:
        return run_tests(copy, fault.tests)
    finally:
        path.write_text(original, encoding="utf-8")
        shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)  # the file's time may be that of the fault


def table(outcomes: dict[Fault, Outcome]) -> str:
    """Returns a Markdown table of the faults and the tests that notice them."""
    rows = ["| file | fault | noticed by |", "|---|---|---|"]
    for fault, outcome in outcomes.items():
        by = f"`{outcome.noticed_by.removeprefix('tests/')}`" if outcome.noticed_by else "**no test**"
        rows.append(f"| `{fault.file.removeprefix('vtrans/')}` | {fault.what} | {by} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Applies faults and tells which test notices each.")
    parser.add_argument("words", nargs="*", help="only faults whose file or description contains one of these")
    parser.add_argument("--table", type=Path, help="the file for a table of the outcomes")
    options = parser.parse_args()
    chosen = [f for f in faults() if not options.words or any(w in f"{f.file} {f.what}" for w in options.words)]
    stale = [f for f in chosen if (TOP / f.file).read_text(encoding="utf-8").count(f.old) != 1]
    for fault in stale:
        print(f"STALE        {fault.file}: {fault.what} (its old text must be in the file once)")
    os.environ.setdefault("VTRANS_CACHE", str(TOP / ".pytest_cache" / "vtrans"))  # the compiled decoder
    os.environ |= {"OMP_NUM_THREADS": "1", "VTRANS_SEED": "1"}
    for module in PRELOADED:
        __import__(module)
    outcomes = dict[Fault, Outcome]()
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_of_checkout(Path(folder))
        sound = set[tuple[str, ...]]()  # tests that pass without a fault
        for fault in chosen:
            if fault in stale:
                continue
            if fault.tests not in sound and (by := run_tests(copy, fault.tests).noticed_by):
                sys.exit(f"{by} fails without a fault: {(copy / LOG).read_text()}")
            sound.add(fault.tests)
            outcome = outcomes[fault] = tried(copy, fault)
            verdict = outcome.noticed_by or "NOT NOTICED"
            print(f"{outcome.seconds:6.1f} s  {fault.file}: {fault.what} -> {verdict}", flush=True)
    missed = sum(not outcome.noticed_by for outcome in outcomes.values())
    print(f"{len(outcomes)} faults, {missed} not noticed, {len(stale)} stale")
    if options.table:
        options.table.write_text(table(outcomes), encoding="utf-8")
    sys.exit(bool(missed or stale))


if __name__ == "__main__":
    main()
