"""`vtrans train`: a new run, a resumed one or a rehearsal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vtrans.commands.options import Device, Quiet
from vtrans.config import DEFAULT_RECIPE, DEFAULT_RUN
from vtrans.console import Console
from vtrans.data.options import PrepareOptions
from vtrans.errors import InputError
from vtrans.runtime.memory import manage_memory


def train(
    data: Annotated[Path, typer.Option(help="Data folder of prepare-bpe.", metavar="FOLDER")] = Path(
        PrepareOptions.out
    ),
    out: Annotated[Path, typer.Option(help="Run folder; one that holds a run is resumed.", metavar="FOLDER")] = Path(
        DEFAULT_RUN
    ),
    recipe: Annotated[
        str | None,
        typer.Option(
            help=f"A recipe's name or a TOML file.  [default: {DEFAULT_RECIPE}; when resuming, the run's own]",
            metavar="NAME|FILE",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a value of the recipe; repeat.", metavar="section.key=value"),
    ] = None,
    init_from: Annotated[
        Path | None,
        typer.Option(
            help="Begin a new run with the weights of this model, of the same vocabulary or another.",
            metavar="RUN|FILE",
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw the run in the folder away and start over.")] = False,
    compile_: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Compile the layers; resuming is not exact then. For a GPU: on a CPU steps took twice as long.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say what training will take, from a few updates; write nothing."),
    ] = False,
    device: Device = None,
    quiet: Quiet = False,
) -> None:
    """Train a model, or resume the run in the folder.

    A resumed run goes on exactly where it stopped.
    """
    if dry_run and quiet:
        raise InputError("--dry-run is there to say what training will take; leave out --quiet.")
    manage_memory()
    from vtrans.checkpoint import RunFolder
    from vtrans.data.store import DataFolder
    from vtrans.training.setup import TrainOptions
    from vtrans.training.trainer import train as run_training

    options = TrainOptions(
        recipe=recipe,
        overrides=set_ or [],
        fresh=fresh,
        device=device,
        init_from=init_from,
        compile=compile_,
        dry_run=dry_run,
    )
    run_training(DataFolder.open(data), RunFolder(out), Console(quiet=quiet), options)
