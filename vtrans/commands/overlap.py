"""`vtrans overlap`: the subwords that the two sides of a data folder have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vtrans.command_line.generated import argument
from vtrans.command_line.lines import print_json, result_console, terminal_width
from vtrans.command_line.options import Json
from vtrans.data.options import PrepareOptions


def overlap(
    data: Annotated[Path, argument("Folder that prepare-bpe wrote.", "FOLDER")] = Path(PrepareOptions.out),
    as_json: Json = False,
) -> None:
    """Show the subwords that two languages have in common, as prepare-bpe has counted them.

    It also says whether a joint vocabulary with one matrix suits the texts.
    """
    from vtrans.data.preparation.overlap import show_overlap
    from vtrans.data.store import DataFolder

    report = DataFolder.open(data).report["overlap"]
    if as_json:
        print_json(report)
    else:
        show_overlap(report, result_console(), terminal_width())
