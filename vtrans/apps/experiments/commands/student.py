"""`vtrans student`: trains large models, and a small one on their translations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vtrans.apps.experiments.commands.study import TextOptions
from vtrans.commands.generated import argument, generated, option
from vtrans.commands.lines import print_line
from vtrans.system.console import Console

FILE = "TOML file of the chain: the text, the models and the format of the result. The documentation describes it."
OUT = "Folder to write. If it holds this chain, that is resumed.  [default: work/student-CHAIN]"


@generated
def student(
    file: Annotated[Path, argument(FILE, "FILE")],
    text: TextOptions,
    out: Annotated[Path | None, option(OUT, "FOLDER", "Output")] = None,
) -> None:
    """Train large models, and a small one on their translations.

    Each stage of the chain is one or more commands, which are printed and run. Prints the scores, sizes and minutes.
    The same command again resumes.
    """
    from vtrans.apps.experiments.student import run_chain

    print_line(run_chain(file, text, out, Console()).rstrip("\n"))
