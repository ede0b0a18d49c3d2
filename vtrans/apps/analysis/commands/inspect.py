"""`vtrans inspect`: the parts of a model, or the embeddings nearest to a word."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from vtrans.commands.generated import Models, generated, option
from vtrans.commands.lines import print_json, result_console
from vtrans.commands.shared_options import Code, Json
from vtrans.system.errors import InputError

REPORT, NEAR = "The report", "Nearest embeddings, instead of the report"
NEAREST = 10
COUNT = f"Number of nearest embeddings.  [default: {NEAREST}]"


@generated
def inspect(
    model: Annotated[Path, Models()],
    full: Annotated[bool, option("List every layer separately.", panel=REPORT, flag="--full")] = False,
    word: Annotated[str | None, option("Show the embeddings nearest to each subword of a word.", "WORD", NEAR)] = None,
    nearest: Annotated[int | None, option(COUNT, "N", NEAR, min=1)] = None,
    code: Code = None,
    as_json: Json = False,
) -> None:
    """Show the parts of a model and which of them share weights.

    The report names the size of the file, the recipe and the training. It lists the parts of the model with their
    shapes and numbers of parameters, the parts that share weights, and how many parameters this saves.
    """
    if nearest and word is None:
        raise InputError("--nearest needs --word.")
    if full and word is not None:
        raise InputError("--full applies to the report, which --word replaces; leave one of them out.")
    from vtrans.apps.analysis.inspection import Inspection, neighbours, show_neighbours

    inspection = Inspection.of(model, code)
    near = neighbours(inspection.loaded, word, nearest or NEAREST) if word is not None else []
    if as_json:
        rows = {"nearest": [dataclasses.asdict(each) for each in near]} if word is not None else {}
        print_json(inspection.as_dict() | rows)
    elif word is None:
        inspection.show(result_console(), full=full)
    else:
        show_neighbours(near, result_console())
