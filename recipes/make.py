"""Run an experiment, a study or a chain as `make` does: python recipes/make.py TARGET

The options are environment variables, into which make puts its own variables, so that no shell reads their values.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

if not __package__:  # run as a script: make the package importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recipes import experiment
from recipes.student import student
from recipes.studies import study

COMMON = ("DATA", "SRC", "TGT", "WORK", "RECIPE", "SET")
TARGETS = {
    "study": ("STUDY", (*COMMON, "STEPS", "MINUTES", "SEEDS", "ONLY", "JOBS")),
    "student": ("CHAIN", ("DATA", "WORK")),
}
"""The variable of the first argument and those of the options; every other target is the name of an experiment."""
SEVERAL = ("SEEDS", "ONLY")


def changes_of(value: str) -> list[str]:
    """Returns the KEY=VALUE words of SET. A word without = continues the value before it."""
    changes: list[str] = []
    for word in value.split():
        if "=" in word or not changes:
            changes.append(word)
        else:
            changes[-1] += f" {word}"
    return changes


def arguments(target: str, environment: Mapping[str, str]) -> list[str]:
    """Returns the arguments of the program that a target runs."""
    first, names = TARGETS.get(target, ("", (*COMMON, "RUN")))
    words = [environment.get(first, "") if first else target]
    for name in names:
        option, value = f"--{name.lower()}", environment.get(name, "")
        if name == "SET":
            words += [word for change in changes_of(value) for word in (option, change)]
        elif value:
            words += [option, *(value.split() if name in SEVERAL else [value])]
    return words


def main() -> int:
    target = sys.argv[1]
    words = arguments(target, os.environ)
    if target == "study":
        return study.main(words)
    if target == "student":
        return student.main(words)
    return experiment.main(words)


if __name__ == "__main__":
    experiment.run_program(main)
