"""The Makefile and the programs that it starts: values of variables arrive unchanged."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recipes.make import program

MAKEFILE = Path(__file__).parents[2] / "Makefile"
ODD = 'it\'s 2 $$HOME; "new" #*'  # make reads $$ as one $
TYPED = ODD.replace("$$", "$")
KEPT = "import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], open('given.json', 'w'))"

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed: apt-get install make")


def passed(folder: Path, target: str, *variables: str) -> list[str]:
    """Returns the arguments that the program of a target gets."""
    shutil.copy(MAKEFILE, folder)
    (folder / ".ci").mkdir()
    (folder / ".venv/bin").mkdir(parents=True)
    for name in ("pyproject.toml", ".ci/constraints.txt", ".venv/.installed"):
        (folder / name).touch()
    python = folder / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-S", "-c", KEPT])} "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(["make", target, *variables], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    words, environment = json.loads((folder / "given.json").read_text())
    return program(target, environment)[1] if words[0] == "recipes/make.py" else words


@needs_make
def test_an_experiment_gets_every_value_unchanged(tmp_path: Path) -> None:
    single = {"DATA": "--data", "SRC": "--src", "TGT": "--tgt", "WORK": "--work", "RECIPE": "--recipe", "RUN": "--run"}
    words = passed(tmp_path, "multi30k", *(f"{name}={ODD}" for name in single), "SET=a.b='c' f.g=[2, 0.5] d.e=1")
    assert words[0] == "multi30k"
    for option in single.values():
        assert words[words.index(option) + 1] == TYPED
    assert [words[i + 1] for i, word in enumerate(words) if word == "--set"] == ["a.b='c'", "f.g=[2, 0.5]", "d.e=1"]


@needs_make
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["study", f"STUDY={ODD}", "SEEDS=1 2", "ONLY=o'brien untied", "MINUTES=3"],
            [TYPED, "--minutes", "3", "--seed", "1", "--seed", "2", "--only", "o'brien", "--only", "untied"],
        ),
        (["student", f"CHAIN={ODD}", f"DATA={ODD}", "WORK=there"], [TYPED, "--text", TYPED, "--out", "there"]),
        (["everyday", f"MODEL={ODD}", "TGT=fr", "SHOW=urls title-case"],
         ["--model", TYPED, "--tgt", "fr", "--show", "urls", "--show", "title-case"]),
        (["everyday-model", f"DATA={ODD}", f"PAIRS={ODD}", "WORK=there", "SET=train.seed=2"],
         ["--data", TYPED, "--pairs", TYPED, "--work", "there", "--set", "train.seed=2"]),
    ],
)  # fmt: skip
def test_every_program_gets_every_value_unchanged(tmp_path: Path, words: list[str], expected: list[str]) -> None:
    assert passed(tmp_path, *words) == expected


@needs_make
@pytest.mark.parametrize("name", ["my demo's", "a;b", "a&b", "(a)", "demo-2.x"])
def test_a_folder_of_the_demo_may_have_any_name(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    done = subprocess.run(["make", "-f", str(MAKEFILE), "clean", f"DEMO={folder.name}"], cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert not folder.exists()
    assert not any(tmp_path.iterdir())
