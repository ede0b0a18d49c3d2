"""`vtrans collect`: the chunks of a translation as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vtrans.commands.chunks import RECORD
from vtrans.commands.chunks import collect as collect_chunks
from vtrans.commands.generated import argument
from vtrans.commands.lines import many, writer
from vtrans.commands.shared_options import Output, Quiet, check_output
from vtrans.system.console import Console


def collect(
    folder: Annotated[Path, argument("Folder that `vtrans translate --chunk-lines` wrote.", "FOLDER")],
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Join the chunks of a translation.

    Before it writes the first chunk, it checks that none is missing and that each has the right number of lines.
    """
    check_output(output, [("FOLDER", file) for file in (folder / RECORD, *folder.glob("chunk-*"))])
    with writer(output) as stream:
        lines = collect_chunks(folder, stream)
    Console(quiet=quiet).info(many(lines, "line", f"collected from {folder}"))
