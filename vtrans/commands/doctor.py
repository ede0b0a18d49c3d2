"""`vtrans doctor`: the installation, the machine, and what is wrong with them."""

from __future__ import annotations

import typer

import vtrans
from vtrans.commands.lines import print_json, result_console
from vtrans.commands.options import Json


def doctor(as_json: Json = False) -> None:
    """Check the installation and this machine, and say what is wrong.

    The report shows the versions of packages, the processor and its instruction sets, threads, devices, the kernels
    and the precision that `auto` stands for, memory, disk, the C++ compiler and environment variables. The exit code is
    1 if vtrans cannot be used.
    """
    from vtrans.analysis.diagnosis import as_dict, problems, show
    from vtrans.analysis.machine import examine

    machine = examine(vtrans.__version__)
    diagnosed = problems(machine)
    if as_json:
        print_json(as_dict(machine, diagnosed))
    else:
        show(machine, diagnosed, result_console())
    if any(problem.broken for problem in diagnosed):
        raise typer.Exit(1)
