"""Builds the package and tries it in clean environments: `python tests/soak/supply.py`.

    python tests/soak/supply.py --python python3.11 --bounds lowest --bounds newest
    python tests/soak/supply.py --python python3.13 --without-torch     # where there is no wheel of torch for the CPU

For each interpreter and bound it installs the wheel, runs `pip check`, the five commands on some lines and `vtrans
doctor`, and checks a project that imports vtrans with `mypy --strict`. With the bound "lowest", each dependency has the
version that pyproject.toml names, except torch, whose version is `--torch`. Once, it installs the sdist too. Without
torch, it runs `vtrans --help` and `vtrans doctor`, which must say that torch is missing.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

TOP = Path(__file__).parents[2]
PROJECT = Path(__file__).with_name("typed_project.py")


def run(*words: object, **how: object) -> str:
    """Runs a program, prints its command line, and returns its output; ends this one if it fails."""
    print("$", *words, flush=True)
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **how)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"it ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return str(done.stdout)


def lowest(torch: str) -> list[str]:
    """The dependencies of the package at their lower bounds, as requirements. A bound such as 0.15 means its first
    release, and 2023.12 its last patch, which is how regex counts."""
    text = (TOP / "pyproject.toml").read_text(encoding="utf-8")
    names = [re.fullmatch(r"([\w-]+)>=([\d.]+)", line) for line in tomllib.loads(text)["project"]["dependencies"]]
    return [f"{m[1]}=={torch if m[1] == 'torch' else m[2] + '.*'}" for m in names if m]


def environment(folder: Path, python: str, packages: Sequence[object]) -> Path:
    """Makes an environment with these packages, and returns its folder of programs."""
    run(python, "-m", "venv", folder)
    programs = folder / "bin"
    run(programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return programs


def five_commands(programs: Path, folder: Path) -> None:
    """Trains a tiny translator on lines of the demo, uses it and scores it."""
    vtrans = programs / "vtrans"
    text = folder / "text"
    text.mkdir()
    for stem, number in (("train", 300), ("test", 20)):
        for language in ("en", "de"):
            lines = lzma.decompress((TOP / f"recipes/demo/{stem}.{language}.xz").read_bytes()).splitlines(True)
            (text / f"{stem}.{language}").write_bytes(b"".join(lines[:number]))
    given = [
        word for side in ("src", "tgt") for word in (f"--{side}", text / f"train.{'en' if side == 'src' else 'de'}")
    ]
    run(vtrans, "prepare-bpe", *given, "--out", folder / "data")
    small = ("d_model=32", "d_ff=64", "heads=2", "encoder_layers=1", "decoder_layers=1")
    sets = [word for key in small for word in ("--set", f"model.{key}")]
    sets += ["--set", "train.max_steps=20", "--set", "train.checkpoint_every=10"]
    run(vtrans, "train", "--data", folder / "data", "--out", folder / "run", *sets)
    run(vtrans, "average", folder / "run")
    hyp = folder / "hyp.de"
    run(vtrans, "translate", "--model", folder / "run", "--input", text / "test.en", "--output", hyp)
    assert hyp.read_bytes().count(b"\n") == 20
    print(run(vtrans, "score", text / "test.de", "--hyp", hyp).strip())


def typed_project(programs: Path, folder: Path) -> None:
    """Checks a project that imports vtrans."""
    run(programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "mypy")
    shutil.copy(PROJECT, folder)
    print(run(programs / "mypy", "--strict", PROJECT.name, cwd=folder).strip())


def main() -> None:
    parser = argparse.ArgumentParser(description="Builds the package and tries it in clean environments.")
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--bounds", action="append", choices=("newest", "lowest"), default=[])
    parser.add_argument("--torch", default="2.13.0")
    parser.add_argument("--without-torch", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        builder = environment(top / "builder", sys.executable, ["build"])
        run(builder / "python", "-m", "build", "--outdir", top, TOP)
        wheel, sdist = next(top.glob("*.whl")), next(top.glob("*.tar.gz"))
        for number, python in enumerate(options.python or [sys.executable]):
            if options.without_torch:
                programs = environment(top / f"bare-{number}", python, ["--no-deps", wheel])
                others = [line for line in lowest("") if not line.startswith("torch")]
                names = [line.partition("=")[0] for line in others]
                run(programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *names)
                run(programs / "vtrans", "--help")
                done = subprocess.run([programs / "vtrans", "doctor", "--json"], capture_output=True, check=False)
                problems = json.loads(done.stdout)["problems"]
                assert (done.returncode, {problem.split()[0] for problem in problems}) == (1, {"torch"}), problems
                print(f"{python}: doctor says that torch is missing")
                continue
            for bounds in options.bounds or ["newest", "lowest"]:
                packages = lowest(options.torch) if bounds == "lowest" else [f"torch=={options.torch}"]
                programs = environment(top / f"{bounds}-{number}", python, [wheel, *packages])
                print(run(programs / "python", "-m", "pip", "list", "--format=freeze").replace("\n", " "))
                print(run(programs / "python", "-m", "pip", "check").strip())
                folder = top / f"work-{bounds}-{number}"
                folder.mkdir()
                five_commands(programs, folder)
                print(run(programs / "vtrans", "doctor").strip())
                typed_project(programs, folder)
        again = environment(top / "sdist", sys.executable, ["--no-deps", sdist])
        run(again / "python", "-c", "import importlib.metadata as m; assert m.version('vtrans-nmt')")


if __name__ == "__main__":
    main()
