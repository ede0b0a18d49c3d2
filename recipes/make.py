"""Run the demo, an experiment, a study or a chain as `make` does: python recipes/make.py TARGET

The options are environment variables, into which make puts its own variables, so that no shell reads their values.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path

if not __package__:  # run as a script: make the package importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recipes import experiment
from recipes.demo import demo
from recipes.everyday import check
from recipes.experiment import EXPERIMENTS, text_of
from recipes.speedrun import speedrun
from recipes.tatoeba import everyday_model
from vtrans import cli
from vtrans.config.keys import nearest
from vtrans.system.console import Console
from vtrans.system.errors import InputError, VtransError
from vtrans.system.signals import ended_by_signals


def run_shipped(command: str, folder: str, words: list[str]) -> int:
    """Runs a command of vtrans on a TOML file, or on the file of that name in a folder of the recipes, whose text is by
    default that of the experiment of its name, or else of multi30k."""
    name, *options = words
    if "/" not in name and not name.endswith(".toml"):
        files = {file.stem: file for file in (Path(__file__).parent / folder).glob("*.toml")}
        if name not in files:
            raise InputError(f"there is no {command} {name!r} (one of your own ends in .toml); {nearest(name, files)}")
        given, text = dict(pairwise(options)), name if name in EXPERIMENTS else "multi30k"
        if "--text" not in given:
            options += ["--text", str(text_of(text, given.get("--src", "en"), given.get("--tgt", "de")))]
        name = os.path.relpath(files[name])
    sys.argv = ["vtrans", command, name, *options]
    cli.main()
    return 0


COMMON = ("DATA", "SRC", "TGT", "WORK", "RECIPE", "SET")
Main = Callable[[list[str]], int]
TARGETS: dict[str, tuple[str, tuple[str, ...], Main]] = {
    "demo": ("DEMO", (), demo.main),
    "study": ("STUDY", (*COMMON, "STEPS", "MINUTES", "SEEDS", "ONLY"), partial(run_shipped, "study", "studies")),
    "student": ("CHAIN", ("DATA", "WORK"), partial(run_shipped, "student", "student")),
    "speedrun": ("", ("DATA", "WORK", "RECIPE", "SET", "SEEDS"), speedrun.main),
    "everyday": ("", ("MODEL", "TGT", "SHOW"), check.main),
    "everyday-model": ("", ("DATA", "PAIRS", "WORK", "SET"), everyday_model.main),
}
"""The variable of the first argument, those of the options, and the program. Every other target is the name of an
experiment."""
OF_VTRANS = {"DATA": "--text", "WORK": "--out", "SEEDS": "--seed"}  # options of its commands with names of their own
SEVERAL = ("SEEDS", "ONLY", "SHOW")


def program(target: str, environment: Mapping[str, str]) -> tuple[Main, list[str]]:
    """Returns the function that a target runs, and its arguments."""
    first, names, main = TARGETS.get(target, ("", (*COMMON, "RUN"), experiment.main))
    words = [environment.get(first, "")] if first else [target] if main is experiment.main else []
    for name in names:
        option, value = f"--{name.lower()}", environment.get(name, "")
        option = OF_VTRANS.get(name, option) if isinstance(main, partial) else option
        values = value.split() if name in SEVERAL else [value]
        if name == "SET":  # a word without = continues the value before it
            values = re.split(r"\s+(?=\S*=)", value.strip())
        words += [word for each in values if each for word in (option, each)]
    return main, words


def main() -> int:
    """Runs a target, and returns its exit code. SIGINT and SIGTERM end it even where a shell's background job ignores
    them, as in `vtrans train`."""
    function, words = program(sys.argv[1], os.environ)
    try:
        with ended_by_signals((signal.SIGINT, signal.SIGTERM)):
            return function(words)
    except VtransError as error:
        Console().error(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
