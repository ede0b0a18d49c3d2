"""`vtrans doctor`: the installation and the machine."""

from __future__ import annotations

from importlib import metadata

import typer

import vtrans
from vtrans.commands.lines import print_json, result_console
from vtrans.commands.shared_options import Json


def doctor(as_json: Json = False) -> None:
    """Report on the installation and this machine. The exit code is 1 if vtrans cannot be used."""
    from vtrans.apps.analysis.machine_facts import examine

    facts, problems = examine(metadata.requires("vtrans-nmt") or ())
    if as_json:
        print_json({"vtrans": vtrans.__version__, "facts": facts, "problems": problems})
    else:
        result_console().table(f"vtrans {vtrans.__version__}", facts.items())
        for problem in problems:
            result_console().error(problem)
    if problems:
        raise typer.Exit(1)
