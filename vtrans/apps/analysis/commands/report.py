"""`vtrans report`: an HTML page about one or several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vtrans.commands.generated import argument, option
from vtrans.commands.shared_options import Quiet, check_output
from vtrans.config import DEFAULT_RUN
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.system.files import write_atomically


def report(
    runs: Annotated[list[Path] | None, argument(f"Run folders.  [default: {DEFAULT_RUN}]", "RUN")] = None,
    out: Annotated[Path, option("HTML file to write.", "FILE", "Output")] = Path("report.html"),
    quiet: Quiet = False,
) -> None:
    """Write an HTML page with the curves, translations and recipes of runs.

    The page is one file that loads nothing from elsewhere. With several runs, their curves share the charts, and the
    differences of their scores are tested for significance.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out must be an HTML file, such as report.html, got {out}.")
    check_output(out, [])
    from vtrans.apps.analysis.report import report as page_of
    from vtrans.apps.analysis.run_history import histories

    console = Console(quiet=quiet)
    write_atomically(out, page_of(histories(runs or [Path(DEFAULT_RUN)]), console).encode())
    console.info(f"{out}: open it in a browser")
