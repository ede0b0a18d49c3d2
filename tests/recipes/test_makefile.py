"""The Makefile passes the values of its variables to the programs unchanged."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[2] / "Makefile"
ODD = 'it\'s 2 $$HOME; "new" #*'  # make reads $$ as one $
TYPED = ODD.replace("$$", "$")
PYTHON = """#!/bin/sh
for word in "$@"; do printf '%s\\n' "$word" >> words; done
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


def passed(folder: Path, target: str, *variables: str) -> list[str]:
    """Returns the words that `python` is called with by a target."""
    shutil.copy(MAKEFILE, folder)
    (folder / ".ci").mkdir()
    (folder / ".venv/bin").mkdir(parents=True)
    for name in ("pyproject.toml", ".ci/constraints.txt", ".venv/.installed"):
        (folder / name).touch()
    python = folder / ".venv/bin/python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    done = subprocess.run(["make", target, *variables], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (folder / "words").read_text().split("\n")[:-1]


def test_an_experiment_gets_every_value_unchanged(tmp_path: Path) -> None:
    single = {"DATA": "--data", "SRC": "--src", "TGT": "--tgt", "WORK": "--work", "RECIPE": "--recipe", "RUN": "--run"}
    words = passed(tmp_path, "multi30k", *(f"{name}={ODD}" for name in single), "SET=a.b='c' f.g=[2, 0.5] d.e=1")
    for option in single.values():
        assert words[words.index(option) + 1] == TYPED
    assert [words[i + 1] for i, word in enumerate(words) if word == "--set"] == ["a.b='c'", "f.g=[2, 0.5]", "d.e=1"]


def test_a_study_and_a_chain_get_every_value_unchanged(tmp_path: Path) -> None:
    for name in ("study", "other"):
        (tmp_path / name).mkdir()
    words = passed(tmp_path / "study", "study", f"STUDY={ODD}", "SEEDS=1 2", "ONLY=o'brien untied", "MINUTES=3")
    assert words[1] == TYPED
    at = words.index("--seeds")
    assert words[at:] == ["--seeds", "1", "2", "--only", "o'brien", "untied"]
    words = passed(tmp_path / "other", "student", f"CHAIN={ODD}", f"DATA={ODD}", "WORK=there")
    assert words[1:] == [TYPED, "--data", TYPED, "--work", "there"]


def test_the_everyday_suite_gets_every_value_unchanged(tmp_path: Path) -> None:
    words = passed(tmp_path, "everyday", f"MODEL={ODD}", "TGT=fr", "SHOW=urls title-case")
    assert words[1:] == ["recipes.everyday.check", "--model", TYPED, "--language", "fr", "--show", "urls", "title-case"]


@pytest.mark.parametrize("name", ["my demo's", "a;b", "a&b", "(a)", "demo-2.x"])
def test_a_folder_of_the_demo_may_have_any_name(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    done = subprocess.run(["make", "-f", str(MAKEFILE), "clean", f"DEMO={folder.name}"], cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert not folder.exists()
    assert not any(tmp_path.iterdir())
    printed = ["make", "-f", str(MAKEFILE), "-n", "demo", f"DEMO={name}"]
    lines = subprocess.run(printed, cwd=MAKEFILE.parent, capture_output=True, text=True, check=True).stdout.splitlines()
    made = next(line for line in lines if "generate.py" in line)
    words = shlex.shlex(made.rpartition("; ")[2], posix=True, punctuation_chars=True)
    words.whitespace_split = True
    assert f"{name}/text" in words
