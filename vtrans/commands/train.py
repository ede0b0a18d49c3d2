"""`vtrans train`: starts or resumes a run, or estimates one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vtrans.commands.options import Device, Quiet, Threads
from vtrans.config import DEFAULT_RECIPE, DEFAULT_RUN
from vtrans.console import Console
from vtrans.data.options import PrepareOptions
from vtrans.errors import InputError, VtransError

if TYPE_CHECKING:
    from vtrans.checkpoint import RunFolder

_run, _recipe, _speed = (partial(typer.Option, rich_help_panel=panel) for panel in ("Run", "Recipe", "Speed"))
Data = Annotated[Path, _run(help="The folder that prepare-bpe wrote.", metavar="FOLDER")]
Out = Annotated[Path, _run(help="The run folder to write. If it holds a run, that run is resumed.", metavar="FOLDER")]
RecipeName = Annotated[
    str | None,
    _recipe(
        help="The name of a recipe, or a TOML file.  "
        f"[default: the recipe of the run that is resumed, else {DEFAULT_RECIPE}]",
        metavar="NAME|FILE",
    ),
]
Overrides = Annotated[
    list[str] | None,
    _recipe(
        "--set",
        help="Replace a value of the recipe, such as train.max_steps=500. Can be repeated.",
        metavar="section.key=value",
    ),
]
InitFrom = Annotated[
    Path | None,
    _run(help="Start a new run with the weights of this model. Its vocabulary may differ.", metavar="RUN|FILE"),
]
Fresh = Annotated[bool, _run("--fresh", help="Delete the run in the run folder and start over.")]
Compile = Annotated[
    bool,
    _speed(
        "--compile",
        help="Compile the layers for a GPU; resuming is then not bit-exact. On a CPU, steps take twice as long.",
    ),
]
Report = Annotated[
    bool,
    _run("--report", help="After each validation, write report.html to the run folder, as `vtrans report` does."),
]
DryRun = Annotated[bool, _run("--dry-run", help="Estimate the time and memory that training takes, and write nothing.")]


def train(
    data: Data = Path(PrepareOptions.out),
    out: Out = Path(DEFAULT_RUN),
    recipe: RecipeName = None,
    set_: Overrides = None,
    init_from: InitFrom = None,
    fresh: Fresh = False,
    compile_: Compile = False,
    report: Report = False,
    dry_run: DryRun = False,
    device: Device = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Train a model, or resume the run in the run folder.

    A resumed run continues exactly where it stopped.
    """
    if dry_run and quiet:
        raise InputError("--dry-run prints an estimate; leave out --quiet.")
    from vtrans.checkpoint import RunFolder
    from vtrans.data.store import DataFolder
    from vtrans.training.setup import TrainOptions
    from vtrans.training.trainer import train as run_training

    console = Console(quiet=quiet)
    options = TrainOptions(
        recipe=recipe,
        overrides=set_ or [],
        fresh=fresh,
        device=device,
        threads=threads,
        init_from=init_from,
        compile=compile_,
        dry_run=dry_run,
        validated=partial(_write_report, RunFolder(out), data, console) if report else lambda: None,
    )
    run_training(DataFolder.open(data), RunFolder(out), console, options)


def _write_report(run: RunFolder, data: Path, console: Console) -> None:
    """Writes the report of a run that is still training. A failure ends neither the training nor later reports."""
    from vtrans.analysis.report import ReportOptions, write_report

    try:
        write_report([run.path], run.report, ReportOptions(data=data))
    except (VtransError, OSError) as error:
        console.warn(f"the report was not written: {error}")
