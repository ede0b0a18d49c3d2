"""`vtrans inspect`: what a model file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vtrans.command_line.generated import argument
from vtrans.command_line.lines import print_json, result_console, terminal_width
from vtrans.command_line.options import Json
from vtrans.config import DEFAULT_RUN


def inspect(
    model: Annotated[Path, argument("Run folder or model file.", "MODEL")] = Path(DEFAULT_RUN),
    as_json: Json = False,
) -> None:
    """Show the parts of a model and which of them share weights.

    The report names the size of the file, the recipe and the training. It lists the parts of the model with their
    shapes and numbers of parameters, the parts that share weights, and how many parameters this saves. A damaged file
    is refused.
    """
    from vtrans.analysis.inspection import Inspection
    from vtrans.checkpoint import load_model
    from vtrans.storage.run_folder import choose_model

    file, chosen = choose_model(model)
    inspection = Inspection(file, chosen, load_model(file))
    if as_json:
        print_json(inspection.as_dict())
    else:
        inspection.show(result_console(), terminal_width())
