"""Run an experiment, a study or a chain as `make` does: python recipes/make.py TARGET

The options are environment variables, into which make puts its own variables, so that no shell reads their values.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

if not __package__:  # run as a script: make the package importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recipes import experiment
from recipes.everyday import check
from recipes.running import run_program
from recipes.student import student
from recipes.studies import study
from recipes.tatoeba import everyday_model

COMMON = ("DATA", "SRC", "TGT", "WORK", "RECIPE", "SET")
Main = Callable[[list[str]], int]
TARGETS: dict[str, tuple[str, tuple[str, ...], Main]] = {
    "study": ("STUDY", (*COMMON, "STEPS", "MINUTES", "SEEDS", "ONLY"), study.main),
    "student": ("CHAIN", ("DATA", "WORK"), student.main),
    "everyday": ("", ("MODEL", "TGT", "SHOW"), check.main),
    "everyday-model": ("", ("DATA", "PAIRS", "WORK", "SET"), everyday_model.main),
}
"""The variable of the first argument, those of the options, and the program. Every other target is the name of an
experiment."""
SEVERAL = ("SEEDS", "ONLY", "SHOW")


def program(target: str, environment: Mapping[str, str]) -> tuple[Main, list[str]]:
    """Returns the function that a target runs, and its arguments."""
    first, names, main = TARGETS.get(target, ("", (*COMMON, "RUN"), experiment.main))
    words = [environment.get(first, "")] if first else [target] if main is experiment.main else []
    for name in names:
        option, value = f"--{name.lower()}", environment.get(name, "")
        if name == "SET":  # a word without = continues the value before it
            words += [word for change in re.split(r"\s+(?=\S*=)", value.strip()) if change for word in (option, change)]
        elif value:
            words += [option, *(value.split() if name in SEVERAL else [value])]
    return main, words


def main() -> int:
    function, words = program(sys.argv[1], os.environ)
    return function(words)


if __name__ == "__main__":
    run_program(main)
