"""`vtrans memory`: the corrections that a server has received."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import vtrans
from vtrans.commands.generated import argument
from vtrans.commands.lines import many, writer
from vtrans.commands.shared_options import Output, Quiet, check_output
from vtrans.system.console import Console
from vtrans.system.errors import FileError
from vtrans.text.lines import write_line


def memory(
    file: Annotated[Path, argument("File that `vtrans serve --memory` writes.", "FILE")],
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Write a memory as TMX.

    `vtrans prepare-bpe --pairs` takes it as training text, and the programs of translators as a translation memory. The
    server may keep running.
    """
    from vtrans.apps.documents.memory import Memory

    check_output(output, [("FILE", file)])
    if not file.is_file():
        raise FileError(f"there is no memory {file}.")
    with closing(Memory(file, must_exist=True)) as corrections:
        with writer(output) as stream:
            for line in corrections.tmx(vtrans.__version__):
                write_line(stream, line)
        Console(quiet=quiet).info(many(len(corrections), "correction", f"in {file}"))
