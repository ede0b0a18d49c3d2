"""`vtrans train`: starts or resumes a run, or estimates one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from vtrans.commands.applications import interop
from vtrans.commands.generated import option
from vtrans.commands.shared_options import Device, Quiet, TrainProcesses, TrainThreads
from vtrans.config import DEFAULT_RECIPE, DEFAULT_RUN
from vtrans.data.options import PrepareOptions
from vtrans.system.console import Console
from vtrans.system.errors import InputError

OUT = "Run folder to write. If it holds a run, that run is resumed."
RECIPE = f"Name of a recipe, or a TOML file.  [default: the recipe of the run that is resumed, else {DEFAULT_RECIPE}]"
SET = "Replace a value of the recipe, such as train.max_steps=500. May be repeated."
FOR = "Refuse a recipe whose model `vtrans export --to FORMAT` could not write."
INIT_FROM = "Start a new run with the weights of this model. Its vocabulary may differ."
COMPILE = "Compile the layers for a GPU; resuming is then not bit-exact. On a CPU, steps take twice as long."
DRY_RUN = "Estimate the time and memory that training takes, and write nothing."


def train(
    data: Annotated[Path, option("Folder that prepare-bpe wrote.", "FOLDER", "Run")] = Path(PrepareOptions.out),
    out: Annotated[Path, option(OUT, "FOLDER", "Run")] = Path(DEFAULT_RUN),
    recipe: Annotated[str | None, option(RECIPE, "NAME|FILE", "Recipe")] = None,
    overrides: Annotated[list[str] | None, option(SET, "section.key=value", "Recipe", flag="--set")] = None,
    export_to: Annotated[str | None, option(FOR, "FORMAT", "Recipe", flag="--for")] = None,
    init_from: Annotated[Path | None, option(INIT_FROM, "RUN|FILE", "Run")] = None,
    fresh: Annotated[
        bool, option("Delete the run in the run folder and start over.", panel="Run", flag="--fresh")
    ] = False,
    compile_: Annotated[bool, option(COMPILE, panel="Speed", flag="--compile")] = False,
    dry_run: Annotated[bool, option(DRY_RUN, panel="Run", flag="--dry-run")] = False,
    device: Device = None,
    processes: TrainProcesses = None,
    threads: TrainThreads = None,
    quiet: Quiet = False,
) -> None:
    """Train a model, or resume the run in the run folder.

    A resumed run continues exactly where it stopped.
    """
    if dry_run and quiet:
        raise InputError("--dry-run prints an estimate; leave out --quiet.")
    from vtrans.training.trainer import train as run_training

    programs = interop("capabilities").PROGRAMS if export_to else {}
    if export_to is not None and export_to not in programs:
        raise InputError(f"--for must be one of {', '.join(programs)}, got {export_to!r}.")
    run_training(
        data,
        recipe,
        out=out,
        console=Console(quiet=quiet),
        overrides=overrides or [],
        fresh=fresh,
        device=device,
        processes=processes,
        threads=threads,
        init_from=init_from,
        compile=compile_,
        dry_run=dry_run,
        check=partial(interop("capabilities").check_model, program=programs[export_to])
        if export_to
        else lambda model: None,
    )
