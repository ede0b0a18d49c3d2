"""`vtrans report`: an HTML page about one or several runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from vtrans.commands.options import Quiet, check_output
from vtrans.config import DEFAULT_RUN
from vtrans.console import Console
from vtrans.errors import InputError

_content = partial(typer.Option, rich_help_panel="Content")
Runs = Annotated[list[Path] | None, typer.Argument(help=f"Run folders.  [default: {DEFAULT_RUN}]", metavar="RUN")]
Data = Annotated[
    Path | None,
    _content(help="Data folder of the runs; adds the overlap of its vocabulary to the page.", metavar="FOLDER"),
]
Sentences = Annotated[
    int, _content(help="Number of validation sentences to follow through the training.", min=0, max=100, metavar="N")
]
Out = Annotated[
    Path, typer.Option(help="HTML file to write.", metavar="FILE", rich_help_panel="Output", show_default=True)
]


def report(
    runs: Runs = None,
    out: Out = Path("report.html"),
    sentences: Sentences = 3,
    data: Data = None,
    quiet: Quiet = False,
) -> None:
    """Write an HTML page with the curves, translations and recipes of runs.

    The page is one file that loads nothing from elsewhere. With several runs, their curves share the charts, and the
    differences of their scores are tested for significance.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out must be an HTML file, such as report.html, got {out}.")
    check_output(out, [], "--out")
    from vtrans.analysis.report import ReportOptions, write_report

    console = Console(quiet=quiet)
    write_report(runs or [Path(DEFAULT_RUN)], out, ReportOptions(sentences=sentences, data=data), console)
    console.info(f"{out}: open it in a browser")
