"""`vtrans collect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vtrans.commands.lines import many, writer
from vtrans.commands.options import Output, Quiet
from vtrans.console import Console
from vtrans.translate.chunks import collect as collect_chunks


def collect(
    folder: Annotated[
        Path, typer.Argument(help="The folder that `vtrans translate --chunk-lines` wrote.", metavar="FOLDER")
    ],
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Join the chunks of a translation.

    Before it writes the first chunk, it checks that none is missing and that each has the right number of lines.
    """
    with writer(output) as stream:
        lines = collect_chunks(folder, stream)
    Console(quiet=quiet).info(many(lines, "line", f"collected from {folder}"))
