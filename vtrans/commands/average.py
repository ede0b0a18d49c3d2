"""`vtrans average`: averages checkpoints of a run, or the files that are named."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vtrans.commands.generated import Models, generated, option
from vtrans.commands.shared_options import Quiet
from vtrans.config import DEFAULT_RUN, TrainConfig
from vtrans.system.console import Console
from vtrans.system.errors import InputError

LAST = (
    "Average the N newest checkpoints of the run.  [default: its train.keep_last, but only those of the last "
    "twentieth of the training if its learning rate fell until the end]"
)
FLOAT16 = "Store the weights as float16, which halves the file. They are converted to float32 when the model is loaded."
OUT = "File to write.  [default: RUN/averaged.safetensors]"


@generated
def average(
    what: Annotated[list[Path], Models("A run folder, or model files.", several=True)],
    last: Annotated[int | None, option(LAST, "N", "Checkpoints", min=1)] = None,
    out: Annotated[Path | None, option(OUT, "FILE", "Output")] = None,
    float16: Annotated[bool, option(FLOAT16, panel="Output", flag="--float16")] = False,
    quiet: Quiet = False,
) -> None:
    """Average the weights of several checkpoints.

    By default these are the newest checkpoints of a run.
    """
    from vtrans.storage.run_folder import RunFolder
    from vtrans.training.average import average as run_average
    from vtrans.training.average import newest_checkpoints, usual_checkpoints
    from vtrans.training.recipe import recipe_of_run

    console = Console(quiet=quiet)
    paths = what or [Path(DEFAULT_RUN)]
    if len(paths) == 1 and not paths[0].is_file():
        run = RunFolder(paths[0])
        recipe = recipe_of_run(run)
        config = recipe.train if recipe else None
        if last:
            # The others are kept because they are among the best, and may be much older.
            files = newest_checkpoints(run, min(last, config.keep_last) if config else last)
        elif config or not run.holds_run():
            files = usual_checkpoints(run, config or TrainConfig())
        else:
            raise InputError(
                f"{run.path} has neither {run.recipe.name} nor a training state, so it is unknown which checkpoints "
                "represent the run; give --last N, or model files."
            )
        target, run_step = out or run.averaged, max(run.steps())
        if last and len(files) < last:
            advice = "; a larger train.keep_last keeps more" if config and last > config.keep_last else ""
            console.warn(f"{run.path} has {len(files)} of these {last} checkpoints{advice}")
    else:
        if last is not None:
            raise InputError("--last needs a run folder; leave it out to average named files.")
        if out is None:
            raise InputError("--out FILE is required to average named files.")
        for path in paths:
            if path.is_dir():
                raise InputError(f"{path} is a folder; give one run folder, or model files.")
        files, target, run_step = paths, out, None
    with console.progress("averaging", unit="weights") as counter:
        steps = run_average(files, target, run_step, counter.update, float16=float16)
    several = f"average of {len(files)} checkpoints, steps {', '.join(f'{step:,}' for step in steps)}"
    console.info(f"{target}: the {several if len(files) > 1 else f'checkpoint of step {steps[0]:,}'}")
