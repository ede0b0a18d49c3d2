"""`vtrans inspect`: the parts of a model, and which of them share weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vtrans.commands.generated import Models, generated, option
from vtrans.commands.lines import print_json, result_console
from vtrans.commands.shared_options import Code, Json


@generated
def inspect(
    model: Annotated[Path, Models()],
    full: Annotated[bool, option("List every layer separately.", panel="The report", flag="--full")] = False,
    code: Code = None,
    as_json: Json = False,
) -> None:
    """Show the parts of a model and which of them share weights.

    The report names the size of the file, the recipe and the training. It lists the parts of the model with their
    shapes and numbers of parameters, the parts that share weights, and how many parameters this saves.
    """
    from vtrans.apps.analysis.inspection import Inspection

    inspection = Inspection.of(model, code)
    if as_json:
        print_json(inspection.as_dict())
    else:
        inspection.show(result_console(), full=full)
