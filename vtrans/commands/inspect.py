"""`vtrans inspect`: the parts of a model, and whether its files are whole."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from vtrans.command_line.generated import argument, option
from vtrans.command_line.lines import print_json, print_line, result_console, terminal_width
from vtrans.command_line.options import Json
from vtrans.config import DEFAULT_RUN
from vtrans.errors import FileError, InputError

REPORT = "The report"
VERIFY = "Only compare the file, or each model file and training state of the run folder, with its checksums."


def inspect(
    model: Annotated[Path, argument("Run folder or model file.", "MODEL")] = Path(DEFAULT_RUN),
    full: Annotated[
        bool, option("List every layer and the matrices of every head separately.", panel=REPORT, flag="--full")
    ] = False,
    verify: Annotated[bool, option(VERIFY, panel="Damage", flag="--verify")] = False,
    as_json: Json = False,
) -> None:
    """Show the parts of a model and which of them share weights.

    The report names the size of the file, the recipe and the training. It lists the parts of the model with their
    shapes and numbers of parameters, the parts that share weights, and how many parameters this saves.
    """
    if verify:
        if full:
            raise InputError("--verify only reads the files; leave out the other options except --json.")
        _verify(model, as_json=as_json)
        return
    from vtrans.analysis.inspection import Inspection
    from vtrans.checkpoint import load_model
    from vtrans.storage.run_folder import choose_model

    file, chosen = choose_model(model)
    inspection = Inspection(file, chosen, load_model(file))
    if as_json:
        print_json(inspection.as_dict())
    else:
        inspection.show(result_console(), full=full, width=terminal_width())


def _verify(model: Path, *, as_json: bool) -> None:
    """Prints whether each file is whole. Raises FileError if one is not."""
    from vtrans.analysis.checksums import Check, checks

    results: list[Check] = []
    for check in checks(model):
        results.append(check)
        if not (as_json or check.problem):
            print_line(check.words)
    if as_json:
        print_json([dataclasses.asdict(check) for check in results])
    if problems := [check.problem for check in results if check.problem]:
        share = f"{len(problems)} of {len(results)} files cannot be used: " if len(results) > 1 else ""
        raise FileError(f"{share}{'; '.join(problems)}.")
