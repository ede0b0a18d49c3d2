"""`vtrans average`: which checkpoints of a run, or which files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vtrans.commands.options import Quiet
from vtrans.config import DEFAULT_AVERAGE, DEFAULT_RUN
from vtrans.console import Console
from vtrans.errors import InputError


def average(
    what: Annotated[
        list[Path] | None,
        typer.Argument(help=f"A run folder, or model files.  [default: {DEFAULT_RUN}]", metavar="RUN|FILE"),
    ] = None,
    last: Annotated[
        int | None, typer.Option(help=f"The newest N checkpoints.  [default: {DEFAULT_AVERAGE}]", min=1, metavar="N")
    ] = None,
    best: Annotated[int | None, typer.Option(help="The best N instead.", min=1, metavar="N")] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write.  [default: RUN/averaged.safetensors]", metavar="FILE")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Average the weights of several checkpoints.

    Takes the newest or the best of a run, or files that you name.
    """
    from vtrans.average import average as run_average
    from vtrans.average import best_checkpoints, newest_checkpoints
    from vtrans.checkpoint import RunFolder
    from vtrans.training.recipe import load_recipe

    console = Console(quiet=quiet)
    if last is not None and best is not None:
        raise InputError("--last and --best exclude each other; give one of them.")
    paths = what or [Path(DEFAULT_RUN)]
    if len(paths) == 1 and not paths[0].is_file():
        run = RunFolder(paths[0])
        count = best or last or DEFAULT_AVERAGE
        if best:
            files = best_checkpoints(run, count)
        else:
            # Checkpoints beyond keep_last are kept because they are among the best; they do not adjoin the newest.
            kept = load_recipe(str(run.recipe)).train.keep_last if run.recipe.exists() else count
            files = newest_checkpoints(run, min(count, kept))
        target, run_step = out or run.averaged, max(run.steps())
        if len(files) < count and (best or last):
            key = "train.keep_best" if best else "train.keep_last"
            console.warn(f"{run.path} holds {len(files)} such checkpoints, not {count}; a larger {key} keeps more")
    else:
        if last is not None or best is not None:
            raise InputError("--last and --best choose in a run folder; named files are averaged as they are.")
        if out is None:
            raise InputError("averaging named files needs --out FILE for the result.")
        for path in paths:
            if path.is_dir():
                raise InputError(f"{path} is a folder; average takes one run folder, or model files.")
        files, target, run_step = paths, out, None
    steps = run_average(files, target, run_step)
    console.info(f"{target}: the average of {len(files)} checkpoints, steps {', '.join(map(str, steps))}")
