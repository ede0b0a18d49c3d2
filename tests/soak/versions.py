"""Runs a part of the tests with other versions of Python and of the dependencies, and prints a table:
`make check-versions`, or `python tests/soak/versions.py --python 3.11 3.14 --torch 2.6.0 2.13.0`.

    pip install uv
    export UV_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu UV_INDEX_STRATEGY=unsafe-best-match

Each pair of Python and torch gets a new environment. A Python is what `uv venv --python` takes: a number or a program.
torch is a version, of which Linux gets the build for CPUs, or `installed`: what this Python has, such as Debian's
python3-torch. The other dependencies are the newest ones, or with --lowest those of the lower bounds in pyproject.toml.
What cannot be installed has a row with the reason. The exit code is 1 if a test fails.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).parents[2]
# A part of what `make quick` runs: the numerical tests, and those of the commands and files, which use each dependency.
TESTS = ("engines", "model", "search", "text", "commands")
FILES = (
    "model/test_checkpoint.py",
    "config/test_config.py",
    "system/test_console.py",
    "score/test_score.py",
    "test_end_to_end.py",
)
EXTRAS = ("documents", "clean")
LOWEST = (r'^  "torch>=([\d.]+)', "pyproject.toml")
TESTED = (r"^torch==([\d.]+)", ".ci/constraints.txt")
WHAT = "import sys, torch; print(sys.version.split()[0], torch.__version__)"


class Row(NamedTuple):
    python: str
    torch: str
    others: str
    result: str


def dependencies() -> list[str]:
    """Returns the requirements of pyproject.toml without torch, and those of the extras that the tests use."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [requirement for name in EXTRAS for requirement in project["optional-dependencies"][name]]
    return [requirement for requirement in project["dependencies"] if not requirement.startswith("torch")] + extras


def bound(pattern: str, file: str) -> str:
    """Returns the version of torch in a file."""
    found: str = re.findall(pattern, (TOP / file).read_text(encoding="utf-8"), re.MULTILINE)[0]
    return found if found.count(".") == 2 else f"{found}.0"


def run(*words: object, env: Mapping[str, str] | None = None, log: Path) -> bool:
    """Runs a program whose output goes to `log`, and tells whether it succeeded."""
    with log.open("w", encoding="utf-8") as file:
        command = [str(word) for word in words]
        return not subprocess.run(command, cwd=TOP, env=env, stdout=file, stderr=subprocess.STDOUT).returncode


def tried(python: str, torch: str, lowest: bool, tests: Sequence[str], folder: Path) -> Row:
    """Makes an environment and runs the tests in it. `folder` keeps the output."""
    others, made, log = "lowest" if lowest else "newest", folder / "environment", folder / "log.txt"
    system = ["--system-site-packages"] if torch == "installed" else []
    if not run("uv", "venv", *system, "--python", python, made, log=log):
        return Row(python, torch, others, said(log))
    interpreter = made / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    build = "+cpu" if sys.platform == "linux" and "+" not in torch else ""
    wanted = [*dependencies(), *([] if system else [f"torch=={torch}{build}"])]
    install = ("uv", "pip", "install", "--python", interpreter, "--only-binary", ":all:")
    resolution = ["--resolution", "lowest-direct"] if lowest else []
    if not run(*install, *resolution, *wanted, log=log) or not run(*install, "pytest", "hypothesis", log=log):
        return Row(python, torch, others, said(log))
    if not run(interpreter, "-c", WHAT, log=log):
        return Row(python, torch, others, said(log))
    python, torch = said(log).split()
    path = f"{interpreter.parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PYTHONPATH": str(TOP), "PATH": path}
    passed = run(interpreter, "-m", "pytest", "-q", "--quick", "-p", "no:cacheprovider", *tests, env=env, log=log)
    if not passed:
        print(log.read_text(encoding="utf-8"))
    return Row(python, torch, others, said(log).strip("= ") if passed else f"FAILED: {said(log)}")


def said(log: Path) -> str:
    """Returns the last line of an output."""
    return log.read_text(encoding="utf-8").strip().rpartition("\n")[2].strip()


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs a part of the tests with other versions.")
    parser.add_argument("--python", nargs="+", default=[sys.executable])
    parser.add_argument("--torch", nargs="+", default=[bound(*LOWEST), bound(*TESTED)])
    parser.add_argument("--lowest", action="store_true", help="the lower bounds of the other dependencies")
    parser.add_argument("--tests", nargs="+", default=[f"tests/{name}" for name in (*TESTS, *FILES)])
    options = parser.parse_args()
    rows = [Row("Python", "torch", "other dependencies", "result"), Row("---", "---", "---", "---")]
    for python in options.python:
        for torch in options.torch:
            with tempfile.TemporaryDirectory() as made:
                rows.append(tried(python, torch, options.lowest, options.tests, Path(made)))
            print("|", " | ".join(rows[-1]), "|", flush=True)
    print("", *(f"| {' | '.join(row)} |" for row in rows), sep="\n")
    sys.exit(any(row.result.startswith("FAILED") for row in rows))


if __name__ == "__main__":
    main()
